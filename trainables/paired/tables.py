"""Tables of a trained network's embeddings, as Parquet: what figures are drawn from, here or elsewhere.

`embeddings.parquet` has a row for each test item: row, label, predicted, z_raw, and the t-SNE coordinates of z and
e_post (null beyond `TSNE_POINTS` items). `centres.parquet` has the cosines between the class centres of z, on the test
part and on training rows. The class names are in the schema metadata.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from torch import Tensor

from contrasweep.trainables.evaluation.scores import centre_cosines
from contrasweep.trainables.pytorch import Float, Integers, Matrix

TSNE_POINTS = 2000
TSNE_PERPLEXITY = 30.0
TSNE_SEED = 0


@dataclass(frozen=True)
class EmbeddedPart:
    """A part seen by the network in evaluation mode, on the host; for z, e_post and z_raw see `network.Outputs`.

    `predicted` is the classifier's class of each item.
    """

    z: Matrix
    e_post: Matrix
    z_raw: Float[Tensor, " n"]
    predicted: Integers
    labels: Integers


def write(
    folder: Path, test: EmbeddedPart, train: EmbeddedPart, rows: Any, names: tuple[str, ...]
) -> list[Path]:
    """Write both tables to `folder` and return their files.

    Args:
        folder: Where they are written; it is made if it is not there.
        test: The test part.
        train: A sample of the training part.
        rows: The number of each test item in the dataset.
        names: The names of the classes.
    """
    # Cosines of both parts stand in one table, told apart by its column `part`.
    cosines = [centres(test, "test", len(names)), centres(train, "train", len(names))]
    tables = {
        folder / "embeddings.parquet": embeddings(test, rows),
        folder / "centres.parquet": pa.concat_tables(cosines),
    }
    folder.mkdir(parents=True, exist_ok=True)
    for file, table in tables.items():
        pq.write_table(table.replace_schema_metadata({"classes": json.dumps(list(names))}), file)
    return list(tables)


def embeddings(test: EmbeddedPart, rows: Any) -> pa.Table:
    """Return a table with a row for each test item: its number in the dataset, labels, |z| and t-SNE coordinates.

    `rows` has the numbers. Only a fixed random choice of at most `TSNE_POINTS` items has coordinates; others have null.
    """
    n = len(test.labels)
    chosen = np.sort(np.random.default_rng(TSNE_SEED).permutation(n)[:TSNE_POINTS])
    columns: dict[str, object] = {
        "row": np.asarray(rows),
        "label": test.labels.numpy(),
        "predicted": test.predicted.numpy(),
        "z_raw": test.z_raw.numpy(),
    }
    for name, points in (("z", test.z), ("e_post", test.e_post)):
        placed = np.full((n, 2), np.nan, np.float32)
        placed[chosen] = tsne(points[chosen])
        # `from_pandas` makes null of NaN.
        for axis in (0, 1):
            columns[f"{name}_tsne_{axis}"] = pa.array(placed[:, axis], from_pandas=True)
    return pa.table(columns)


def centres(part: EmbeddedPart, name: str, classes: int) -> pa.Table:
    """Return a table of the cosines between class centres of z, with a row for each pair of classes.

    Its column `part` has `name` in every row. The cosine is null where a class is absent from the part.
    """
    gram = centre_cosines(part.z, part.labels, classes).numpy()
    first, second = np.indices(gram.shape)
    return pa.table(
        {
            "part": [name] * gram.size,
            "class_a": first.ravel(),
            "class_b": second.ravel(),
            "cosine": pa.array(gram.ravel(), from_pandas=True),
        }
    )


def tsne(points: Tensor) -> Any:
    """Return coordinates [n 2] of `points` [n d] by t-SNE (van der Maaten & Hinton 2008), PCA start, fixed seed.

    Perplexity is 30, less for fewer than 91 points. All points get the origin (0, 0) where they are fewer than 5, have
    fewer than two coordinates, or coincide.
    """
    from sklearn.manifold import TSNE  # costs more than a second, so only the last report pays

    if len(points) < 5 or points.shape[1] < 2 or float(points.std(0).max()) < 1e-7:
        return np.zeros((len(points), 2), np.float32)
    perplexity = min(TSNE_PERPLEXITY, (len(points) - 1) / 3)
    return TSNE(perplexity=perplexity, init="pca", random_state=TSNE_SEED, n_jobs=1).fit_transform(
        points.numpy()
    )


def class_names(table: pa.Table) -> list[str]:
    """Return the class names that `write` put into the schema metadata of a table."""
    names: list[str] = json.loads(table.schema.metadata[b"classes"])
    return names
