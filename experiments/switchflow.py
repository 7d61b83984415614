"""What the experiments after SwitchFlow's figures share: options, rows, cells of tables. The processes are benchmarks/share_crew.py's.

Published numbers are of Middleware 2021; those that were read off a plot are within 3 %.
"""

import argparse
import csv
import pathlib
import sys

import common

BENCHMARKS = common.ROOT / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import share_crew

# As the paper's plots abbreviate them.
NAMES = {
    "resnet50": "R50", "vgg16": "VGG16", "vgg19": "VGG19", "densenet121": "DN121", "densenet169": "DN169",
    "inception_resnet_v2": "IRv2", "inception_v3": "Iv3", "mobilenet_v2": "MNv2", "nasnet_mobile": "NASm", "nasnet_large": "NASl",
    "nmt": "NMT"}
TINY_BATCH = 2
TINY_SECONDS = 0.2


def parser(description, takes, seconds, models, ways=None):
    """Options of an experiment that `takes` so long on an H200 with its defaults."""
    result = argparse.ArgumentParser(description=f"{description}\nOn an H200 with 16 cores: {takes}.",
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    result.add_argument("--out", type=pathlib.Path, default=common.ROOT / "out", help="folder for CSV and plot (default out/)")
    result.add_argument("--seconds", type=positive, default=None, help=f"of each row (default {seconds}; tiny {TINY_SECONDS})")
    result.add_argument("--models", nargs="+", choices=list(NAMES), default=models, metavar="MODEL",
                        help=f"some of {', '.join(NAMES)} (default {' '.join(models)})")
    if ways:
        result.add_argument("--ways", nargs="+", choices=ways, default=list(ways), metavar="WAY",
                            help=f"some of {', '.join(ways)} (default all)")
    share_crew.add_options(result)
    result.set_defaults(usual_seconds=seconds)
    return result


def positive(text):
    try:
        if 0 < float(text) < float("inf"):
            return float(text)
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r}, expected seconds above 0")


def parse(options):
    found = options.parse_args()
    if not pathlib.Path(share_crew.REGEN).exists():
        sys.exit(f"no program at {share_crew.REGEN}; run make first, or name it in REGEN_BIN")
    share_crew.end_by_signal()
    found.seconds = found.seconds or (TINY_SECONDS if found.tiny else found.usual_seconds)
    return found


def batch(options, published):
    return TINY_BATCH if options.tiny else published


class Rows:
    """Rows of a table that are in the CSV as soon as they are found."""

    def __init__(self, folder, name, columns):
        folder.mkdir(parents=True, exist_ok=True)
        self.path, self.columns, self.rows = folder / name, columns, []
        self.path.write_text(",".join(columns) + "\n")

    def add(self, *rows, **row):
        """Some rows, or the columns of one."""
        rows = rows or (row,)
        self.rows.extend(rows)
        with open(self.path, "a", newline="") as file:
            writer = csv.DictWriter(file, self.columns, lineterminator="\n")
            writer.writerows({key: rounded(value) for key, value in row.items()} for row in rows)

    def find(self, **wanted):
        """The one row with these values, or nothing."""
        return next((row for row in self.rows if all(row.get(key) == value for key, value in wanted.items())), {})

    def done(self):
        print(f"Wrote {common.shown(self.path)}.")


def rounded(value):
    return f"{value:.5g}" if isinstance(value, float) else value


def number(value, digits=1):
    """As a cell of a table; empty when it is not known."""
    return "" if value is None else f"{value:.{digits}f}"


def percent(value):
    return "" if value is None else f"{100 * value:.0f} %"


def pair(values, digits=0):
    return " + ".join(f"{value:.{digits}f}" for value in values) if values else ""
