"""The network that every modality shares: from an encoder's stages to z, l and the classifier (LOCAL, figure 6).

The latent hierarchical correlation l says how a pair differs along the encoder's stages (LOCAL, section 3.4). The paper
resizes the stages' difference maps to one size, concatenates all channels, takes their mean, flattens and normalises.
Resizing is linear and treats channels alike, so the mean over channels may be taken first:

    l = normalize(flatten(sum_i C_i resize(mean_c d_i) / sum_i C_i))

which is the same vector without the map of 960 (ResNet-18/34) or 3840 (ResNet-50) channels.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from contrasweep.trainables.paired.settings import PairedSettings
from contrasweep.trainables.precision import full_precision, widened
from contrasweep.trainables.pytorch import Float, Matrix

EPS = 1e-6
"""The least length that a vector is divided by: a zero vector stays zero."""

BRANCH_DROPOUT = 0.5
"""With a branch: the share of r, and of the classifier's hidden units, that is dropped."""

ENCODER_SCALE = 3.0
"""With a branch: the length of the encoder's part of r."""


class Outputs(NamedTuple):
    """The outputs for a batch of n pairs or single inputs.

    `z` [n D_E] is the difference of a pair's embeddings, of length 1 where `z_norm`; for single inputs their embedding.
    `z_raw` [n] is the length of z before normalisation. `latent` [n D_L] is l, or None where there is none. `logits`
    [n K] are the classifier's. `e_post` [n D_E] is the embedding of the second side, or of the single input.
    """

    z: Matrix
    latent: Float[Tensor, "n dl"] | None
    logits: Float[Tensor, "n k"]
    z_raw: Float[Tensor, " n"]
    e_post: Matrix


class Joint(nn.Module):
    """The part that every modality shares: from the sides of a batch through an encoder to `Outputs`.

    Args:
        encoder: Takes both sides one below the other, and gives a list of maps [2n C_i *size_i], stage 1 first. The
            representation r is the mean of the last map over its places, normalised.
        settings: The trial's settings, resolved.
        dim: The number of features that r has from the encoder.
        classes: The number of classes.
        paired: Whether inputs have two sides; else they are single.
        latent_size: The size of the map that l is: (height, width) of images, (length,) of texts.
        branch: A network of further numbers [n f] of each side, whose output stands beside the encoder's in r; or None.
        branch_dim: The number of features that the branch gives; 0 without one.
    """

    def __init__(
        self,
        encoder: nn.Module,
        settings: PairedSettings,
        dim: int,
        classes: int,
        *,
        paired: bool,
        latent_size: tuple[int, ...],
        branch: nn.Module | None = None,
        branch_dim: int = 0,
    ) -> None:
        super().__init__()
        dim += branch_dim
        self.encoder = encoder
        self.settings = settings
        self.paired = paired
        self.latent_size = latent_size
        self.projection = settings.projection.build(dim)
        self.classifier = nn.Sequential(
            nn.Linear(dim * (2 if paired else 1), settings.classifier.hidden),
            nn.ReLU(inplace=True),
            nn.Linear(settings.classifier.hidden, classes),
        )
        self.branch = branch
        # Without dropout the branch learns the training part by heart: its numbers are few, the layers wide.
        if branch is not None:
            self.encoder_dropout = nn.Dropout(BRANCH_DROPOUT)
            # At place 2, after the ReLU.
            self.classifier.insert(2, nn.Dropout(BRANCH_DROPOUT))
        if paired:
            settings.check_latent(latent_size, classes)

    def forward(self, *sides: Tensor) -> Outputs:
        """Return the outputs for `sides`: pre and post, or one batch of single inputs, each [n ...].

        With a `branch`, its inputs follow, [n f] for each side. Both sides go through the encoder in ONE call. In two
        calls, each side would have BatchNorm statistics of its own. That would erase the shift common to all pairs,
        which carries part of the change.
        """
        numbers: tuple[Tensor, ...] = ()
        if self.branch is not None:
            count = len(sides) // 2
            sides, numbers = sides[:count], sides[count:]
        maps = self.encoder(torch.cat(sides))
        r = self._representation(maps[-1], numbers)
        # The embedding e, in full precision: z is a small difference of e, which rounding would drown.
        with full_precision(r):
            unit = r if self.branch is None else F.normalize(r, dim=1, eps=EPS)
            e = F.normalize(self.projection(unit), dim=1, eps=EPS)
        if not self.paired:
            norms = torch.linalg.vector_norm(e.detach(), dim=1)
            return Outputs(
                z=e, latent=None, logits=widened(self.classifier(r)), z_raw=norms, e_post=e
            )
        # z is the normalised difference of both sides' embeddings; the classifier reads r of both.
        r_pre, r_post = r.chunk(2)
        e_pre, e_post = e.chunk(2)
        raw = e_pre - e_post
        z = F.normalize(raw, dim=1, eps=EPS) if self.settings.z_norm else raw
        logits = widened(self.classifier(torch.cat([r_pre, r_post], dim=1)))
        norms = torch.linalg.vector_norm(raw.detach(), dim=1)
        return Outputs(z, self._latent(maps), logits, norms, e_post)

    def _representation(self, last_map: Tensor, numbers: Sequence[Tensor]) -> Tensor:
        """Return r of each side [m d]: the mean of the last stage's map [m c ...] over its places, normalised.

        With a branch, r has the branch's output for `numbers` first, and then that of the encoder, scaled to the same
        weight.
        """
        r_of_encoder = F.normalize(widened(last_map.flatten(2)).mean(2), dim=1, eps=EPS)
        if self.branch is None:
            return r_of_encoder
        r_of_branch = widened(self.branch(torch.cat(tuple(numbers))))
        return torch.cat([r_of_branch, ENCODER_SCALE * self.encoder_dropout(r_of_encoder)], 1)

    def _latent(self, maps: Sequence[Tensor]) -> Tensor | None:
        """Return l of both sides' maps; None where the loss has no part for it."""
        if self.settings.beta == 0:
            return None
        # Both sides went through the encoder one below the other: the halves are pre and post.
        halves = [m.chunk(2) for m in maps]
        return latent(
            [pre for pre, _ in halves],
            [post for _, post in halves],
            blocks=self.settings.latent.blocks,
            size=self.latent_size,
            weighting=self.settings.latent.weighting,
        )


def stages_of(blocks: str) -> tuple[int, ...]:
    """Return the indices, from 0, of the stages that `blocks` names: "3-4" -> (2, 3)."""
    return tuple(int(block) - 1 for block in blocks.split("-"))


def resize(maps: Float[Tensor, "n c *size"], size: Sequence[int]) -> Float[Tensor, "n c *out"]:
    """Return maps over one or two dimensions at another `size`.

    Places are averaged if no side of the maps is smaller than that of `size`; otherwise they are interpolated.
    """
    if tuple(maps.shape[2:]) == tuple(size):
        return maps
    if any(present_side < want for present_side, want in zip(maps.shape[2:], size, strict=True)):
        mode = "bilinear" if len(size) == 2 else "linear"
        return F.interpolate(maps, tuple(size), mode=mode, align_corners=False)
    if len(size) == 2:
        return F.adaptive_avg_pool2d(maps, (size[0], size[1]))
    return F.adaptive_avg_pool1d(maps, size[0])


def latent(
    pre: Sequence[Float[Tensor, "n _ *_"]],
    post: Sequence[Float[Tensor, "n _ *_"]],
    *,
    blocks: str,
    size: Sequence[int],
    weighting: str = "channel",
) -> Matrix:
    """Return l [n D_L] from the stage outputs of both sides, stage 1 first; D_L is the product of `size`.

    `weighting` is `channel` (the paper's: a stage counts by its channels, so stage 4 makes up half of l) or
    `block` (every stage counts alike).
    """
    # The weighted mean over stages of the mean over channels; see the top of this file.
    total: Tensor | float = 0.0
    weights = 0.0
    for i in stages_of(blocks):
        weight = float(pre[i].shape[1]) if weighting == "channel" else 1.0
        difference = widened(pre[i] - post[i]).mean(1, keepdim=True)
        total = total + weight * resize(difference, size)
        weights += weight
    assert isinstance(total, Tensor)
    return F.normalize((total / weights).flatten(1), dim=1, eps=EPS)


def largest_rank_of_l(maps: Sequence[Sequence[int]], size: Sequence[int]) -> int:
    """Return an upper bound on the dimensions that l spans at `size`, from stages whose maps have the sizes `maps`.

    With `size` H x W, a stage with maps of h x w adds min(h, H) min(w, W): enlarging a map adds no dimensions.
    """
    return sum(math.prod(map(min, map_size, size)) for map_size in maps)
