"""Networks of depthwise convolutions: MobileNetV2, and one with squeeze-and-excitation."""

import torch
from torch import nn
from torch.nn import functional as F


def conv_norm(before, after, kernel, stride=1, groups=1, activation=nn.ReLU6):
    conv = nn.Conv2d(before, after, kernel, stride, padding=kernel // 2, groups=groups, bias=False)
    layers = [conv, nn.BatchNorm2d(after)]
    return nn.Sequential(*layers, activation(inplace=True)) if activation else nn.Sequential(*layers)


class InvertedResidual(nn.Module):
    def __init__(self, before, after, stride, expansion):
        super().__init__()
        hidden = before * expansion
        layers = [conv_norm(before, hidden, 1)] if expansion > 1 else []
        layers.append(conv_norm(hidden, hidden, 3, stride, groups=hidden))
        layers.append(conv_norm(hidden, after, 1, activation=None))
        self.layers = nn.Sequential(*layers)
        self.keeps_shape = stride == 1 and before == after

    def forward(self, x):
        return x + self.layers(x) if self.keeps_shape else self.layers(x)


# expansion, channels at width 1, repeats, stride of the first
MOBILENET_V2 = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]


class MobileNetV2(nn.Module):
    """Sandler et al. `width` 1.0 is the published size."""

    def __init__(self, width=1.0, classes=1000, stages=MOBILENET_V2):
        super().__init__()
        before = channels(32, width)
        layers = [conv_norm(3, before, 3, 2)]
        for expansion, size, repeats, stride in stages:
            for index in range(repeats):
                layers.append(InvertedResidual(before, channels(size, width), stride if index == 0 else 1, expansion))
                before = channels(size, width)
        last = channels(1280, max(width, 1.0) if width >= 1 else width)
        self.features = nn.Sequential(*layers, conv_norm(before, last, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, classes))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


def channels(size, width):
    return max(4, int(size * width + 2) // 4 * 4)


class SqueezeExcite(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.down = nn.Conv2d(width, max(2, width // 4), 1)
        self.up = nn.Conv2d(max(2, width // 4), width, 1)

    def forward(self, x):
        scale = self.up(F.relu(self.down(F.adaptive_avg_pool2d(x, 1))))
        return x * F.hardsigmoid(scale)


class DepthwiseSeNet(nn.Module):
    """Depthwise blocks with squeeze-and-excitation and hard swish."""

    def __init__(self, width, depth, classes):
        super().__init__()
        blocks = [conv_norm(3, width, 3, 2, activation=nn.Hardswish)]
        for _ in range(depth):
            blocks += [
                conv_norm(width, width, 5, groups=width, activation=nn.Hardswish), SqueezeExcite(width),
                conv_norm(width, width, 1, activation=None)]
        self.blocks = nn.Sequential(*blocks)
        self.classifier = nn.Linear(width, classes)

    def forward(self, x):
        return self.classifier(torch.flatten(F.adaptive_avg_pool2d(self.blocks(x), 1), 1))
