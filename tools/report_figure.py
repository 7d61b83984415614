"""Draws docs/figures/report.png: the report of GPT-2 within 75 % of its memory, as a browser shows it.

    tools/report_figure.py         needs Chromium; the program is REGEN_BIN, else build/regen
"""

import os
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from devtools import Browser

GRAPH = ["zoo:gpt2@4", "--backward", "exact", "--optimizer", "adam", "--device", "v100-16"]
LIMITS = ["--budget", "75%"]


def make_report(folder: pathlib.Path) -> pathlib.Path:
    """The page of the report."""
    regen = os.environ.get("REGEN_BIN", str(ROOT / "build" / "regen"))
    subprocess.run([regen, "plan", *GRAPH, *LIMITS, "--work-limit", "1000000", "-o", folder / "plan.json"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([regen, "report", *GRAPH, folder / "plan.json", *LIMITS, "-o", folder / "report.html"], check=True)
    return folder / "report.html"


def main() -> None:
    """Writes the figure."""
    with tempfile.TemporaryDirectory() as name, Browser() as browser:
        page = browser.open(f"file://{make_report(pathlib.Path(name))}", width=1100, height=1240)
        page.wait_for("document.documentElement.dataset.ready === 'yes'")
        page.evaluate("document.querySelector('h2').textContent = 'plan.json'")
        page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
        page.screenshot(ROOT / "docs" / "figures" / "report.png")


if __name__ == "__main__":
    main()
