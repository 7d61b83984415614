"""The page of `regen report` in a real browser: its numbers, clicks, keys, themes, and that it stays fluid."""

import importlib.util
import json
import pathlib

import pytest

from shown_report import Shown

READY = "document.documentElement.dataset.ready === 'yes'"


def value_of(page, key):
    """The exact value behind a number that the page shows."""
    return page.evaluate(f"document.querySelector('[data-key=\"{key}\"]').getAttribute('value')")


def readout(page):
    return page.evaluate("document.querySelector('.readout').textContent")


def test_the_numbers_are_those_of_the_json(page, shown):
    summary = shown.plan["summary"]
    for key in ("predicted_bytes", "budget_bytes", "activation_peak_bytes", "cost", "overhead", "recomputed", "offloaded_bytes", "wait_cost", "steps"):
        assert float(value_of(page, f"summary.{key}")) == summary[key], key
    for key in ("fixed_bytes", "keep_all_bytes", "structural_bound_bytes", "base_cost"):
        assert float(value_of(page, f"graph.{key}")) == shown.document["graph"][key], key
    assert page.evaluate("document.querySelector('.verdict').textContent").startswith("Fits: ")


def test_the_table_of_the_peak_is_the_one_of_the_json(page, shown):
    assert page.evaluate("document.querySelector('.live .scrolling').dataset.step") == str(shown.plan["peak"]["step"])
    page.evaluate("document.querySelector('.live > button')?.click()")
    values = page.evaluate("[...document.querySelectorAll('[data-key=live]')].map((e) => Number(e.getAttribute('value')))")
    workspace = [shown.plan["peak"]["workspace_bytes"]] if shown.plan["peak"]["workspace_bytes"] else []
    assert sorted(values) == sorted([row["bytes"] for row in shown.plan["peak"]["live"]] + workspace)


def test_the_stack_is_as_high_as_the_judge_says(page, shown):
    """Opened as a table: each row's groups add up to the bytes of its step."""
    page.evaluate("document.querySelector('details.instead summary').click()")
    page.wait_for("document.querySelector('details.instead tbody tr')")
    rows = page.evaluate(
        "[...document.querySelector('details.instead tbody').rows]"
        ".map((r) => [Number(r.cells[0].textContent), Number(r.querySelector('data').getAttribute('value'))])")
    assert len(rows) == 40
    assert all(shown.plan["steps"]["device_bytes"][step] == value for step, value in rows)
    assert max(value for _, value in rows) == shown.plan["summary"]["peak_bytes"]


def boxes_of(shown, path):
    """Boxes of a module and those inside it, from the JSON alone."""
    modules, ops = shown.document["graph"]["modules"], shown.document["graph"]["ops"]
    wanted = {i for i, p in enumerate(modules["path"]) if p == path or p.startswith(path + "/")}
    return [box for box, op in enumerate(shown.plan["boxes"]["op"]) if ops["module"][op] in wanted]


def module_row(shown, path):
    return f"tr[data-module='{shown.document['graph']['modules']['path'].index(path)}']"


def test_a_click_on_a_module_highlights_its_boxes(page, shown):
    before = page.evaluate("document.querySelectorAll('canvas')[1].toDataURL()")
    page.click(module_row(shown, "h3"))
    page.wait_for("document.querySelector('[data-key=highlighted]')")
    assert int(value_of(page, "highlighted")) == len(boxes_of(shown, "h3")) > 10
    assert page.evaluate(f"document.querySelector(\"{module_row(shown, 'h3')}\").getAttribute('aria-selected')") == "true"
    page.wait_for(f"document.querySelectorAll('canvas')[1].toDataURL() !== {json.dumps(before)}")
    page.click(module_row(shown, "h3"))
    page.wait_for("!document.querySelector('[data-key=highlighted]')")


def test_module_numbers_are_those_of_the_json(page, shown):
    totals = shown.plan["modules"]
    module = shown.document["graph"]["modules"]["path"].index("h4")
    for key in ("parameter_bytes", "kept_bytes", "peak_bytes", "recomputed_bytes", "moved_bytes", "added_cost", "cost"):
        shown_value = page.evaluate(f"document.querySelector(\"tr[data-module='{module}'] [data-key={key}]\").getAttribute('value')")
        assert float(shown_value) == totals[key][module], key


def test_modules_stand_in_the_order_of_the_network(page, shown):
    """Also after the table has been written anew."""
    modules = shown.document["graph"]["modules"]
    top = [path for path, parent in zip(modules["path"], modules["parent"]) if parent == 0]
    for _ in range(3):
        names = page.evaluate("[...document.querySelectorAll('.modules tbody tr[aria-level=\"2\"] bdi')].map((e) => e.textContent)")
        assert names == top
        page.click(module_row(shown, "h2"))


def test_modules_are_sorted_and_searched(page, shown):
    page.click("th[data-column=parameter_bytes] button")
    assert page.evaluate("document.querySelector('th[data-column=parameter_bytes]').getAttribute('aria-sort')") == "descending"
    cells = "document.querySelectorAll('.modules tbody tr[aria-level=\"2\"] [data-key=parameter_bytes]')"
    values = page.evaluate(f"[...{cells}].map((e) => Number(e.getAttribute('value')))")
    assert values == sorted(values, reverse=True) and len(values) > 10
    page.evaluate("document.querySelector('input[type=search]').focus()")
    page.call("Input.insertText", text="mlp_GELU")
    names = page.evaluate("[...document.querySelectorAll('.modules tbody tr')].map((r) => r.cells[0].textContent)")
    assert sorted(names) == sorted(p for p in shown.document["graph"]["modules"]["path"] if "mlp_gelu" in p)
    page.call("Input.insertText", text="nothing has this name")
    page.wait_for("document.querySelector('.modules tbody').rows.length === 0")


def test_a_click_on_the_addresses_says_what_lies_there(page, shown):
    """At the peak, in the middle of the largest box."""
    boxes, peak = shown.plan["boxes"], shown.plan["summary"]["peak_step"]
    live = [i for i in range(len(boxes["from"])) if boxes["from"][i] <= peak < boxes["to"][i]]
    box = max(live, key=lambda i: boxes["bytes"][i])
    page.evaluate("document.querySelectorAll('canvas')[1].scrollIntoView({block: 'center'})")
    left, top, width, height = page.evaluate(
        "(() => { const b = document.querySelectorAll('canvas')[1].getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()")
    steps = shown.plan["steps"]
    time = (steps["start"][peak] + steps["end"][peak]) / 2 * steps["tick"] / shown.plan["summary"]["cost"]
    middle = boxes["address"][box] + boxes["bytes"][box] / 2
    page.click_at(left + 68 + time * (width - 68), top + (height - 20) * (1 - middle / shown.plan["layout"]["bytes"]))
    page.wait_for("document.querySelector('.readout').textContent.includes('Box:')")
    assert shown.document["graph"]["tensors"]["name"][boxes["tensor"][box]] in readout(page)


def test_the_keyboard_reaches_everything(page, shown):
    """Tab to the chart and the tree; keys move the step, the zoom and the rows."""
    for _ in range(30):
        page.press("Tab")
        if page.evaluate("document.activeElement.tagName") == "CANVAS":
            break
    assert page.evaluate("document.activeElement.tagName") == "CANVAS"
    peak = shown.plan["summary"]["peak_step"]
    page.press("ArrowRight")
    assert readout(page).startswith(f"Step {peak + 1}: ")
    page.press("Home")
    assert readout(page).startswith("Step 0: ")
    page.press("End")
    assert readout(page).startswith(f"Step {shown.plan['summary']['steps'] - 1}: ")
    page.press("p")
    assert f"Step {peak}: " in readout(page) and "(the peak)" in readout(page)
    page.evaluate(f"document.querySelector(\"{module_row(shown, '')}\").focus()")
    page.press("ArrowDown")
    assert page.evaluate("document.activeElement.getAttribute('aria-level')") == "2"
    while page.evaluate("document.activeElement.getAttribute('aria-expanded')") != "false":
        page.press("ArrowDown")
    count = page.evaluate("document.querySelector('.modules tbody').rows.length")
    page.press("ArrowRight")
    assert page.evaluate("document.activeElement.getAttribute('aria-expanded')") == "true"
    assert page.evaluate("document.querySelector('.modules tbody').rows.length") > count
    page.press("Enter")
    page.wait_for("document.querySelector('[data-key=highlighted]')")
    assert page.evaluate("document.activeElement.getAttribute('aria-selected')") == "true"


def test_light_and_dark(browser, shown):
    grounds = {}
    for dark in (False, True):
        opened = browser.open(shown.url, dark=dark)
        opened.wait_for(READY)
        ground = "getComputedStyle(document.body).backgroundColor"
        grounds[dark] = opened.evaluate(ground)
        opened.click("#theme")
        assert opened.evaluate(ground) != grounds[dark]
        assert opened.evaluate("document.getElementById('theme').getAttribute('aria-pressed')") == str(not dark).lower()
        assert opened.problems() == []
        opened.close()
    assert grounds[False] != grounds[True]


def test_a_phone_scrolls_down_only(browser, shown):
    opened = browser.open(shown.url, width=390, height=800, touch=True)
    opened.wait_for(READY)
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390
    assert opened.problems() == []
    opened.close()


def test_a_notebook_shows_the_page_in_a_frame(browser, shown, folder):
    """What `_repr_html_` returns, in a page as a notebook's: the frame has no rights but to run its own script."""
    runtime = pytest.importorskip("regen._runtime", reason="the runtime is not built")
    notebook = folder / "notebook.html"
    notebook.write_text(f"<!DOCTYPE html><title>notebook</title>{runtime.report_frame(json.dumps(shown.document), 900)}")
    opened = browser.open(f"file://{notebook}")
    frame = opened.frame()
    frame.wait_for(READY)
    assert float(value_of(frame, "summary.predicted_bytes")) == shown.plan["summary"]["predicted_bytes"]
    assert frame.evaluate("window.origin") == "null", "the frame must not be of the notebook's origin"
    assert opened.problems() == []
    opened.close()


def axe():
    """The accessibility checker of Deque, as a package for Python brings it."""
    spec = importlib.util.find_spec("axe_core_python")
    if spec is None or spec.origin is None:
        pytest.skip("no axe-core-python here; tools/setup.sh installs it")
    return (pathlib.Path(spec.origin).parent / "axe.min.js").read_text()


@pytest.mark.parametrize("dark", [False, True])
def test_accessibility_has_no_serious_finding(browser, shown, dark):
    script = axe()
    opened = browser.open(shown.url, dark=dark)
    opened.wait_for(READY)
    opened.evaluate("document.querySelectorAll('details.instead summary').forEach((s) => s.click())")
    opened.evaluate(script + "; 0")  # the checker itself
    result = opened.evaluate(
        "axe.run().then((r) => ({passes: r.passes.length,"
        " violations: r.violations.map((v) => [v.id, v.impact, v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200))])}))")
    assert result["passes"] > 15
    assert [v for v in result["violations"] if v[1] in ("serious", "critical")] == []
    opened.close()


def test_two_plans_stand_beside_each_other(browser, program, shown):
    program.ok("plan", "zoo:gpt2@4", "--backward", "exact", "--optimizer", "adam", "--device", "v100-16", "--planner", "keep_all", "-o", "kept.json")
    both = Shown(program, "both", "zoo:gpt2@4", "--backward", "exact", "--optimizer", "adam", "--device", "v100-16", "plan.json", "kept.json")
    opened = browser.open(both.url)
    opened.wait_for(READY)
    assert opened.evaluate("document.querySelectorAll('article.plan').length") == 2
    heads = opened.evaluate("[...document.querySelector('.comparison thead tr').cells].map((c) => c.textContent)")
    assert heads == ["", "plan.json", "kept.json"]
    lefts = opened.evaluate("[...document.querySelectorAll('article.plan')].map((a) => a.getBoundingClientRect().x)")
    assert lefts[0] < lefts[1]
    values = opened.evaluate("[...document.querySelectorAll('.comparison [data-key=\"summary.cost\"]')].map((e) => Number(e.getAttribute('value')))")
    assert values == [plan["summary"]["cost"] for plan in both.document["plans"]]
    assert opened.problems() == []
    opened.close()


def test_the_curve_and_what_was_measured(browser, program, shown):
    rows = [{"budget_bytes": size, "cost": cost, "lower_bound": bound} for size, cost, bound in ((3e9, None, 0.5), (4e9, 0.4, 0.3), (6e9, 0.25, 0.2))]
    program.write("rows.json", json.dumps([{**row, "budget_bytes": int(row["budget_bytes"])} for row in rows]))
    summary = shown.plan["summary"]
    program.write("run.json", {"measured_peak_bytes": summary["peak_bytes"] // 2, "measured_seconds": summary["cost"] * 1.5})
    full = Shown(program, "full", *shown.arguments, "--curve-file", "rows.json", "--measured", "run.json")
    opened = browser.open(full.url)
    opened.wait_for(READY)
    assert float(value_of(opened, "summary.measured_bytes")) == summary["peak_bytes"] // 2
    assert "memory -50.0 %, time +50.0 %" in opened.evaluate("document.querySelector('main').textContent")
    opened.evaluate("[...document.querySelectorAll('details.instead summary')].find((s) => s.textContent.includes('Curve')).click()")
    opened.wait_for("document.querySelector('[data-key=\"curve.bytes\"]')")
    cells = "[...document.querySelectorAll('[data-key=\"curve.%s\"]')].map((e) => Number(e.getAttribute('value')))"
    values = {key: opened.evaluate(cells % key) for key in ("bytes", "cost")}
    assert values == {"bytes": [3e9, 4e9, 6e9], "cost": [0.4, 0.25]}
    assert opened.evaluate("document.querySelectorAll('canvas').length") == 4
    assert opened.problems() == []
    opened.close()


def test_a_graph_in_flop(browser, program):
    """Without a device: costs are operations, and a plan over its budget says so."""
    program.ok("plan", "zoo:vgg16@2", "--planner", "keep_all", "-o", "flop.json")
    report = Shown(program, "flop", "zoo:vgg16@2", "flop.json", "--budget", "600MB")
    opened = browser.open(report.url)
    opened.wait_for(READY)
    assert opened.evaluate("document.querySelector('[data-key=\"summary.cost\"]').textContent").endswith("flop")
    assert report.plan["summary"]["fits"] is False
    assert opened.evaluate("document.querySelector('.verdict').textContent").startswith("Does not fit: ")
    assert opened.problems() == []
    opened.close()


def test_a_step_of_one_op_without_bytes_and_time(browser, program):
    graph = {"format": "regen-graph", "version": 1, "name": "one", "tensors": [{"name": "y", "bytes": 0}], "ops": [{"name": "a", "outputs": [0]}]}
    program.write("one.json", graph)
    program.write("one-plan.json", {"format": "regen-plan", "version": 1, "steps": ["c0"]})
    opened = browser.open(Shown(program, "one", "one.json", "one-plan.json").url)
    opened.wait_for(READY)
    opened.evaluate("document.querySelectorAll('canvas')[1].focus()")
    for key in ("ArrowRight", "+", "-", "0", "Home", "End", "p", "Enter", "n"):
        opened.press(key)
    assert readout(opened).startswith("Step 0: compute a")
    assert opened.problems() == []
    opened.close()


HOSTILE = [
    "</script><script>window.hacked = 1</script>", "<img src=x onerror='window.hacked = 1'>", "a\u2028b\u2029c", "\x1b[31m\x00\x07\n",
    "\u202egnp.exe", "__proto__", "constructor", "@REPORT@", "${window.hacked = 1}", "']\"><svg onload=window.hacked=1>", "x" * 1_000_000]


def hostile_graph():
    tensors = [{"name": name, "bytes": 1000 + i} for i, name in enumerate(HOSTILE)]
    ops = [{"name": name, "type": name, "outputs": [i], "attributes": {"module": f"{name}.{name}", "source": name}, "variants": [{"cost": 1, "name": name}]}
           for i, name in enumerate(HOSTILE)]
    return {"format": "regen-graph", "version": 1, "name": HOSTILE[0], "tensors": tensors, "ops": ops}


def test_names_of_a_hostile_file_are_text(browser, program):
    program.write("hostile.json", json.dumps(hostile_graph()))
    plan = {"format": "regen-plan", "version": 1, "planner": HOSTILE[1], "steps": [f"c{i}" for i in range(len(HOSTILE))]}
    program.write("hostile-plan.json", plan)
    shown = Shown(program, "hostile", "hostile.json", "hostile-plan.json")
    opened = browser.open(shown.url)
    opened.wait_for(READY)
    assert opened.evaluate("window.hacked") is None
    assert opened.evaluate("document.querySelectorAll('script').length") == 2
    assert opened.evaluate("document.querySelectorAll('img, svg').length") == 0
    text = opened.evaluate("document.body.innerText")
    assert "<img src=x onerror='window.hacked = 1'>" in text and HOSTILE[0] in text
    assert shown.path.stat().st_size < 300_000
    assert opened.problems() == []
    opened.close()


def test_a_damaged_page_says_so(browser, shown, folder):
    broken = folder / "broken.html"
    broken.write_text(shown.path.read_text().replace('"format":"regen-report"', '"format":"other"'))
    opened = browser.open(f"file://{broken}")
    opened.wait_for("document.querySelector('.verdict')")
    assert "cannot be read" in opened.evaluate("document.querySelector('main').textContent")
    opened.close()


FRAMES = """new Promise((resolve) => {
  const canvas = document.querySelectorAll('canvas')[1];
  canvas.focus();
  let frames = 0;
  const begin = performance.now();
  const tick = () => {
    frames += 1;
    canvas.dispatchEvent(new WheelEvent('wheel', {deltaY: frames % 2 ? -40 : 30, deltaX: 0, clientX: 600, bubbles: true, cancelable: true}));
    canvas.dispatchEvent(new WheelEvent('wheel', {deltaX: 12, deltaY: 0, clientX: 600, bubbles: true, cancelable: true}));
    if (performance.now() - begin < 2000) requestAnimationFrame(tick);
    else resolve({frames, drawn: Number(canvas.dataset.drawn)});
  };
  requestAnimationFrame(tick);
})"""


def test_ten_thousand_ops(browser, program):
    """Every box, and only those in view; how many frames a second is printed, and depends on the machine."""
    program.ok("plan", "zoo:chain:5000", "--planner", "chen_sqrt", "-o", "long.json")
    shown = Shown(program, "long", "zoo:chain:5000", "long.json")
    boxes = len(shown.plan["boxes"]["from"])
    assert len(shown.document["graph"]["ops"]["name"]) >= 10_000 and boxes > 10_000
    opened = browser.open(shown.url)
    opened.wait_for(READY)
    opened.wait_for("document.querySelectorAll('canvas')[1].dataset.drawn")
    all_drawn = int(opened.evaluate("document.querySelectorAll('canvas')[1].dataset.drawn"))
    assert all_drawn == boxes
    result = opened.evaluate(FRAMES)
    print(f"{len(shown.plan['steps']['kind'])} steps, {boxes} boxes, {all_drawn} drawn; {result['frames'] / 2} frames a second")
    assert result["frames"] > 0
    for _ in range(8):
        opened.press("+")
    opened.wait_for(f"Number(document.querySelectorAll('canvas')[1].dataset.drawn) < {boxes // 4}")  # what is outside is not drawn
    assert opened.problems() == []
    opened.close()
