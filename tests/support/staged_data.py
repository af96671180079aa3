"""What holds of every staged dataset, whosever importer read it."""

import numpy as np

from contrasweep.data import inspecting, open_dataset
from contrasweep.data.manifest import MANIFEST, Manifest
from contrasweep.storage.store import open_store


def check_staged(manifest, labelled=True):
    """The shards are as the manifest says, every column is readable as its spec says, and the counts are right."""
    assert inspecting.verify(manifest) == []
    assert bool(manifest.classes) == labelled and manifest.rows("train") > 0
    assert manifest.source["licence"]
    dataset = open_dataset(manifest)
    for split in (split for split in manifest.splits if manifest.rows(split)):
        part = dataset.split(split)
        assert len(part) == manifest.rows(split)
        for column, spec in manifest.columns.items():
            array = part.ragged(column).values if spec.get("list") else part.array(column)
            assert list(array.shape[1:]) == spec["shape"] and array.dtype == spec["dtype"]
        if split != "products" and labelled:
            assert (
                np.bincount(part.labels, minlength=len(manifest.classes)).tolist()
                == manifest.counts[split]["classes"]
            )
    assert Manifest.from_json(open_store(manifest.uri).read(MANIFEST), manifest.uri) == manifest
