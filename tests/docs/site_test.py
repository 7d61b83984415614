"""The site of `make docs`: every page within two clicks, no broken link, search, themes and a phone's width in a browser, all from a disk."""

import html.parser
import importlib.util
import os
import pathlib
import subprocess
import sys
import urllib.parse

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import page_blocks

from devtools import Browser, chromium
from page_session import REGEN

GENERATOR = ("sphinx", "myst_parser", "furo")
pytestmark = [
    pytest.mark.skipif(not REGEN.exists(), reason="needs the program build/regen"),
    pytest.mark.skipif(any(importlib.util.find_spec(name) is None for name in GENERATOR), reason="needs the site's generator (tools/setup.sh docs)")]
REPORTS = {pathlib.Path(block.text.split(" -o ")[-1].strip()).name for block in page_blocks.read(ROOT / "docs" / "gallery.md").blocks if block.is_command}


class Page(html.parser.HTMLParser):
    """Links, anchors and loaded files of a page; `body` has the links of the text itself, without navigation."""

    def __init__(self, path):
        super().__init__()
        self.path, self.links, self.body, self.loads, self.anchors, self.depth = path, [], [], [], set(), 0
        self.feed(path.read_text())

    def handle_starttag(self, tag, attrs):
        values = dict(attrs)
        if tag == "article":
            self.depth += 1
        self.anchors.update(values[key] for key in ("id", "name") if values.get(key))
        if tag == "a" and values.get("href"):
            self.links.append(values["href"])
            if self.depth:
                self.body.append(values["href"])
        elif values.get("src"):
            self.loads.append(values["src"])
        elif tag == "link" and values.get("href"):
            self.loads.append(values["href"])

    def handle_endtag(self, tag):
        if tag == "article":
            self.depth -= 1

    def resolved(self, link):
        """The file and the anchor; None: another host."""
        parts = urllib.parse.urlsplit(link)
        if parts.scheme or parts.netloc:
            return None
        place = (self.path.parent / urllib.parse.unquote(parts.path)).resolve() if parts.path else self.path
        return place, urllib.parse.unquote(parts.fragment)


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Made by the command of `make docs`; a warning of the generator fails it."""
    folder = tmp_path_factory.mktemp("made") / "site"
    command = [sys.executable, ROOT / "tools" / "build_docs.py", folder]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600, env={**os.environ, "REGEN_BIN": str(REGEN)})
    assert done.returncode == 0, done.stdout + done.stderr
    assert "WARNING" not in done.stderr
    return folder


@pytest.fixture(scope="module")
def pages(site):
    return {path: Page(path) for path in site.rglob("*.html") if not path.relative_to(site).parts[0].startswith("_")}


def within_clicks(pages, start, clicks, links):
    found = {start}
    for _ in range(clicks):
        targets = [pages[path].resolved(link) for path in found if path in pages for link in links(pages[path])]
        found |= {target[0] for target in targets if target}
    return found


def test_every_page_of_the_documents_is_there(site):
    for path in page_blocks.pages()[1:]:
        assert (site / path.relative_to(ROOT)).with_suffix(".html").exists(), path
    assert {path.name for path in (site / "gallery").iterdir()} == REPORTS and len(REPORTS) == 8


def test_every_page_is_two_clicks_from_the_start(site, pages):
    """By the links of the text alone too, as far as README.md and docs/ go."""
    start = site / "index.html"
    reached = within_clicks(pages, start, 2, lambda page: page.links)
    made = {site / name for name in ("search.html", "genindex.html")}  # the search has a form on every page; there is no index
    assert set(pages) - made <= reached, sorted(set(pages) - made - reached)
    by_text = within_clicks(pages, start, 2, lambda page: page.body)
    missing = [path for path in page_blocks.pages()[1:] if (site / path.relative_to(ROOT)).with_suffix(".html") not in by_text]
    assert not missing


def test_every_link_and_anchor_leads_somewhere(site, pages):
    broken, counted = [], 0
    for path, page in pages.items():
        for link in [*page.links, *page.loads]:
            target = page.resolved(link)
            if target is None:
                continue
            counted += 1
            place, anchor = target
            if not place.is_file() or not place.is_relative_to(site) or (anchor and place in pages and anchor not in pages[place].anchors):
                broken.append(f"{path.relative_to(site)}: {link}")
    assert not broken
    assert counted > 1000


def test_nothing_is_loaded_from_a_network(pages):
    assert not [(path, link) for path, page in pages.items() for link in page.loads if page.resolved(link) is None and not link.startswith("data:")]


def test_hidden_blocks_are_not_in_the_site(pages):
    for path, page in pages.items():
        if path.parent.name != "gallery":
            assert "<!-- fixture" not in path.read_text() and "<!-- hidden" not in path.read_text(), page.path


@pytest.fixture(scope="module")
def browser():
    if chromium() is None:
        pytest.skip("no Chromium here; tools/setup.sh installs it (Debian: apt install chromium)")
    with Browser() as running:
        yield running


def test_a_search_finds_pages_by_their_words(browser, site):
    page = browser.open(f"file://{site}/index.html")
    page.click("input[name=q]")
    for letter in "rerun":
        page.press(letter)
    page.press("Enter")
    page.wait_for("document.querySelectorAll('#search-results li a').length && document.querySelector('.search-summary').textContent.includes('found')")
    found = page.evaluate("[...document.querySelectorAll('#search-results li a')].map((a) => a.href)")
    assert any(urllib.parse.urlsplit(link).path.endswith("docs/explanation/bounds.html") for link in found), found
    page.evaluate(f"location.href = {found[0]!r}")
    page.wait_for("document.readyState === 'complete' && document.querySelector('article h1')")
    assert page.problems() == []
    page.close()


def test_light_and_dark(browser, site):
    colour = "getComputedStyle(document.body).backgroundColor"
    light, dark = (browser.open(f"file://{site}/docs/results.html", dark=theme) for theme in (False, True))
    colours = [light.evaluate(colour), dark.evaluate(colour)]
    assert colours[0] == "rgb(255, 255, 255)" and max(int(part) for part in colours[1].strip("rgb()").split(",")) < 64
    for _ in range(2):  # automatic, then light or dark
        light.evaluate("[...document.querySelectorAll('.theme-toggle')].find((button) => button.offsetParent).click()")
    assert set(colours) >= {light.evaluate(colour)} and light.evaluate("document.body.dataset.theme") in ("light", "dark")
    for page in (light, dark):
        assert page.problems() == []
        page.close()


def test_pages_fit_a_phone(browser, site, pages):
    """Wide tables and code scroll in their place, so that no page is wider than the screen."""
    page = browser.open(f"file://{site}/index.html", width=360, height=740, touch=True)
    for path in sorted(pages):
        if path.parent.name == "gallery":
            continue
        page.call("Page.navigate", url=f"file://{path}")
        page.wait_for(f"document.readyState === 'complete' && location.pathname === {str(path)!r}")
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, path
    assert page.problems() == []
    page.close()


def test_a_report_opens_from_the_gallery(browser, site):
    page = browser.open(f"file://{site}/docs/gallery.html")
    for name in sorted(REPORTS):
        page.call("Page.navigate", url=f"file://{site}/docs/gallery.html")
        page.wait_for(f"document.readyState === 'complete' && document.querySelector('a[href$=\"{name}\"]')")
        page.evaluate(f"document.querySelector('a[href$=\"{name}\"]').click()")
        page.wait_for("document.documentElement?.dataset.ready === 'yes'")
        assert page.evaluate("document.querySelector('.verdict').textContent").startswith("Fits: ")
    assert page.problems() == []
    page.close()
