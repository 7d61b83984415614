"""Networks on graphs: nodes exchange messages along edges by gather and scatter."""

import itertools

import torch
from torch import nn
from torch.nn import functional as F


class GraphConvolution(nn.Module):
    """Kipf and Welling: the mean over neighbours, by index_add."""

    def __init__(self, width, hidden, depth, classes):
        super().__init__()
        sizes = [width] + [hidden] * depth
        self.layers = nn.ModuleList(nn.Linear(a, b) for a, b in itertools.pairwise(sizes))
        self.head = nn.Linear(hidden, classes)

    def forward(self, x, edges):
        source, target = edges[0], edges[1]
        degree = torch.zeros(x.shape[0], device=x.device).index_add_(0, target, torch.ones_like(target, dtype=x.dtype))
        scale = degree.clamp(min=1).rsqrt().unsqueeze(1)
        for layer in self.layers:
            h = layer(x) * scale
            x = F.relu(torch.zeros_like(h).index_add(0, target, h[source]) * scale)
        return self.head(x)


class GraphAttention(nn.Module):
    """Velickovic et al.: neighbours are weighted by attention, with a softmax over each node's edges."""

    def __init__(self, width, hidden, heads, classes):
        super().__init__()
        self.heads = heads
        self.project = nn.Linear(width, hidden * heads, bias=False)
        self.left = nn.Parameter(torch.randn(heads, hidden) * 0.1)
        self.right = nn.Parameter(torch.randn(heads, hidden) * 0.1)
        self.head = nn.Linear(hidden * heads, classes)

    def forward(self, x, edges):
        source, target = edges.unbind(0)
        h = self.project(x).view(x.shape[0], self.heads, -1)
        score = F.leaky_relu((h * self.left).sum(-1)[source] + (h * self.right).sum(-1)[target], 0.2)
        index = target.unsqueeze(1).expand_as(score)
        peak = score.new_full((x.shape[0], self.heads), -1e9).scatter_reduce(0, index, score, "amax")
        weight = (score - peak.detach()[target]).exp()
        total = torch.zeros_like(peak).scatter_add(0, index, weight)
        messages = h[source] * (weight / total[target]).unsqueeze(-1)
        y = torch.zeros_like(h).index_add(0, target, messages)
        return self.head(F.elu(y.flatten(1)))


class GraphAttentions(nn.Module):
    """Several of them, one after another."""

    def __init__(self, width, hidden, heads, depth, classes):
        super().__init__()
        sizes = [hidden * heads] * (depth - 1) + [classes]
        self.layers = nn.ModuleList(GraphAttention(a, hidden, heads, b) for a, b in zip([width, *sizes[:-1]], sizes))

    def forward(self, x, edges):
        for layer in self.layers:
            x = layer(x, edges)
        return x


class PooledGraphs(nn.Module):
    """One label for each of several graphs: edge features join the messages, nodes are pooled by graph."""

    def __init__(self, width, hidden, depth, graphs, classes):
        super().__init__()
        self.graphs = graphs
        self.enter = nn.Linear(width, hidden)
        self.message = nn.ModuleList(nn.Linear(2 * hidden + 1, hidden) for _ in range(depth))
        self.norms = nn.ModuleList(nn.BatchNorm1d(hidden) for _ in range(depth))
        self.head = nn.Linear(2 * hidden, classes)

    def forward(self, x, edges, lengths, membership):
        h = self.enter(x)
        for message, norm in zip(self.message, self.norms):
            pairs = torch.cat([h[edges[0]], h[edges[1]], lengths], 1)
            h = h + norm(torch.zeros_like(h).index_add(0, edges[1], F.silu(message(pairs))))
        index = membership.unsqueeze(1).expand_as(h)
        empty = h.new_zeros(self.graphs, h.shape[1])
        summed = empty.scatter_add(0, index, h)
        highest = empty.scatter_reduce(0, index, h, "amax", include_self=False)
        return self.head(torch.cat([summed, highest], 1))
