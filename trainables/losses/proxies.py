"""Losses of classes: embeddings against one learned vector a class. Functions of embeddings, labels and the vectors."""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Literal

from contrasweep.config import Config
from contrasweep.errors import SpecError
from contrasweep.schema import OMIT_DEFAULT
from contrasweep.trainables.fields import NotNegative, Positive
from contrasweep.trainables.losses.batch import BatchLoss, Ids, Scalar
from contrasweep.trainables.losses.loss import FunctionLoss
from contrasweep.trainables.pytorch import F, Float, Tensor, torch
from contrasweep.trainables.similarities import cosine

if TYPE_CHECKING:
    from contrasweep.trainables.losses.weights import Proxies

Rows = Float[Tensor, "n d"]
Vectors = Float[Tensor, "k d"]


def proxy_anchor(
    embeddings: Rows,
    labels: Ids,
    proxies: Vectors,
    *,
    margin: NotNegative = 0.1,
    scale: Positive = 32.0,
) -> Scalar:
    """Proxy Anchor: mean_P+ softplus(lse_X+ -a(s - m)) + mean_P softplus(lse_X- a(s + m)) (Kim et al. 2020, eq. 4).

    - s: the cosine of an embedding and a class's proxy; m: `margin`; a: `scale`.
    - P: all classes; P+: the classes of the batch.
    - X+: the embeddings of the class in the batch; X-: all others; lse_X: the log-sum-exp over the embeddings of X.
    """
    scores = cosine(embeddings, proxies)
    is_class = F.one_hot(labels, len(proxies)).bool()
    # Log-sum-exp over the embeddings (0), for each class: those of the class are pulled, all others pushed away.
    pull = torch.logsumexp((-scale * (scores - margin)).masked_fill(~is_class, -torch.inf), 0)
    push = torch.logsumexp((scale * (scores + margin)).masked_fill(is_class, -torch.inf), 0)
    return F.softplus(pull[is_class.any(0)]).mean() + F.softplus(push).mean()


def arcface(
    embeddings: Rows,
    labels: Ids,
    proxies: Vectors,
    *,
    margin: NotNegative = 0.5,
    scale: Positive = 64.0,
    form: Annotated[Literal["paper", "code"], OMIT_DEFAULT] = "paper",
) -> Scalar:
    """ArcFace: -log e^{s cos(a_y + m)} / (e^{s cos(a_y + m)} + sum_{j != y} e^{s cos a_j}) (Deng et al. 2019, eq. 3).

    a_j is the angle between an embedding and the vector of class j, m `margin`, s `scale`. `form` "code" has
    cos a_y - m sin m in place of cos(a_y + m) where a_y > pi - m, as the authors' code does.
    """
    cosines = cosine(embeddings, proxies)
    # cos(a + m) = cos a cos m - sin a sin m. The clamp keeps the root's gradient finite where a is 0 or pi.
    sines = (1 - cosines.square()).clamp(min=1e-12).sqrt()
    with_margin = cosines * math.cos(margin) - sines * math.sin(margin)
    # Beyond a_y = pi - m (cos a_y = -cos m), cos(a_y + m) would rise again.
    if form == "code":
        with_margin = torch.where(
            cosines > -math.cos(margin), with_margin, cosines - margin * math.sin(margin)
        )
    return _margin_cross_entropy(cosines, with_margin, labels, scale)


def cosface(
    embeddings: Rows,
    labels: Ids,
    proxies: Vectors,
    *,
    margin: NotNegative = 0.35,
    scale: Positive = 64.0,
) -> Scalar:
    """CosFace: -log e^{s (cos a_y - m)} / (e^{s (cos a_y - m)} + sum_{j != y} e^{s cos a_j}) (Wang et al. 2018, eq. 4).

    a_j is the angle between an embedding and the vector of class j, m `margin`, s `scale`.
    """
    cosines = cosine(embeddings, proxies)
    return _margin_cross_entropy(cosines, cosines - margin, labels, scale)


def _margin_cross_entropy(
    cosines: Float[Tensor, "n k"], with_margin: Float[Tensor, "n k"], labels: Ids, scale: float
) -> Scalar:
    """Return the mean cross-entropy of `scale` x cosines, where that of a row's own class is from `with_margin`."""
    logits = torch.where(F.one_hot(labels, cosines.shape[1]).bool(), with_margin, cosines)
    return F.cross_entropy(scale * logits, labels)


class ProxyLoss(FunctionLoss):
    """A row of `LOSSES`: `function(embeddings [n d], labels [n], proxies [k d], **parameters)` gives the loss."""

    inputs = 3


@dataclass(frozen=True)
class ComposedProxyLoss(BatchLoss):
    """A loss of classes with the arguments of all losses: embeddings [n d], labels [n], unused instance ids.

    In a process group the loss is that of the joined batch.
    """

    definition: ProxyLoss
    params: Config
    weights: "Proxies | None" = None
    """The vectors of the classes, which are learned; without them it cannot be called."""

    @property
    def has_weights(self) -> bool:
        """Always true: the vectors of the classes are learned."""
        return True

    @property
    def name(self) -> str:
        """Return the loss's name in the table `LOSSES`."""
        return self.definition.name

    def of_rows(self, z: Rows, ids: Ids) -> Scalar:
        """Return the loss of embeddings whose classes are `ids`; `SpecError` if built without `classes` and `dim`."""
        if self.weights is None:
            raise SpecError(
                f"{self.name} has a vector for each class",
                place="classes",
                hint="give classes and dim",
            )
        return self.definition.function(z, ids, self.weights.rows, **self.params)
