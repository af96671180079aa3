"""An encoder, a head, an augmentation and an optimizer."""

import torch
from torch import nn


class Body(nn.Module):
    """An encoder: two convolutions and the average over the image."""

    def __init__(self, shape, *, width: int = 16):  # shape: channels, height, width
        super().__init__()
        self.dim = width  # how many features it gives for an image
        self.layers = nn.Sequential(
            nn.Conv2d(shape[0], width, 3, padding=1),
            nn.ReLU(),
            nn.Conv2d(width, width, 3),
            nn.AdaptiveAvgPool2d(1),
        )

    def forward(self, images):  # float [n c h w] -> [n dim]
        return self.layers(images).flatten(1)


def head(features, *, dim: int = 8):
    """A projection head."""
    return nn.Sequential(nn.Linear(features, features), nn.ReLU(), nn.Linear(features, dim))


def noisy(image, *, amount: float = 0.1):
    """An augmentation: one image, float [c h w] in 0 to 1. torch's random numbers are the view's own."""
    return (image + amount * torch.randn_like(image)).clamp(0, 1)


class Signs(torch.optim.Optimizer):
    """An optimizer: steps of one length, along the sign of the gradient."""

    def __init__(self, params, lr=0.01, *, decay: float = 0.0):
        super().__init__(params, {"lr": lr, "decay": decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p -= group["lr"] * (p.grad + group["decay"] * p).sign()
