"""Batches that every loss is tried on."""

import torch


def seeded(seed):
    return torch.Generator().manual_seed(seed)


def batch(n, d, classes, seed, dtype=torch.float64):
    generator = seeded(seed)
    z = torch.randn(n, d, generator=generator, dtype=torch.float64).to(dtype)
    return z, torch.randint(classes, (n,), generator=generator)


def value_and_gradient(loss, z, labels):
    """The value under the caller's autocast, the gradient outside of it."""
    z = z.clone().requires_grad_()
    value = loss(z, labels, labels)
    with torch.autocast("cpu", enabled=False):
        gradient = torch.autograd.grad(value, z)[0]
    return value.detach(), gradient


def largest_tensor(loss, z, labels):
    """The elements of the largest tensor that is made for a value and its gradient."""
    largest = 0

    class Watch(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            nonlocal largest
            out = func(*args, **(kwargs or {}))
            for made in out if isinstance(out, tuple | list) else [out]:
                if isinstance(made, torch.Tensor):
                    size = made.untyped_storage().nbytes() // made.element_size()
                    largest = max(largest, size)
            return out

    with Watch():
        value_and_gradient(loss, z, labels)
    return largest


def first_to_second(scores: torch.Tensor, *, scale: float = 10.0) -> torch.Tensor:
    """A loss of two sides of somebody else's."""
    return torch.nn.functional.cross_entropy(scale * scores, torch.arange(len(scores)))


EDGES = {
    "duplicates": (torch.ones(6, 4), [0, 0, 1, 1, 2, 2]),
    "zeros": (torch.zeros(6, 4), [0, 0, 1, 1, 2, 2]),
    "some zeros": (torch.eye(6, 4), [0, 1, 0, 1, 0, 1]),
    "antipodes": (torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), [0, 0, 1, 1]),
    "antipodal negatives": (
        torch.tensor([[1.0, 0.0], [-1.0, 0.0], [1.0, 1e-4], [-1.0, 1e-4]]),
        [0, 1, 0, 1],
    ),
    "near duplicates": (torch.ones(4, 3) + 1e-6 * torch.eye(4, 3), [0, 0, 1, 1]),
    "singletons": (torch.randn(5, 3, generator=seeded(0)), [0, 1, 2, 3, 4]),
    "one class": (torch.randn(5, 3, generator=seeded(0)), [0, 0, 0, 0, 0]),
    "one row": (torch.tensor([[1.0, 2.0]]), [0]),
    "two alike": (torch.tensor([[1.0, 2.0], [2.0, 1.0]]), [0, 0]),
    "two unlike": (torch.tensor([[1.0, 2.0], [2.0, 1.0]]), [0, 1]),
    "no row": (torch.zeros(0, 3), []),
    "large": (
        1e4 * torch.randn(6, 4, generator=seeded(1)),
        [0, 0, 1, 1, 2, 2],
    ),
    "tiny": (
        1e-18 * torch.randn(6, 4, generator=seeded(1)),
        [0, 0, 1, 1, 2, 2],
    ),
}
