"""Segmentation with a U-Net under a byte budget; the pictures are generated: find the bright discs.

    python examples/segmentation.py --steps 20
    python examples/segmentation.py --full -b 11 --budget 8GiB --device cuda"""

import argparse

import torch
from torch.nn import functional as F

from common import add_budget_options, finish, wrap
from examples.models import build


def discs(shape, generator):
    """Noise with discs, and where they are."""
    batch, _channels, height, width = shape
    rows, columns = torch.arange(height)[None, :, None], torch.arange(width)[None, None, :]
    centre = torch.rand(batch, 2, 1, 1, generator=generator)
    distance = (rows - centre[:, 0] * height) ** 2 + (columns - centre[:, 1] * width) ** 2
    inside = distance < (min(height, width) / 4) ** 2
    return torch.randn(shape, generator=generator) + 2.0 * inside[:, None], inside.long()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-b", "--batch-size", type=int, default=4)
    parser.add_argument("--full", action="store_true", help="416 x 608 pictures and 64 channels, not a tiny one")
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--lr", type=float, default=0.01)
    add_budget_options(parser)
    options = parser.parse_args()
    torch.manual_seed(0)
    model, (sample, _), _ = build("unet", tiny=not options.full, batch=options.batch_size)
    model = wrap(model.to(options.device), (sample.to(options.device),), options)
    optimizer = torch.optim.AdamW(model.parameters(), options.lr)
    generator = torch.Generator().manual_seed(0)
    for step in range(options.steps):
        x, y = (t.to(options.device) for t in discs(sample.shape, generator))
        out = model(x)
        loss = F.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found, wanted = out.argmax(1) == 1, y == 1
        overlap = (found & wanted).sum() / (found | wanted).sum().clamp(min=1)
        print(f"step {step}: loss {loss.item():.4f}, overlap {overlap.item():.2f}")
    finish(model, options)


if __name__ == "__main__":
    main()
