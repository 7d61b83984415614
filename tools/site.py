import pathlib, re, shutil, sys
ROOT = pathlib.Path(__file__).resolve().parent.parent
LINK = re.compile(r"\]\(([^)\s#]+)[^)\s]*\)")
def stage(folder):
    shutil.rmtree(folder, ignore_errors=True)
    queue = [ROOT/"README.md"]; seen=set()
    while queue:
        p = queue.pop()
        if p in seen or not p.exists(): continue
        seen.add(p)
        name = p.relative_to(ROOT)
        to = folder/("index.md" if str(name)=="README.md" else name)
        to.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(p, to)
        if p.suffix==".md":
            queue += [(p.parent/l).resolve() for l in LINK.findall(p.read_text()) if not re.match("[a-z]+:", l)]
stage(pathlib.Path(sys.argv[1]))
