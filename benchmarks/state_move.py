"""How fast the state of a training leaves a device and comes back: one packed copy beside one copy for each tensor.

    python benchmarks/state_move.py [--device cuda] [--models resnet50,vgg16] [--rounds 20]
    python benchmarks/state_move.py --tiny                   # on any machine, to see that it runs

The state is parameters, momentum and buffers. One JSON line for each model: bytes; milliseconds of leave() and come_back(), the copy
and the pages (mapping and unmapping) apart; rates as fractions of the link's, which is the best pinned copy of 1 GiB in the same run;
SwitchFlow's Table 1 beside it (GPU to GPU, PCIe 3 x16). Medians over the rounds; the host buffer is reused.
"""

import argparse
import json
import pathlib
import statistics
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "python")]

import torch

from examples.models import build
from regen.share import PackedState

# MiB and ms in SwitchFlow's Table 1
MODELS = {
    "resnet50": (198.53, 28.838),
    "vgg16": (1055.58, 103.747),
    "vgg19": (1096.09, 109.416),
    "densenet121": (64.83, 39.823),
    "densenet169": (108.61, 45.236),
    "inception_resnet_v2": (426.18, 82.137),
    "inception_v3": (182.00, 31.613),
    "mobilenet_v2": (27.25, 17.505),
}
WARM_UP = 2


def synchronize(device):
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def timed(work, device):
    synchronize(device)
    begin = time.perf_counter()
    work()
    synchronize(device)
    return time.perf_counter() - begin


def link_rate(device, size):
    """Bytes per second to the host and back: the best of five copies."""
    there = torch.ones(size, dtype=torch.uint8, device=device)
    here = torch.ones(size, dtype=torch.uint8, pin_memory=device.startswith("cuda"))
    out = min(timed(lambda: here.copy_(there, non_blocking=True), device) for _ in range(5))
    back = min(timed(lambda: there.copy_(here, non_blocking=True), device) for _ in range(5))
    return size / out, size / back


def training_state(name, tiny, device):
    model, _, _ = build(name, tiny=tiny, batch=1, device=device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for parameter in model.parameters():
        optimizer.state[parameter]["momentum_buffer"] = torch.randn_like(parameter)
    return model, optimizer


def packed_times(state, device, rounds):
    """{"leave": ..., "come_back": ...}, each (whole, copy, pages) in seconds."""
    rows = {"leave": [], "come_back": []}
    for _ in range(WARM_UP + rounds):
        for name, work in (("leave", state.leave), ("come_back", state.come_back)):
            whole = timed(work, device)
            rows[name].append((whole, *state.arena.last_seconds))
    return {name: [statistics.median(column) for column in zip(*found[WARM_UP:])] for name, found in rows.items()}


def one_by_one_times(model, optimizer, device, rounds):
    """The same bytes with a copy for each tensor, all enqueued before the first is waited for."""
    tensors = [t.detach() for t in [*model.parameters(), *model.buffers()]] + [s["momentum_buffer"] for s in optimizer.state.values()]
    hosts = [torch.empty(t.shape, dtype=t.dtype, pin_memory=device.startswith("cuda")) for t in tensors]

    def go():
        for host, tensor in zip(hosts, tensors):
            host.copy_(tensor, non_blocking=True)

    def back():
        for host, tensor in zip(hosts, tensors):
            tensor.copy_(host, non_blocking=True)

    return len(tensors), [statistics.median(timed(work, device) for _ in range(WARM_UP + rounds)) for work in (go, back)]


def measure(name, args, link):
    published_mib, published_ms = MODELS[name]
    model, optimizer = training_state(name, args.tiny, args.device)
    tensors, singly = one_by_one_times(model, optimizer, args.device, args.rounds)
    state = PackedState(model, optimizer)
    before = [t.detach().clone() for t in model.parameters()]
    times = packed_times(state, args.device, args.rounds)
    assert all(torch.equal(a, b) for a, b in zip(before, model.parameters())), "the state has changed on its way"
    row = {"model": name, "device": args.device, "tiny": args.tiny, "tensors": tensors, "bytes": state.bytes,
           "mib": round(state.bytes / 2**20, 2)}
    for (direction, (whole, copy, pages)), rate, single in zip(times.items(), link, singly):
        row[direction] = {
            "ms": whole * 1e3, "copy_ms": copy * 1e3, "pages_ms": pages * 1e3, "gib_per_s": state.bytes / copy / 2**30,
            "share_of_link": state.bytes / copy / rate, "share_with_pages": state.bytes / whole / rate,
            "one_by_one_ms": single * 1e3, "one_by_one_share": state.bytes / single / rate}
    row["link_gib_per_s"] = [rate / 2**30 for rate in link]
    row["switchflow"] = {"mib": published_mib, "ms": published_ms, "gb_per_s": published_mib * 2**20 / published_ms / 1e6}
    return row


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--tiny", action="store_true")
    args = parser.parse_args()
    unknown = [name for name in args.models.split(",") if name not in MODELS]
    if unknown:
        parser.error(f"no model named {unknown[0]!r}; expected some of {', '.join(MODELS)}")
    link = link_rate(args.device, 16 << 20 if args.tiny else 1 << 30)
    for name in args.models.split(","):
        print(json.dumps(measure(name, args, link)), flush=True)


if __name__ == "__main__":
    main()
