"""Networks whose layers branch and join by concatenation: GoogLeNet and DenseNet."""

import torch
from torch import nn
from torch.nn import functional as F


def conv_norm_relu(before, after, kernel, stride=1):
    return nn.Sequential(
        nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, bias=False),
        nn.BatchNorm2d(after, eps=0.001), nn.ReLU(inplace=True))


class Inception(nn.Module):
    def __init__(self, before, one, three, five, pooled):
        super().__init__()
        self.one = conv_norm_relu(before, one, 1)
        self.three = nn.Sequential(conv_norm_relu(before, three[0], 1), conv_norm_relu(three[0], three[1], 3))
        self.five = nn.Sequential(conv_norm_relu(before, five[0], 1), conv_norm_relu(five[0], five[1], 3))
        self.pooled = nn.Sequential(nn.MaxPool2d(3, 1, padding=1), conv_norm_relu(before, pooled, 1))
        self.channels = one + three[1] + five[1] + pooled

    def forward(self, x):
        return torch.cat([self.one(x), self.three(x), self.five(x), self.pooled(x)], 1)


# 1x1, (reduce, 3x3), (reduce, 5x5), pooled; "M" halves the picture. Channels at width 64.
GOOGLENET = [
    (64, (96, 128), (16, 32), 32), (128, (128, 192), (32, 96), 64), "M",
    (192, (96, 208), (16, 48), 64), (160, (112, 224), (24, 64), 64), (128, (128, 256), (24, 64), 64),
    (112, (144, 288), (32, 64), 64), (256, (160, 320), (32, 128), 128), "M",
    (256, (160, 320), (32, 128), 128), (384, (192, 384), (48, 128), 128),
]


class GoogLeNet(nn.Module):
    """Szegedy et al. with batch norm, without the auxiliary heads. `width` 64 is the published size."""

    def __init__(self, width=64, classes=1000, blocks=GOOGLENET, dropout=0.2):
        super().__init__()
        self.stem = nn.Sequential(
            conv_norm_relu(3, width, 7, 2), nn.MaxPool2d(3, 2, padding=1), conv_norm_relu(width, width, 1),
            conv_norm_relu(width, 3 * width, 3), nn.MaxPool2d(3, 2, padding=1))
        before, layers = 3 * width, []
        for block in blocks:
            if block == "M":
                layers.append(nn.MaxPool2d(3, 2, padding=1))
            else:
                layers.append(Inception(before, *scaled(block, width)))  # pyright: ignore[reportGeneralTypeIssues]
                before = layers[-1].channels
        self.blocks = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(dropout), nn.Linear(before, classes))

    def forward(self, x):
        return self.classifier(torch.flatten(F.adaptive_avg_pool2d(self.blocks(self.stem(x)), 1), 1))


def scaled(block, width):
    if isinstance(block, tuple):
        return tuple(scaled(item, width) for item in block)
    return max(1, block * width // 64)


class DenseLayer(nn.Module):
    def __init__(self, before, growth):
        super().__init__()
        self.reduce = nn.Sequential(nn.BatchNorm2d(before), nn.ReLU(), nn.Conv2d(before, 4 * growth, 1, bias=False))
        self.grow = nn.Sequential(nn.BatchNorm2d(4 * growth), nn.ReLU(), nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False))

    def forward(self, features):
        return self.grow(self.reduce(torch.cat(features, 1)))


class DenseNet(nn.Module):
    """Huang et al. Growth 32 and depths (6, 12, 24, 16) are DenseNet-121."""

    def __init__(self, growth=32, depths=(6, 12, 24, 16), classes=1000):
        super().__init__()
        before = 2 * growth
        self.stem = nn.Sequential(
            nn.Conv2d(3, before, 7, 2, padding=3, bias=False), nn.BatchNorm2d(before), nn.ReLU(), nn.MaxPool2d(3, 2, padding=1))
        self.blocks, self.transitions = nn.ModuleList(), nn.ModuleList()
        for i, depth in enumerate(depths):
            self.blocks.append(nn.ModuleList(DenseLayer(before + i * growth, growth) for i in range(depth)))
            before += depth * growth
            transition = [nn.BatchNorm2d(before), nn.ReLU()]
            if i + 1 < len(depths):
                transition += [nn.Conv2d(before, before // 2, 1, bias=False), nn.AvgPool2d(2, ceil_mode=True)]
                before //= 2
            self.transitions.append(nn.Sequential(*transition))
        self.classifier = nn.Linear(before, classes)

    def forward(self, x):
        y = self.stem(x)
        for block, transition in zip(self.blocks, self.transitions):
            features = [y]
            for layer in block:  # pyright: ignore[reportGeneralTypeIssues]  a ModuleList
                features.append(layer(features))
            y = transition(torch.cat(features, 1))
        return self.classifier(y.mean((2, 3)))
