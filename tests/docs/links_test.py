"""Every relative link of the documents leads to a file, and to a heading where it names one; every page is linked from docs/README.md."""

import pathlib
import re

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "results" / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def links(page):
    """(path, heading) of each relative link; either may be empty."""
    text = page.read_text()
    # A code span inside the text of a link is not a link's end: spans are emptied, not removed.
    text = CODE.sub(lambda found: "" if found[0].startswith("```") else "code", text)
    found = [target for target in LINK.findall(text) if not re.match(r"[a-z]+:", target)]
    return [(target.partition("#")[0], target.partition("#")[2]) for target in found]


def anchors(page):
    """The names of a page's headings, as the renderers make them."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page):
    broken = []
    for path, heading in links(page):
        target = (page.parent / path).resolve() if path else page
        if not target.exists():
            broken.append(path)
        elif heading and target.suffix == ".md" and heading not in anchors(target):
            broken.append(f"{path}#{heading}")
    assert not broken, f"{page.relative_to(ROOT)} has broken links: {', '.join(broken)}"


def test_every_page_is_in_the_index():
    index = ROOT / "docs" / "README.md"
    linked = {(index.parent / path).resolve() for path, _ in links(index)}
    missing = [str(page.relative_to(ROOT)) for page in sorted((ROOT / "docs").rglob("*.md")) if page != index and page.resolve() not in linked]
    assert not missing, f"docs/README.md does not link {', '.join(missing)}"


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_words(page):
    """House words: code has no persons in it."""
    text = CODE.sub("", page.read_text())
    found = re.findall(r"\b(whoever|somebody|nobody|anybody|told|wishes|wish|dear|dearer)\b", text, re.IGNORECASE)
    assert not found, f"{page.relative_to(ROOT)} has {', '.join(found)}"


def test_the_readme_is_short():
    lines = (ROOT / "README.md").read_text().count("\n")
    assert lines <= 70, f"README.md has {lines} lines, expected at most 70"
