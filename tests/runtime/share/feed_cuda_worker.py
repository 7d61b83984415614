"""A consumer of a shared input on a device, which does what comes on its standard input, one word a line:

next   takes a batch, keeps the device busy, copies the batch behind that, and lets go of it at once; prints the copy's hash
hold   takes a batch and keeps it; prints its hash
held   prints the hash of what it keeps
drop   lets go of it
free   prints the free bytes of the device
"""

import hashlib
import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "python")]

import torch

import regen.share

BATCH, LENGTH, SIDE = 4, 48, 96
BUSY_CYCLES = 30_000_000  # some 15 ms


class Noise:
    """Pictures that hold their index."""

    def __len__(self):
        return LENGTH

    def __getitem__(self, index):
        return torch.randn(3, SIDE, SIDE, generator=torch.Generator().manual_seed(index)), index


def digest(batch):
    return hashlib.sha256(b"".join(tensor.cpu().contiguous().numpy().tobytes() for tensor in batch)).hexdigest()


def taken(loader):
    """The next batch, across epochs."""
    batch = next(loader, None)
    return next(loader) if batch is None else batch


def behind_other_work(loader, device):
    batch = taken(loader)
    if device == "cuda":
        torch.cuda._sleep(BUSY_CYCLES)
    copies = [tensor.clone() for tensor in batch]
    del batch  # its slot may be filled again when the copies are made, not before
    return digest(copies)


def main():
    name, device, consumers, workers = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    kept = None
    with regen.share.loader(Noise(), name, batch_size=BATCH, shuffle=True, seed=3, slots=3, num_workers=workers, consumers=consumers,
                            device=device) as loader:
        for word in map(str.strip, sys.stdin):
            answer = None
            if word == "next":
                answer = behind_other_work(loader, device)
            elif word == "hold":
                kept = taken(loader)
                answer = digest(kept)
            elif word == "held":
                answer = digest(kept)
            elif word == "drop":
                kept = None
            elif word == "free":
                torch.cuda.synchronize()
                answer = torch.cuda.mem_get_info()[0]
            print(json.dumps({"answer": answer, "lost": loader.producers_lost}), flush=True)
        kept = None


if __name__ == "__main__":
    main()
