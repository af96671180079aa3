"""Where the batches of all slots lie for a step."""

from collections.abc import Sequence

from jaxtyping import Float
from torch import Tensor

from contrasweep.trainables.fusing.folding import Folded


def batch_buffer(network: Folded, shape: Sequence[int]) -> Float[Tensor, "k n ..."]:
    """Zeros [k *shape] for a batch of `shape` (rows first) of each slot, in the type of the network's weights; images
    [n c h w] lie in memory as its engine reads them."""
    like = next(iter(network.parameters()))
    count = network.slots.count
    if len(shape) == 4 and network.engine.form == "products":
        rows, channels, height, width = shape
        return like.new_zeros(count, rows, height, width, channels).movedim(4, 2)
    if len(shape) == 4:
        return like.new_zeros(shape[0], count, *shape[1:]).transpose(0, 1)
    return like.new_zeros(count, *shape)
