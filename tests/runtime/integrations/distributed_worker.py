"""Runs on every rank of distributed_test.py; rank 0 prints what happened as JSON."""

import faulthandler
import gc
import json
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "python")]

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

import regen

WORK = 200_000


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        return x + self.dropout(self.down(F.gelu(self.up(self.norm(x)))))


def make(depth=4, width=32):
    torch.manual_seed(0)
    return nn.Sequential(*(Block(width) for _ in range(depth)), nn.Linear(width, 8))


def batch(step, n=512):
    generator = torch.Generator().manual_seed(100 * step + dist.get_rank())
    return torch.randn(n, 32, generator=generator), torch.randint(8, (n,), generator=generator)


def train(model, steps=3, sizes=(512, 512, 512)):
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    torch.manual_seed(7 + dist.get_rank())
    for step in range(steps):
        x, y = batch(step, sizes[step])
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()


def full(tensor):
    return tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor


def same(a, b):
    pairs = list(zip(a.parameters(), b.parameters()))
    return all(torch.equal(full(p), full(q)) and torch.equal(full(p.grad), full(q.grad)) for p, q in pairs)


def everywhere(value):
    values = [None] * dist.get_world_size()
    dist.all_gather_object(values, value)
    return values


def test_ddp():
    plain = DistributedDataParallel(make(), bucket_cap_mb=0.02)
    wrapped = regen.wrap(make(), (batch(0)[0],), 0.7, planner="checkmate", work_limit=WORK, gradient_chunk=8 << 10)
    planned = DistributedDataParallel(wrapped, bucket_cap_mb=0.02)
    train(plain)
    train(planned)
    equal = same(plain, planned)
    # The last batch of one rank is smaller: it plans alone, and no rank waits.
    sizes = (512, 512, 512 if dist.get_rank() == 0 else 200)
    train(plain, sizes=sizes)
    train(planned, sizes=sizes)
    return {
        "equal": everywhere(equal), "equal_with_a_smaller_batch": everywhere(same(plain, planned)),
        "hashes": everywhere(next(iter(wrapped.regen.shapes.values())).session.hash),
        "recomputed": wrapped.regen.active.session.report.recomputed, "parts": len(wrapped.regen.active.parts)}


def test_without_a_sample():
    """The first batch is the sample: alike on all ranks, they plan together; where it is not, each plans for its own."""
    found = {}
    for name, first in (("alike", 512), ("unlike", 512 if dist.get_rank() == 0 else 384)):
        plain = DistributedDataParallel(make(), bucket_cap_mb=0.02)
        wrapped = regen.wrap(make(), budget=0.8, work_limit=20_000, gradient_chunk=8 << 10)
        planned = DistributedDataParallel(wrapped, bucket_cap_mb=0.02)
        for model in (plain, planned):
            train(model, sizes=(first, 512, 512))
        found[name] = {"equal": everywhere(same(plain, planned)), "together": everywhere(wrapped.regen.shared is not None)}
    return found


def test_lengths():
    """Every batch of every rank has another length than the sample: each rank has a few plans of its own for them."""
    plain = DistributedDataParallel(make(2), bucket_cap_mb=0.02)
    wrapped = regen.wrap(make(2), (batch(0, 64)[0].view(2, 32, 32),), "64MiB", work_limit=20_000, cache=False)
    planned = DistributedDataParallel(wrapped, bucket_cap_mb=0.02)
    lengths = [32, *(16 + 3 * step + 5 * dist.get_rank() for step in range(8)), 32]
    for model in (plain, planned):
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        torch.manual_seed(7 + dist.get_rank())
        for step, length in enumerate(lengths):
            x, y = batch(step, 2 * length)
            optimizer.zero_grad()
            F.cross_entropy(model(x.view(2, length, 32)).flatten(0, 1), y).backward()
            optimizer.step()
    return {
        "equal": everywhere(same(plain, planned)), "shared": everywhere(wrapped.regen.shared is not None),
        "plans": everywhere(len(wrapped.regen.sized.levels())), "captures": everywhere(len(wrapped.regen.shapes))}


class Island(nn.Module):
    """Sizes follow from what is computed."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(32, 32)

    def forward(self, x):
        rows = (x.sum(1) > 0).nonzero()[:, 0]
        return x.index_put((rows,), self.inner(x[rows]))


class Branching(nn.Module):
    """Another path for a batch with negative marks."""

    def __init__(self):
        super().__init__()
        self.inner, self.last = nn.Linear(32, 32), nn.Linear(32, 8)

    def forward(self, x, marks):
        h = self.inner(x)
        return self.last(torch.tanh(h) if (marks > 0).all() else h.sin())


def trained_with_values(make_model, marks, sample, seed=7):
    """Plain DDP and planned ranks with the same bits, and whether the ranks have one plan."""
    plain, start = make_model(), make_model()
    given = (batch(0)[0], *marks) if sample else None
    wrapped = regen.wrap(start, given, budget="64MiB", work_limit=20_000, cache=False)
    for model in (plain, wrapped):
        parallel, optimizer = DistributedDataParallel(model), torch.optim.AdamW(model.parameters(), lr=0.01)
        torch.manual_seed(seed)
        for step in range(3):
            x, y = batch(step)
            optimizer.zero_grad()
            F.cross_entropy(parallel(x, *marks), y).backward()
            optimizer.step()
    return {"equal": everywhere(same(plain, wrapped)), "together": everywhere(wrapped.regen.shared is not None)}


def with_island():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 32), Island(), nn.Linear(32, 8))


def with_branch():
    torch.manual_seed(0)
    return Branching()


def test_values():
    """Islands, and branches on values that go alike or unlike on the ranks, with a sample and without."""
    marks = {"alike": torch.ones(4, dtype=torch.long), "unlike": torch.ones(4, dtype=torch.long) - 2 * dist.get_rank()}
    found = {f"branch {name}": [trained_with_values(with_branch, (m,), sample) for sample in (True, False)] for name, m in marks.items()}
    return found | {"island": [trained_with_values(with_island, (), sample) for sample in (True, False)]}


class Breaks(nn.Module):
    """Cannot be captured."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(32, 8)

    def forward(self, x):
        raise ValueError("no forward pass")


def test_capture_fails():
    """On one rank: the others hear of it, and wait for nothing."""
    model = Breaks() if dist.get_rank() == 1 else make()
    try:
        regen.wrap(model, (batch(0)[0],), "64MiB", work_limit=20_000, cache=False)
        message = ""
    except regen.Error as error:
        message = str(error)
    return {"messages": everywhere(message)}


def one_step(model, optimizer, step):
    torch.manual_seed(1000 * step + dist.get_rank())  # for dropout
    x, y = batch(step)
    optimizer.zero_grad()
    F.cross_entropy(model(x), y).backward()
    optimizer.step()


def as_plain(planned, steps, depth):
    """Whether plain DDP has the same parameters and gradients after so many steps."""
    plain = DistributedDataParallel(make(depth), bucket_cap_mb=0.02)
    optimizer = torch.optim.AdamW(plain.parameters(), lr=0.01)
    for step in range(steps):
        one_step(plain, optimizer, step)
    return everywhere(same(plain, planned))


def wrapped_with_dear_plan():
    """One that makes everything again whenever it is wanted, so that there is something to improve on every machine."""
    wrapped = regen.wrap(make(6), (batch(0)[0],), 0.7, reserve=40_000, work_limit=20_000, improve=1.0, link=(1e7, 1e7, 2e7), cache=False)
    plan = wrapped.regen.active.session
    assert plan.plan_by(["griewank"], 60.0, 20_000)
    plan.meets = True
    wrapped.regen.active.make_ready()
    return wrapped


def test_improved():
    """Rank 0 finds a better plan beside the training, and all take it before the same step."""
    wrapped = wrapped_with_dear_plan()
    planned = DistributedDataParallel(wrapped, bucket_cap_mb=0.02)
    optimizer = torch.optim.AdamW(planned.parameters(), lr=0.01)
    plan = wrapped.regen.active.session
    step, hashes, costs = 0, [plan.hash], [plan.report.cost]
    while plan.meets and step < 4096:
        one_step(planned, optimizer, step)
        hashes.append(plan.hash)
        costs.append(plan.report.cost)
        step += 1
    changes = [i for i in range(1, step + 1) if hashes[i] != hashes[i - 1]]
    for _ in range(2):  # under the better plan
        one_step(planned, optimizer, step)
        step += 1
    return {"equal": as_plain(planned, step, 6), "hashes": everywhere(plan.hash), "changes": everywhere(changes),
            "costs": [costs[0], costs[-1]], "improved": everywhere({"step": plan.report.improved.step}),
            "fits": everywhere(plan.fits), "searches": everywhere(plan.search is not None)}


def test_improvement_refused():
    """One rank has no room for the better plan: none takes it, all go on with the one they have."""
    wrapped = wrapped_with_dear_plan()
    planned = DistributedDataParallel(wrapped, bucket_cap_mb=0.02)
    optimizer = torch.optim.AdamW(planned.parameters(), lr=0.01)
    plan = wrapped.regen.active.session
    before = plan.hash
    hash_with, asked = plan.hash_with, []
    plan.hash_with = lambda found: asked.append(hash_with(found)) or (None if dist.get_rank() == 1 else asked[-1])
    step = 0
    while plan.meets and step < 4096:
        one_step(planned, optimizer, step)
        step += 1
    one_step(planned, optimizer, step)
    return {"equal": as_plain(planned, step + 1, 6), "kept": everywhere(plan.hash == before), "meets": everywhere(plan.meets),
            "offered": everywhere(len(asked) == 1 and asked[0] not in (None, before))}


def test_overlap():
    """One step as torch's profiler recorded it: when the all-reduces started, and when the kernels ran."""
    wrapped = regen.wrap(make(8), (batch(0)[0],), 0.7, planner="checkmate", work_limit=WORK, gradient_chunk=8 << 10)
    model = DistributedDataParallel(wrapped, bucket_cap_mb=0.02)
    train(model)
    loss = F.cross_entropy(model(batch(0)[0]), batch(0)[1])
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        loss.backward()
    with tempfile.NamedTemporaryFile(suffix=".json") as file:
        profiler.export_chrome_trace(file.name)
        events = json.loads(pathlib.Path(file.name).read_text())["traceEvents"]
    timed = sorted((e for e in events if e.get("ph") == "X"), key=lambda e: e["ts"])
    reduces = [e["ts"] for e in timed if e["name"] == "c10d::allreduce_"]  # when they are started; gloo has threads of its own
    # Products of the backward pass are the executor's alone: DDP and autograd make none.
    products = [e["ts"] for e in timed if e["name"] == "aten::mm"]
    return {"parts": len(wrapped.regen.active.parts), "reduces": len(reduces), "products": len(products),
            "products_before_the_first_reduce": sum(t < reduces[0] for t in products),
            "reduces_before_the_last_product": sum(t < products[-1] for t in reduces),
            "first_reduce_us": reduces[0] - products[0], "last_product_us": products[-1] - products[0]}


def test_unequal_callers():
    """The caller of one rank holds more before its first step, so that it plans alone; before the second, all plan again."""
    wrapped = regen.wrap(make(), (batch(0)[0],), 0.7, planner="checkmate", work_limit=WORK)
    planned = DistributedDataParallel(wrapped, bucket_cap_mb=0.02)
    optimizer = torch.optim.AdamW(planned.parameters(), lr=0.01)
    plan = wrapped.regen.active.session
    if dist.get_rank() == 1:
        plan.caller.note(1_500_000)  # more than is ever measured
    hashes, bytes_, too_large = [everywhere(plan.hash)], [], []
    first_peak = plan.predicted_peak - plan.caller_bytes
    for step in range(3):
        one_step(planned, optimizer, step)
        too_large.append(everywhere(first_peak > plan.budget))
        hashes.append(everywhere(plan.hash))
        bytes_.append(everywhere(plan.caller.bytes))
    return {"equal": as_plain(planned, 3, 4), "hashes": hashes, "bytes": bytes_,
            "too_large": too_large[0], "fits": everywhere(plan.fits)}


def test_different_models():
    try:
        regen.wrap(make(3 + dist.get_rank()), (batch(0)[0],), 0.9, reserve=0, planner="checkmate", work_limit=WORK)
        message = ""
    except regen.RegenError as error:
        message = str(error)
    return {"messages": everywhere(message)}


def test_budget_too_small():
    try:
        regen.wrap(make(), (batch(0)[0],), "1000", planner="checkmate", work_limit=WORK)
        message = ""
    except (regen.RegenError, regen.BudgetError) as error:
        message = str(error)
    return {"messages": everywhere(message)}


def test_fsdp():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    models = []
    for planned in (None, "with a sample", "at the first batch"):
        model = make()
        if planned:
            for i in range(4):
                sample = (batch(0)[0].requires_grad_(i > 0),) if planned == "with a sample" else None
                model[i] = regen.wrap(model[i], sample, 0.9, reserve=0, planner="checkmate", work_limit=WORK)
        for block in model:
            fully_shard(block, mesh=mesh)
        fully_shard(model, mesh=mesh)
        train(model)
        models.append(model)
    planned_steps = [block.regen.active.steps for model in models[1:] for block in model[:4]]
    return {"equal": everywhere(all(same(models[0], model) for model in models[1:])), "steps": planned_steps}


def main():
    torch.set_num_threads(1)
    faulthandler.dump_traceback_later(300, exit=True)  # ranks that wait for each other in vain say where
    dist.init_process_group("gloo")
    results = {}
    for name in sys.argv[1:]:
        try:
            results[name] = globals()[f"test_{name}"]()
        except Exception as error:
            import traceback
            traceback.print_exc()
            results[name] = {"error": f"{type(error).__name__}: {error}"}
    if dist.get_rank() == 0:
        print("RESULTS " + json.dumps(results), flush=True)
    gc.collect()  # what still holds the group goes before it: gloo's threads must not outlive the interpreter
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
