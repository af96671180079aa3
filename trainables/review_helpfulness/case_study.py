"""One product, its reviews, and the scores that models give them, as in the case study of Nguyen et al. 2022 (Table 1).

    python -m contrasweep.trainables.review_helpfulness.case_study STUDY [PRODUCT] [--arms proposed mcr]

Each finished trial keeps the scores of its test reviews as the artifact `reviews.parquet`.
"""

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from contrasweep.data import open_dataset
from contrasweep.data.resolving import find
from contrasweep.defaults import STORAGE
from contrasweep.errors import ContrasweepError, SpecError
from contrasweep.results.results import Results
from contrasweep.trainables.review_helpfulness.trainer import REVIEWS

SHOWN = 300
"""Characters of a text that are shown."""


def case_study(
    study: str, product: str | None = None, arms: Sequence[str] = (), storage: str = STORAGE
) -> str:
    """Return a product's text, and each test review of it with its label and the arms' scores, the best first.

    The trials are those of the first dataset, fold and seed on which all `arms` have finished.

    Args:
        study: The name of a study of review helpfulness.
        product: The product's id; by default the product on which the first arm's MAP exceeds the second's by most.
        arms: Two arms or more; by default the study's reference and the first other one.
        storage: The folder, or the address of the object store, that the study was run in.

    Raises:
        SpecError: There is no such study or product, the arms have not finished on the same data, or an arm keeps no
            scores of reviews, as a ranking by length.
    """
    results = Results.load(study, storage)
    if not arms:
        reference = results.document.reference
        others = [arm for arm in results.document.arms if arm != reference]
        arms = [reference, *others][:2] if reference else others[:2]
    if len(arms) < 2:
        raise SpecError("a case study compares two arms or more", place="arms", value=list(arms))
    trials, data = _trials(results, arms)
    for arm, trial in zip(arms, trials, strict=True):
        if REVIEWS not in results.trial_records[trial].artifacts:
            raise SpecError(f"the arm's trials keep no {REVIEWS}", place="arms", value=arm)
    with tempfile.TemporaryDirectory() as folder:
        tables = [
            pd.read_parquet(results.records.artifact(trial, REVIEWS, Path(folder) / trial))
            for trial in trials
        ]
    # All trials score the same test reviews in the same order: one table, with a column of scores for each arm. Its
    # name has a blank, as an arm may be called as another column.
    reviews = tables[0]
    for arm, table in zip(arms, tables, strict=True):
        reviews[f"score {arm}"] = table["score"]
    # Products in the order of their first reviews, which is that of their scores, too (`PerProduct`).
    ids = reviews["product_id"].drop_duplicates().to_numpy()
    if product is None:
        # The product on which the first arm's ranking is furthest above the second's.
        first, second = (results.items(trial)["map"] for trial in trials[:2])
        product = str(ids[(first - second).argmax()])
    elif product not in ids:
        hint = (
            f"the product furthest apart is shown without one; the first are {', '.join(ids[:3])}"
        )
        raise SpecError(
            "no test reviews of this product", place="PRODUCT", value=product, hint=hint
        )
    reviews = reviews[reviews["product_id"] == product]
    best_first = reviews.sort_values(f"score {arms[0]}", ascending=False, kind="stable")
    return _text(best_first, arms, data, storage)


def _trials(results: Results, arms: Sequence[str]) -> tuple[list[str], str]:
    """Return the trial of each arm on the first dataset, fold and seed that they share, and the dataset's name."""
    # Trials with equal values of these have the same data; the first such group that has all arms is taken.
    cell = [*results.axes, "fold", "seed"]
    done = results.done[results.done["arm"].isin(arms)]
    for _, shared in done.groupby(cell, sort=False, dropna=False):
        trials = shared.drop_duplicates("arm").set_index("arm")
        if len(trials) == len(arms):
            name = trials["data"].iloc[0] if "data" in trials else results.document.spec["data"]
            return trials.loc[list(arms), "trial_id"].tolist(), str(name)
    hint = f"the study's arms are {', '.join(results.document.arms)}"
    raise SpecError(
        "these arms have no finished trials on the same data",
        place="arms",
        value=list(arms),
        hint=hint,
    )


def _text(reviews: pd.DataFrame, arms: Sequence[str], data: str, storage: str) -> str:
    """Return the product's text, then a line for each review: label, each arm's score with its rank, and text.

    `reviews` are those of one product, with a column `score ARM` for each arm.
    """
    # The texts of the product and of all reviews, from the dataset.
    dataset = open_dataset(find(data, storage=storage))
    product = reviews["product_id"].iloc[0]
    products = dataset.split("products")
    row = products.column("product_id").to_pylist().index(product)
    about = " ".join(products.column(name)[row].as_py() for name in ("name", "description"))
    texts: dict[str, str] = {}
    # The test part of a fold is of the training split; there may be no other test part.
    splits = [split for split in ("train", "test") if dataset.manifest.rows(split)]
    for part in map(dataset.split, splits):
        # Ids of reviews may repeat among products.
        columns = (part.column(name).to_pylist() for name in ("product_id", "review_id", "text"))
        for product_of_review, review, text in zip(*columns, strict=True):
            if product_of_review == product:
                texts[review] = text
    # The score of each review with its rank, by arm.
    columns_of_scores = []
    for arm in arms:
        scores = reviews[f"score {arm}"]
        ranks = scores.rank(ascending=False, method="first")
        columns_of_scores.append(
            [f"{score:.3f} ({rank:.0f})" for score, rank in zip(scores, ranks, strict=True)]
        )
    lines = [
        f"product {product} of {data}: {about}"[:SHOWN],
        "",
        _line("label", arms, "review; each score's rank beside it"),
    ]
    ids = reviews["review_id"]
    for review, label, *cells in zip(ids, reviews["label"], *columns_of_scores, strict=True):
        lines.append(_line(label, cells, texts[review][:SHOWN]))
    return "\n".join(lines)


def _line(label: object, scores: Sequence[str], text: str) -> str:
    """Return a line with aligned columns: a review's label, the arms' scores, and its text without line breaks."""
    return (
        f"{label!s:>5}  {'  '.join(f'{score:>14}' for score in scores)}  {' '.join(text.split())}"
    )


def main() -> None:
    """Print the case study that the command line asks for."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("study")
    parser.add_argument("product", nargs="?")
    parser.add_argument("--arms", nargs="*", default=())
    parser.add_argument("--storage", default=STORAGE)
    try:
        print(case_study(**vars(parser.parse_args())))
    except ContrasweepError as error:
        raise SystemExit(f"contrasweep: {error}") from None


if __name__ == "__main__":
    main()
