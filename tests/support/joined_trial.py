"""One rank's loss and gradients of a trial's first batch in float64, for the tests.

python joined_trial.py RANK SIZE FOLDER
"""

import pickle
import sys
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from contrasweep.trainables import images, seeding
from contrasweep.trainables.contrastive.method import build
from contrasweep.trainables.contrastive.sampling import SAMPLINGS
from contrasweep.trainables.losses import distributed


def first_step(trial):
    """Loss, gradients, and the network's state and counted negatives after one forward pass in training mode."""
    run = build(trial)
    run.trained.double().train()
    for part in [*run.targets.parts.values(), run.loss.weights]:
        if isinstance(part, torch.nn.Module):
            part.double()
    order = SAMPLINGS["shuffled"](run.train.labels, seeding.generator(0), 16, 4)
    key = (run.train, run.normalise, run.policies, order, run.settings.batch_size, 0, 0, 1)
    views, rows = next(iter(images.batches(*key, share=distributed.rank_and_count())))
    loss, gradients, step = run._gradients((views.double(), rows))
    state = run.model.state_dict()
    if step.negatives is not None:
        state["negatives"] = step.negatives
    return loss.detach(), gradients, state


def main(rank, size, folder):
    torch.set_num_threads(1)
    meet = f"file://{folder / 'meet'}"
    dist.init_process_group(
        "gloo", init_method=meet, rank=rank, world_size=size, timeout=timedelta(seconds=600)
    )
    trials = pickle.loads((folder / "trials").read_bytes())
    torch.save([first_step(trial) for trial in trials], folder / f"{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]))
