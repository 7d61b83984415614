"""U-Net: a contracting path, an expanding path, and skips between them."""

import itertools

import torch
from torch import nn
from torch.nn import functional as F


def double_conv(before, after):
    return nn.Sequential(
        nn.Conv2d(before, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(inplace=True),
        nn.Conv2d(after, after, 3, padding=1), nn.BatchNorm2d(after), nn.ReLU(inplace=True))


class UNet(nn.Module):
    """Ronneberger et al. with batch norm and padding. `width` 64 and depth 4 are the published size."""

    def __init__(self, width=64, depth=4, classes=2, interpolate=False):
        super().__init__()
        sizes = [width << level for level in range(depth + 1)]
        self.first = double_conv(3, width)
        self.down = nn.ModuleList(double_conv(a, b) for a, b in itertools.pairwise(sizes))
        self.up = nn.ModuleList(self.up_layer(b, a, interpolate) for a, b in itertools.pairwise(sizes))
        self.join = nn.ModuleList(double_conv(2 * a, a) for a in sizes[:-1])
        self.last = nn.Conv2d(width, classes, 1)

    @staticmethod
    def up_layer(before, after, interpolate):
        if not interpolate:
            return nn.ConvTranspose2d(before, after, 2, 2)
        return nn.Sequential(nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True), nn.Conv2d(before, after, 1))

    def forward(self, x):
        skips = [self.first(x)]
        for block in self.down:
            skips.append(block(F.max_pool2d(skips[-1], 2)))
        y = skips.pop()
        for up, join in zip(reversed(self.up), reversed(self.join)):
            y = join(torch.cat([skips.pop(), up(y)], 1))
        return self.last(y)
