"""The methods by name: dotted paths, so that listing them imports none of them."""

METHODS: dict[str, str] = {
    "contrastive": "contrasweep.trainables.contrastive:train",
    "paired_images": "contrasweep.trainables.paired_images:train",
    "paired_texts": "contrasweep.trainables.paired_texts:train",
}
