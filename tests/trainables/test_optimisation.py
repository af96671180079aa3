"""The optimisers against torch.optim's, and the learning rate's course."""

import itertools

import pytest
import torch
from torch import nn

from contrasweep.trainables.optimisation import OPTIMIZERS, SGD, Schedule, gradients_of

torch.set_num_threads(1)


def steps(make, count, ours):
    """Parameters of a small regression after `count` steps with a learning rate that changes."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).double()
    x = torch.randn(32, 4).double()
    y = torch.randn(32, 1).double()
    optimizer = make(net.parameters())
    for step in range(count):
        loss = (net(x) - y).square().mean()
        lr = 0.05 / (step + 1)
        if ours:
            optimizer.lr = lr
            optimizer.step(gradients_of(optimizer, loss))
        else:
            optimizer.param_groups[0]["lr"] = lr
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return [p.detach() for p in net.parameters()]


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("name", ["sgd", "adamw"])
def test_the_update_is_torchs(name, weight_decay):
    theirs = {
        "sgd": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, weight_decay=weight_decay),
        "adamw": lambda p: torch.optim.AdamW(p, 0.1, weight_decay=weight_decay),
    }[name]
    for a, b in zip(
        steps(lambda p: OPTIMIZERS[name](p, 0.1, weight_decay=weight_decay), 12, True),
        steps(theirs, 12, False),
        strict=True,
    ):
        assert torch.allclose(a, b, rtol=1e-10, atol=1e-12)


def test_a_parameter_that_the_loss_does_not_need_has_zero_gradient():
    a, b, unused = (torch.tensor(v, requires_grad=True) for v in ([3.0], [0.0], [1.0]))
    gradients = gradients_of(SGD([a, b, unused], 0.1), a.square().sum() / 2 + 4 * b.sum())
    assert [g.item() for g in gradients] == [3, 4, 0]


def test_a_gradient_that_is_overwritten_is_no_other_parameters():
    """Autograd gives the terms of a sum one tensor, and a sum of values an expanded one."""
    a, b, c = (torch.full((3,), value, requires_grad=True) for value in (1.0, 2.0, 3.0))
    gradients = gradients_of(SGD([a, b, c], 0.1), (a + b).square().sum() + c.sum())
    for i, gradient in enumerate(gradients):
        gradient.add_(torch.arange(3.0), alpha=i)
    assert [g.tolist() for g in gradients] == [[6, 6, 6], [6, 7, 8], [1, 3, 5]]


def test_the_cosine_ends_at_a_thousandth():
    schedule = Schedule(lr=0.5, steps=100)
    assert schedule.at(0) == 0.5 and schedule.at(50) == pytest.approx(0.5 * 1.001 / 2)
    assert schedule.at(100) == pytest.approx(0.5e-3)
    assert Schedule(lr=0.5, steps=100, constant=True).at(99) == 0.5


def test_the_warm_up_is_a_line_from_its_start_to_the_cosine():
    schedule = Schedule(lr=0.5, steps=100, warmup_steps=10)
    course = [schedule.at(step) for step in range(12)]
    assert course[0] == 0.01 and course[10] == Schedule(lr=0.5, steps=100).at(10)
    rises = [b - a for a, b in itertools.pairwise(course[:10])]
    assert rises == pytest.approx(rises[:1] * 9) and rises[0] > 0
    assert course[11] < course[10]
    small = Schedule(lr=1e-3, steps=100, warmup_steps=10)
    assert small.at(0) == pytest.approx(small.at(10) / 10) and small.at(5) < small.at(6)
