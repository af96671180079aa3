"""Targets with a queue of embeddings of past steps: MoCo, cross-batch memory, NNCLR."""

from contrasweep.trainables import checkpoint
from contrasweep.trainables.contrastive.targets.protocol import Compared, together
from contrasweep.trainables.contrastive.targets.teachers import predictor
from contrasweep.trainables.fields import BelowOne, Count, MaybeCount, NotNegative
from contrasweep.trainables.losses import AnyLoss, ComposedLoss
from contrasweep.trainables.losses.batch import Ids
from contrasweep.trainables.precision import full_precision, widened
from contrasweep.trainables.pytorch import ImageBatch, Matrix, Tensor, nn, torch
from contrasweep.trainables.similarities import cosine


class EmbeddingQueue(checkpoint.Attributes):
    """The last `size` embeddings [k d], oldest first, with the labels [k] and the numbers of their images (`rows` [k]).

    It starts empty, and its length is k, at most `size`. It is not filled with random vectors at the start, as the
    queues of some papers' code are.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self.embeddings = torch.empty(0, 0)
        self.labels = torch.empty(0, dtype=torch.int64)
        self.rows = torch.empty(0, dtype=torch.int64)

    def __len__(self) -> int:
        return len(self.labels)

    def push(self, embeddings: Matrix, labels: Ids, rows: Ids) -> None:
        """Add embeddings [n d], with labels and image numbers (`rows`) [n], at the end of the queue.

        If the queue then holds more than `size`, its oldest entries are dropped.
        """
        added = [embeddings.detach(), labels, rows]
        present = [self.embeddings, self.labels, self.rows]
        # An empty queue does not know the dimension of the embeddings yet.
        whole = added
        if len(self):
            whole = [
                torch.cat([before, after.to(before.device)])
                for before, after in zip(present, added, strict=True)
            ]
        self.embeddings, self.labels, self.rows = (values[-self.size :] for values in whole)

    def to(self, device: "torch.device") -> None:
        """Move the tensors of the queue to `device`; a restored checkpoint has them on the CPU, for example."""
        self.embeddings = self.embeddings.to(device)
        self.labels = self.labels.to(device)
        self.rows = self.rows.to(device)


class Queued:
    """A base class of targets that have a queue of at most `size` embeddings of past steps, beside a `trained` part.

    `pending` is what `after_step` puts into the queue: the embeddings [n d], labels [n] and numbers of images [n] of a
    step.
    """

    joined = True

    def __init__(self, model: "nn.Module", size: int, trained: "nn.Module") -> None:
        self.model = model
        self.trained = trained
        self.queue = EmbeddingQueue(size)
        self.pending: tuple[Tensor, Ids, Ids] | None = None

    def after_step(self, step: int) -> None:
        """Put the rows of the step into the queue."""
        assert self.pending is not None
        self.queue.push(*self.pending)


class Moco(Queued):
    """A momentum encoder's keys and a queue of the keys of past steps (MoCo: He et al. 2020, equations 1 and 2).

    The first view of an image is a query, its second view a key. With `infonce` the positive of a query is the key of
    its image, and the negatives are the keys in the queue (equation 1). With a loss of labels, positives and negatives
    are both among the step's keys and the queue's. Keys of the query's own image from earlier steps count nowhere. The
    queue starts empty, where the authors' starts with random vectors.
    """

    needs = "pairs"

    def __init__(
        self,
        model: "nn.Module",
        steps: int,
        dim: int,
        *,
        size: Count = 4096,
        momentum: BelowOne = 0.999,
    ) -> None:
        from contrasweep.trainables.contrastive.averaging import MomentumEncoder

        super().__init__(model, size, nn.Module())
        self.momentum = momentum
        self.encoder = MomentumEncoder(model)

    @property
    def parts(self) -> checkpoint.Parts:
        """Return what a checkpoint saves: the momentum encoder and the queue."""
        return {"momentum_encoder": self.encoder, "queue": self.queue}

    def step(self, views: ImageBatch, labels: Ids, rows: Ids, loss: AnyLoss) -> Compared:
        """Compute the loss of first views, as queries, against the keys of second views and the queue.

        For the arguments see `Targets.step`.
        """
        assert isinstance(loss, ComposedLoss)  # the settings were checked
        # First views are the queries, second ones, by the momentum encoder, the keys; both have the same images.
        half = len(views) // 2
        labels = labels[:half]
        rows = rows[:half]
        first = self.model(views[:half])
        second = self.encoder(views[half:])
        self.queue.to(views.device)
        with full_precision(views):
            # `together` has the rows of all processes, because each query is compared with the whole batch.
            queries, labels, rows = together(widened(first), labels, rows)
            (keys,) = together(widened(second))
            # `after_step` puts the keys into the queue, so that no query meets its own key there.
            self.pending = keys, labels, rows
            compared_rows = (
                torch.cat([keys, self.queue.embeddings.to(keys)]) if len(self.queue) else keys
            )
            value = loss.between(queries, compared_rows, *self._masks(loss, labels, rows))
        return Compared(value, torch.cat([widened(first), widened(second)]))

    def _masks(self, loss: ComposedLoss, labels: Ids, rows: Ids) -> tuple[Tensor, Tensor]:
        """Return two masks [b, b + m]: which keys are positives and which are negatives of each query.

        The first b columns are the step's keys, whose diagonal is each query's own key; the other m are the queue.
        `labels` and `rows` (numbers of images) [b] are those of the queries and of the step's keys.
        """
        diagonal = torch.eye(len(rows), dtype=torch.bool, device=rows.device)
        # Keys of the query's own image from earlier steps: neither positive nor negative.
        past = rows[:, None] == self.queue.rows
        # MoCo's equation 1: the positive is the query's own key, the negatives are those of the queue alone.
        if loss.definition.positives == "instances":
            positives = torch.cat([diagonal, torch.zeros_like(past)], 1)
            negatives = torch.cat([torch.zeros_like(diagonal), ~past], 1)
            return positives, negatives
        # By labels, over keys and queue. A balanced sampler may have an image twice in a batch: its second key counts
        # nowhere, as its past ones do.
        same = labels[:, None] == torch.cat([labels, self.queue.labels])
        of_own_image = torch.cat([(rows[:, None] == rows) & ~diagonal, past], 1)
        return same & ~of_own_image, ~same & ~of_own_image

    def after_step(self, step: int) -> None:
        """Update the momentum encoder, and put the step's keys into the queue."""
        super().after_step(step)
        self.encoder.update(self.model, self.momentum)


class CrossBatchMemory(Queued):
    """A memory of the embeddings of past steps beside the batch (XBM: Wang et al. 2020, algorithm 1).

    L = loss(batch) + weight * loss(batch against memory), as in the authors' code. The memory holds the batch too, but
    a row is not compared with its own copy. The memory is used after `start` steps, since embeddings drift fast at
    first (section 3.1).
    """

    needs = "pairs"
    many_views = True

    def __init__(
        self,
        model: "nn.Module",
        steps: int,
        dim: int,
        *,
        size: Count = 8192,
        weight: NotNegative = 1.0,
        start: MaybeCount = 0,
    ) -> None:
        super().__init__(model, size, nn.Module())
        self.weight = weight
        self.start = start

    @property
    def parts(self) -> checkpoint.Parts:
        """Return what a checkpoint saves: the memory."""
        return {"memory": self.queue}

    def step(self, views: ImageBatch, labels: Ids, rows: Ids, loss: AnyLoss) -> Compared:
        """Compute the loss of all views with each other, plus `weight` times that against the memory.

        For the arguments see `Targets.step`.
        """
        assert isinstance(loss, ComposedLoss)  # the settings were checked
        embeddings = self.model(views)
        self.queue.to(views.device)
        with full_precision(views):
            value = loss(widened(embeddings), labels, rows)
            # The loss above joins the rows of all processes by itself; against the memory they are joined here.
            z, labels, rows = together(widened(embeddings), labels, rows)
            self.pending = z.detach(), labels, rows
            if len(self.queue):
                value = value + self.weight * self._against_memory(z, labels, rows, loss)
        return Compared(value, embeddings)

    def _against_memory(self, z: Tensor, labels: Ids, rows: Ids, loss: ComposedLoss) -> Tensor:
        """Return the loss of the batch `z` [n d] against itself and the memory [m d], without each row's own copy.

        `labels` [n] and `rows` [n], the numbers of the images, are those of the batch.

        Of the n x (n + m) pairs those are positive that have the same label, or the same image number for a loss of
        instances.
        """
        of_batch = labels
        of_memory = self.queue.labels
        if loss.definition.positives == "instances":
            of_batch = rows
            of_memory = self.queue.rows
        same = of_batch[:, None] == torch.cat([of_batch, of_memory])
        # The batch stands first among the columns, so row i meets its own copy in column i.
        own_copies = torch.zeros_like(same)
        own_copies[:, : len(z)].fill_diagonal_(True)
        compared_rows = torch.cat([z.detach(), self.queue.embeddings.to(z)])
        return loss.between(z, compared_rows, same & ~own_copies, ~same)

    def after_step(self, step: int) -> None:
        """Put the batch into the memory, once the first `start` steps are over."""
        if step + 1 >= self.start:
            super().after_step(step)


class Nnclr(Queued):
    """The nearest past embedding of a view as a predictor's target, in the view's place (NNCLR: Dwibedi et al. 2021).

    Each first view is replaced by its nearest neighbour in the queue, and compared with the predictions of all second
    views (equation 3). Each second view is likewise compared with the predictions of all first views. The loss is the
    mean of both, by the trial's loss and temperature. The predictor has `width` hidden units. The queue starts empty,
    where the authors' starts with random vectors; as long as it is empty, a view is its own neighbour.
    """

    needs = "instances"

    def __init__(
        self, model: "nn.Module", steps: int, dim: int, *, size: Count = 4096, width: Count = 512
    ) -> None:
        super().__init__(model, size, predictor(dim, width))

    @property
    def parts(self) -> checkpoint.Parts:
        """Return what a checkpoint saves: the predictor and the queue."""
        return {"predictor": self.trained, "queue": self.queue}

    def step(self, views: ImageBatch, labels: Ids, rows: Ids, loss: AnyLoss) -> Compared:
        """Compute the mean of two losses: the neighbours of each view against the predictions of the other view.

        For the arguments see `Targets.step`.
        """
        assert isinstance(loss, ComposedLoss)  # the settings were checked
        # Both halves of the batch, first and second views, have the same images.
        half = len(views) // 2
        embeddings = [self.model(half_of_views) for half_of_views in views.chunk(2)]
        predictions = [self.trained(z) for z in embeddings]
        self.queue.to(views.device)
        with full_precision(views):
            # `together` has the rows of all processes, because each view is compared with the whole batch.
            first, labels, rows = together(widened(embeddings[0]), labels[:half], rows[:half])
            (second,) = together(widened(embeddings[1]))
            predictions_of_first, predictions_of_second = (
                together(widened(of_view))[0] for of_view in predictions
            )
            # Row i of neighbours and of predictions is the same image; all other pairs are negatives (equation 3).
            same_image = torch.eye(len(first), dtype=torch.bool, device=first.device)
            masks = same_image, ~same_image
            value = loss.between(self._nearest(first), predictions_of_second, *masks)
            value = value + loss.between(self._nearest(second), predictions_of_first, *masks)
        self.pending = first.detach(), labels, rows
        return Compared(value / 2, torch.cat([widened(z) for z in embeddings]))

    def _nearest(self, z: Tensor) -> Tensor:
        """Return for each row of `z` [b d] the queue's row with the largest cosine; `z` itself for an empty queue."""
        if not len(self.queue):
            return z.detach()
        past = self.queue.embeddings.to(z)
        return past[cosine(z.detach(), past).argmax(1)]
