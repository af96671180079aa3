"""Published datasets as their papers describe them: enough to plan for a dataset before it is staged."""

from contrasweep.data.manifest import Manifest, Shard
from contrasweep.data.names import importer, parse


def described(name: str) -> Manifest | None:
    """Return a manifest of a dataset as its paper describes it, without files; None where no paper does.

    It has rows, classes and image sizes, which are enough to plan a study. Its digest, and so the ids of trials, differ
    from those of the staged dataset. `name` may have parameters; `SpecError` where one of them is wrong.
    """
    parsed = parse(name)
    facts = importer(parsed).published(parsed.checked())
    if facts is None:
        return None
    # Each split has one shard without a file. Its digest is words, so that no staged shard has the same.
    splits = {
        split: (Shard(f"{split}-as-published", rows, 0, "as published"),)
        for split, rows in facts.rows.items()
    }
    return Manifest(
        parsed.text, "", facts.kind, splits, facts.classes, facts.columns, source=facts.source
    )
