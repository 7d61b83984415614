"""``python -m regen_plot KIND FORMAT < data.json > picture``: called by the regen binary."""

import importlib
import json
import sys

# What regen turns into its own one-line message.
LIBRARY_MISSING = 3


def main() -> int:
    kind, picture_format = sys.argv[1:]
    module = importlib.import_module(f"regen_plot.{kind}")
    data = json.load(sys.stdin)
    try:
        picture = module.draw(data, picture_format)
    except ModuleNotFoundError as error:
        library = (error.name or "a library").split(".")[0]
        print(
            f"the Python library {library} is not installed for {sys.executable}; "
            f"install it with '{sys.executable} -m pip install {library}' "
            "or name another interpreter in REGEN_PYTHON",
            file=sys.stderr,
        )
        return LIBRARY_MISSING
    sys.stdout.buffer.write(picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
