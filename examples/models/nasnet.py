"""NASNet-A: two cells that a search has found, repeated."""

import torch
from torch import nn
from torch.nn import functional as F


def norm(channels):
    return nn.BatchNorm2d(channels, eps=0.001)


def squeeze(before, after):
    return nn.Sequential(nn.ReLU(), nn.Conv2d(before, after, 1, bias=False), norm(after))


def separable(before, after, kernel, stride=1):
    """Twice a depthwise and a pointwise convolution; the first one strides."""
    layers = []
    for channels, step in ((before, stride), (after, 1)):
        layers += [nn.ReLU(), nn.Conv2d(channels, channels, kernel, step, kernel // 2, groups=channels, bias=False),
                   nn.Conv2d(channels, after, 1, bias=False), norm(after)]
    return nn.Sequential(*layers)


def average(stride=1):
    return nn.AvgPool2d(3, stride, 1, count_include_pad=False)


class Halved(nn.Module):
    """Half as many rows and columns without losing the odd ones: two strided paths, the second shifted by one."""

    def __init__(self, before, after):
        super().__init__()
        self.even, self.odd = nn.Conv2d(before, after // 2, 1, bias=False), nn.Conv2d(before, after - after // 2, 1, bias=False)
        self.norm = norm(after)

    def forward(self, x):
        x = F.relu(x)
        shifted = F.pad(x, (0, 1, 0, 1))[:, :, 1:, 1:]
        return self.norm(torch.cat([self.even(x[:, :, ::2, ::2]), self.odd(shifted[:, :, ::2, ::2])], 1))


class Cell(nn.Module):
    """What both kinds do first: two inputs (channels, how often they were halved) are brought to one size; `before` is None for the
    first cell, which has only one."""

    def __init__(self, now, before, channels):
        super().__init__()
        self.now, self.before = squeeze(now[0], channels), nn.Identity()
        self.channels_before = channels if before else now[0]
        if before and before[1] < now[1]:
            self.before = Halved(before[0], channels)
        elif before and before[0] != channels:
            self.before = squeeze(before[0], channels)


class Normal(Cell):
    def __init__(self, now, before, channels):
        super().__init__(now, before, channels)
        self.paths = nn.ModuleList(separable(channels, channels, kernel) for kernel in (5, 3, 5, 3, 3))
        self.average = average()
        self.makes = 6 * channels, now[1]

    def forward(self, now, before):
        h, p = self.now(now), self.before(before)
        a, b, c, d, e = self.paths
        return torch.cat([p, a(h) + b(p), c(p) + d(p), self.average(h) + p, self.average(p) + self.average(p), e(h) + h], 1)


class Reduction(Cell):
    def __init__(self, now, before, channels):
        super().__init__(now, before, channels)
        older = [separable(self.channels_before, channels, kernel, 2) for kernel in (7, 7, 5)]
        self.paths = nn.ModuleList([separable(channels, channels, 5, 2), *older, separable(channels, channels, 3)])
        self.largest, self.halved, self.average = nn.MaxPool2d(3, 2, 1), average(2), average()
        self.makes = 4 * channels, now[1] + 1

    def forward(self, now, before):
        h, p = self.now(now), self.before(before)
        a, b, c, d, e = self.paths
        first, second, third = a(h) + b(p), self.largest(h) + c(p), self.halved(h) + d(p)
        return torch.cat([second, third, self.average(first) + second, e(first) + self.largest(h)], 1)


class NasNet(nn.Module):
    """Zoph et al. Mobile: stem 32, 44 channels, 4 cells (for 224 x 224); large: stem 96, 168 channels, 6 cells and `skips`, where a
    cell behind a reduction does not see what went into that (for 331 x 331)."""

    def __init__(self, stem=32, channels=44, cells=4, classes=1000, skips=False):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, stem, 3, 2, bias=False), norm(stem))
        plan = [(Reduction, channels // 4), (Reduction, channels // 2), *[(Normal, channels)] * cells,
                (Reduction, 2 * channels), *[(Normal, 2 * channels)] * cells, (Reduction, 4 * channels), *[(Normal, 4 * channels)] * cells]
        self.cells, self.skipped = nn.ModuleList(), []
        now, before = (stem, 0), None
        for index, (kind, size) in enumerate(plan):
            self.cells.append(kind(now, before, size))
            self.skipped.append(skips and kind is Reduction and index > 1)
            now, before = self.cells[-1].makes, before if self.skipped[-1] else now
        self.classifier = nn.Sequential(nn.Dropout(), nn.Linear(now[0], classes))

    def forward(self, x):
        now = before = self.stem(x)
        for cell, skipped in zip(self.cells, self.skipped):
            made = cell(now, before)
            now, before = made, before if skipped else now
        return self.classifier(F.relu(now).mean((2, 3)))
