"""Learned temperatures and averaged weights of members are those of trials alone."""

import torch
from folded_members import SHAPE, members, network
from torch import nn

from contrasweep.trainables import optimisation
from contrasweep.trainables.contrastive.averaging import Averaged
from contrasweep.trainables.contrastive.temperature import LearnableTemperature
from contrasweep.trainables.fusing.folding import (
    FoldedAverage,
    FoldedLoss,
    FoldedTemperature,
    Step,
    fold,
    fold_optimizer,
)


def test_temperature_and_average() -> None:
    trials = members(network("cnn", width=4), 3, loss="infonce")
    initial, decays = [0.2, 0.5, 0.3], [0.9, 0.5, 0.0]
    plain = [LearnableTemperature(value).double() for value in initial]
    rates, options = [0.01, 0.02, 0.03], {"momentum": 0.5}
    folded = fold(trials[0].network, 3, "products")
    temperature, average = FoldedTemperature(folded.slots), FoldedAverage(folded)
    temperature.log_scale = nn.Parameter(temperature.log_scale.detach().double())
    optimizer = fold_optimizer(
        optimisation.SGD,
        [*folded.parameters(), temperature.log_scale],
        folded.slots,
        [*folded.templates, plain[0].log_scale],
    )
    loss = FoldedLoss(trials[0].loss, folded.slots, learnable_temperature=True)
    step = Step(folded, loss, optimizer, temperature, average)
    averages = [Averaged(trial.network, decay) for trial, decay in zip(trials, decays, strict=True)]
    for k, trial in enumerate(trials):
        folded.put(k, trial.network.state_dict())
        temperature.put(k, plain[k])
        average.put(k, decays[k], averages[k].state_dict())
        optimizer.put(k, options)
        optimizer.lr[k] = rates[k]
        one = optimisation.SGD([*trial.network.parameters(), *plain[k].parameters()], rates[k], **options)
        for number in range(20):
            images, labels, ids = trial.batch(number, 8, SHAPE)
            value = plain[k].applied(trial.loss)(trial.network(images), labels, ids)
            one.step(optimisation.gradients_of(one, value))
            averages[k].update()
            plain[k].clip()
    for number in range(20):
        step(*map(torch.stack, zip(*(trial.batch(number, 8, SHAPE) for trial in trials), strict=True)))
    for k, trial in enumerate(trials):
        torch.testing.assert_close(folded.take(k), dict(trial.network.state_dict()), rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(average.take(k), dict(averages[k].state_dict()), rtol=1e-9, atol=1e-11)
        torch.testing.assert_close(temperature.take(k), dict(plain[k].state_dict()), rtol=1e-10, atol=0)
    assert plain[0].value != initial[0]
