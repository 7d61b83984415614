"""A training that gives way thousands of times, beside one of plain PyTorch that nobody disturbs: are the weights the same bits?

    python benchmarks/preempted_training.py --device cuda --model resnet50 --batch 64 --preemptions 10000
    python benchmarks/preempted_training.py --tiny --preemptions 500                                        # anywhere

A more urgent job asks for the device again and again, each time for one small kernel. One JSON line: preemptions, steps, seconds for
each preemption, and the names of parameters, momenta and buffers that differ (none is what there should be)."""

import argparse
import contextlib
import json
import pathlib
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT)]

from benchmarks.share_crew import Daemon


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--model", default="resnet50")
    parser.add_argument("--batch", type=int)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--memory", default="40GiB")
    parser.add_argument("--quantum", type=float, default=1e-3)
    parser.add_argument("--preemptions", type=int, default=10_000)
    parser.add_argument("--role", choices=["train", "plain", "urgent"], help=argparse.SUPPRESS)
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--out", help=argparse.SUPPRESS)
    return parser.parse_args()


# --- the processes

def training(options):
    import torch

    from examples.models import build

    torch.backends.cudnn.deterministic = True
    torch.manual_seed(0)
    model, args, loss = build(options.model, tiny=options.tiny, batch=options.batch, device=options.device)
    return model.train(), torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9), args, loss


def save(model, optimizer, out):
    import torch

    momenta = {f"momentum of {name}": optimizer.state[p]["momentum_buffer"] for name, p in model.named_parameters()}
    torch.save({**model.state_dict(), **momenta}, out)


def train(options):
    import regen

    model, optimizer, args, loss = training(options)
    step = regen.step(model, loss, optimizer, args, planner="keep_all", quantum=options.quantum, improve=False)
    job, steps, begin = regen.share.job(required=True), 0, None
    while job.pauses < options.preemptions:
        step(*args)
        steps += 1
        if steps == 1:  # all is planned: the other job may begin
            print("ready", flush=True)
            begin = time.perf_counter()
    save(model, optimizer, options.out)
    print(json.dumps({"preemptions": job.pauses, "steps": steps, "seconds": time.perf_counter() - begin}), flush=True)


def plain(options):
    model, optimizer, args, loss = training(options)
    for _ in range(options.steps):
        optimizer.zero_grad()
        loss(model(*args[:-1]), args[-1]).backward()
        optimizer.step()
    save(model, optimizer, options.out)


def urgent(options):
    import torch

    import regen

    regen.share.job(required=True)
    value = torch.zeros(1, device=options.device)
    print("ready", flush=True)
    sys.stdin.readline()
    while True:  # until it is killed
        with regen.share.hold(gives_back=True):
            value.add_(1).item()


# --- the process that starts them

def start(role, *more, prefix=()):
    return subprocess.Popen([*prefix, sys.executable, __file__, *sys.argv[1:], "--role", role, *map(str, more)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)


def line_of(process):
    line = process.stdout.readline()
    if not line:
        sys.exit(f"a process of the benchmark ended with status {process.wait()}")
    return line


def disturbed(options, out):
    with contextlib.closing(Daemon()) as daemon:
        trainer = start("train", "--out", out, prefix=daemon.job("train", options.memory))
        asking = start("urgent", prefix=daemon.job("urgent", "1GiB"))
        try:
            line_of(asking)
            line_of(trainer)
            daemon.set("urgent", priority=1)
            asking.stdin.write("go\n")
            asking.stdin.flush()
            return json.loads(line_of(trainer))
        finally:
            for process in (asking, trainer):  # the training has said what it had to say
                process.kill()
                process.wait()


def main():
    options = parse()
    if options.role:
        if options.device == "cpu":
            import torch

            torch.set_num_threads(1)
        return {"train": train, "plain": plain, "urgent": urgent}[options.role](options)
    import torch

    with tempfile.TemporaryDirectory(prefix="regen-preempted-") as folder:
        found = disturbed(options, f"{folder}/disturbed")
        if start("plain", "--steps", found["steps"], "--out", f"{folder}/plain").wait() != 0:
            sys.exit("the undisturbed training failed")
        one, other = torch.load(f"{folder}/disturbed"), torch.load(f"{folder}/plain")
    different = [name for name in other if name not in one or not torch.equal(one[name], other[name])]
    print(json.dumps({"row": "preempted", "model": options.model, **found, "ms_for_each": 1e3 * found["seconds"] / found["preemptions"],
                      "tensors": len(other), "different": different}), flush=True)
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
