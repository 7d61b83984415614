"""docs/results.md, results/README.md, the table of README.md and docs/figures/*.svg from results/*.csv.

    tools/results.py                       writes them
    tools/results.py --check               exits with 1 when one of them is not what the CSVs give
    tools/results.py measure [SUBJECT ..]  measures the quick subjects, appends their rows, then writes
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))

import results_data as data
import results_figures as figures
import results_page as pages

FIGURES = data.ROOT / "docs" / "figures"
LONGEST_PAGE = 150


def texts():
    front = data.ROOT / "README.md"
    return {data.ROOT / "docs" / "results.md": pages.page(), data.FOLDER / "README.md": pages.index(), front: pages.readme(front.read_text())}


def check():
    found = data.problems()
    if not found:
        for path, text in texts().items():
            if not path.exists() or path.read_text() != text:
                found.append(f"{path.relative_to(data.ROOT)} is not what results/*.csv give: run tools/results.py")
        found += figures.stale(FIGURES)
        lines = pages.page().count("\n")
        if lines > LONGEST_PAGE:
            found.append(f"docs/results.md has {lines} lines, expected at most {LONGEST_PAGE}")
    for line in found:
        print(line, file=sys.stderr)
    return 1 if found else 0


def write():
    found = data.problems()
    if found:
        sys.exit("\n".join(found))
    for path, text in texts().items():
        path.write_text(text)
    figures.draw_all(FIGURES)
    print(f"wrote docs/results.md, results/README.md, the table of README.md and {len(figures.FIGURES)} figures")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("action", nargs="?", choices=["write", "measure"], default="write")
    parser.add_argument("subjects", nargs="*", help="of measure: which subjects (default: all that can be measured here)")
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args()
    if arguments.check:
        sys.exit(check())
    if arguments.action == "measure":
        import results_measure

        results_measure.measure(arguments.subjects)
    write()


if __name__ == "__main__":
    main()
