"""The trainable of `toy` as cohorts: softmax regressions of several trials as one batched matrix product in numpy."""

import os
import tempfile
from pathlib import Path

import numpy as np
import toy

from contrasweep.data import open_dataset
from contrasweep.trainables.fusing.protocol import CannotFuse, Event, Fusible
from contrasweep.trial import Report


def train(trial, resume: Path | None = None):
    yield from toy.train(trial, resume)


class Member:
    def __init__(self, trial, resume):
        self.trial, self.settings = trial, toy.Settings(**trial.config)
        self.train, self.test = open_dataset(trial.data).parts(trial.fold)
        self.x, self.y = toy._features(self.train), self.train.labels
        self.tested = toy._features(self.test)
        self.epoch, self.batches, self.scratch = 1, [], tempfile.TemporaryDirectory()
        self.weights = np.random.default_rng([trial.seed, 7]).normal(
            0, 0.01, (self.x.shape[1], len(trial.data.classes) or int(self.y.max()) + 1)
        )
        if resume is not None:
            with np.load(resume / "weights.npz") as saved:
                self.weights, self.epoch = saved["weights"], int(saved["epoch"]) + 1
        self.begin()

    def begin(self):
        order = np.random.default_rng([self.trial.seed, self.epoch]).permutation(len(self.y))
        size = self.settings.batch_size
        self.batches = [order[start : start + size] for start in range(0, len(order), size)]

    def report(self):
        epoch, settings = self.epoch, self.settings
        toy._misbehave(settings, epoch)
        if settings.log:
            with Path(settings.log).open("a") as log:
                log.write(f"{self.trial.id} {epoch} {os.getpid()}\n")
        np.savez(Path(self.scratch.name) / "weights.npz", weights=self.weights, epoch=epoch)
        hits = (self.tested @ self.weights).argmax(1) == self.test.labels
        print(f"epoch {epoch} of {self.trial.id}")
        kept = Path(self.scratch.name) if epoch % settings.keep_every == 0 else None
        self.epoch += 1
        self.begin()
        return Report(epoch, {"accuracy": float(hits.mean())}, kept, items={"hits": hits})


class ToyCohort:
    engine = "products"

    def __init__(self, slots):
        self.slots, self.members = slots, {}

    def join(self, trial, resume):
        assert len(self.members) < self.slots
        self.members[trial.id] = Member(trial, resume)

    def leave(self, trial_id):
        self.members.pop(trial_id).scratch.cleanup()

    def advance(self, members=None):
        going = [m for i, m in self.members.items() if members is None or i in members]
        assert going
        events = []
        for member in [m for m in going if m.epoch > m.settings.epochs]:
            self.leave(member.trial.id)
            events.append(Event(member.trial.id))
        while not events:
            self._step(going)
            for member in [m for m in going if not m.batches]:
                try:
                    events.append(Event(member.trial.id, member.report()))
                except Exception as error:
                    self.leave(member.trial.id)
                    events.append(Event(member.trial.id, error=error))
        return events

    def _step(self, going):
        """One batch of every member, those of fewer rows padded with rows of no weight."""
        rows = [m.batches.pop(0) for m in going]
        most = max(map(len, rows))
        x = np.stack([np.pad(m.x[r], ((0, most - len(r)), (0, 0))) for m, r in zip(going, rows, strict=True)])
        weights = np.stack([m.weights for m in going])
        targets = np.stack(
            [
                np.pad(np.eye(m.weights.shape[1])[m.y[r]], ((0, most - len(r)), (0, 0)))
                for m, r in zip(going, rows, strict=True)
            ]
        )
        there = np.arange(most)[None, :] < np.array([len(r) for r in rows])[:, None]
        logits = x @ weights
        chances = np.exp(logits - logits.max(-1, keepdims=True))
        errors = (chances / chances.sum(-1, keepdims=True) - targets) * there[..., None]
        gradients = x.transpose(0, 2, 1) @ errors
        for member, gradient, row in zip(going, gradients, rows, strict=True):
            member.weights = member.weights - member.settings.lr * gradient / len(row)

    def close(self):
        for trial_id in list(self.members):
            self.leave(trial_id)


class ToyCohorts(Fusible):
    def key(self, trial):
        if trial.config["pause_s"]:
            raise CannotFuse("it sleeps")
        return f"{trial.data.digest} {trial.config['batch_size']}"

    def open(self, trial, slots, engine="auto"):
        if trial.config.get("error") == "MemoryError" and slots > 2:
            raise MemoryError("this cohort is too large, on purpose")
        return ToyCohort(slots)


train.settings = toy.Settings
train.lane = ToyCohorts()
