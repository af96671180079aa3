"""Eight candidates against one incumbent on digits with a long tail. Four of them change nothing.

    python eight.py                      # its runs are in ./runs
    contrasweep ledger eight --storage runs --format html -o ledger.html

Which four is known here because they were made so. In your own stream of ideas nobody knows.
"""

import torch
import torch.nn.functional as F
from torch import nn

import contrasweep as cs
from contrasweep.data import open_dataset
from contrasweep.schema import checked


@checked
class Settings:
    """What a candidate may set."""

    temperature: float = 0.5
    learning_rate: float = 0.05
    width: int = 32
    epochs: int = 2


def contrastive_loss(embeddings, labels, temperature):
    z = F.normalize(embeddings)
    scores = z @ z.T / temperature
    self_pairs = torch.eye(len(z), dtype=torch.bool)
    log_p = scores - scores.masked_fill(self_pairs, -torch.inf).logsumexp(1, keepdim=True)
    positives = (labels[:, None] == labels) & ~self_pairs
    return -(log_p * positives).sum(1).div(positives.sum(1).clamp(min=1)).mean()


def same_loss(embeddings, labels, temperature):
    """What `contrastive_loss` computes, in other words."""
    z = embeddings / embeddings.norm(dim=1, keepdim=True)
    scores = (z @ z.T).div(temperature).fill_diagonal_(-1e9)
    positives = (labels[None, :] == labels[:, None]).float().fill_diagonal_(0)
    means = (scores.log_softmax(1) * positives).sum(1) / positives.sum(1).clamp(min=1)
    return -means.mean()


def pixels(part):
    return torch.tensor(part.array("image")).flatten(1).float() / 255, torch.tensor(part.labels)


def fit(trial, loss=contrastive_loss, stream=0, clip=None):
    """Train a small network and report its balanced accuracy; each `stream` has other random numbers."""
    settings = Settings(**trial.config)
    torch.manual_seed(1_000_003 * stream + trial.seed)
    (train_x, train_y), (test_x, test_y) = map(pixels, open_dataset(trial.data).parts(trial.fold))
    net = nn.Sequential(
        nn.Linear(train_x.shape[1], settings.width), nn.ReLU(), nn.Linear(settings.width, 16)
    )
    optimizer = torch.optim.SGD(net.parameters(), settings.learning_rate, momentum=0.9)
    for _ in range(settings.epochs):
        for rows in torch.randperm(len(train_y)).split(64):
            x = train_x[rows] + 0.1 * torch.randn(len(rows), train_x.shape[1])
            optimizer.zero_grad()
            loss(net(x), train_y[rows], settings.temperature).backward()
            if clip is not None:
                nn.utils.clip_grad_norm_(net.parameters(), clip)
            optimizer.step()
    with torch.no_grad():
        bank = F.normalize(net(train_x))
        queries = F.normalize(net(test_x))
    hits = (train_y[(queries @ bank.T).argmax(1)] == test_y).float()
    size = sum(weights.numel() for weights in net.parameters())
    accuracy = torch.stack([hits[test_y == label].mean() for label in test_y.unique()]).mean()
    yield cs.Report(settings.epochs, {"accuracy": float(accuracy), "parameters": size})


def train(trial, resume=None):
    yield from fit(trial)


def train_in_other_words(trial, resume=None):
    yield from fit(trial, loss=same_loss)


def train_with_other_numbers(trial, resume=None):
    yield from fit(trial, stream=1)


def train_with_more_numbers(trial, resume=None):
    yield from fit(trial, stream=2)


def train_clipped(trial, resume=None):
    """The clip is never reached."""
    yield from fit(trial, clip=1e9)


for _trainable in (
    train,
    train_in_other_words,
    train_with_other_numbers,
    train_with_more_numbers,
    train_clipped,
):
    _trainable.settings = Settings

CAMPAIGN = cs.Campaign(
    "eight", cs.Arm(train), "digits-lt", metric="accuracy", smallest_difference=0.01
)
CHANGES = {
    "sharper": {"temperature": 0.1},
    "slower": {"learning_rate": 0.002},
    "narrower": {"width": 8},
}
CHANGES |= {"longer": {"epochs": 6}}
NOTHING = {"other_numbers": train_with_other_numbers, "never_clipped": train_clipped}
NOTHING |= {"more_numbers": train_with_more_numbers, "other_words": train_in_other_words}
STREAM = (
    "other_numbers",
    "sharper",
    "never_clipped",
    "slower",
    "more_numbers",
    "narrower",
    "other_words",
    "longer",
)
"""The order in which they are tried."""


def candidate(name, storage):
    """A change of the incumbent of now, so that what was kept before is in it."""
    now = CAMPAIGN.incumbent_now(storage=storage)
    return cs.Arm(NOTHING.get(name, now.trainable), {**now.config, **CHANGES.get(name, {})})


def decide_all(storage="runs"):
    for name in STREAM:
        yield CAMPAIGN.decide(candidate(name, storage), name, storage=storage, tracking=None)


if __name__ == "__main__":
    import eight  # by its name, by which workers and later decisions find its functions

    for decision in eight.decide_all():
        print(decision)
