"""Supervised contrastive training on images: a trainable. `train` is what a study names; the rest is plain PyTorch."""

import tempfile
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

from contrasweep import Report
from contrasweep.data import open_dataset
from contrasweep.schema import checked


@checked
class Settings:
    """What a study may set. `contrasweep plan` refuses any other key, and a value of another type."""

    epochs: int = 5
    """How often the training images are seen."""
    batch_size: int = 64
    """Images of a step; each is seen in two views."""
    learning_rate: float = 0.05
    """Step size of SGD."""
    temperature: float = 0.2
    """What similarities are divided by."""
    width: int = 16
    """Channels of the first layer."""


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


def tensors(part):
    """A part of the dataset: images [n c h w] in 0 to 1, and labels [n]."""
    images = torch.tensor(part.array("image")).permute(0, 3, 1, 2).float() / 255
    return images, torch.tensor(part.labels)


def train(trial, resume=None):
    """One trial: one fold, one seed, one set of settings. Yields a report an epoch."""
    s = Settings(**trial.config)
    torch.manual_seed(trial.seed)  # of the initial weights
    train_part, test_part = open_dataset(trial.data).parts(trial.fold)
    (x, y), (test_x, test_y) = tensors(train_part), tensors(test_part)

    net = network(x.shape[1], s.width)
    optimizer = torch.optim.SGD(net.parameters(), s.learning_rate, momentum=0.9)
    first = 1
    if resume is not None:  # the folder of a checkpoint that this function has written
        state = torch.load(resume / "state.pt", weights_only=True)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        first = state["epoch"] + 1
    with tempfile.TemporaryDirectory() as folder:
        for epoch in range(first, s.epochs + 1):
            generator = torch.Generator().manual_seed(
                1000 * trial.seed + epoch
            )  # the same after a resume
            loss = train_epoch(net, optimizer, x, y, s.batch_size, s.temperature, generator)
            hits = nearest_neighbour_hits(net, x, y, test_x, test_y)
            state = {"net": net.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch}
            torch.save(state, Path(folder) / "state.pt")
            metrics = {"loss": loss, "accuracy": hits.mean().item()}
            yield Report(epoch, metrics, checkpoint=Path(folder), items={"hits": hits.numpy()})


train.settings = Settings
