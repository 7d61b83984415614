"""Writes a captured program as a folder: `program.json`, and `data.bin` with the bytes of what exists before the step."""

import contextlib
import json
import os
import pathlib

import torch

ALIGNMENT = 64  # so that C++ can map the file and use the bytes in place


def save(captured, folder, with_data=True):
    """Writes `captured` to `folder`. Both files appear whole or not at all."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    program = {**captured.program, "data": []}
    if with_data:
        with replacing(folder / "data.bin", "wb") as file:
            program["data"] = [write_storage(file, s, captured) for s in sorted(captured.tensors)]
    else:
        (folder / "data.bin").unlink(missing_ok=True)
    with replacing(folder / "program.json", "w") as file:
        json.dump(program, file, allow_nan=False, separators=(",", ":"))


@contextlib.contextmanager
def replacing(path, mode):
    """A file that takes the place of `path` when it has been written without an error."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with open(temporary, mode) as file:
            yield file
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_storage(file, storage, captured):
    file.write(b"\0" * (-file.tell() % ALIGNMENT))
    offset = file.tell()
    content = storage_bytes(captured.tensors[storage], captured.program["storages"][storage])
    file.write(memoryview(content.numpy()))
    return {"storage": storage, "offset": offset, "bytes": content.numel()}


def storage_bytes(tensor, storage):
    """The bytes behind a live tensor: its whole storage, or for an input the window that the caller gave."""
    start = tensor.storage_offset() * tensor.element_size() if storage["role"] == "input" else 0
    content = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    content.set_(tensor.detach().untyped_storage(), start, (storage["bytes"],), (1,))
    return content.cpu()
