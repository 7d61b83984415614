"""Captured programs for the tests of `regen profile`, `run` and `bench`."""

import torch
from torch import nn


class Block(nn.Module):
    """Convolutions with batch norm and dropout: state that must change once, and numbers drawn once."""

    def __init__(self, depth=4, channels=8):
        super().__init__()
        layers = [nn.Conv2d(3, channels, 3, padding=1)]
        for _ in range(depth):
            layers += [nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU(), nn.Dropout(0.1)]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(channels, 5)

    def forward(self, x):
        return self.head(self.layers(x).mean((2, 3)))


def save_wrapped(folder):
    """Forward and backward pass with a boundary between them."""
    from regen.capture import capture, save

    torch.manual_seed(1)
    save(capture(Block(), (torch.randn(8, 3, 16, 16),), name="block"), folder)


def save_step(folder):
    """A whole training step with its optimizer."""
    from regen.capture import capture_step, save

    torch.manual_seed(1)
    model = Block()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    batch = (torch.randn(8, 3, 16, 16), torch.randint(5, (8,)))
    save(capture_step(model, nn.functional.cross_entropy, optimizer, batch, name="step"), folder)
