"""Writes a captured step as a folder: `program.json`, and `data.bin` with the bytes of what exists before the step."""

import contextlib
import json
import os
import pathlib
import secrets
from collections.abc import Iterator
from typing import IO, TYPE_CHECKING, Any

import torch

from regen.errors import CaptureError

if TYPE_CHECKING:
    from regen._capture.capture import Captured

ALIGNMENT = 64  # so that C++ can map the file and use the bytes in place


def save(captured: "Captured", folder: str | os.PathLike[str], with_data: bool = True) -> None:
    """Writes a captured step to a folder, for `regen run`. Each file appears whole or not at all.

    Args:
        captured: what `capture`, `capture_step` or `capture_inference` gave.
        folder: gets `program.json` and `data.bin`; it is made where there is none.
        with_data: write what exists before the step (parameters, state, the sample inputs) too.

    Raises:
        CaptureError: a part of the model runs as Python.
        OSError: a file cannot be written.
    """
    if captured.islands:
        raise CaptureError(
            f"'{captured.islands[0].name}' is an island, which runs as Python, so that no file can hold it; expected regen.step or "
            "regen.wrap, which run it in this process")
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
def replacing(path: pathlib.Path, mode: str) -> Iterator[IO[Any]]:
    """A file that takes the place of `path` when it has been written without an error."""
    # Processes in containers may have the same number. The contents are on the disk before the name is.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.tmp")
    try:
        with open(temporary, mode.replace("w", "x")) as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        temporary.unlink(missing_ok=True)


def write_storage(file: IO[bytes], storage: int, captured: "Captured") -> dict[str, int]:
    file.write(b"\0" * (-file.tell() % ALIGNMENT))
    offset = file.tell()
    content = storage_bytes(captured.tensors[storage], captured.program["storages"][storage])
    file.write(content.numpy().data)
    return {"storage": storage, "offset": offset, "bytes": content.numel()}


def storage_bytes(tensor: torch.Tensor, storage: dict[str, Any]) -> torch.Tensor:
    """The bytes behind a live tensor: its whole storage, or for an input the view that the caller gave."""
    start = tensor.storage_offset() * tensor.element_size() if storage["role"] == "input" else 0
    content = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    content.set_(tensor.detach().untyped_storage(), start, (storage["bytes"],), (1,))
    return content.cpu()
