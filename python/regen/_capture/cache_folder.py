"""The folder in which measurements, plans and captured graphs are kept from one process to the next."""

import os
import pathlib
import secrets


def cache_folder(setting):
    """`setting`: that of `regen.options`. None where nothing is to be kept."""
    if setting is False:
        return None
    folder = pathlib.Path(setting or os.environ.get("REGEN_CACHE") or os.path.expanduser("~/.cache/regen"))
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def write_whole(path, content):
    """Other processes, on this machine or another, see all of `content` or what was there before."""
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        temporary.write_bytes(content)
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def drop_oldest(folder, pattern, most_bytes):
    """Removes the files that were used longest ago until the rest has `most_bytes`. Others may be doing the same."""
    files = []
    for path in folder.glob(pattern):
        try:
            files.append((path.stat().st_mtime, path.stat().st_size, path))
        except OSError:
            continue
    total = sum(size for _, size, _ in files)
    for _, size, path in sorted(files):
        if total <= most_bytes:
            return
        path.unlink(missing_ok=True)
        total -= size
