"""Inception v3 and Inception-ResNet v2: branches of factorised convolutions."""

import torch
from torch import nn


def conv(before, after, kernel, stride=1, padding=0):
    return nn.Sequential(
        nn.Conv2d(before, after, kernel, stride, padding, bias=False), nn.BatchNorm2d(after, eps=0.001), nn.ReLU(inplace=True))


def chain(before, *layers):
    """`layers`: (channels, kernel) or (channels, kernel, stride); with a stride there is no padding."""
    made = []
    for after, kernel, *stride in layers:
        sides = kernel if isinstance(kernel, tuple) else (kernel, kernel)
        made.append(conv(before, after, sides, *stride) if stride else conv(before, after, sides, 1, tuple(side // 2 for side in sides)))
        before = after
    return nn.Sequential(*made)


class Branches(nn.Module):
    """Side by side, joined by concatenation."""

    def __init__(self, *branches):
        super().__init__()
        self.branches = nn.ModuleList(branches)

    def forward(self, x):
        return torch.cat([branch(x) for branch in self.branches], 1)


def pooled(before, after):
    return nn.Sequential(nn.AvgPool2d(3, 1, 1), conv(before, after, 1))


def block_35(before, w, pool):
    return Branches(chain(before, (w(64), 1)), chain(before, (w(48), 1), (w(64), 5)), chain(before, (w(64), 1), (w(96), 3), (w(96), 3)),
                    pooled(before, pool)), w(64) + w(64) + w(96) + pool


def to_17(before, w):
    return Branches(chain(before, (w(384), 3, 2)), chain(before, (w(64), 1), (w(96), 3), (w(96), 3, 2)),
                    nn.MaxPool2d(3, 2)), w(384) + w(96) + before


def block_17(before, w, hidden):
    out = w(192)
    return Branches(
        chain(before, (out, 1)), chain(before, (hidden, 1), (hidden, (1, 7)), (out, (7, 1))),
        chain(before, (hidden, 1), (hidden, (7, 1)), (hidden, (1, 7)), (hidden, (7, 1)), (out, (1, 7))), pooled(before, out)), 4 * out


def to_8(before, w):
    return Branches(chain(before, (w(192), 1), (w(320), 3, 2)), chain(before, (w(192), 1), (w(192), (1, 7)), (w(192), (7, 1)), (w(192), 3, 2)),
                    nn.MaxPool2d(3, 2)), w(320) + w(192) + before


def block_8(before, w):
    def fork(size):
        return Branches(chain(size, (w(384), (1, 3))), chain(size, (w(384), (3, 1))))
    return Branches(
        chain(before, (w(320), 1)), nn.Sequential(chain(before, (w(384), 1)), fork(w(384))),
        nn.Sequential(chain(before, (w(448), 1), (w(384), 3)), fork(w(384))), pooled(before, w(192))), w(320) + 4 * w(384) + w(192)


class InceptionV3(nn.Module):
    """Szegedy et al. without the auxiliary head, for pictures of 299 x 299. `width` 1.0 is the published size."""

    def __init__(self, width=1.0, classes=1000):
        super().__init__()

        def w(channels):
            return max(1, int(channels * width))

        layers = [
            conv(3, w(32), 3, 2), conv(w(32), w(32), 3), conv(w(32), w(64), 3, 1, 1), nn.MaxPool2d(3, 2),
            conv(w(64), w(80), 1), conv(w(80), w(192), 3), nn.MaxPool2d(3, 2)]
        before = w(192)
        makers = [
            *(lambda size, pool=pool: block_35(size, w, w(pool)) for pool in (32, 64, 64)), lambda size: to_17(size, w),
            *(lambda size, hidden=hidden: block_17(size, w, w(hidden)) for hidden in (128, 160, 160, 192)), lambda size: to_8(size, w),
            lambda size: block_8(size, w), lambda size: block_8(size, w)]
        for make in makers:
            block, before = make(before)
            layers.append(block)
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(nn.Dropout(), nn.Linear(before, classes))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))


class ScaledResidual(nn.Module):
    """x + scale * (the branches of x, joined back to its channels)."""

    def __init__(self, before, branches, scale, activation=True):
        super().__init__()
        joined = sum(branch[-1][0].out_channels for branch in branches)
        self.branches = nn.Sequential(Branches(*branches), nn.Conv2d(joined, before, 1))
        self.scale, self.activation = scale, activation

    def forward(self, x):
        y = x + self.scale * self.branches(x)
        return torch.relu(y) if self.activation else y


class InceptionResNetV2(nn.Module):
    """Szegedy et al. without the auxiliary head, for pictures of 299 x 299. `width` 1.0 and `depths` (10, 20, 9) are the published
    sizes."""

    def __init__(self, width=1.0, classes=1000, depths=(10, 20, 9)):
        super().__init__()

        def w(channels):
            return max(1, int(channels * width))

        def residual_35(size):
            return ScaledResidual(size, (chain(size, (w(32), 1)), chain(size, (w(32), 1), (w(32), 3)),
                                         chain(size, (w(32), 1), (w(48), 3), (w(64), 3))), 0.17)

        def residual_17(size):
            return ScaledResidual(size, (chain(size, (w(192), 1)), chain(size, (w(128), 1), (w(160), (1, 7)), (w(192), (7, 1)))), 0.1)

        def residual_8(size, scale=0.2, activation=True):
            return ScaledResidual(size, (chain(size, (w(192), 1)), chain(size, (w(192), 1), (w(224), (1, 3)), (w(256), (3, 1)))), scale,
                                  activation)

        first, middle = w(192), w(96) + w(64) + w(96) + w(64)
        last = middle + 2 * w(384)
        end = last + w(384) + w(288) + w(320)
        self.features = nn.Sequential(
            conv(3, w(32), 3, 2), conv(w(32), w(32), 3), conv(w(32), w(64), 3, 1, 1), nn.MaxPool2d(3, 2),
            conv(w(64), w(80), 1), conv(w(80), first, 3), nn.MaxPool2d(3, 2),
            Branches(chain(first, (w(96), 1)), chain(first, (w(48), 1), (w(64), 5)),
                     chain(first, (w(64), 1), (w(96), 3), (w(96), 3)), pooled(first, w(64))),
            *(residual_35(middle) for _ in range(depths[0])),
            Branches(chain(middle, (w(384), 3, 2)), chain(middle, (w(256), 1), (w(256), 3), (w(384), 3, 2)), nn.MaxPool2d(3, 2)),
            *(residual_17(last) for _ in range(depths[1])),
            Branches(chain(last, (w(256), 1), (w(384), 3, 2)), chain(last, (w(256), 1), (w(288), 3, 2)),
                     chain(last, (w(256), 1), (w(288), 3), (w(320), 3, 2)), nn.MaxPool2d(3, 2)),
            *(residual_8(end) for _ in range(depths[2])), residual_8(end, 1.0, False), conv(end, w(1536), 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(w(1536), classes))

    def forward(self, x):
        return self.classifier(self.features(x).mean((2, 3)))
