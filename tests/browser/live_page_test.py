"""The page of a daemon in a real browser: its numbers beside the JSON, jobs that come and go, hostile names, keys, themes, a daemon that ends."""

import importlib.util
import json
import pathlib
import urllib.request

import pytest

import wire
from eventually import eventually
from share_page import HOSTILE, Page

GIB = 2**30
READY = "document.documentElement.dataset.ready === 'yes'"


@pytest.fixture
def served(tmp_path):
    running = Page(tmp_path)
    yield running
    running.stop()


@pytest.fixture
def jobs(served):
    """A holder, two idle jobs that have had the device and one that waits for memory."""
    train, infer, other, newcomer = (wire.Wire(served.socket) for _ in range(4))
    train.register("train", memory=8 * GIB, weight=2.5, priority=2)
    infer.register("infer", memory=GIB, points=[[GIB, 0.1], [GIB // 2, 0.2]])
    for _ in range(5):
        infer.send(wire.ACQUIRE)
        assert infer.receive() == (wire.GRANTED, {})
        infer.send(wire.IDLE)
    infer.send(wire.REQUESTS, count=5, p50_seconds=0.25, p95_seconds=0.5)
    other.register("other", device="gpu1", memory=900, points=[[900, 0.1], [500, 0.2]])
    newcomer.send(wire.REGISTER, name="newcomer", identity="newcomer", device="gpu1", memory=500)
    train.send(wire.ACQUIRE)
    assert train.receive() == (wire.GRANTED, {})
    assert eventually(lambda: served.json()["devices"][0]["turns"] == 6 and served.json()["devices"][1]["newcomers"])
    return train, infer, other, newcomer


def open_page(browser, served, **options):
    opened = browser.open(served.url, **options)
    opened.wait_for(READY)
    return opened


@pytest.fixture
def page(browser, served, jobs):
    opened = open_page(browser, served)
    yield opened
    assert opened.problems(home=f"http://{served.host}/") == []
    opened.close()


def value(page, selector):
    """The exact value behind a number that the page shows; None: unknown."""
    found = page.evaluate(f"document.querySelector({json.dumps(selector)}).value")
    return None if found == "" else float(found)


def test_the_numbers_are_those_of_the_json(page, served):
    devices = served.json()["devices"]
    for device in devices:
        place = f"section[data-device={device['name']}]"
        for key in ("used_bytes", "bytes", "turns", "finished_jobs"):
            assert value(page, f"{place} [data-key={key}]") == device[key], key
        assert value(page, f"{place} [data-key=jobs]") == len(device["jobs"])
        assert value(page, f"{place} [data-key=newcomers]") == len(device["newcomers"])
        for job in device["jobs"]:
            row = f"{place} tr[data-job={job['identity']}]"
            for key in ("held_bytes", "limit_bytes", "priority", "weight", "grants", "preemptions", "request_p50_seconds", "request_p95_seconds",
                        "wait_p50_seconds", "wait_p95_seconds"):
                assert value(page, f"{row} [data-key={key}]") == job[key], (job["name"], key)
            assert page.evaluate(f"document.querySelector('{row} [data-key=state]').textContent") == (
                job["state"] if job["memory_state"] == "settled" else job["memory_state"])
    infer, = (job for job in devices[0]["jobs"] if job["name"] == "infer")
    assert (infer["grants"], infer["request_p95_seconds"]) == (5, 0.5)
    assert page.evaluate("document.querySelector('section[data-device=gpu0] .verdict').textContent") == "held by train"
    assert "newcomer waits for memory: 500 B" in page.evaluate("document.querySelector('section[data-device=gpu1] .newcomers').textContent")
    page.wait_for("Number(document.querySelector('tr[data-job=train] [data-key=fraction]').value) > 0.99")
    page.wait_for("Number(document.querySelector('section[data-device=gpu0] [data-key=utilisation]').value) > 0.99")


def test_it_follows_what_happens_and_nothing_moves(page, served, jobs):
    place = "(() => { const b = document.querySelector('tr[data-job=infer]').getBoundingClientRect(); return [b.x, b.y, b.width, b.height]; })()"
    before = page.evaluate(place)
    page.evaluate("""window.shifts = []; new PerformanceObserver((list) => {
      for (const entry of list.getEntries()) window.shifts.push([entry.value, ...entry.sources.map((s) => s.node?.parentElement?.outerHTML)]);
    }).observe({type: 'layout-shift', buffered: false})""")
    infer = jobs[1]
    jobs[0].send(wire.IDLE)
    for _ in range(3):
        infer.send(wire.ACQUIRE)
        while infer.receive() != (wire.GRANTED, {}):
            pass
        infer.send(wire.IDLE)
    page.wait_for("document.querySelector('tr[data-job=infer] [data-key=grants]').value === '8'")
    page.wait_for("document.querySelector('section[data-device=gpu0] .verdict').textContent === 'free'")
    assert page.evaluate(place) == before
    assert page.evaluate("window.shifts") == []
    late = wire.Wire(served.socket)
    late.register("late", memory=5)
    page.wait_for("document.querySelector('tr[data-job=late]')")
    late.close()
    page.wait_for("!document.querySelector('tr[data-job=late]')")


def test_history_and_keys(page, served):
    """The charts come with the first step; arrow keys read them; another job is chosen by the keyboard."""
    page.wait_for("document.querySelector('section[data-device=gpu0] .reading').textContent.startsWith('now: utilisation')")
    assert eventually(lambda: served.json("/history.json")["last_step"] >= 2)
    page.wait_for("document.querySelectorAll('section[data-device=gpu0] .reading')[1].textContent === 'now: held by jobs 9.00 GiB'")
    drawn = ("(() => { const c = document.querySelector('section[data-device=gpu0] canvas');"
             " return new Set(c.getContext('2d').getImageData(0, 0, c.width, c.height).data).size; })()")
    assert page.evaluate(drawn) > 2
    page.evaluate("document.querySelector('section[data-device=gpu0] canvas').focus()")
    page.press("ArrowLeft")
    page.press("ArrowLeft")
    assert page.evaluate("document.querySelector('section[data-device=gpu0] .reading').textContent").startswith("5 s ago: utilisation")
    detail = "document.querySelector('section[data-device=gpu0] .detail h3').textContent"
    assert page.evaluate(detail) == "The last hour of train"
    page.evaluate("document.querySelector('tr[data-job=infer] button').focus()")
    page.press("Enter")
    page.wait_for(f"{detail} === 'The last hour of infer'")
    assert page.evaluate("document.querySelector('tr[data-job=infer] button').getAttribute('aria-pressed')") == "true"
    page.wait_for("document.querySelector('section[data-device=gpu0] .detail .reading').textContent.startsWith('now: fraction 0.0 %')")
    for _ in range(40):
        page.press("Tab")
        if page.evaluate("document.activeElement.closest('tr')?.dataset.job") == "other":
            break
    assert page.evaluate("document.activeElement.closest('tr').dataset.job") == "other", "by the keyboard alone"


def test_hostile_names_are_text(browser, served):
    jobs = []
    for number, name in enumerate(HOSTILE[:-1]):
        jobs.append(wire.Wire(served.socket))
        jobs[-1].register(name, identity=f"{number}{name}"[:90])
    jobs[0].send(wire.ACQUIRE)
    opened = open_page(browser, served)
    opened.wait_for(f"document.querySelectorAll('tr[data-job]').length === {len(jobs)}")
    opened.wait_for("document.querySelector('section[data-device=gpu0] .verdict').textContent.startsWith('held by <script>')")
    assert opened.evaluate("window.hacked") is None
    assert opened.evaluate("document.querySelectorAll('script').length") == 1
    assert opened.evaluate("document.querySelectorAll('img, svg').length") == 0
    shown = opened.evaluate("[...document.querySelectorAll('tr[data-job] button')].map((b) => b.textContent)")
    assert shown == [name.replace("\u202e", "\\u{202e}") for name in HOSTILE[:-1]]
    assert opened.problems(home=f"http://{served.host}/") == []
    opened.close()


def test_the_policy_holds(browser, served):
    """A script that got into the page after all does not run, and nothing can be asked elsewhere."""
    opened = open_page(browser, served)
    opened.evaluate("document.body.append(Object.assign(document.createElement('script'), {textContent: 'window.hacked = 1'}))")
    opened.evaluate("document.body.insertAdjacentHTML('beforeend', '<img src=x onerror=\"window.hacked = 1\">')")
    assert opened.evaluate("fetch('http://127.0.0.1:1/').then(() => 'asked', (error) => error.name)") == "TypeError"
    assert opened.evaluate("window.hacked") is None
    opened.close()


def test_nothing_is_shown_without_the_token(browser, served):
    with pytest.raises(urllib.error.HTTPError, match="403"):
        urllib.request.urlopen(f"http://{served.host}/")
    opened = browser.open(f"http://{served.host}/?token={'0' * 64}")
    assert opened.evaluate("document.body.innerText.includes('regen')") is False
    opened.close()


def test_it_says_that_the_daemon_has_gone(browser, served, jobs):
    opened = open_page(browser, served)
    served.daemon.stop()
    opened.wait_for("document.getElementById('state').textContent.startsWith('The daemon has gone')")
    assert opened.evaluate("document.getElementById('state').className") == "bad"
    assert opened.evaluate("document.getElementById('state').getAttribute('role')") == "status"
    assert opened.evaluate("document.querySelector('tr[data-job=train]') !== null"), "what was known stays"
    opened.close()


def test_light_and_dark(browser, served):
    grounds = {}
    for dark in (False, True):
        opened = open_page(browser, served, dark=dark)
        ground = "getComputedStyle(document.body).backgroundColor"
        grounds[dark] = opened.evaluate(ground)
        opened.click("#theme")
        assert opened.evaluate(ground) != grounds[dark]
        opened.close()
    assert grounds[False] != grounds[True]


def test_a_phone_scrolls_down_only(browser, served, jobs):
    opened = open_page(browser, served, width=390, height=800, touch=True)
    assert opened.evaluate("document.documentElement.scrollWidth") <= 390
    assert opened.problems(home=f"http://{served.host}/") == []
    opened.close()


@pytest.mark.parametrize("dark", [False, True])
def test_accessibility_has_no_serious_finding(browser, served, jobs, dark):
    spec = importlib.util.find_spec("axe_core_python")
    if spec is None or spec.origin is None:
        pytest.skip("no axe-core-python here; tools/setup.sh installs it")
    opened = open_page(browser, served, dark=dark)
    opened.evaluate((pathlib.Path(spec.origin).parent / "axe.min.js").read_text() + "; 0")
    result = opened.evaluate(
        "axe.run().then((r) => ({passes: r.passes.length,"
        " violations: r.violations.map((v) => [v.id, v.impact, v.nodes.slice(0, 3).map((n) => n.html.slice(0, 200))])}))")
    assert result["passes"] > 15
    assert [v for v in result["violations"] if v[1] in ("serious", "critical")] == []
    opened.close()
