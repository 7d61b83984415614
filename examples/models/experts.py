"""Mixtures of experts with top-k routing."""

import torch
from torch import nn
from torch.nn import functional as F


class TopKExperts(nn.Module):
    """Each token goes to its k best experts; every expert sees a fixed number of tokens, the best of its own."""

    def __init__(self, width, experts, k, capacity):
        super().__init__()
        self.k, self.capacity = k, capacity
        self.router = nn.Linear(width, experts, bias=False)
        self.up = nn.Parameter(torch.randn(experts, width, 2 * width) * width**-0.5)
        self.down = nn.Parameter(torch.randn(experts, 2 * width, width) * width**-0.5)

    def forward(self, x):
        tokens = x.reshape(-1, x.shape[-1])
        chances = self.router(tokens).softmax(-1)
        best, _ = chances.topk(self.k, dim=-1)
        gates = torch.where(chances >= best[:, -1:], chances, 0.0)
        weights, chosen = gates.topk(self.capacity, dim=0)  # capacity x experts
        gathered = tokens[chosen.t()]  # experts x capacity x width
        made = torch.bmm(F.gelu(torch.bmm(gathered, self.up)), self.down) * weights.t().unsqueeze(-1)
        mixed = torch.zeros_like(tokens).index_add(0, chosen.t().reshape(-1), made.reshape(-1, x.shape[-1]))
        return x + mixed.view_as(x), chances.mean(0).pow(2).sum() * chances.shape[-1]


class MixtureOfExperts(nn.Module):
    """Returns logits and a loss that keeps the experts equally busy."""

    def __init__(self, vocabulary, width, depth, experts, k, capacity):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.layers = nn.ModuleList(TopKExperts(width, experts, k, capacity) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary)

    def forward(self, tokens):
        x, balance = self.tokens(tokens), 0.0
        for layer in self.layers:
            x, extra = layer(x)
            balance = balance + extra
        return self.head(self.norm(x)), balance


class NoisyExperts(nn.Module):
    """All experts run; noise on the router decides whose results are mixed."""

    def __init__(self, width, experts, k, classes):
        super().__init__()
        self.k = k
        self.router = nn.Linear(width, experts)
        self.experts = nn.ModuleList(nn.Sequential(nn.Linear(width, width), nn.ReLU(), nn.Linear(width, classes)) for _ in range(experts))

    def forward(self, x):
        scores = self.router(x)
        scores = scores + torch.randn_like(scores) * 0.1
        best, index = scores.topk(self.k, dim=-1)
        gates = torch.zeros_like(scores).scatter(-1, index, best.softmax(-1))
        made = torch.stack([expert(x) for expert in self.experts], 1)
        return (gates.unsqueeze(-1) * made).sum(1)
