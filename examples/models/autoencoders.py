"""Autoencoders with several losses; one of them samples."""

import itertools

import torch
from torch import nn
from torch.nn import functional as F


class VariationalAutoencoder(nn.Module):
    """Kingma and Welling. Returns the reconstruction and the two parts of the code."""

    def __init__(self, width, hidden, code, depth=1):
        super().__init__()
        self.encoder = self.layers(width, hidden, depth, 2 * code)
        self.decoder = self.layers(code, hidden, depth, width)

    @staticmethod
    def layers(before, hidden, depth, after):
        sizes = [before] + [hidden] * depth
        inner = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b), nn.ELU())]
        return nn.Sequential(*inner, nn.Linear(hidden, after))

    def forward(self, x):
        mean, spread = self.encoder(x).chunk(2, -1)
        code = mean + torch.randn_like(spread) * (0.5 * spread).exp()
        return self.decoder(code), mean, spread


def vae_loss(outputs, target):
    made, mean, spread = outputs
    divergence = -0.5 * (1 + spread - mean.pow(2) - spread.exp()).sum(-1).mean()
    return F.binary_cross_entropy_with_logits(made, target) + divergence


class DenoisingAutoencoder(nn.Module):
    """Convolutions to a small code and back; the input is disturbed, and the code is penalised."""

    def __init__(self, width, depth=0):
        super().__init__()
        more = [layer for _ in range(depth) for layer in (nn.Conv2d(width, width, 3, padding=1), nn.PReLU())]
        self.encoder = nn.Sequential(
            nn.Conv2d(3, width, 3, 2, padding=1), nn.PReLU(), *more, nn.Conv2d(width, 2 * width, 3, 2, padding=1), nn.PReLU())
        self.decoder = nn.Sequential(
            nn.ConvTranspose2d(2 * width, width, 4, 2, padding=1), nn.InstanceNorm2d(width, affine=True), nn.Softplus(),
            nn.ConvTranspose2d(width, 3, 4, 2, padding=1), nn.Sigmoid())
        self.drop = nn.Dropout2d(0.2)

    def forward(self, x):
        code = self.encoder(self.drop(x + 0.1 * torch.randn_like(x)))
        return {"picture": self.decoder(code), "code": code}


def denoising_loss(outputs, target):
    picture = outputs["picture"]
    return F.mse_loss(picture, target) + 0.5 * F.smooth_l1_loss(picture, target) + 1e-3 * outputs["code"].abs().mean()
