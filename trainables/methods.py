"""The methods by name: dotted paths, so that listing them imports none of them."""

METHODS: dict[str, str] = {
    "contrastive": "trainables.contrastive:train",
}
