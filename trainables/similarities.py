"""How alike two embeddings are. Larger always means more alike: a distance is negated here, once, and no loss asks.

Every function takes rows [n d] and columns [m d] and gives scores [n m]. Values and gradients are finite for
duplicates, antipodes and zero vectors. A temperature or margin that suits one similarity means something else for
another: search them per similarity.

Somebody else's go by dotted path: `loss: {name: supcon, similarity: "mypackage.similarities:rbf"}`. A function (rows,
columns) gives the scores; where 0 means unrelated, as `ocl` needs it, it has the attribute `signed = True`.
"""

import functools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from contrasweep.errors import SpecError
from contrasweep.imports import errors_named, import_path
from contrasweep.trainables.pytorch import Float, Tensor, torch

Scores = Float[Tensor, "n m"]
Rows = Float[Tensor, "n d"]
Columns = Float[Tensor, "m d"]


@dataclass(frozen=True)
class Similarity:
    """A row of `SIMILARITIES`: a `function` from rows [n d] and columns [m d] to scores [n m].

    Scores lie between `low` and `high`; a row scores `high` with a copy of itself. Where there is a `project`, scores
    are dot products of projected rows, which lets the tiled losses use matrix products for gradients too. `signed`: a
    score of 0 means unrelated, as the orthonormal loss (`ocl`) needs it.
    """

    name: str
    description: str
    function: Callable[[Tensor, Tensor], Tensor]
    low: float
    high: float
    project: Callable[[Tensor], Tensor] | None = None
    signed: bool = False

    def __call__(self, rows: Rows, columns: Columns) -> Scores:
        """Return the score of each row with each column, [n m]."""
        return self.function(rows, columns)


def unit(z: Rows) -> Rows:
    """Return z / |z|.

    A zero vector stays zero and has zero gradient. Had it been divided by a small constant, its gradient would be
    multiplied by the inverse of that constant.
    """
    length = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
    is_zero = length == 0
    return torch.where(is_zero, torch.zeros_like(z), z / torch.where(is_zero, 1.0, length))


def cosine(rows: Rows, columns: Columns) -> Scores:
    """u_i.u_j with u = z / |z|, in [-1, 1]."""
    return unit(rows) @ unit(columns).T


def dot(rows: Rows, columns: Columns) -> Scores:
    """z_i.z_j: the dot product, in which the lengths of both vectors count."""
    return rows @ columns.T


NO_SLOPE = 1e-14
"""1 - |cos| below which an angle's gradient is taken to be 0: 1.4e-7 rad, which float32 cannot resolve."""


def neg_arc_length(rows: Rows, columns: Columns) -> Scores:
    """1 - arccos(u_i.u_j) / pi with u = z / |z|, in [0, 1].

    The products are taken in float64 whatever the input: float32's error of 1e-7 in a cosine is one of 4e-4 rad in
    a small angle. The slope of the arc cosine is infinite at duplicates and antipodes; there it is 0.
    """
    cosines = unit(rows.double()) @ unit(columns.double()).T
    angles = torch.arccos(cosines.clamp(-1 + NO_SLOPE, 1 - NO_SLOPE))
    return (1 - angles / math.pi).to(rows.dtype)


def neg_euclidean(rows: Rows, columns: Columns) -> Scores:
    """-|z_i - z_j|.

    It is computed from differences: products in float32 are wrong by a third for vectors that nearly coincide. The
    gradient at a duplicate is 0.
    """
    return -torch.cdist(rows, columns, compute_mode="donot_use_mm_for_euclid_dist")


def neg_euclidean_unit(rows: Rows, columns: Columns) -> Scores:
    """-|u_i - u_j| with u = z / |z|, in [-2, 0]."""
    return neg_euclidean(unit(rows), unit(columns))


def neg_sq_euclidean_unit(rows: Rows, columns: Columns) -> Scores:
    """-|u_i - u_j|^2 with u = z / |z|, in [-4, 0] (FaceNet's: Schroff et al. 2015)."""
    # |u - v|^2 = |u|^2 + |v|^2 - 2 u.v. The squares are 1, but 0 for a zero vector.
    u = unit(rows)
    v = unit(columns)
    return 2 * (u @ v.T) - u.square().sum(-1)[:, None] - v.square().sum(-1)


SIMILARITIES: Mapping[str, Similarity] = MappingProxyType(
    {
        s.name: s
        for s in (
            Similarity(
                "cosine",
                "dot product of unit vectors, -1 to 1",
                cosine,
                -1,
                1,
                project=unit,
                signed=True,
            ),
            Similarity(
                "dot", "dot product", dot, -math.inf, math.inf, project=lambda z: z, signed=True
            ),
            Similarity("neg_arc_length", "1 - angle / pi, 0 to 1", neg_arc_length, 0, 1),
            Similarity("neg_euclidean", "negated distance", neg_euclidean, -math.inf, 0),
            Similarity(
                "neg_euclidean_unit",
                "negated distance of unit vectors, -2 to 0",
                neg_euclidean_unit,
                -2,
                0,
            ),
            Similarity(
                "neg_sq_euclidean_unit",
                "negated squared distance of unit vectors, -4 to 0",
                neg_sq_euclidean_unit,
                -4,
                0,
            ),
        )
    }
)


def find_similarity(name: str) -> Similarity:
    """Return the similarity of this name in `SIMILARITIES`, or at this dotted path (`SpecError` if none is there)."""
    return own_similarity(name) if ":" in name else SIMILARITIES[name]


@functools.cache
def own_similarity(path: str, *, signed: bool = False) -> Similarity:
    """Return the similarity at a dotted path.

    `SpecError` where nothing is there, or where it must be `signed` (0 means unrelated) and has no attribute `signed`.
    """
    function = import_path(path, kind="similarity")
    is_signed = bool(getattr(function, "signed", False))
    if signed and not is_signed:
        raise SpecError(
            "this loss needs a similarity where 0 means unrelated",
            value=path,
            hint="set its attribute signed = True",
        )
    description = (getattr(function, "__doc__", "") or path).strip().split("\n")[0]
    return Similarity(path, description, function, -math.inf, math.inf, signed=is_signed)


def check_similarity(path: str) -> None:
    """Raise `SpecError` where a similarity at a dotted path does not suit.

    It is called with four random rows, and the first three of them as columns. It has to give finite scores with a
    gradient, larger ones for a row with itself.
    """
    place = "loss.similarity"
    rows = torch.randn(4, 8, generator=torch.Generator().manual_seed(0)).requires_grad_()
    with errors_named(f"{path} fails on rows [4, 8] and columns [3, 8]", place):
        scores = own_similarity(path)(rows, rows[:3])
    if (
        not isinstance(scores, Tensor)
        or tuple(scores.shape) != (4, 3)
        or not torch.isfinite(scores).all()
    ):
        shown = list(scores.shape) if isinstance(scores, Tensor) else type(scores).__name__
        rule = "a similarity gives a finite score for each row with each column"
        raise SpecError(rule, place=place, value=f"{shown} for 4 rows and 3 columns", hint=path)
    if not scores.requires_grad:
        raise SpecError(
            "a similarity has a gradient, so it is made of torch's operations",
            place=place,
            value=path,
        )
    # The first three columns are the first three rows: each has to be most alike itself, on average.
    if scores[:3].diagonal().mean() < scores.mean():
        raise SpecError(
            "a row is more alike itself than others, so a distance is negated",
            place=place,
            value=path,
        )
