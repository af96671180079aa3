"""Nearest neighbours: kNN votes, target and noise similarities, retrieval scores, from one pass over the scores."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from contrasweep.trainables.pytorch import Float, Int, Integers, Matrix

SCORES_AT_ONCE = 2**24
"""Scores held at once: 64 MiB in float32."""


@dataclass(frozen=True)
class Neighbours:
    """The neighbours of n test items among the items of an index.

    `votes[k]` has the labels that k nearest neighbours predict. `target` is the largest cosine similarity to an index
    item of the same class, `noise` that to an item of another class. Both are -inf where there is none. `noise_label`
    is the class of that other item. `retrieval` has MAP@R, R-precision and recall@k of each test item, where asked for.
    """

    votes: dict[int, Integers]
    target: Float[Tensor, " n"]
    noise: Float[Tensor, " n"]
    noise_label: Integers
    retrieval: dict[str, Float[Tensor, " n"]]


def search(
    index: Float[Tensor, "m d"],
    index_labels: Int[Tensor, " m"],
    queries: Matrix,
    query_labels: Integers,
    *,
    ks: tuple[int, ...] = (1, 5),
    recall_at: tuple[int, ...] = (),
    retrieval: bool = False,
) -> Neighbours:
    """Return the neighbours of all queries among the items of the index, by cosine similarity, in tiles of queries.

    `ks` are the numbers of neighbours that vote; an index smaller than k votes as a whole. `recall_at` are the k of
    recall@k, which is computed with `retrieval` alone. If two items are equally similar, that with the lower label
    counts as nearer.
    """
    # By label, so that the first of equal similarities is that of the lowest label.
    order = torch.sort(index_labels, stable=True).indices
    index = F.normalize(index[order].float(), dim=1)
    index_labels = index_labels[order]
    queries = F.normalize(queries.float(), dim=1)
    # As many queries at a time as their scores with the whole index fit into a tile.
    rows = max(1, SCORES_AT_ONCE // max(1, len(index)))
    tiles = [
        _tile(
            queries[i : i + rows] @ index.T,
            index_labels,
            query_labels[i : i + rows],
            ks,
            recall_at,
            retrieval,
        )
        for i in range(0, len(queries), rows)
    ]
    return Neighbours(
        votes={k: torch.cat([t.votes[k] for t in tiles]) for k in ks},
        target=torch.cat([t.target for t in tiles]),
        noise=torch.cat([t.noise for t in tiles]),
        noise_label=torch.cat([t.noise_label for t in tiles]),
        retrieval={
            name: torch.cat([t.retrieval[name] for t in tiles]) for name in tiles[0].retrieval
        },
    )


def vote(similarities: Float[Tensor, "n k"], labels: Int[Tensor, "n k"], classes: int) -> Integers:
    """Return the label [n] with the largest summed similarity among the given neighbours; the lowest label on ties.

    A class without a neighbour cannot win, even where all similarities are negative.
    """
    # Sums over the k neighbours (dimension 1) of each class, [n classes].
    member = F.one_hot(labels, classes).bool()
    sums = (similarities[..., None] * member).sum(1)
    return sums.masked_fill(~member.any(1), -torch.inf).argmax(1)


def _tile(
    scores: Tensor,
    index_labels: Tensor,
    labels: Tensor,
    ks: tuple[int, ...],
    recall_at: tuple[int, ...],
    retrieval: bool,
) -> Neighbours:
    """Return the neighbours of a tile of t queries from their scores [t m] with the items of the index.

    `labels` [t] are those of the queries. `index_labels` [m] are those of the index, whose items are sorted by label.
    For the other arguments see `search`.
    """
    # The nearest item of the same class, and of another one.
    same = labels[:, None] == index_labels
    target = scores.masked_fill(~same, -torch.inf).amax(1)
    noise, noise_at = _first_max(scores.masked_fill(same, -torch.inf))
    # The nearest items, of whatever class, vote. The index is ordered by label, so its last label is the largest.
    near, near_at = _nearest(scores, min(max(ks), len(index_labels)))
    classes = int(index_labels[-1]) + 1
    votes = {k: vote(near[:, :k], index_labels[near_at[:, :k]], classes) for k in ks}
    ranked = _retrieval(scores, same, recall_at) if retrieval else {}
    return Neighbours(votes, target, noise, index_labels[noise_at], ranked)


def _first_max(scores: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest score of each row [t] and its place [t]; of equal ones the first."""
    places = scores.argmax(1)
    return scores.gather(1, places[:, None])[:, 0], places


def _nearest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest scores of each row [t k] and their places [t k].

    The first of equal scores comes first; `topk` leaves their order open.
    """
    remaining = scores.clone()
    values = []
    places = []
    # The largest is taken out k times; k is small.
    for _ in range(k):
        largest, place = _first_max(remaining)
        values.append(largest)
        places.append(place)
        remaining.scatter_(1, place[:, None], -torch.inf)
    return torch.stack(values, 1), torch.stack(places, 1)


def _retrieval(scores: Tensor, same: Tensor, recall_at: tuple[int, ...]) -> dict[str, Tensor]:
    """Return MAP@R, R-precision and recall@k of each query of a tile, by name (Musgrave et al. 2020, section 3.2).

    `scores` and `same` (whether the class is the query's) are [t m]. R is the number of index items of the class.
    Recall@k is 1 where one of the k nearest is of the class. All are 0 for a query whose class the index lacks.
    """
    # R of each query; the ranking is looked at down to the largest of them.
    relevant = same.sum(1)
    depth = max(int(relevant.max()), *recall_at, 1)
    ranking = torch.sort(scores, dim=1, descending=True, stable=True).indices[:, :depth]
    hits = same.gather(1, ranking).double()
    # Hits among the first R, and the precision at each rank; MAP@R is the mean over R of the precision at each hit.
    rank = torch.arange(1, hits.shape[1] + 1, device=hits.device)
    hits_in_first_r = torch.where(rank <= relevant[:, None], hits, 0)
    precision = hits_in_first_r.cumsum(1) / rank
    r = relevant.clamp(min=1)
    by_name = {
        "map_at_r": (precision * hits_in_first_r).sum(1) / r,
        "r_precision": hits_in_first_r.sum(1) / r,
    }
    return by_name | {f"recall_at_{k}": hits[:, :k].amax(1) for k in recall_at}
