"""Transformers: an image classifier, language models with tied weights, an encoder with dropout, and an MLP-Mixer."""

import torch
from torch import nn
from torch.nn import functional as F


class Attention(nn.Module):
    def __init__(self, width, heads, dropout=0.0, causal=False):
        super().__init__()
        self.heads, self.dropout, self.causal = heads, dropout, causal
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, width // self.heads).permute(2, 0, 3, 1, 4)
        dropout = self.dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=self.causal)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


class PreNormBlock(nn.Module):
    def __init__(self, width, heads, dropout=0.0, causal=False):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads, dropout, causal)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(approximate="tanh"), nn.Linear(4 * width, width))
        self.drop = nn.Dropout(dropout)

    def forward(self, x):
        x = x + self.drop(self.attention(self.norm1(x)))
        return x + self.drop(self.mlp(self.norm2(x)))


class VisionTransformer(nn.Module):
    """Dosovitskiy et al. with a class token."""

    def __init__(self, image=224, patch=16, width=768, depth=12, heads=12, classes=1000):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.token = nn.Parameter(torch.zeros(1, 1, width))
        self.positions = nn.Parameter(torch.randn(1, (image // patch) ** 2 + 1, width) * 0.02)
        self.blocks = nn.ModuleList(PreNormBlock(width, heads) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.positions
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x)[:, 0])


class Gpt(nn.Module):
    """GPT-2: the embedding and the last layer share their weights. `autocast` runs it in bfloat16."""

    def __init__(self, vocabulary=50257, context=1024, width=1024, depth=24, heads=16, dropout=0.0, autocast=False):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Embedding(context, width)
        self.blocks = nn.ModuleList(PreNormBlock(width, heads, dropout, causal=True) for _ in range(depth))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight
        self.autocast = autocast
        nn.init.normal_(self.tokens.weight, std=0.02)

    def forward(self, tokens):
        with torch.autocast(tokens.device.type, dtype=torch.bfloat16, enabled=self.autocast):
            x = self.tokens(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
            for block in self.blocks:
                x = block(x)
            return self.head(self.norm(x))


class RmsNorm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class RotaryBlock(nn.Module):
    """A decoder block in the manner of Llama: rotary positions, RMS norm, gated MLP, shared key and value heads."""

    def __init__(self, width, heads, shared_heads):
        super().__init__()
        self.heads, self.shared_heads, self.size = heads, shared_heads, width // heads
        self.norm1, self.norm2 = RmsNorm(width), RmsNorm(width)
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * shared_heads * self.size, bias=False)
        self.out = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 3 * width, bias=False), nn.Linear(width, 3 * width, bias=False)
        self.down = nn.Linear(3 * width, width, bias=False)

    def forward(self, x, cosine, sine):
        x = x + self.attend(self.norm1(x), cosine, sine)
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))

    def attend(self, x, cosine, sine):
        batch, length, width = x.shape
        q = self.q(x).view(batch, length, self.heads, self.size).transpose(1, 2)
        k, v = self.kv(x).view(batch, length, 2, self.shared_heads, self.size).permute(2, 0, 3, 1, 4).unbind(0)
        repeats = self.heads // self.shared_heads
        k, v = (t.repeat_interleave(repeats, dim=1) for t in (rotated(k, cosine, sine), v))
        y = F.scaled_dot_product_attention(rotated(q, cosine, sine), k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(batch, length, width))


def rotated(x, cosine, sine):
    first, second = x.chunk(2, -1)
    return x * cosine + torch.cat([-second, first], -1) * sine


class Llama(nn.Module):
    def __init__(self, vocabulary, context, width, depth, heads, shared_heads):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.blocks = nn.ModuleList(RotaryBlock(width, heads, shared_heads) for _ in range(depth))
        self.norm = RmsNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        half = width // heads // 2
        angles = torch.outer(torch.arange(context), 10000.0 ** (-torch.arange(half) / half)).repeat(1, 2)
        self.register_buffer("cosine", angles.cos(), persistent=False)
        self.register_buffer("sine", angles.sin(), persistent=False)

    def forward(self, tokens):
        length = tokens.shape[1]
        x = self.tokens(tokens)
        for block in self.blocks:
            x = block(x, self.cosine[:length], self.sine[:length])
        return self.head(self.norm(x))


class Bert(nn.Module):
    """An encoder with padding mask and dropout everywhere; returns logits for each token and for the whole text."""

    def __init__(self, vocabulary=30522, context=512, width=768, depth=12, heads=12, dropout=0.1, classes=2):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width, padding_idx=0)
        self.positions = nn.Parameter(torch.randn(context, width) * 0.02)
        self.norm = nn.LayerNorm(width)
        self.drop = nn.Dropout(dropout)
        layer = nn.TransformerEncoderLayer(width, heads, 4 * width, dropout, activation="gelu", batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, depth, enable_nested_tensor=False)
        self.token_head = nn.Linear(width, vocabulary)
        self.text_head = nn.Linear(width, classes)

    def forward(self, tokens):
        x = self.drop(self.norm(self.tokens(tokens) + self.positions[: tokens.shape[1]]))
        x = self.encoder(x, src_key_padding_mask=tokens == 0)
        return {"tokens": self.token_head(x), "text": self.text_head(torch.tanh(x[:, 0]))}


class Mixer(nn.Module):
    """MLP-Mixer: the same small networks across patches and across channels."""

    def __init__(self, image, patch, width, depth, classes):
        super().__init__()
        count = (image // patch) ** 2
        self.patches = nn.Conv2d(3, width, patch, patch)
        self.across = nn.ModuleList(mlp(count, 2 * count) for _ in range(depth))
        self.within = nn.ModuleList(mlp(width, 2 * width) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * depth))
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        x = self.patches(x).flatten(2).transpose(1, 2)
        for index, (across, within) in enumerate(zip(self.across, self.within)):
            x = x + across(self.norms[2 * index](x).mT).mT
            x = x + within(self.norms[2 * index + 1](x))
        return self.head(x.mean(1))


def mlp(width, hidden):
    return nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Linear(hidden, width))
