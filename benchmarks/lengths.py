"""Training on batches of many lengths: regen under a few plans beside plain PyTorch.

Each way to train is a process of its own with the same model, seeds and batches. They take every step in turn, so that whatever else the machine
does slows all of them down alike. Loss bits are compared at every step, parameters at every 100th and at the end.

    python benchmarks/lengths.py                          2,000 steps of a GPT-2 and a BERT under wrap and step: everything kept, and half of the bytes
    python benchmarks/lengths.py --models gpt2 --steps 200 --modes wrap --append

The bytes are those that plain PyTorch takes for a step of the longest batch. `longest_wait_ms`: the longest time that a step after the first 20
spent on what makes a batch's plan ready (looking for it, capturing, measuring, planning, compiling, its instructions), before its first operator
runs. `slowest_ms`: the longest time that such a step took beyond the plain step at its side. Both in processor time: other work of the machine
does not count. `--append` adds the rows to results/lengths.csv.
"""

import argparse
import csv
import datetime
import hashlib
import math
import multiprocessing
import pathlib
import random
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / "python"), str(ROOT)]

FIRST = 20  # steps in which plans may be made
LEAST, MOST, MEDIAN, SPREAD = 16, 1024, 110, 0.8
VOCABULARY = 2000


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", nargs="+", default=["gpt2", "bert"], choices=["gpt2", "llama", "bert"])
    parser.add_argument("--modes", nargs="+", default=["wrap", "step"], choices=["wrap", "step"])
    parser.add_argument("--shares", nargs="+", type=float, default=[1.0, 0.5], help="of plain PyTorch's bytes")
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--layers", type=int, default=3)
    parser.add_argument("--width", type=int, default=192)
    parser.add_argument("--batch", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--append", action="store_true", help="add the rows to results/lengths.csv")
    return parser.parse_args()


def lengths(args):
    """Log-normal: many short ones, and a long tail."""
    source = random.Random(args.seed)
    return [max(LEAST, min(MOST, round(source.lognormvariate(math.log(MEDIAN), SPREAD)))) for _ in range(args.steps)]


def build(name, args):
    import torch
    import transformers

    torch.manual_seed(0)
    heads, width = 4, args.width
    if name == "gpt2":
        config = transformers.GPT2Config(n_layer=args.layers, n_embd=width, n_head=heads, vocab_size=VOCABULARY, bos_token_id=0, eos_token_id=0)
        model = transformers.GPT2LMHeadModel(config)
    elif name == "llama":
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(
            num_hidden_layers=args.layers, hidden_size=width, intermediate_size=2 * width, num_attention_heads=heads, num_key_value_heads=2,
            vocab_size=VOCABULARY))
    else:
        model = transformers.BertForMaskedLM(transformers.BertConfig(
            num_hidden_layers=args.layers, hidden_size=width, intermediate_size=4 * width, num_attention_heads=heads, vocab_size=VOCABULARY,
            max_position_embeddings=MOST))
    return model.to(args.device).train()


def batch_of(length, number, args):
    import torch

    generator = torch.Generator().manual_seed(number)
    ids = torch.randint(0, VOCABULARY, (args.batch, length), generator=generator).to(args.device)
    return {"input_ids": ids, "labels": ids.clone(), "attention_mask": torch.ones_like(ids)}


class Waits:
    """Processor time in calls that make a plan ready."""

    def __init__(self):
        self.seconds = 0.0

    def watch(self, owner, name):
        watched = getattr(owner, name)

        def call(*args, **kwargs):
            began = time.process_time()
            try:
                return watched(*args, **kwargs)
            finally:
                self.seconds += time.process_time() - began

        setattr(owner, name, call)


class Training:
    """One way to train: plain (`mode` "eager"), or under a budget."""

    def __init__(self, name, mode, budget, args):
        import torch

        import regen

        torch.set_num_threads(1)
        self.torch, self.args, self.mode = torch, args, mode
        self.model = build(name, args)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
        regen._runtime.install_memory_meter()
        self.memory = regen._runtime
        sample = batch_of(lengths(args)[0], 0, args)
        self.planned = self.model
        if mode == "wrap":
            self.planned = regen.wrap(self.model, (), budget, kwargs=sample, cache=False)
        elif mode == "step":
            self.planned = regen.step(self.model, None, self.optimizer, (), budget, kwargs=sample, cache=False)
        self.waits = Waits()
        if mode != "eager":
            shapes = self.planned.regen
            for owner, method in ((shapes.sized, "find"), (shapes, "shape_of"), (shapes, "activate")):
                self.waits.watch(owner, method)

    def step(self, number, length):
        batch = batch_of(length, number, self.args)
        self.torch.manual_seed(number)  # dropout
        self.waits.seconds = 0.0
        begin, used = time.perf_counter(), time.process_time()
        if self.mode == "step":
            loss = self.planned(**batch)
        else:
            loss = self.planned(**batch).loss
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad()
        value = float(loss.detach()).hex()
        return time.perf_counter() - begin, time.process_time() - used, self.waits.seconds, value

    def state(self):
        digest = hashlib.sha256()
        for parameter in self.model.parameters():
            digest.update(parameter.detach().cpu().contiguous().numpy().tobytes())
        return digest.hexdigest()

    def peak(self):
        return self.memory.memory_use(self.args.device)["allocated_peak"]

    def plans(self):
        if self.mode == "eager":
            return []
        sized = self.planned.regen.sized
        return [level.sizes for level in sized.levels()], sized.reason, self.planned.regen.active.session.memory().unforeseen


def serve(pipe, *what):
    training = Training(*what)
    pipe.send(None)
    while True:
        call, *arguments = pipe.recv()
        if call == "end":
            return
        pipe.send(getattr(training, call)(*arguments))


class Child:
    """A training in a process of its own."""

    def __init__(self, *what):
        context = multiprocessing.get_context("fork" if what[-1].device == "cpu" else "spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=serve, args=(other, *what), daemon=True)
        self.process.start()
        other.close()
        self.pipe.recv()

    def ask(self, *call):
        self.pipe.send(call)
        return self.pipe.recv()

    def end(self):
        self.pipe.send(("end",))
        self.process.join()


def plain_bytes(name, args):
    child = Child(name, "eager", None, args)
    for number in range(2):  # the second has the optimizer's state
        child.ask("step", number, MOST)
    peak = child.ask("peak")
    child.end()
    return peak


def compare(name, args):
    whole = plain_bytes(name, args)
    ways = [(mode, share) for mode in args.modes for share in args.shares]
    plain = Child(name, "eager", None, args)
    children = {way: Child(name, way[0], int(way[1] * whole), args) for way in ways}
    times, unequal = dict.fromkeys([None, *ways], 0.0), dict.fromkeys(ways, 0)
    longest, slowest = dict.fromkeys(ways, (0.0, 0)), dict.fromkeys(ways, (0.0, 0))  # (seconds, length)
    cpu = dict.fromkeys([None, *ways], 0.0)
    early = dict.fromkeys([None, *ways], 0.0)
    start = dict.fromkeys(ways, 0.0)
    for number, length in enumerate(lengths(args)):
        seconds, used, _, loss = plain.ask("step", number, length)
        times[None] += seconds
        cpu[None] += used
        early[None] += used if number < FIRST else 0
        state = plain.ask("state") if number % 100 == 99 or number == args.steps - 1 else None
        for way, child in children.items():
            own, own_used, waited, own_loss = child.ask("step", number, length)
            times[way] += own
            cpu[way] += own_used
            early[way] += own_used if number < FIRST else 0
            if number < FIRST:
                start[way] += own - seconds
            else:
                longest[way] = max(longest[way], (waited, length))
                slowest[way] = max(slowest[way], (own_used - used, length))
            unequal[way] += own_loss != loss or (state is not None and child.ask("state") != state)
    print(f"{name}: {args.steps} steps, {len(set(lengths(args)))} lengths, plain PyTorch {times[None]:.1f} s, {whole / 2**20:.1f} MiB at length {MOST}")
    rows = []

    def steady(way):
        return (cpu[way] - early[way]) / (cpu[None] - early[None])

    for way, child in children.items():
        plans, reason, unforeseen = child.ask("plans")
        ratio, later = times[way] / times[None], (times[way] - start[way]) / times[None]
        print(
            f"  {way[0]} in {way[1]:.0%} of the bytes: {ratio:.3f} x, without what the first {FIRST} steps took more {later:.3f} x, processor time "
            f"{cpu[way] / cpu[None]:.3f} x, after them {steady(way):.3f} x; {len(plans)} plans "
            f"{plans}; longest wait for a plan {longest[way][0] * 1e3:.0f} ms at length {longest[way][1]}, slowest step {slowest[way][0] * 1e3:.0f} ms "
            f"beyond plain at length {slowest[way][1]}; {unequal[way]} steps unequal; {unforeseen} unforeseen {reason}")
        rows.append([
            name, way[0], way[1], args.steps, len(set(lengths(args))), round(times[None], 2), round(times[way], 2), round(ratio, 4), round(later, 4),
            round(cpu[way] / cpu[None], 4), round(steady(way), 4), len(plans), round(longest[way][0] * 1e3, 1), round(slowest[way][0] * 1e3, 1),
            unequal[way]])
        child.end()
    plain.end()
    return rows


COLUMNS = [
    "model", "mode", "share_of_bytes", "steps", "lengths", "plain_s", "regen_s", "ratio", "ratio_after_start", "processor_ratio",
    "processor_ratio_after_start", "plans", "longest_wait_ms", "slowest_ms", "unequal_steps", "commit", "machine", "date", "command"]


def append(rows, args):
    commit = subprocess.run(["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()
    machine = "2 cores Intel Xeon, one thread" if args.device == "cpu" else args.device
    command = "benchmarks/lengths.py " + " ".join(a for a in sys.argv[1:] if a != "--append")
    path = ROOT / "results" / "lengths.csv"
    fresh = not path.exists()
    with path.open("a", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        if fresh:
            writer.writerow(COLUMNS)
        for row in rows:
            writer.writerow([*row, commit, machine, datetime.date.today().isoformat(), command.strip()])


def main():
    args = parse()
    if args.device == "cpu":  # the processes that are forked have them
        import transformers  # noqa: F401

        import regen  # noqa: F401
    rows = [row for name in args.models for row in compare(name, args)]
    if args.append:
        append(rows, args)


if __name__ == "__main__":
    main()
