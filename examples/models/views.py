"""Code in the way people write it: views of views, changes in place, buffers that follow the training."""

import torch
from torch import nn
from torch.nn import functional as F


class ViewHeavy(nn.Module):
    """Shuffles, windows, rolls and diagonals between linear layers."""

    def __init__(self, width, classes):
        super().__init__()
        self.enter = nn.Linear(width, width)
        self.middle = nn.Linear(width // 4, width // 4)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        y = self.enter(x)
        groups = y.view(x.shape[0], 4, -1).transpose(1, 2).reshape(x.shape[0], -1, 4)
        first, second = groups.permute(0, 2, 1).contiguous().split(2, dim=1)
        mixed = torch.cat([second.roll(1, -1), first.flip(-1)], 1)
        mixed = self.middle(mixed) + mixed[..., ::2].repeat(1, 1, 2)
        square = torch.einsum("bik,bjk->bij", mixed, mixed)
        y = mixed.flatten(1) * square.diagonal(dim1=1, dim2=2).repeat_interleave(mixed.shape[-1], -1).sigmoid()
        windows = F.pad(y, (1, 1)).unfold(1, 3, 1).mean(-1)
        return self.head(windows + y.narrow(1, 0, 1).expand_as(y))


class InPlace(nn.Module):
    """Writes into slices, masks and accumulators."""

    def __init__(self, width, classes):
        super().__init__()
        self.enter = nn.Linear(width, width)
        self.gate = nn.Linear(width, width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        y = self.enter(x).clone()
        y[:, ::2].mul_(2.0)
        y[:, 1] += y[:, 0]
        y.masked_fill_(x > 1.5, 0.1).clamp_(-3, 3)
        total = torch.zeros_like(y)
        gate, half = self.gate(y), y.shape[1] // 2
        for start in (0, half):
            total[:, :half].add_(gate[:, start:start + half].sigmoid())
        total[:, -1] = y[:, -1]
        total.add_(y, alpha=0.5)
        return self.head(F.relu_(total))


class FollowingBuffers(nn.Module):
    """Keeps a running mean of its activations and a count, and returns a view of what it computed beside the logits."""

    def __init__(self, width, depth, classes):
        super().__init__()
        self.enter = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.Tanh()) for _ in range(depth)), nn.Linear(width, width))
        self.norm = nn.BatchNorm1d(width, momentum=0.3)
        self.head = nn.Linear(width, classes)
        self.register_buffer("running", torch.zeros(width))
        self.register_buffer("count", torch.zeros((), dtype=torch.long))

    def forward(self, x):
        y = self.norm(self.enter(x))
        with torch.no_grad():
            self.count += 1
            self.running.lerp_(y.mean(0), 0.1)
        y = torch.tanh(y - self.running.clone())
        return self.head(y), y[:, :2], self.count.clone()


class SharedBlocks(nn.Module):
    """The same layers several times, a frozen projection, and weight norm by hand."""

    def __init__(self, width, repeats, classes):
        super().__init__()
        self.repeats = repeats
        self.block = nn.Sequential(nn.Linear(width, width), nn.LayerNorm(width), nn.Mish())
        self.projection = nn.Linear(width, width)
        self.projection.requires_grad_(False)
        self.direction = nn.Parameter(torch.randn(classes, width))
        self.length = nn.Parameter(torch.ones(classes, 1))

    def forward(self, x):
        for _ in range(self.repeats):
            x = x + self.block(self.projection(x))
        weight = self.length * self.direction / self.direction.norm(dim=1, keepdim=True)
        return F.linear(x, weight)
