"""One process of a group: losses of its rows with an encoder under DistributedDataParallel, for the tests.

python joined_losses.py RANK SIZE RENDEZVOUS_FILE JOBS_FILE OUTPUT_FILE
"""

import sys
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # before there is a group, which it would keep (process_group._join)
from torch.nn.parallel import DistributedDataParallel

from contrasweep.trainables.losses import build
from contrasweep.trainables.losses.negatives import with_tally


def encoder(dim: int, seed: int = 0) -> torch.nn.Module:
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(dim, 6), torch.nn.Tanh(), torch.nn.Linear(6, 4)
    ).double()


def alike(embeddings: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """A loss of a user's own package: squared distances within classes, by its dotted path."""
    same = labels[:, None] == labels
    return (embeddings[:, None] - embeddings).square().sum(-1)[same].mean()


def value_and_gradients(network, job, rows):
    """The loss, its gradients, and what was counted of its negatives."""
    network.zero_grad()
    loss, tally = with_tally(
        build(job["loss"], job["similarity"], reduction=job["reduction"], **job["params"])
    )
    value = loss(network(job["inputs"][rows]), job["labels"][rows], job["ids"][rows])
    value.backward()
    gradients = [p.grad.clone() for p in network.parameters()]
    return value.detach(), gradients, tally.counts if tally else None


def main(rank, size, rendezvous, jobs_file, output):
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{rendezvous}",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=600),
    )
    torch.save([part(job, rank) for job in torch.load(jobs_file)], output)
    dist.destroy_process_group()


def part(job, rank):
    """What this process finds of a job, by its rows of the batch."""
    ends = [0, *job["ends"]]
    network = DistributedDataParallel(encoder(job["inputs"].shape[1]))
    return value_and_gradients(network, job, slice(ends[rank], ends[rank + 1]))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:])
