"""Supervised contrastive training of a small network on images: a plain PyTorch script, and an arm of a campaign.

python train.py FOLDER --seed 0      # FOLDER: train.image.npy, train.label.npy, test.image.npy, test.label.npy
"""

import argparse
import json
import os
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn


def read(folder, part):
    images = torch.tensor(np.load(Path(folder, f"{part}.image.npy"))).float().div(255)
    return images.flatten(1), torch.tensor(np.load(Path(folder, f"{part}.label.npy"))).long()


def contrastive_loss(embeddings, labels, temperature):
    z = F.normalize(embeddings)
    scores = z @ z.T / temperature
    self_pairs = torch.eye(len(z), dtype=torch.bool)
    log_p = scores - scores.masked_fill(self_pairs, -torch.inf).logsumexp(1, keepdim=True)
    positives = (labels[:, None] == labels) & ~self_pairs
    return -(log_p * positives).sum(1).div(positives.sum(1).clamp(min=1)).mean()


def balanced_accuracy(net, train_x, train_y, test_x, test_y):
    """The mean over classes of how many test images have a nearest training image of their class."""
    with torch.no_grad():
        bank = F.normalize(net(train_x))
        queries = F.normalize(net(test_x))
    hits = (train_y[(queries @ bank.T).argmax(1)] == test_y).float()
    return float(torch.stack([hits[test_y == label].mean() for label in test_y.unique()]).mean())


def report(step, **metrics):
    """Print metrics, and tell contrasweep where it asks for them."""
    print(f"epoch {step}:", ", ".join(f"{name} {value:.4f}" for name, value in metrics.items()))
    if file := os.environ.get("CONTRASWEEP_METRICS"):
        with open(file, "a") as lines:
            lines.write(json.dumps({"step": step, **metrics}) + "\n")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("folder")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=4)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--temperature", type=float, default=0.5)
    args = parser.parse_args()

    torch.set_num_threads(1)
    torch.manual_seed(args.seed)
    train_x, train_y = read(args.folder, "train")
    test_x, test_y = read(args.folder, "test")
    net = nn.Sequential(
        nn.Linear(train_x.shape[1], args.width), nn.ReLU(), nn.Linear(args.width, 32)
    )
    optimizer = torch.optim.SGD(net.parameters(), args.learning_rate, momentum=0.9)
    for epoch in range(1, args.epochs + 1):
        for rows in torch.randperm(len(train_y)).split(args.batch_size):
            x = train_x[rows] + 0.1 * torch.randn(len(rows), train_x.shape[1])
            loss = contrastive_loss(net(x), train_y[rows], args.temperature)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        accuracy = balanced_accuracy(net, train_x, train_y, test_x, test_y)
        size = sum(weights.numel() for weights in net.parameters())
        report(epoch, accuracy=accuracy, parameters=size)


if __name__ == "__main__":
    main()
