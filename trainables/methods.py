"""The methods by name: dotted paths, so that listing them imports none of them."""

METHODS: dict[str, str] = {
    "contrastive": "trainables.contrastive:train",
    "paired_images": "trainables.paired_images:train",
    "paired_texts": "trainables.paired_texts:train",
    "review_helpfulness": "trainables.review_helpfulness:train",
}

MOVED_TRAINABLES: dict[str, str] = {
    "trainables.paired_images.colour_floor:train": "trainables.paired.colour_baseline:train",
    "trainables.paired_images.train:train": "trainables.paired_images:train",
}
"""Dotted path in an older study -> where the same trainable stands now."""
