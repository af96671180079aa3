"""Parts of a forward pass that stay in full precision."""

from contrasweep.trainables.pytorch import Float, Tensor, torch


def widened(x: Float[Tensor, "..."]) -> Float[Tensor, "..."]:
    """Return `x` in float32; a float64 tensor stays float64."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def full_precision(x: Tensor) -> "torch.autocast":
    """Return a context without autocast on the device of `x`, for code that an autocast context surrounds."""
    return torch.autocast(x.device.type, enabled=False)
