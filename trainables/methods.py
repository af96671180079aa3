"""The methods by name: dotted paths, so that listing them imports none of them."""

METHODS: dict[str, str] = {
    "contrastive": "trainables.contrastive:train",
    "paired_images": "trainables.paired_images:train",
    "paired_texts": "trainables.paired_texts:train",
}
