"""One start of wrap or step with a cache, in a process of its own: prints what was captured, planned and computed."""

import hashlib
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(ROOT), str(ROOT / "python")]

import torch

import regen
from examples.models import build


def main(kind, cache):
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, args, loss_fn = build("resnet18", tiny=True)
    model.train()
    options = dict(cache=cache or False, work_limit=2000)
    losses = []
    if kind == "step":
        step = regen.step(model, loss_fn, torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9), args, 0.8, **options)
        session = step.active.session
        losses = [step(*args) for _ in range(2)]
    else:
        wrapped = regen.wrap(model, args[:-1], 0.8, reserve=0, **options)
        session = wrapped.regen.active.session
        for _ in range(2):
            losses.append(loss_fn(wrapped(*args[:-1]), args[-1]))
            losses[-1].backward()
    bits = hashlib.sha256()
    for tensor in [*losses, *model.state_dict().values(), *(p.grad for p in model.parameters() if p.grad is not None)]:
        bits.update(tensor.detach().contiguous().numpy().tobytes())
    print(json.dumps({"program": session.fingerprint, "plan": session.plan_json(), "bits": bits.hexdigest()}))


main(*sys.argv[1:])
