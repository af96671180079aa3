"""The loss of a batch that is spread over processes: the same on each as in one process with the joined batch.

Every process gathers all embeddings and ids and gets the joined batch's loss. Its gradient reaches the process's own
rows, times the number of processes. DistributedDataParallel averages the gradients of parameters over processes, and
this average is the gradient of the joined batch's loss. Without such averaging (a manual sum of gradients), divide the
loss by the number of processes.
"""

from contrasweep.trainables.pytorch import Shaped, Tensor, dist, torch


def processes() -> int:
    """Return the number of processes in torch's default process group; 1 without a group."""
    return dist.get_world_size() if dist.is_available() and dist.is_initialized() else 1


def rank_and_count() -> tuple[int, int]:
    """Return the rank of this process, from 0, and the number of processes; (0, 1) without a group."""
    return (dist.get_rank(), processes()) if processes() > 1 else (0, 1)


def share(rows: int) -> range:
    """Return which of `rows` rows this process of a group computes. Shares differ by one row at most."""
    rank = dist.get_rank()
    size = processes()
    return range(rows * rank // size, rows * (rank + 1) // size)


def sum_up(tensors: list[Tensor]) -> None:
    """Replace each tensor by its sum over processes, in place and in all of them."""
    for tensor in tensors:
        dist.all_reduce(tensor)


def gather(values: Shaped[Tensor, "n ..."]) -> Shaped[Tensor, "N ..."]:
    """Return the rows of all processes, in the order of ranks, without gradient. Numbers of rows may differ."""
    # `all_gather` wants equal shapes: all are padded to the longest, and cut afterwards.
    count = torch.tensor([len(values)], device=values.device)
    counts = [torch.empty_like(count) for _ in range(processes())]
    dist.all_gather(counts, count)
    most = max(int(count) for count in counts)
    padded = values.new_zeros(most, *values.shape[1:])
    padded[: len(values)] = values
    parts = [torch.empty_like(padded) for _ in counts]
    dist.all_gather(parts, padded)
    return torch.cat([part[: int(count)] for part, count in zip(parts, counts, strict=True)])
