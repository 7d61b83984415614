"""Draws docs/figures/report.png, the report of GPT-2 within 75 % of its memory as a browser shows it, and docs/figures/gallery/*.png, the memory
charts of the reports of docs/gallery.md.

    tools/report_figure.py         needs Chromium; the program is REGEN_BIN, else build/regen
"""

import base64
import io
import os
import pathlib
import subprocess
import sys
import tempfile

from PIL import Image

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

from build_docs import write_reports

from devtools import Browser, Page

GRAPH = ["zoo:gpt2@4", "--backward", "exact", "--optimizer", "adam", "--device", "v100-16"]
LIMITS = ["--budget", "75%"]
FIGURES = ROOT / "docs" / "figures"
# Colours of a picture: enough for flat areas and the edges of letters.
COLOURS = 64


def make_report(folder: pathlib.Path) -> pathlib.Path:
    """The page of the report."""
    regen = os.environ.get("REGEN_BIN", str(ROOT / "build" / "regen"))
    subprocess.run([regen, "plan", *GRAPH, *LIMITS, "--work-limit", "1000000", "-o", folder / "plan.json"], check=True, stdout=subprocess.DEVNULL)
    subprocess.run([regen, "report", *GRAPH, folder / "plan.json", *LIMITS, "-o", folder / "report.html"], check=True)
    return folder / "report.html"


def opened(browser: Browser, path: pathlib.Path, width: int, height: int) -> Page:
    """The report, drawn."""
    page = browser.open(f"file://{path}", width=width, height=height)
    page.wait_for("document.documentElement.dataset.ready === 'yes'")
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page


def draw_report(browser: Browser, folder: pathlib.Path) -> None:
    """A whole report."""
    page = opened(browser, make_report(folder), 1100, 1240)
    page.evaluate("document.querySelector('h2').textContent = 'plan.json'")
    page.screenshot(FIGURES / "report.png")


def draw_memory(browser: Browser, report: pathlib.Path) -> None:
    """The first chart of a report, in few colours."""
    page = opened(browser, report, 800, 900)
    box = page.evaluate("(({x, y, width, height}) => ({x, y, width, height}))(document.querySelector('canvas').getBoundingClientRect())")
    picture = page.call("Page.captureScreenshot", format="png", clip={**box, "scale": 1}, captureBeyondViewport=True)["data"]
    few = Image.open(io.BytesIO(base64.b64decode(picture))).convert("RGB").quantize(COLOURS)
    few.save(FIGURES / "gallery" / f"{report.stem}.png", optimize=True)


def main() -> None:
    """Writes the figures."""
    with tempfile.TemporaryDirectory() as name, Browser() as browser:
        folder = pathlib.Path(name)
        draw_report(browser, folder)
        write_reports(folder / "gallery")
        (FIGURES / "gallery").mkdir(exist_ok=True)
        for report in sorted((folder / "gallery").glob("*.html")):
            draw_memory(browser, report)


if __name__ == "__main__":
    main()
