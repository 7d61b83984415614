"""Training steps of large PyTorch models as graph files, captured and measured on the device at hand, for auto_scale.py:

    python experiments/captured_graphs.py --out graphs && python experiments/auto_scale.py graphs/*.json

Every op is measured alone and once for each shape, so that a model of many equal layers takes no longer than one of few. On a
CPU the batches are small: the graph is the same, only bytes and seconds differ."""

import argparse
import json
import pathlib
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT)]

import torch
from torch.nn import functional as F

from examples.models import branches, recurrent, residual, transformers
from regen._session.session import Session
from regen.capture import capture_step
from regen.options import Options


def pictures(batch, size=112):
    return torch.randn(batch, 3, size, size), torch.randint(1000, (batch,))


def token_loss(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def gpt(**sizes):
    model = transformers.Gpt(context=256, **sizes)
    tokens = torch.randint(50257, (4, 257))
    return model, (tokens[:, :-1].contiguous(), tokens[:, 1:].contiguous()), token_loss


MODELS = {
    "gpt2_medium": lambda: gpt(width=1024, depth=24, heads=16),
    "gpt2_xl": lambda: gpt(width=1600, depth=48, heads=25),
    "resnet152": lambda: (residual.ResNet(residual.Bottleneck, (3, 8, 36, 3)), pictures(4), F.cross_entropy),
    "densenet201": lambda: (branches.DenseNet(32, (6, 12, 48, 32)), pictures(4), F.cross_entropy),
    "lstm_unrolled": lambda: (recurrent.CellLoop(64, 128, 10), (torch.randn(8, 400, 64), torch.randint(10, (8,))), F.cross_entropy),
}


def graph_of(name):
    model, args, loss = MODELS[name]()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    session = Session(capture_step(model.train(), loss, optimizer, args), Options(budget=1.0, cache=False))
    document = json.loads(session.graph_json())
    document["name"] = name
    return document


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL", help=f"of {', '.join(MODELS)}")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "out" / "graphs")
    options = parser.parse_args()
    unknown = [name for name in options.models if name not in MODELS]
    if unknown:
        sys.exit(f"unknown model '{unknown[0]}', expected one of {', '.join(MODELS)}")
    options.out.mkdir(parents=True, exist_ok=True)
    torch.manual_seed(0)
    for name in options.models:
        begin = time.time()
        document = graph_of(name)
        (options.out / f"{name}.json").write_text(json.dumps(document))
        print(f"{name}: {len(document['ops'])} ops, {len(document['tensors'])} tensors, {time.time() - begin:.0f} s", flush=True)


if __name__ == "__main__":
    main()
