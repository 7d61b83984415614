"""A job of tools/soak.py that uses torch: soak_job.py train|requests|input SECONDS

Prints a JSON line when it is done: what it has computed, for comparison with what it would be alone. It may be killed at any moment.
"""

import hashlib
import json
import pathlib
import sys
import threading
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
for folder in (ROOT / "python", ROOT / "tests" / "support"):
    sys.path.insert(0, str(folder))

import torch
from torch.nn import functional as F

import regen
from regen._check import same_bits
from small_training import batch, make  # pyright: ignore[reportMissingImports]

STEPS = 60  # of a training
EVERYWHERE = 1e-9  # quantum: it can be stopped between any two operators
ITEMS, BATCH = 64, 4  # of the shared input


def digest(model):
    """Of all bits of a model, and of the random numbers."""
    hashed = hashlib.sha256(torch.get_rng_state().numpy().tobytes())
    for name, tensor in sorted(model.state_dict().items()):
        hashed.update(name.encode())
        hashed.update(tensor.contiguous().numpy().tobytes())
    return hashed.hexdigest()


def plain_training():
    """What a training must end with."""
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    torch.manual_seed(3)
    for number in range(STEPS):
        x, y = batch(seed=number)
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()
    return {"digest": digest(model)}


def train():
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    step = regen.step(
        model, F.cross_entropy, optimizer, batch(seed=0), budget=0.8, planner="checkmate", work_limit=20_000, cache=False, quantum=EVERYWHERE)
    torch.manual_seed(3)
    for number in range(STEPS):
        step(*batch(seed=number))
    return {"digest": digest(model), "pauses": regen.share.job(required=True).pauses}


def requests(seconds):
    model = make().eval()
    asked = [batch(seed=number)[0] for number in range(4)]
    with torch.no_grad():
        expected = [model(x) for x in asked]
    predict = regen.share.infer(model, (asked[0],), cache=False)
    until, counts = time.monotonic() + seconds, [[0, 0] for _ in asked]

    def ask(number):
        while time.monotonic() < until:
            counts[number][same_bits(predict(asked[number]), expected[number])] += 1

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(asked))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"wrong": sum(wrong for wrong, _ in counts), "right": sum(right for _, right in counts)}


def read(seconds):
    """Batches come in order, whole and once, from any producer."""
    until, batches, wrong = time.monotonic() + seconds, 0, 0
    per_epoch = ITEMS // BATCH
    with regen.share.loader([torch.full((16,), float(i)) for i in range(ITEMS)], "soak", batch_size=BATCH) as loader:
        last = None
        while time.monotonic() < until:
            for items in loader:
                first = int(items[0, 0]) // BATCH
                whole = all(bool((items[i] == first * BATCH + i).all()) for i in range(BATCH))
                wrong += not whole or (last is not None and first != (last + 1) % per_epoch)
                last = first
                batches += 1
    return {"wrong": wrong, "batches": batches}


def main():
    kind, seconds = sys.argv[1], float(sys.argv[2])
    torch.set_num_threads(1)
    kinds = {"plain": plain_training, "train": train, "requests": lambda: requests(seconds), "input": lambda: read(seconds)}
    print(json.dumps(kinds[kind]()), flush=True)


if __name__ == "__main__":
    main()
