"""The joined batch of a process group, with gradients: its rows, and batch normalisation over them, on CPUs too.

Both give what one process would compute of the whole batch.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.modules.batchnorm import _BatchNorm

from contrasweep.trainables.losses import distributed
from contrasweep.trainables.precision import widened
from contrasweep.trainables.pytorch import Float, Matrix


def gather_with_gradient(z: Matrix) -> Float[Tensor, "N d"]:
    """Return the rows of all processes, in the order of ranks.

    In the backward pass this process gets the gradient of its own rows, times the number of processes. Gradients of
    weights are averaged over processes afterwards (see `losses.distributed`).
    """
    joined: Tensor = _Gather.apply(z)
    return joined


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor) -> Tensor:
        """Gather the rows, and remember which are this process's own: those after the rows of lower ranks."""
        counts = distributed.gather(torch.tensor([len(z)], device=z.device))
        rank, _ = distributed.rank_and_count()
        before = int(counts[:rank].sum())
        ctx.own_rows = slice(before, before + len(z))
        return distributed.gather(z)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient[ctx.own_rows] * distributed.processes()


class JoinedBatchNorm(_BatchNorm):
    """A batch normalisation whose statistics in training are those of the rows of all processes."""

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept any number of dimensions: one class is for batches of rows, of sequences and of images."""

    def forward(self, input: Tensor) -> Tensor:
        """Return `input` [n c ...] normalised: in training by the joined batch, in evaluation as torch does.

        Rank 0 alone evaluates, so that no other process is waited for then.
        """
        if not self.training:
            return super().forward(input)
        # Statistics are over all axes but the channels' (axis 1). A number for each channel, viewed as `shape`
        # [1 c 1 ...], fits the input.
        x = widened(input)
        axes = [0, *range(2, x.ndim)]
        shape = [1, -1, *[1] * (x.ndim - 2)]
        # Values of a channel in all processes, whose batches may differ in size.
        count = x.new_tensor([x.numel() / x.shape[1]])
        dist.all_reduce(count)
        mean = sum_over_processes(x.sum(axes)) / count
        centred = x - mean.view(shape)
        variance = sum_over_processes(centred.square().sum(axes)) / count
        # Running statistics have the unbiased variance, as torch's do.
        self._track(mean.detach(), (variance * count / (count - 1).clamp(min=1)).detach())
        normal = centred / (variance + self.eps).sqrt().view(shape)
        if self.affine:
            normal = normal * self.weight.view(shape) + self.bias.view(shape)
        return normal.to(input.dtype)

    @torch.no_grad()
    def _track(self, mean: Tensor, variance: Tensor) -> None:
        """Move the running statistics towards those of this batch, as torch's batch normalisation does."""
        if (
            self.running_mean is None
            or self.running_var is None
            or self.num_batches_tracked is None
        ):
            return
        self.num_batches_tracked += 1
        # Without a momentum, the running statistics are the mean over all batches so far.
        share = 1 / float(self.num_batches_tracked) if self.momentum is None else self.momentum
        self.running_mean.lerp_(mean.to(self.running_mean), share)
        self.running_var.lerp_(variance.to(self.running_var), share)


def convert(module: nn.Module) -> nn.Module:
    """Replace the batch normalisations within `module` by joined ones, in place, and return `module`.

    Weights, statistics and names do not change. If `module` is a batch normalisation itself, a new module is returned.
    """
    if isinstance(module, _BatchNorm) and not isinstance(module, JoinedBatchNorm):
        joined = JoinedBatchNorm(
            module.num_features,
            module.eps,
            module.momentum,
            module.affine,
            module.track_running_stats,
        )
        # The same tensors and not copies, so that an optimizer of these weights goes on with them.
        joined._parameters = module._parameters
        joined._buffers = module._buffers
        joined.training = module.training
        return joined
    for name, child in module.named_children():
        setattr(module, name, convert(child))
    return module


def sum_over_processes(values: Tensor) -> Tensor:
    """Return the sum of `values` over all processes of the group, the same in each.

    In the backward pass the gradient is summed over the processes too: the values of one process change the results of
    all.
    """
    total: Tensor = _Sum.apply(values)
    return total


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, values: Tensor) -> Tensor:
        total = values.clone()
        dist.all_reduce(total)
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        total = gradient.clone()
        dist.all_reduce(total)
        return total
