"""Writes docs/reference/python.md (`regen` itself) and python-modules.md (its public modules) from docstrings.

    tools/python_reference.py            writes what stands below the mark in both pages
    tools/python_reference.py --check    exits with 1 when a page is not what the docstrings say

Public are the names in `__all__` of `regen` and of its public modules. Docstrings have the sections Args, Returns, Raises and Attributes; what is
indented elsewhere is code, which a test runs (tests/docs/pages_test.py); signatures are marked as such.
"""

import argparse
import importlib
import inspect
import pathlib
import re
import sys
import types
import typing

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
MARK = "<!-- generated from docstrings from here on -->\n"
SECTIONS = ("Args", "Returns", "Raises", "Attributes", "Yields")
WIDEST = 110


def load():
    sys.path.insert(0, str(ROOT / "python"))
    try:
        return importlib.import_module("regen")
    except ImportError as error:
        sys.exit(f"import regen failed: {error}, expected a build of the Python package")


def annotation(value):
    """A type as a reader would write it."""
    if isinstance(value, str):
        return value
    if typing.get_origin(value) in (typing.Union, types.UnionType):
        return " | ".join(annotation(part) for part in typing.get_args(value))
    if value is type(None):
        return "None"
    text = re.sub(r"\b(typing|collections\.abc|regen(?:\.\w+)*)\.", "", inspect.formatannotation(value)).replace("~", "")
    text = text.replace("torch.nn.modules.module.", "torch.nn.").replace("torch.optim.optimizer.", "torch.optim.")
    return re.sub(r"\bRegenError\b", "Error", text)


def parameter_text(parameter):
    text = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "") + parameter.name
    typed = parameter.annotation is not parameter.empty
    if typed:
        text += f": {annotation(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        text += f"{' = ' if typed else '='}{parameter.default!r}"
    return text


def signature(name, function, skip_first=False):
    """The call as Python, on several lines where one is too wide."""
    found = inspect.signature(function)
    parts, starred = [], False
    for number, parameter in enumerate(found.parameters.values()):
        if skip_first and number == 0:
            continue
        starred = starred or parameter.kind is parameter.VAR_POSITIONAL
        if parameter.kind is parameter.KEYWORD_ONLY and not starred:
            parts.append("*")
            starred = True
        parts.append(parameter_text(parameter))
    returns = "" if found.return_annotation is found.empty else f" -> {annotation(found.return_annotation)}"
    line = f"{name}({', '.join(parts)}){returns}"
    if len(line) <= WIDEST:
        return line
    return f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"


def split_sections(text):
    """(body, {section: lines}) of a docstring."""
    body, sections, current = [], {}, None
    for line in text.splitlines():
        heading = re.fullmatch(r"(\w+):", line)
        if heading and heading[1] in SECTIONS:
            current = sections.setdefault(heading[1], [])
        elif current is not None and (line.startswith(" ") or not line):
            current.append(line)
        else:
            current = None
            body.append(line)
    return "\n".join(body).strip("\n"), sections


def paragraphs(text):
    """Indented lines become blocks of code."""
    out, code = [], False
    for line in text.splitlines():
        if line.startswith("    ") and not code:
            out += [""] * bool(out and out[-1]) + ["```python"]
            code = True
        elif line and not line.startswith("    ") and code:
            out += [*close_code(out), ""]
            code = False
        out.append(line[4:] if code else line)
    return "\n".join(out + (close_code(out) if code else []))


def close_code(lines):
    """The end of a block, after dropping empty lines before it."""
    while lines[-1] == "":
        lines.pop()
    return ["```"]


def entries(lines):
    """`name: text` entries with their continuation lines joined."""
    found = []
    for line in inspect.cleandoc("\n".join(lines)).splitlines():
        if line and not line.startswith(" ") and re.match(r"[\w*., `]+: ", line + " "):
            name, _, text = line.partition(":")
            found.append([name, text.strip()])
        elif line and found:
            found[-1][1] += " " + line.strip()
        elif line:
            found.append(["", line])
    return found


def described(text):
    """A docstring as markdown."""
    body, sections = split_sections(text)
    parts = [paragraphs(body)] if body else []
    for name, lines in sections.items():
        if name in ("Returns", "Yields"):
            parts.append(f"{name}: " + " ".join(line.strip() for line in lines if line.strip()))
        else:
            items = "\n".join(f"- `{entry}`: {what}" if entry else f"- {what}" for entry, what in entries(lines))
            parts.append(f"{'Arguments' if name == 'Args' else name}:\n\n{items}")
    return "\n\n".join(parts)


def own_doc(thing):
    """The docstring written for it; that of a base or made by dataclasses does not count."""
    text = vars(thing).get("__doc__") if inspect.isclass(thing) else inspect.getdoc(thing)
    if not text or re.match(rf"{getattr(thing, '__name__', '')}\(.*\)$", text.strip(), re.DOTALL):
        return ""
    return inspect.cleandoc(text)


def method_parts(name, kind):
    """Public methods and properties with docstrings, of the class itself and of private bases of the package."""
    parts, seen = [], set()
    for base in kind.__mro__:
        if not base.__module__.startswith("regen"):
            continue
        for key, value in vars(base).items():
            if key.startswith("_") or key in seen:
                continue
            seen.add(key)
            value = value.__func__ if isinstance(value, (staticmethod, classmethod)) else value
            if isinstance(value, property):
                doc, head = inspect.getdoc(value), f"{name}.{key}"
            elif inspect.isfunction(value):
                doc, head = inspect.getdoc(value), signature(f"{name}.{key}", value, skip_first=True)
            else:
                continue
            if doc:
                parts.append(f"```python signature\n{head}\n```\n{described(inspect.cleandoc(doc))}")
    return parts


def class_part(name, kind):
    hidden = [base for base in kind.__bases__ if base is object or ("._" in base.__module__ and base.__module__ != "regen._runtime")]
    bases = [annotation(base) for base in kind.__bases__ if base not in hidden]
    head = f"class {name}({', '.join(bases)})" if bases else f"class {name}"
    parts = [f"```python signature\n{head}\n```"]
    if own_doc(kind):
        parts.append(described(own_doc(kind)))
    return "\n\n".join(parts + method_parts(kind.__name__, kind))


def entry_part(module, key, value):
    name = f"{module}.{key}"
    if inspect.isclass(value):
        text = class_part(name, value)
    elif callable(value) and not isinstance(value, types.GenericAlias) and typing.get_origin(value) is None:
        text = f"```python signature\n{signature(name, value)}\n```\n" + described(own_doc(value))
    else:
        text = f"```python signature\n{name} = {annotation(value)}\n```"
    return f"### {name}\n{text.rstrip()}"


def module_part(module, done):
    """A section for a module: its docstring, then its names. A name that stood before is not repeated."""
    head = f"## {module.__name__}\n{described(own_doc(module))}"
    parts, inner = [], []
    for key in sorted(module.__all__, key=str.lower):
        value = getattr(module, key)
        if inspect.ismodule(value):
            inner.append(value)
        elif isinstance(value, str):
            continue
        elif id(value) not in done:
            done.add(id(value))
            parts.append(entry_part(module.__name__, key, value))
    return [head, *parts], inner


def generated(package):
    """page -> its generated text: the package on one, its public modules on the other."""
    done = set()
    own, queue = module_part(package, done)
    others, seen = [], {package.__name__}
    while queue:
        module = queue.pop(0)
        if module.__name__ in seen or not hasattr(module, "__all__"):
            continue
        seen.add(module.__name__)
        more, inner = module_part(module, done)
        others += more
        queue += inner
    return {"python.md": "\n\n".join(own) + "\n", "python-modules.md": "\n\n".join(others) + "\n"}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="compare, write nothing")
    arguments = parser.parse_args()
    stale = []
    for name, text in generated(load()).items():
        page = (FOLDER / name).read_text()
        head, mark, _ = page.partition(MARK)
        if not mark:
            sys.exit(f"docs/reference/{name} lacks the line {MARK.strip()!r}")
        if head + MARK + "\n" + text != page:
            stale.append(name)
            if not arguments.check:
                (FOLDER / name).write_text(head + MARK + "\n" + text)
                print(f"wrote docs/reference/{name}")
    if arguments.check and stale:
        sys.exit(f"docs/reference/{', '.join(stale)}: not what the docstrings say, run tools/python_reference.py")


if __name__ == "__main__":
    main()
