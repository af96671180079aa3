"""Targets without negatives, whose momentum encoder is the teacher: BYOL and DINO; and SwAV's codes."""

import math

from contrasweep.trainables import checkpoint
from contrasweep.trainables.contrastive.targets.protocol import Compared, together
from contrasweep.trainables.fields import BelowOne, Count, Positive
from contrasweep.trainables.losses import AnyLoss
from contrasweep.trainables.losses.batch import Ids
from contrasweep.trainables.precision import full_precision, widened
from contrasweep.trainables.pytorch import F, Float, ImageBatch, Matrix, Tensor, nn, torch


def predictor(dim: int, width: int) -> "nn.Module":
    """Return a head from embeddings to embeddings with a hidden layer of `width` units, as BYOL's and NNCLR's are."""
    return nn.Sequential(
        nn.Linear(dim, width), nn.BatchNorm1d(width), nn.ReLU(inplace=True), nn.Linear(width, dim)
    )


class Byol:
    """A momentum encoder's projections of the other view as the targets of a predictor (BYOL: Grill et al. 2020).

    The loss is `regression` of first views on second ones plus that of second on first, whatever the trial's `loss`.
    There are no negatives. The momentum rises from `momentum` to 1 along a cosine. The predictor has `width` hidden
    units.
    """

    needs = "nothing"
    joined = True

    def __init__(
        self,
        model: "nn.Module",
        steps: int,
        dim: int,
        *,
        momentum: BelowOne = 0.996,
        width: Count = 512,
    ) -> None:
        from contrasweep.trainables.contrastive.averaging import MomentumEncoder

        self.model = model
        self.momentum = momentum
        self.steps = steps
        self.encoder = MomentumEncoder(model)
        self.trained = predictor(dim, width)

    @property
    def parts(self) -> checkpoint.Parts:
        """Return what a checkpoint saves: the momentum encoder and the predictor."""
        return {"momentum_encoder": self.encoder, "predictor": self.trained}

    def step(self, views: ImageBatch, labels: Ids, rows: Ids, loss: AnyLoss) -> Compared:
        """Compute the sum of both losses: predictions of one view against projections of the other.

        The first half of `views` are the first views of the images, the second half their second ones. `labels`, `rows`
        (the images' numbers) and `loss` are not looked at. Returns the loss with the online embeddings [n d].
        """
        # Each list has a tensor [b d] of the first views, and one of the second.
        first, second = views.chunk(2)
        embeddings = [self.model(first), self.model(second)]
        predictions = [self.trained(z) for z in embeddings]
        projections = [self.encoder(first), self.encoder(second)]
        with full_precision(views):
            # q and z are those of all processes, in full precision. Each predicts the other view's.
            q = [together(widened(of_view))[0] for of_view in predictions]
            z = [together(widened(of_view))[0] for of_view in projections]
            value = regression(q[0], z[1]) + regression(q[1], z[0])
        return Compared(value, torch.cat(embeddings))

    def after_step(self, step: int) -> None:
        """Move the momentum encoder towards the network."""
        self.encoder.update(self.model, rising_momentum(self.momentum, step, self.steps))


def regression(predictions: Matrix, projections: Matrix) -> Float[Tensor, ""]:
    """|q/|q| - z/|z||^2 = 2 - 2 cos(q, z), the mean over rows (BYOL: Grill et al. 2020, equation 2)."""
    return (2 - 2 * F.cosine_similarity(predictions, projections, dim=1)).mean()


def rising_momentum(base: float, step: int, steps: int) -> float:
    """BYOL's momentum at step 0, 1, ..., `steps`: from `base` to 1 along a cosine (Grill et al. 2020, section 3.3)."""
    return 1 - (1 - base) * (math.cos(math.pi * min(step, steps) / steps) + 1) / 2


class Dino:
    """The teacher's class probabilities of a view, which the student predicts from all other views (DINO).

    Source: Caron et al. 2021, equations 1 to 4 and algorithm 1. The teacher is a momentum encoder of the student.
    Scores of classes are cosines with `prototypes` learned vectors, the paper's last layer. The teacher's scores are
    centred (less their running mean) and sharpened (by a low temperature). The teacher sees the first `teacher_views`
    views of an image, the student all. The loss is the mean cross-entropy over pairs of different views, whatever the
    trial's `loss`. The momentum rises from `momentum` to 1 along a cosine.
    """

    needs = "nothing"
    many_views = True
    joined = True
    n_views = 2

    def __init__(
        self,
        model: "nn.Module",
        steps: int,
        dim: int,
        *,
        prototypes: Count = 1024,
        temperature: Positive = 0.1,
        teacher_temperature: Positive = 0.04,
        momentum: BelowOne = 0.996,
        centre_momentum: BelowOne = 0.9,
        teacher_views: Count = 2,
    ) -> None:
        from contrasweep.trainables.contrastive.averaging import MomentumEncoder
        from contrasweep.trainables.contrastive.prototypes import Centre, Prototypes

        self.model = model
        self.steps = steps
        self.teacher_views = teacher_views
        self.temperature = temperature
        self.teacher_temperature = teacher_temperature
        self.momentum = momentum
        self.centre_momentum = centre_momentum
        self.trained = Prototypes(prototypes, dim)
        self.centre = Centre(prototypes)
        # The teacher follows network and prototypes together. `pending` is the mean of a step's scores by the teacher.
        self.student = nn.Sequential(model, self.trained)
        self.teacher = MomentumEncoder(self.student)
        self.pending: Tensor | None = None

    @property
    def parts(self) -> checkpoint.Parts:
        """Return what a checkpoint saves: the teacher, the prototypes and the centre."""
        return {"momentum_encoder": self.teacher, "prototypes": self.trained, "centre": self.centre}

    def step(self, views: ImageBatch, labels: Ids, rows: Ids, loss: AnyLoss) -> Compared:
        """Compute the mean cross-entropy of the student's classes of each view against the teacher's of another.

        For the arguments see `Targets.step`.
        """
        # The student embeds all views in one pass, the teacher scores the first ones in a pass each.
        embeddings = self.model(views)
        single_views = views.chunk(self.n_views)
        teacher_scores = [self.teacher(view) for view in single_views[: self.teacher_views]]
        # `together` has the rows of all processes first, because the teacher's centre is a mean over the whole batch.
        with full_precision(views):
            student = [
                self.trained(together(widened(z))[0]) for z in embeddings.chunk(self.n_views)
            ]
            teacher = [together(widened(scores))[0] for scores in teacher_scores]
            # The mean of this batch, towards which the centre moves after the step.
            self.pending = torch.cat(teacher).mean(0)
            # Class probabilities of each view: scores less the centre, at the teacher's temperature.
            targets = [
                ((scores - self.centre.value) / self.teacher_temperature).softmax(1)
                for scores in teacher
            ]
            value = cross_view_cross_entropy(targets, student, self.temperature)
        return Compared(value, embeddings)

    def after_step(self, step: int) -> None:
        """Move the teacher towards the student, and the centre towards the mean of the step's scores."""
        assert self.pending is not None
        self.teacher.update(self.student, rising_momentum(self.momentum, step, self.steps))
        self.centre.value.lerp_(self.pending, 1 - self.centre_momentum)


class Swav:
    """Codes of a view, balanced over the batch, which all other views predict (SwAV: Caron et al. 2020).

    Equations 1 to 5. Scores are cosines with `prototypes` learned vectors. The codes of the first `assigned_views`
    views are their scores after `iterations` of Sinkhorn-Knopp at `epsilon`. The loss is the mean cross-entropy over
    pairs of different views, whatever the trial's `loss`. There is no queue, as in the paper for large batches.
    """

    needs = "nothing"
    many_views = True
    joined = True
    n_views = 2

    def __init__(
        self,
        model: "nn.Module",
        steps: int,
        dim: int,
        *,
        prototypes: Count = 256,
        temperature: Positive = 0.1,
        epsilon: Positive = 0.05,
        iterations: Count = 3,
        assigned_views: Count = 2,
    ) -> None:
        from contrasweep.trainables.contrastive.prototypes import Prototypes

        self.model = model
        self.trained = Prototypes(prototypes, dim)
        self.temperature = temperature
        self.epsilon = epsilon
        self.iterations = iterations
        self.assigned_views = assigned_views

    @property
    def parts(self) -> checkpoint.Parts:
        """Return what a checkpoint saves: the prototypes."""
        return {"prototypes": self.trained}

    def step(self, views: ImageBatch, labels: Ids, rows: Ids, loss: AnyLoss) -> Compared:
        """Compute the mean cross-entropy of each view's scores against the codes of another view.

        For the arguments see `Targets.step`.
        """
        embeddings = self.model(views)
        # `together` has the rows of all processes first, because codes are balanced over the whole batch. `trained` are
        # the prototypes.
        with full_precision(views):
            scores = [self.trained(together(widened(z))[0]) for z in embeddings.chunk(self.n_views)]
            # Codes are targets: no gradient goes through them.
            codes = [
                sinkhorn(s.detach(), self.epsilon, self.iterations)
                for s in scores[: self.assigned_views]
            ]
            value = cross_view_cross_entropy(codes, scores, self.temperature)
        return Compared(value, embeddings)

    def after_step(self, step: int) -> None:
        """Do nothing: there is no state to update."""


def cross_view_cross_entropy(
    targets: list[Tensor], scores: list[Tensor], temperature: float
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of scores / temperature [n k] against the targets of the other views [n k].

    Each list has a tensor for each view; `targets` may be of the first views only.
    """
    logs = [(similarities / temperature).log_softmax(1) for similarities in scores]
    values = []
    for target_view, target in enumerate(targets):
        for scored_view, log in enumerate(logs):
            if target_view != scored_view:
                values.append(-(target * log).sum(1).mean())
    return torch.stack(values).mean()


def sinkhorn(scores: Float[Tensor, "n k"], epsilon: float, iterations: int) -> Float[Tensor, "n k"]:
    """Return codes: exp(scores / epsilon) scaled so that classes are used equally and each row sums to 1.

    Source: Caron et al. 2020, equations 3 to 5, by the authors' code: each iteration scales classes, then rows.
    """
    # The largest score is taken out, so that no exponential overflows; the scaling makes up for it.
    codes = ((scores - scores.max()) / epsilon).exp()
    for _ in range(iterations):
        codes = codes / codes.sum(0).clamp(min=torch.finfo(codes.dtype).tiny) / codes.shape[1]
        codes = codes / codes.sum(1, keepdim=True)
    return codes
