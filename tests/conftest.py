"""Makes the package, the example models and the helpers of the tests importable without installing anything."""

import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
for folder in (ROOT, ROOT / "python", ROOT / "tests" / "support"):
    sys.path.insert(0, str(folder))
