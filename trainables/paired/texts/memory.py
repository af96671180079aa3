"""What memory a trial on texts takes, for the plan."""

import json

from contrasweep.cluster.memory import Workload
from contrasweep.data.manifest import Manifest
from contrasweep.schema import plain
from contrasweep.trainables.paired.memory import network_output_sum, of_recipe, precision
from contrasweep.trainables.paired.texts.settings import Settings
from contrasweep.trainables.pytorch import nn, torch


def workload(settings: Settings, data: Manifest) -> Workload:
    """One step of a batch of pairs. The vocabulary is not known before the data is read: as many words as rows."""
    s, words = settings, data.rows("train")
    classes = len(data.classes) or 3
    network = [plain(part) for part in (s.encoder, s.latent, s.projection, s.classifier)]

    def build() -> "nn.Module":
        from contrasweep.trainables.paired.texts.network import text_model

        return text_model(s, words, classes)

    return Workload(
        architecture=f"paired_texts {precision(s)}",
        shape=(words, classes, s.batch_size, s.n_views, s.max_words, json.dumps(network, sort_keys=True), s.beta > 0),
        build=build,
        inputs=lambda: tuple(torch.ones(s.batch_size * s.n_views, s.max_words, dtype=torch.long) for _ in range(2)),
        loss=network_output_sum,
        resident_bytes=8 * 2 * s.max_words * (words + data.rows("test")),
        **of_recipe(s, data),
    )
