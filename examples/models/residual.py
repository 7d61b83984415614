"""Residual networks: ResNet-18 and -50, and one whose blocks are skipped at random."""

import torch
from torch import nn
from torch.nn import functional as F


def conv_norm(before, after, kernel, stride=1):
    conv = nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, bias=False)
    return nn.Sequential(conv, nn.BatchNorm2d(after))


class BasicBlock(nn.Module):
    expansion = 1

    def __init__(self, before, width, stride):
        super().__init__()
        self.first = conv_norm(before, width, 3, stride)
        self.second = conv_norm(width, width, 3)
        self.shortcut = shortcut(before, width, stride)

    def forward(self, x):
        y = self.second(F.relu(self.first(x), inplace=True))
        y += self.shortcut(x)
        return F.relu(y, inplace=True)


class Bottleneck(nn.Module):
    expansion = 4

    def __init__(self, before, width, stride):
        super().__init__()
        self.reduce = conv_norm(before, width, 1)
        self.middle = conv_norm(width, width, 3, stride)
        self.expand = conv_norm(width, width * self.expansion, 1)
        self.shortcut = shortcut(before, width * self.expansion, stride)

    def forward(self, x):
        y = F.relu(self.reduce(x), inplace=True)
        y = F.relu(self.middle(y), inplace=True)
        y = self.expand(y)
        y += self.shortcut(x)
        return F.relu(y, inplace=True)


def shortcut(before, after, stride):
    return nn.Identity() if before == after and stride == 1 else conv_norm(before, after, 1, stride)


class ResNet(nn.Module):
    """He et al. `width` 64 is the published size; depths (2, 2, 2, 2) or (3, 4, 6, 3)."""

    def __init__(self, block, depths, width=64, classes=1000):
        super().__init__()
        self.stem = conv_norm(3, width, 7, 2)
        self.pool = nn.MaxPool2d(3, 2, padding=1)
        before, stages = width, []
        for stage, depth in enumerate(depths):
            for index in range(depth):
                stride = 2 if stage > 0 and index == 0 else 1
                stages.append(block(before, width << stage, stride))
                before = (width << stage) * block.expansion
        self.blocks = nn.Sequential(*stages)
        self.classifier = nn.Linear(before, classes)

    def forward(self, x):
        y = self.pool(F.relu(self.stem(x), inplace=True))
        return self.classifier(torch.flatten(F.adaptive_avg_pool2d(self.blocks(y), 1), 1))


class StochasticDepthNet(nn.Module):
    """Residual blocks that are dropped at random for each sample, drawn in place."""

    def __init__(self, width, depth, classes, survival=0.8):
        super().__init__()
        self.stem = conv_norm(3, width, 3, 2)
        self.blocks = nn.ModuleList(conv_norm(width, width, 3) for _ in range(depth))
        self.classifier = nn.Linear(width, classes)
        self.survival = survival

    def forward(self, x):
        y = self.stem(x)
        for block in self.blocks:
            mask = y.new_empty(y.shape[0], 1, 1, 1).bernoulli_(self.survival).div_(self.survival)
            y = y + mask * F.silu(block(y))
        return self.classifier(y.mean((2, 3)))
