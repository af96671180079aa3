"""Similarities of test items to their own class and to the nearest other, by class: the survey's histograms.

    python -m benchmarks.similarities_by_class [--storage FOLDER] [--to benchmarks/results]

Runs `search_spaces.survey:SIMILARITY` through the platform (a second call only reads), embeds its data with the
networks in the checkpoints of all replicates, and writes similarities_by_class.md and, for each similarity that was
trained with, similarities_by_class_<arm>.png. All of them are measured by cosine similarity.
"""

import argparse
import platform
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

import numpy as np
import torch

import contrasweep as cs
from contrasweep.data import open_dataset, resolve
from contrasweep.data.manifest import Manifest
from contrasweep.errors import StorageError
from contrasweep.results.results import Results
from contrasweep.search_spaces.survey import SIMILARITY
from contrasweep.statistics.design import contrast
from contrasweep.storage.checkpoints import Checkpoints
from contrasweep.storage.record import Record, Status
from contrasweep.trainables.contrastive import load_model
from contrasweep.trainables.evaluation.neighbours import Neighbours, search
from contrasweep.trainables.evaluation.target_noise import by_class, class_figure
from contrasweep.trainables.images import Images
from contrasweep.trainables.pytorch import Float, Int
from contrasweep.trial import Trial

ARMS = ("cosine", "arc-length")
MEDIANS = ("target_similarity", "noise_similarity", "similarity_margin")
SAME = 1e-4
"""Similarities of a network from its checkpoint are those that its trial recorded, up to this."""


@dataclass(frozen=True)
class ClassSummary:
    """Test items of one class under one arm.

    For each replicate: the share that 1NN gets right, and median target and noise similarity. Over all replicates:
    which other class is nearest most often, and how often.
    """

    knn1: Float[np.ndarray, " r"]
    target: Float[np.ndarray, " r"]
    noise: Float[np.ndarray, " r"]
    nearest: int
    nearest_share: float


def summaries(
    replicates: Sequence[Neighbours], labels: Int[np.ndarray, " n"]
) -> dict[int, ClassSummary]:
    """Summary of each class, from the neighbours of all replicates; `labels` are those of the test items."""
    votes = np.stack([near.votes[1].numpy() for near in replicates])
    target, noise = (
        np.stack([getattr(near, name).numpy() for near in replicates])
        for name in ("target", "noise")
    )
    others = np.stack([near.noise_label.numpy() for near in replicates])
    found = {}
    for label in np.unique(labels):
        in_class = labels == label
        classes, counts = np.unique(others[:, in_class], return_counts=True)
        found[int(label)] = ClassSummary(
            knn1=(votes[:, in_class] == label).mean(1),
            target=np.median(target[:, in_class], axis=1),
            noise=np.median(noise[:, in_class], axis=1),
            nearest=int(classes[counts.argmax()]),
            nearest_share=float(counts.max() / counts.sum()),
        )
    return found


def neighbours(
    results: Results, record: Record, data: Manifest, train: Images, test: Images
) -> Neighbours:
    """The neighbours that the images of `test` have in `train`, in the space of the trial's network. `StorageError`
    where its checkpoint is gone or is not the network that the record is of."""
    trial = Trial(
        record.study, record.arm, record.trainable, record.config, data, record.fold, record.seed
    )
    with tempfile.TemporaryDirectory() as folder:
        place = results.records.key(trial.id, "checkpoint")
        if Checkpoints(results.records.store, place).fetch(Path(folder)) is None:
            raise StorageError(
                f"trial {trial.id} has no checkpoint under {place}: run the study in an empty storage"
            )
        model = load_model(Path(folder), trial)
    with torch.no_grad():
        near = search(model(train.pixels), train.labels, model(test.pixels), test.labels)
    if not np.allclose(near.noise.numpy(), results.items(trial.id)["noise_similarity"], atol=SAME):
        raise StorageError(
            f"the checkpoint of trial {trial.id} gives other similarities than those of its record"
        )
    return near


def report(
    results: Results, found: dict[str, dict[int, ClassSummary]], data: Manifest, training: list[int]
) -> str:
    """The tables as Markdown."""
    done = results.to_frame().query("status == 'done'")["arm"].value_counts()
    a = ARMS[1]
    b = ARMS[0]
    lines = [
        "# Similarity to the own class and to the nearest other, by class",
        "",
        f"{date.today()}, {platform.machine()} CPU, torch {torch.__version__}. `search_spaces.survey:SIMILARITY` on "
        f"{data.name}: SINCERE with cosine similarity and with negative arc length, {done[b]} and {done[a]} seeds, "
        "made by `python -m benchmarks.similarities_by_class`. For each test image: the cosine similarity to the "
        "nearest training image of its own class (target) and of another (noise), as in the survey's case study. "
        "Medians and 1NN are means over seeds with 95 % intervals; the histograms "
        f"(similarities_by_class_{b}.png, similarities_by_class_{a}.png) are of all seeds.",
        "",
        f"- {results.metric}: {results.compare(a, b).sentence(a, b)}",
        *(
            f"- {metric}, exploratory: {results.compare(a, b, metric).sentence(a, b)}"
            for metric in MEDIANS
        ),
        f"- noise by class: median higher with {a} in {_higher(found[a], found[b])} of {len(found[a])} classes",
    ]
    head = ("class", "training images", "1NN", "target", "noise", "nearest other class")
    for arm, classes in found.items():
        lines += ["", f"## Trained with {arm}", "", _row(head), _row(["---"] * len(head))]
        for label, of in classes.items():
            nearest = f"{data.classes[of.nearest]} ({of.nearest_share:.0%})"
            cells = (
                data.classes[label],
                str(training[label]),
                *map(_mean, (of.knn1, of.target, of.noise)),
                nearest,
            )
            lines.append(_row(cells))
    return "\n".join(lines) + "\n"


def _higher(a: dict[int, ClassSummary], b: dict[int, ClassSummary]) -> int:
    return sum(a[label].noise.mean() > b[label].noise.mean() for label in a)


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _mean(values: Float[np.ndarray, " r"]) -> str:
    low, high = contrast(values).interval()
    return f"{values.mean():.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--storage", default="./contrasweep-runs")
    parser.add_argument("--to", type=Path, default=Path(__file__).parent / "results")
    options = parser.parse_args()
    results = cs.run(SIMILARITY, storage=options.storage, tracking="none", max_concurrent=2)
    assert isinstance(SIMILARITY.data, str)
    data = resolve(SIMILARITY.data, folds=None, storage=options.storage)
    train, test = (Images(part, torch.device("cpu")) for part in open_dataset(data).parts(None))
    labels = test.labels.numpy()
    found = {}
    for arm in ARMS:
        records = [
            r for r in results.trial_records.values() if r.arm == arm and r.status == Status.DONE
        ]
        replicates = [neighbours(results, record, data, train, test) for record in records]
        found[arm] = summaries(replicates, labels)
        series = [
            np.concatenate([getattr(near, name).numpy() for near in replicates])
            for name in ("target", "noise")
        ]
        class_figure(
            by_class(series[0], series[1], np.tile(labels, len(replicates))),
            data.classes,
            options.to / f"similarities_by_class_{arm}.png",
            title=f"{data.name}, trained with {arm}: {len(replicates)} seeds",
            axis="cosine similarity",
        )
    text = report(results, found, data, np.bincount(train.labels.numpy()).tolist())
    (options.to / "similarities_by_class.md").write_text(text)
    print(text)


if __name__ == "__main__":
    main()
