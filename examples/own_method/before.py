"""Supervised contrastive training on a folder of images, images/CLASS/*.png: a plain PyTorch script.

python before.py images --temperature 0.2
"""

import argparse

import torch
import torch.nn.functional as F
from torch import nn
from torchvision import datasets, transforms


def network(channels, width):
    def conv(inputs, outputs, stride):
        layer = nn.Conv2d(inputs, outputs, 3, stride=stride, padding=1, bias=False)
        return nn.Sequential(layer, nn.BatchNorm2d(outputs), nn.ReLU())

    body = [conv(channels, width, 1), conv(width, 2 * width, 2), conv(2 * width, 4 * width, 2)]
    return nn.Sequential(*body, nn.AdaptiveAvgPool2d(1), nn.Flatten())


def view(images, generator):
    """A shifted, noisy copy of each image."""
    shift = (torch.randint(-1, 2, (2,), generator=generator)).tolist()
    noise = torch.randn(images.shape, generator=generator)
    return torch.roll(images, shift, (2, 3)) + 0.05 * noise


def contrastive_loss(embeddings, labels, temperature):
    z = F.normalize(embeddings)
    scores = z @ z.T / temperature
    self_pairs = torch.eye(len(z), dtype=torch.bool)
    log_p = scores - scores.masked_fill(self_pairs, -torch.inf).logsumexp(1, keepdim=True)
    positives = (labels[:, None] == labels) & ~self_pairs
    return -(log_p * positives).sum(1).div(positives.sum(1).clamp(min=1)).mean()


@torch.no_grad()
def nearest_neighbour_hits(net, train_x, train_y, test_x, test_y):
    net.eval()
    bank = F.normalize(net(train_x))
    queries = F.normalize(net(test_x))
    return (train_y[(queries @ bank.T).argmax(1)] == test_y).float()


def train_epoch(net, optimizer, x, y, batch_size, temperature, generator):
    net.train()
    losses = []
    for rows in torch.randperm(len(y), generator=generator).split(batch_size):
        views = torch.cat([view(x[rows], generator), view(x[rows], generator)])
        loss = contrastive_loss(net(views), y[rows].repeat(2), temperature)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return sum(losses) / len(losses)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("images")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--learning-rate", type=float, default=0.05)
    parser.add_argument("--temperature", type=float, default=0.2)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()

    torch.manual_seed(args.seed)
    steps = [transforms.Grayscale(), transforms.Resize((16, 16)), transforms.ToTensor()]
    data = datasets.ImageFolder(args.images, transforms.Compose(steps))
    x = torch.stack([image for image, _ in data])
    y = torch.tensor(data.targets)
    test, train = torch.randperm(len(y)).tensor_split(
        [len(y) // 5]
    )  # one split, chosen by the seed

    net = network(channels=1, width=16)
    optimizer = torch.optim.SGD(net.parameters(), args.learning_rate, momentum=0.9)
    generator = torch.Generator().manual_seed(args.seed)
    for epoch in range(1, args.epochs + 1):
        loss = train_epoch(
            net, optimizer, x[train], y[train], args.batch_size, args.temperature, generator
        )
        hits = nearest_neighbour_hits(net, x[train], y[train], x[test], y[test])
        print(f"epoch {epoch}: loss {loss:.3f}, accuracy {hits.mean():.3f}")
    torch.save(net.state_dict(), "network.pt")


if __name__ == "__main__":
    main()
