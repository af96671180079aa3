"""Trainables: the methods whose hyperparameters are swept, and what they are made of."""

METHODS: dict[str, str] = {
    "contrastive": "contrasweep.trainables.contrastive:train",
    "finetune": "contrasweep.trainables.finetune:train",
    "paired_images": "contrasweep.trainables.paired_images:train",
    "paired_texts": "contrasweep.trainables.paired_texts:train",
    "two_tower": "contrasweep.trainables.two_tower:train",
    "texts": "contrasweep.trainables.texts:train",
}
"""name -> dotted path, so that listing the methods imports none of them."""
