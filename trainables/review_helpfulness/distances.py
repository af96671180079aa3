"""How far apart the tokens of related sequences lie (Tables 7 and 8 of Nguyen et al. 2022)."""

from collections.abc import Mapping

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from contrasweep.trainables.review_helpfulness.batch import Sequences
from contrasweep.trainables.review_helpfulness.layers import cosine_matrix

RELATIONS = {
    "intra_modal": (("text_p", "text_r"), ("roi_p", "roi_r")),
    "inter_modal": (("text_p", "roi_r"), ("roi_p", "text_r")),
    "intra_review": (("text_p", "roi_p"), ("text_r", "roi_r")),
}


def token_distances(
    x: Float[Tensor, "b t d"], mask_x: Bool[Tensor, "b t"], y: Float[Tensor, "b s d"], mask_y: Bool[Tensor, "b s"]
) -> tuple[Float[Tensor, " b"], Float[Tensor, " b"]]:
    """Means over all valid token pairs of 1 - cosine and of the Euclidean distance, per sample."""
    pairs = mask_x[:, :, None] & mask_y[:, None, :]
    count = pairs.sum((1, 2)).clamp(min=1)
    cosine = ((1 - cosine_matrix(x, y)) * pairs).sum((1, 2)) / count
    # The matrix product behind cdist's fast way loses digits where the distance is small.
    euclidean = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
    return cosine, (euclidean * pairs).sum((1, 2)) / count


def relation_distances(features: Mapping[str, Sequences]) -> dict[str, Float[Tensor, " b"]]:
    """`cs_<relation>` and `l2_<relation>` per sample, each the mean over the relation's two pairs of sequences."""
    distances = {}
    for relation, pairs in RELATIONS.items():
        both = [token_distances(*features[a], *features[b]) for a, b in pairs]
        distances[f"cs_{relation}"] = (both[0][0] + both[1][0]) / 2
        distances[f"l2_{relation}"] = (both[0][1] + both[1][1]) / 2
    return distances
