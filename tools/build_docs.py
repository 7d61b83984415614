"""Makes the site of the documents: README.md and docs/ as pages with a search, and the reports of docs/gallery.md.

    tools/build_docs.py [FOLDER]     into build/site, or FOLDER; warnings are errors

Needs what `tools/setup.sh docs` installs, and the program: REGEN_BIN, else build/regen. The site needs neither a server nor a network.
"""

import argparse
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests" / "support"))

import page_blocks
from page_session import Session

START = ROOT / "README.md"
INDEX = ROOT / "docs" / "README.md"
GALLERY = ROOT / "docs" / "gallery.md"
LINK = re.compile(r"\]\(([^)\s#]+)(#[^)\s]*)?\)")
CODE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
# Beside the pages that docs/README.md lists.
OTHERS = ["README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md"]


def targets(page: pathlib.Path) -> list[pathlib.Path]:
    """Files of the repository that a page links."""
    found = [link[0] for link in LINK.findall(CODE.sub("", page.read_text())) if not re.match(r"[a-z]+:", link[0])]
    return [(page.parent / link).resolve() for link in found]


def staged() -> list[pathlib.Path]:
    """README.md and every file that can be reached from it by links."""
    found, queue = [], [START]
    while queue:
        path = queue.pop(0)
        if path in found or not path.is_file():
            continue
        found.append(path)
        if path.suffix == ".md":
            queue += targets(path)
    return found


def contents() -> str:
    """The navigation beside every page: the sections of docs/README.md, then the READMEs of folders that some page links."""
    listed = [("Start", ["docs/README.md"])]
    for section in INDEX.read_text().split("\n## ")[1:]:
        title = section.partition("\n")[0].partition(":")[0]
        pages = [(INDEX.parent / link[0]).resolve() for link in LINK.findall(section) if link[0].endswith(".md")]
        listed.append((title, [str(page.relative_to(ROOT)) for page in pages]))
    listed.append(("Project", OTHERS[1:]))
    known = {page for _, pages in listed for page in pages} | {OTHERS[0]}
    rest = {str(path.relative_to(ROOT)) for path in staged() if path.suffix == ".md"} - known
    listed.append(("Folders of the sources", sorted(rest)))
    return "".join(f"\n```{{toctree}}\n:hidden:\n:caption: {title}\n\n" + "\n".join(dict.fromkeys(pages)) + "\n```\n" for title, pages in listed)


def text_of(page: pathlib.Path) -> str:
    """A page as Sphinx gets it: without comments, with the navigation, and with links to reports."""
    text = page.read_text()
    code = CODE.findall(text)
    parts = CODE.split(text)
    parts = [re.sub(r"^ *<!--.*?-->\n", "", part, flags=re.MULTILINE | re.DOTALL) for part in parts]
    if page == GALLERY:
        parts = [re.sub(r"`(\w+\.html)`", r'<a href="../gallery/\1">\1</a>', part) for part in parts]
    text = parts[0] + "".join(block + part for block, part in zip(code, parts[1:]))
    return text + contents() if page == START else text


def write_source(folder: pathlib.Path) -> None:
    """The files as they lie in the repository; README.md is the start page."""
    for path in staged():
        place = folder / ("index.md" if path == START else path.relative_to(ROOT))
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            place.write_text(text_of(path))
        else:
            shutil.copy(path, place)


def write_reports(folder: pathlib.Path) -> None:
    """Runs the commands of the gallery, and keeps the reports."""
    folder.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as place:
        with Session(pathlib.Path(place)) as session:
            session.run(page_blocks.read(GALLERY))
        for report in pathlib.Path(place).glob("*.html"):
            shutil.copy(report, folder)


def build(site: pathlib.Path) -> None:
    """The whole site, in place of one that is there."""
    with tempfile.TemporaryDirectory() as name:
        source = pathlib.Path(name)
        write_source(source)
        write_reports(source / "extra" / "gallery")
        shutil.copytree(ROOT / "tools" / "docs_site", source, dirs_exist_ok=True)
        shutil.rmtree(site, ignore_errors=True)
        command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--builder", "html", "--doctree-dir", f"{name}/trees", name, str(site)]
        done = subprocess.run(command, check=False)
        if done.returncode != 0:
            sys.exit("the site was not made: a warning is an error")
    (site / ".buildinfo").unlink()


def main() -> None:
    """As on the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", nargs="?", type=pathlib.Path, default=ROOT / "build" / "site")
    site = parser.parse_args().folder
    build(site)
    print(f"wrote {len(list(site.rglob('*.html')))} pages: open {site / 'index.html'}")


if __name__ == "__main__":
    main()
