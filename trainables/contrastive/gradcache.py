"""Large batches on small devices: encode in chunks, compute the loss on all embeddings at once (Gao et al. 2021).

A contrastive loss needs the embeddings of the whole batch, but not their graphs. So a step has three parts:

1. Encode each chunk without a graph.
2. Take the loss, and its gradient with respect to the embeddings.
3. Encode each chunk again, with a graph, and send its part of that gradient back.

Two forward passes are the price for the memory of one chunk; the gradient is that of the whole batch.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from contrasweep.trainables import checkpoint
from contrasweep.trainables.optimisation import separate_gradients
from contrasweep.trainables.pytorch import Float, Matrix, Shaped


@dataclass(frozen=True)
class Step:
    """The outcome of a step whose batch was encoded in `chunks` chunks.

    `loss` and `embeddings` have no graph; `gradients` are in the order of the parameters. `exact` is false where the
    encoder normalises over the rows of a chunk (batch normalisation in training mode). The gradient is then that of an
    encoder whose batches are the chunks.
    """

    loss: Float[Tensor, ""]
    embeddings: Matrix
    gradients: list[Tensor]
    chunks: int
    exact: bool

    @property
    def metrics(self) -> dict[str, float]:
        """Return `gradcache_chunks`, the number of chunks, and `gradcache_exact`, which is 1 or 0 (see `exact`)."""
        return {"gradcache_chunks": float(self.chunks), "gradcache_exact": float(self.exact)}


def chunked_step(
    encoder: nn.Module,
    inputs: Shaped[Tensor, "n ..."],
    loss: Callable[[Tensor], Tensor],
    parameters: Sequence[Tensor],
    rows: int,
) -> Step:
    """Return the loss of `encoder(inputs)` and its gradients, with graphs of at most `rows` inputs at a time.

    `loss` takes the embeddings [n d]; it may have parameters of its own among `parameters`. Dropout draws the same
    numbers in both passes, and running statistics are updated once. Both passes run under the caller's autocast.
    """
    if rows < 1:
        raise ValueError(f"rows: a chunk must hold at least 1 input, got {rows}")
    chunks = torch.split(inputs, rows)
    # A batch normalisation may refuse a single row, which would be left over here: the chunks are made equal then.
    if len(chunks[-1]) == 1:
        chunks = torch.tensor_split(inputs, len(chunks))
    states = []
    encoded = []
    # First pass, without graphs: the embeddings of all chunks, and the random state before each chunk.
    with torch.no_grad(), _buffers_kept(encoder):
        for chunk in chunks:
            states.append(checkpoint.random_state())
            encoded.append(encoder(chunk))
    # The loss of the whole batch gives the gradient of each embedding. Parameters of the loss itself, such as a learned
    # temperature, get their gradient here too; those of the encoder are not in this graph, so that theirs is None.
    embeddings = torch.cat(encoded).detach().requires_grad_()
    value = loss(embeddings)
    upstream, *direct = torch.autograd.grad(value, [embeddings, *parameters], allow_unused=True)
    after = checkpoint.random_state()
    gradients = separate_gradients(parameters, direct)
    # Second pass, with graphs: each chunk draws the same numbers as before, and passes the gradient of its embeddings
    # on to the parameters. The gradients of all chunks add up.
    parts = torch.split(upstream, [len(chunk) for chunk in chunks])
    for chunk, state, part in zip(chunks, states, parts, strict=True):
        checkpoint.set_random_state(state)
        of_chunk = torch.autograd.grad(encoder(chunk), parameters, part, allow_unused=True)
        for total, addition in zip(gradients, of_chunk, strict=True):
            if addition is not None:
                total += addition
    # The next step draws on from where the loss has left the generators.
    checkpoint.set_random_state(after)
    return Step(
        loss=value.detach(),
        embeddings=embeddings.detach(),
        gradients=gradients,
        chunks=len(chunks),
        exact=len(chunks) == 1 or not _mixes_rows(encoder),
    )


def _mixes_rows(encoder: nn.Module) -> bool:
    """Whether the embedding of a row depends on other rows of its batch.

    It does where the encoder has a batch normalisation that uses the statistics of the batch: in training mode, or
    where it keeps no running statistics.
    """
    return any(
        isinstance(module, _BatchNorm) and (module.training or module.running_mean is None)
        for module in encoder.modules()
    )


@contextmanager
def _buffers_kept(encoder: nn.Module) -> Iterator[None]:
    """Put buffers, such as running statistics, back at the end to the values that they have at the start."""
    before = [b.clone() for b in encoder.buffers()]
    try:
        yield
    finally:
        for buffer, value in zip(encoder.buffers(), before, strict=True):
            buffer.copy_(value)
