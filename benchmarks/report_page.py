"""Measures the page of `regen report` in a browser: how fast it opens, how large it is, whether its numbers are the JSON's, how many frames a second
it draws of a step with 10,000 ops.

    python benchmarks/report_page.py                 prints a JSON line for each report
    python benchmarks/report_page.py --append        and adds the rows to results/report_page.csv

Needs Chromium and axe-core-python (`tools/setup.sh` installs both) and the program: REGEN_BIN, else build/regen. `open_seconds` is the median time
from asking for the page until it is drawn, of five new pages; `compared` are the numbers of the page that have a name in the JSON, `different` those
that are not equal to it; `serious` the findings of axe that are serious or critical, light and dark.
"""

import argparse
import importlib.util
import json
import pathlib
import statistics
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "tools")]

import results_data as data
from results_measure import provenance

from devtools import Browser
from regen_program import Regen
from shown_report import Shown

WHOLE_STEP = ["--backward", "exact", "--optimizer", "adam", "--device", "v100-16"]
REPORTS = {
    "ResNet-50": (["zoo:resnet50@64", *WHOLE_STEP], ["--budget", "50%", "--work-limit", "1000000"]),
    "GPT-2": (["zoo:gpt2@4", *WHOLE_STEP], ["--budget", "75%", "--work-limit", "1000000"]),
    "U-Net": (["zoo:vgg_unet@8", *WHOLE_STEP], ["--budget", "60%", "--work-limit", "1000000"]),
    "Llama": (["zoo:llama@1", *WHOLE_STEP], ["--budget", "85%", "--work-limit", "1000000"]),
    "chain of 10,000 ops": (["zoo:chain:5000"], ["--planner", "chen_sqrt"]),
}
OPENED = 5
FRAME_SECONDS = 5
READY = "document.documentElement.dataset.ready === 'yes'"

# Scrolls and zooms the chart of addresses at every frame.
SCROLL = f"""new Promise((resolve) => {{
  const canvas = document.querySelectorAll('canvas')[1];
  let frames = 0;
  const begin = performance.now();
  const tick = () => {{
    frames += 1;
    const wheel = (more) => canvas.dispatchEvent(new WheelEvent('wheel', {{clientX: 600, bubbles: true, cancelable: true, ...more}}));
    wheel({{deltaX: 0, deltaY: frames % 2 ? -40 : 30}});
    wheel({{deltaX: 12, deltaY: 0}});
    if (performance.now() - begin < {FRAME_SECONDS * 1000}) requestAnimationFrame(tick);
    else resolve(frames / (performance.now() - begin) * 1000);
  }};
  requestAnimationFrame(tick);
}})"""


def axe():
    """The accessibility checker."""
    spec = importlib.util.find_spec("axe_core_python")
    return (pathlib.Path(spec.origin).parent / "axe.min.js").read_text()


def opened(browser, shown, dark=False):
    """(the page, seconds until it is drawn)."""
    began = time.perf_counter()
    page = browser.open(shown.url, dark=dark)
    page.wait_for(READY)
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")
    return page, time.perf_counter() - began


def compare_numbers(page, shown):
    """(numbers compared, those that differ): the summary, the graph, the columns of the modules in view and what lives at the peak."""
    expected = []
    for place, values in (("summary", shown.plan["summary"]), ("graph", shown.document["graph"])):
        for key, value in values.items():
            if isinstance(value, (int, float)) and not isinstance(value, bool):
                expected.append((f"{place}.{key}", value))
    found = {key: [float(v) for v in values] for key, values in page.evaluate(
        "(() => { const all = {}; for (const e of document.querySelectorAll('data[data-key]'))"
        " (all[e.dataset.key] ??= []).push(e.getAttribute('value')); return all; })()").items()}
    pairs = [(value, shown_value) for key, value in expected for shown_value in found.get(key, [])]
    rows = page.evaluate(
        "[...document.querySelectorAll('.modules tbody tr')].map((r) => [Number(r.dataset.module),"
        " [...r.querySelectorAll('[data-key]')].map((e) => [e.dataset.key, Number(e.getAttribute('value'))])])")
    pairs += [(shown.plan["modules"][key][module], value) for module, cells in rows for key, value in cells]
    page.evaluate("document.querySelector('.live > button')?.click()")
    live = page.evaluate("[...document.querySelectorAll('[data-key=live]')].map((e) => Number(e.getAttribute('value')))")
    workspace = shown.plan["peak"]["workspace_bytes"]
    at_peak = sorted([row["bytes"] for row in shown.plan["peak"]["live"]] + ([workspace] if workspace else []))
    pairs += list(zip(at_peak, sorted(live), strict=True))
    return len(pairs), sum(mine != its for mine, its in pairs)


def serious_findings(browser, shown):
    count = 0
    for dark in (False, True):
        page, _ = opened(browser, shown, dark)
        page.evaluate("document.querySelectorAll('details.instead summary').forEach((s) => s.click())")
        page.evaluate(axe() + "; 0")
        count += page.evaluate("axe.run().then((r) => r.violations.filter((v) => ['serious', 'critical'].includes(v.impact)).length)")
        page.close()
    return count


def measure(browser, program, name):
    graph, limits = REPORTS[name]
    file = f"{name.split()[0]}.json"
    program.ok("plan", *graph, *limits, "-o", file)
    budget = limits[:2] if limits[0] == "--budget" else []
    shown = Shown(program, name.split()[0], *graph, file, *budget)
    seconds = []
    for _ in range(OPENED):
        page, taken = opened(browser, shown)
        seconds.append(taken)
        page.close()
    page, _ = opened(browser, shown)
    compared, different = compare_numbers(page, shown)
    frames = page.evaluate(SCROLL)
    problems = len(page.problems())
    page.close()
    return {
        "report": name, "ops": len(shown.document["graph"]["ops"]["name"]), "boxes": len(shown.plan["boxes"]["from"]),
        "megabytes": round(shown.path.stat().st_size / 1e6, 3), "open_seconds": round(statistics.median(seconds), 3), "compared": compared,
        "different": different, "console": problems, "serious": serious_findings(browser, shown), "frames_per_second": round(frames, 1)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--append", action="store_true", help="add the rows to results/report_page.csv")
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder, Browser() as browser:
        program = Regen(pathlib.Path(folder))
        for name in REPORTS:
            rows.append(measure(browser, program, name))
            print(json.dumps(rows[-1]), flush=True)
    if arguments.append:
        origin = provenance("benchmarks/report_page.py")
        data.append("report_page", [row | origin | {"machine": f"{origin['machine']}, headless Chromium without a GPU"} for row in rows])


if __name__ == "__main__":
    main()
