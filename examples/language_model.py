"""A language model under a byte budget, on the letters of a text file (or of this script).

    python examples/language_model.py --steps 20
    python examples/language_model.py --text book.txt --model gpt2_medium --full --bf16 --budget 20GiB --device cuda"""

import argparse
import pathlib

import torch
from torch.nn import functional as F

from common import add_budget_options, finish, wrap
from examples.models import build


def batches(text, batch, length, vocabulary, generator):
    codes = torch.tensor(list(text.encode()), dtype=torch.long) % vocabulary
    while True:
        starts = torch.randint(len(codes) - length - 1, (batch,), generator=generator)
        window = torch.stack([codes[s:s + length + 1] for s in starts.tolist()])
        yield window[:, :-1].contiguous(), window[:, 1:].contiguous()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", default=__file__)
    parser.add_argument("--model", choices=["gpt2_medium", "gpt2_dropout", "llama"], default="gpt2_dropout")
    parser.add_argument("-b", "--batch-size", type=int, default=32)
    parser.add_argument("--full", action="store_true", help="the published size, not a tiny one")
    parser.add_argument("--bf16", action="store_true", help="autocast to bfloat16")
    parser.add_argument("--accumulate", type=int, default=1, help="batches for each update")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lr", type=float, default=3e-3)
    add_budget_options(parser)
    options = parser.parse_args()
    torch.manual_seed(0)
    model, (sample, _), _ = build(options.model, tiny=not options.full, batch=options.batch_size)
    model, sample = model.to(options.device), sample.to(options.device)
    vocabulary = next(iter(model.parameters())).shape[0]
    autocast = torch.autocast(torch.device(options.device).type, torch.bfloat16, enabled=options.bf16)
    with autocast:
        model = wrap(model, (sample,), options)
    optimizer = torch.optim.AdamW(model.parameters(), options.lr)
    text = pathlib.Path(options.text).read_text()
    source = batches(text, *sample.shape, vocabulary, torch.Generator().manual_seed(0))
    for step in range(options.steps):
        total = 0.0
        for _ in range(options.accumulate):
            x, y = (t.to(options.device) for t in next(source))
            with autocast:
                loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten()) / options.accumulate
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step}: loss {total:.4f}")
    finish(model, options)


if __name__ == "__main__":
    main()
