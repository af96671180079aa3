"""Evaluations that a study declares: scores of its trained networks, computed once it is complete."""

import contextlib
import re
from collections.abc import Callable, Collection

import pydantic

from contrasweep.data.manifest import Manifest
from contrasweep.data.names import parse
from contrasweep.errors import SpecError, choose_from
from contrasweep.imports import import_from_here, import_path
from contrasweep.schema import checked


@checked
class Evaluation:
    """Scores of a study's networks, which `contrasweep evaluate` computes too. Nothing is trained.

    Args:
        data: Names of staged datasets of images with labels.
        function: The dotted path of `f(model, data, trial) -> {metric: number}`, in place of the shipped scores.
        metrics: Scores that the study decides as it does its own metric, by their names in tables: `DATASET/METRIC`,
            `FUNCTION/METRIC`, or with both `DATASET/FUNCTION/METRIC`. `alpha` is divided among the metric and these.

    Raises:
        SpecError: There is nothing to evaluate, or a metric is no score of this evaluation.

    Example:
        >>> import contrasweep as cs
        >>> cs.Evaluation(data=["mnist"], metrics=["mnist/knn1"]).prefixes
        ('mnist/',)
    """

    data: list[str] = pydantic.Field(default_factory=list)
    function: str = ""
    metrics: list[str] = pydantic.Field(default_factory=list)

    def __post_init__(self) -> None:
        if not self.data and not self.function:
            raise SpecError(
                "an evaluation has data, or a function",
                place="data",
                hint="for example data: [digits]",
            )
        # Scores on two datasets of one name would be called alike.
        if len(set(self.prefixes)) != len(self.prefixes):
            raise SpecError("datasets have different names", place="data", value=self.data)
        for metric in self.metrics:
            if not any(self.gives(metric, prefix) for prefix in self.prefixes):
                raise SpecError(
                    "a metric of an evaluation is one of its scores",
                    place="metrics",
                    value=metric,
                    hint=choose_from(
                        "scores", [f"{prefix}METRIC" for prefix in self.prefixes], metric
                    ),
                )

    def check(
        self, resolve: Callable[[str], Manifest], place: str = "", without: Collection[str] = ()
    ) -> None:
        """Raise `SpecError` where a dataset has no images with labels, or the function cannot be found.

        `resolve(name)` returns the manifest of a dataset; its error for one that is not staged is raised unchanged.
        `place` is where the error says the value was declared; "": the option of `contrasweep evaluate`. Datasets in
        `without` are not checked.
        """
        for name in self.data:
            manifest = None if name in without else resolve(name)
            if manifest and (manifest.kind != "image" or not manifest.classes):
                rule = "networks are scored on images with labels"
                raise SpecError(rule, place=place or "--on", value=name, hint=manifest.kind)
        if self.function:
            import_from_here()
            # A package that is not installed here is no error: it is where trials are trained.
            with contextlib.suppress(ModuleNotFoundError):
                import_path(self.function, place or "--with", "function")

    @property
    def prefixes(self) -> tuple[str, ...]:
        """Return how the names of the scores begin, one text for each dataset: `mnist/`.

        With a function they are `mnist/FUNCTION/`; for a function without datasets there is `FUNCTION/` alone.
        """
        suffix = f"{self.function.rpartition(':')[2]}/" if self.function else ""
        return tuple(f"{dataset_name(name)}/{suffix}" for name in self.data) or (suffix,)

    def gives(self, metric: str, prefix: str) -> bool:
        """Return whether `metric` can be the name of a score of this evaluation with `prefix`, one of `prefixes`.

        After the prefix, the name of a score of the user's function may be any text. The name of a shipped score has no
        slash, as in `mnist/knn1`.
        """
        name = metric.removeprefix(prefix)
        if not metric.startswith(prefix) or not name:
            return False
        return bool(self.function) or "/" not in name

    @property
    def label(self) -> str:
        """Return the end of the name of the study that evaluates: `on-digits-mnist`, `with-robustness`."""
        # A function is named without its module. Signs that no study's name may have become hyphens.
        words = ["on", *self.data] if self.data else []
        if self.function:
            words += ["with", self.function.rpartition(":")[2]]
        return re.sub("[^A-Za-z0-9._-]+", "-", "-".join(words))


def dataset_name(name: str) -> str:
    """Return what metrics call a dataset: the folder of its name, without an address before it.

    `s3://bucket/datasets/mnist` gives `mnist`.
    """
    return parse(name.rstrip("/").rpartition("/")[2]).folder
