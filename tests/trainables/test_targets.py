"""Queues, momentum encoders, BYOL and learned temperatures, each against the equations of its paper."""

import copy
import math

import pytest
import torch
import torch.nn.functional as F
from loss_batches import seeded
from torch.testing import assert_close

from contrasweep.trainables.contrastive.targets import (
    Byol,
    CrossBatchMemory,
    Dino,
    Moco,
    Nnclr,
    Swav,
)
from contrasweep.trainables.contrastive.targets.teachers import (
    regression,
    rising_momentum,
    sinkhorn,
)
from contrasweep.trainables.contrastive.temperature import LearnableTemperature
from contrasweep.trainables.losses import LOSSES, ComposedLoss, Loss, build
from contrasweep.trainables.losses.batch import masks


def network(seed=0):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 5)).double()


def views(n, seed):
    return torch.randn(2 * n, 3, 2, 2, generator=seeded(seed), dtype=torch.float64)


def rows(n, first=0):
    return torch.arange(first, first + n).repeat(2)


@pytest.mark.parametrize(
    "name", [x.name for x in LOSSES.values() if isinstance(x, Loss) and not x.all_pairs]
)
def test_between_a_batch_and_itself_a_loss_is_that_of_the_batch(name):
    z = torch.randn(9, 4, generator=seeded(3), dtype=torch.float64)
    ids = torch.tensor([0, 0, 1, 1, 2, 2, 0, 1, 3])
    loss = build(name)
    assert isinstance(loss, ComposedLoss)
    assert_close(loss.between(z, z, *masks(ids)), loss(z, ids, ids), rtol=1e-12, atol=1e-12)


def test_moco_is_the_papers():
    """He et al. 2020, equation 1: -log e^{q.k+/t} / (e^{q.k+/t} + sum over the queue), and equation 2.

    Two images of the first step come again in the third, when their keys are in the queue: they count nowhere.
    """
    online = network()
    t = 0.07
    moco = Moco(online, 10, 5, size=6, momentum=0.9)
    loss = build("infonce", temperature=t)
    queue = []
    followed = copy.deepcopy(online)
    for step in range(3):
        batch = views(4, step)
        ids = rows(4, (0, 4, 2)[step])
        value = moco.step(batch, ids, ids, loss).loss
        q = F.normalize(online(batch[:4]), dim=1)
        k = F.normalize(followed(batch[4:]), dim=1)
        q = q.detach()
        k = k.detach()
        terms = []
        for i in range(4):
            positive = math.exp(float(q[i] @ k[i]) / t)
            negatives = sum(
                math.exp(float(q[i] @ other) / t) for image, other in queue if image != ids[i]
            )
            terms.append(-math.log(positive / (positive + negatives)))
        assert value.item() == pytest.approx(sum(terms) / 4, rel=1e-12, abs=1e-15)
        with torch.no_grad():
            for p in online.parameters():
                p += 0.1  # in the place of an optimiser
            for mine, theirs in zip(followed.parameters(), online.parameters(), strict=True):
                mine.copy_(0.9 * mine + 0.1 * theirs)
        moco.after_step(step)
        queue = [*queue, *zip(ids[:4].tolist(), k, strict=True)][-6:]
    assert len(moco.queue) == 6 and moco.queue.rows.tolist() == [6, 7, 2, 3, 4, 5]


def test_xbm_is_the_authors():
    """loss(batch, batch) + weight * loss(batch, memory), the memory with the batch in it (Wang et al. 2020)."""
    online = network()
    loss = build("margin_contrastive", m_pos=1.0, m_neg=0.0)
    xbm = CrossBatchMemory(online, 10, 5, size=100, weight=0.5, start=2)
    first = views(3, 0)
    labels = torch.tensor([0, 1, 2, 0, 1, 2])
    for step in (0, 1):
        assert torch.equal(xbm.step(first, labels, rows(3), loss).loss, loss(online(first), labels))
        xbm.after_step(step)
        assert len(xbm.queue) == 6 * step, "used after `start` steps"
    batch = views(3, 5)
    value = xbm.step(batch, labels, rows(3, 3), loss).loss
    z = F.normalize(online(batch), dim=1)
    past = F.normalize(online(first), dim=1)
    scores = z @ torch.cat([z, past]).T
    pos = [
        (1 - scores[i, j]).clamp(min=0)
        for i in range(6)
        for j in range(12)
        if i != j and labels[i] == labels[j % 6]
    ]
    neg = [
        scores[i, j].clamp(min=0) for i in range(6) for j in range(12) if labels[i] != labels[j % 6]
    ]
    against = torch.stack(pos).mean() + torch.stack(neg).mean()
    assert_close(value, loss(online(batch), labels) + 0.5 * against, rtol=1e-12, atol=1e-12)


def test_byol_is_the_papers():
    """Grill et al. 2020, equation 2 in both directions; the momentum from its base to 1 along a cosine."""
    online = network()
    torch.manual_seed(1)
    byol = Byol(online, 8, 5, momentum=0.9, width=7)
    byol.trained.double()
    batch = views(4, 0)
    value = byol.step(batch, rows(4), rows(4), build("supcon")).loss
    q = [byol.trained(online(view)).detach() for view in batch.chunk(2)]
    z = [online(view).detach() for view in batch.chunk(2)]
    unit = [[[float(x) / float(v.norm()) for x in v] for v in side] for side in (*q, *z)]
    total = sum(
        sum((a - b) ** 2 for a, b in zip(unit[p][i], unit[t][i], strict=True))
        for p, t in ((0, 3), (1, 2))
        for i in range(4)
    )
    assert value.item() == pytest.approx(total / 4, rel=1e-12)
    assert [rising_momentum(0.9, k, 8) for k in (0, 4, 8)] == pytest.approx([0.9, 0.95, 1.0])
    gradients = torch.autograd.grad(value, [*online.parameters(), *byol.trained.parameters()])
    assert all(g.abs().max() > 0 for g in gradients if g.ndim == 2)
    assert torch.autograd.gradcheck(
        lambda a: regression(a, z[0]), (q[0].detach().requires_grad_(),)
    )


def softmax(values, temperature):
    powers = [math.exp(value / temperature) for value in values]
    return [power / sum(powers) for power in powers]


def cross_entropy(q, p):
    return -sum(
        a * math.log(b)
        for one, other in zip(q, p, strict=True)
        for a, b in zip(one, other, strict=True)
    ) / len(q)


def scored(prototypes, z):
    return (F.normalize(z, dim=1) @ F.normalize(prototypes.rows, dim=1).T).tolist()


def test_dino_is_the_papers():
    """Caron et al. 2021, equations 1 to 4: the teacher sees the two first views, the student all three."""
    online = network()
    dino = Dino(
        online,
        8,
        5,
        prototypes=6,
        temperature=0.2,
        teacher_temperature=0.1,
        momentum=0.8,
        centre_momentum=0.7,
    )
    dino.n_views = 3
    for part in dino.parts.values():
        part.double()
    followed = copy.deepcopy(dino.student)
    centre = [0.0] * 6
    ids = torch.arange(4).repeat(3)
    for step in range(2):
        batch = torch.randn(12, 3, 2, 2, generator=seeded(step), dtype=torch.float64)
        value = dino.step(batch, ids, ids, build("supcon")).loss
        student = [scored(dino.trained, online(view)) for view in batch.chunk(3)]
        teacher = [scored(followed[1], followed[0](view)) for view in batch.chunk(3)[:2]]
        terms = [
            cross_entropy(
                [softmax([x - c for x, c in zip(row, centre, strict=True)], 0.1) for row in taught],
                [softmax(row, 0.2) for row in told],
            )
            for i, taught in enumerate(teacher)
            for j, told in enumerate(student)
            if i != j
        ]
        assert len(terms) == 4 and value.item() == pytest.approx(sum(terms) / 4, rel=1e-9)
        with torch.no_grad():
            for p in dino.student.parameters():
                p += 0.1  # in the place of an optimiser
            m = rising_momentum(0.8, step, 8)
            for mine, theirs in zip(followed.parameters(), dino.student.parameters(), strict=True):
                mine.copy_(m * mine + (1 - m) * theirs)
        dino.after_step(step)
        mean = [sum(row[k] for view in teacher for row in view) / 8 for k in range(6)]
        centre = [0.7 * c + 0.3 * x for c, x in zip(centre, mean, strict=True)]
        assert dino.centre.value.tolist() == pytest.approx(centre, rel=1e-9)


def sinkhorn_by_loops(scores, epsilon, iterations):
    """Caron et al. 2020, algorithm 1 of the supplement: rows are samples here, classes there."""
    q = [[math.exp(x / epsilon) for x in row] for row in scores]
    n = len(q)
    k = len(q[0])
    whole = sum(map(sum, q))
    q = [[x / whole for x in row] for row in q]
    for _ in range(iterations):
        of_class = [sum(q[i][j] for i in range(n)) for j in range(k)]
        q = [[q[i][j] / of_class[j] / k for j in range(k)] for i in range(n)]
        q = [[x / sum(row) / n for x in row] for row in q]
    return [[x * n for x in row] for row in q]


def test_swav_is_the_papers():
    """Caron et al. 2020, equations 1 and 2 over three views, of which two have codes."""
    online = network()
    swav = Swav(online, 8, 5, prototypes=3, temperature=0.3, epsilon=0.1)
    swav.trained.double()
    swav.n_views = 3
    batch = torch.randn(15, 3, 2, 2, dtype=torch.float64)
    ids = torch.arange(5).repeat(3)
    value = swav.step(batch, ids, ids, build("supcon")).loss
    scores = [scored(swav.trained, online(view)) for view in batch.chunk(3)]
    codes = [sinkhorn_by_loops(view, 0.1, 3) for view in scores]
    terms = [
        cross_entropy(codes[i], [softmax(row, 0.3) for row in scores[j]])
        for i in (0, 1)
        for j in (0, 1, 2)
        if i != j
    ]
    assert value.item() == pytest.approx(sum(terms) / 4, rel=1e-9)
    balanced = sinkhorn(torch.randn(12, 3, dtype=torch.float64), 0.5, 50)
    assert_close(balanced.sum(0), torch.full((3,), 4.0, dtype=torch.float64))


def test_nnclr_is_the_papers():
    """Dwibedi et al. 2021, equation 3 in both directions, the neighbours from a queue of first views."""
    online = network()
    t = 0.2
    nnclr = Nnclr(online, 8, 5, size=6, width=7)
    loss = build("infonce", temperature=t)
    queue = None
    nnclr.trained.double()
    for step in range(3):
        batch = views(4, step)
        ids = rows(4, 4 * step)
        value = nnclr.step(batch, ids, ids, loss).loss
        z = [F.normalize(online(view), dim=1).detach() for view in batch.chunk(2)]
        p = [F.normalize(nnclr.trained(online(view)), dim=1).detach() for view in batch.chunk(2)]
        total = 0.0
        for side, other in ((0, 1), (1, 0)):
            for i in range(4):
                near = (
                    z[side][i]
                    if queue is None
                    else max(queue, key=lambda past: float(past @ z[side][i]))
                )
                scores = softmax([float(near @ p[other][j]) for j in range(4)], t)
                total -= math.log(scores[i]) / 4
        assert value.item() == pytest.approx(total / 2, rel=1e-9)
        nnclr.after_step(step)
        queue = list(z[0] if queue is None else torch.cat([torch.stack(queue), z[0]]))[-6:]
        with torch.no_grad():
            for weight in online.parameters():
                weight *= 1.1


@pytest.mark.parametrize("name", ["infonce", "supcon", "sincere", "ocl"])
def test_a_learned_temperature_is_the_temperature_with_its_derivative(name):
    z = torch.randn(8, 3, generator=seeded(0), dtype=torch.float64)
    ids = torch.tensor([0, 0, 1, 1, 2, 2, 3, 3])
    temperature = LearnableTemperature(0.2).double()
    loss = build(name, temperature=0.2)
    assert isinstance(loss, ComposedLoss)
    with torch.no_grad():
        temperature.log_scale += 0.7
    there = build(name, temperature=temperature.value)
    assert_close(
        temperature.applied_to(loss)(z, ids, ids), there(z, ids, ids), rtol=1e-12, atol=1e-12
    )

    def value(x, log_scale):
        return ComposedLoss(
            loss.definition, loss.similarity, loss.reduction, loss.params, log_scale.exp()
        )(x, ids, ids)

    assert torch.autograd.gradcheck(value, (z.requires_grad_(), temperature.log_scale))
    with torch.no_grad():
        temperature.log_scale.fill_(99)
    temperature.clip()
    assert temperature.value == pytest.approx(0.01)
