"""Chains of layers without branches."""

import itertools

import torch
from torch import nn


class Mlp(nn.Module):
    def __init__(self, widths):
        super().__init__()
        layers = []
        for before, after in itertools.pairwise(widths):
            layers += [nn.Linear(before, after), nn.Tanh()]
        self.layers = nn.Sequential(*layers, nn.Linear(widths[-2], widths[-1]))

    def forward(self, x):
        return self.layers(x)


class PlainCnn(nn.Module):
    """Convolutions with strides, group norm and leaky ReLU, `repeats` for each size of picture."""

    def __init__(self, width, classes, repeats=1):
        super().__init__()
        channels = [3, width, 2 * width, 4 * width]
        layers = []
        for before, after in itertools.pairwise(channels):
            for index in range(repeats):
                conv = nn.Conv2d(after, after, 3, padding=1) if index else nn.Conv2d(before, after, 3, stride=2, padding=1)
                layers += [conv, nn.GroupNorm(2, after), nn.LeakyReLU(0.1)]
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(channels[-1], classes)

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


VGG16 = [1, 1, "M", 2, 2, "M", 4, 4, 4, "M", 8, 8, 8, "M", 8, 8, 8, "M"]
VGG19 = [1, 1, "M", 2, 2, "M", 4, 4, 4, 4, "M", 8, 8, 8, 8, "M", 8, 8, 8, 8, "M"]


class Vgg16(nn.Module):
    """Simonyan and Zisserman's network D, or E with the layers of VGG19. `width` 64 is the published size."""

    def __init__(self, width=64, hidden=4096, classes=1000, pooled=7, layers=VGG16):
        super().__init__()
        self.features = nn.Sequential(*self.feature_layers(width, layers))
        self.pool = nn.AdaptiveAvgPool2d(pooled)
        self.classifier = nn.Sequential(
            nn.Linear(8 * width * pooled * pooled, hidden), nn.ReLU(inplace=True), nn.Dropout(),
            nn.Linear(hidden, hidden), nn.ReLU(inplace=True), nn.Dropout(),
            nn.Linear(hidden, classes))

    @staticmethod
    def feature_layers(width, sizes):
        layers, before = [], 3
        for item in sizes:
            if item == "M":
                layers.append(nn.MaxPool2d(2))
            else:
                layers += [nn.Conv2d(before, item * width, 3, padding=1), nn.ReLU(inplace=True)]
                before = item * width
        return layers

    def forward(self, x):
        return self.classifier(torch.flatten(self.pool(self.features(x)), 1))
