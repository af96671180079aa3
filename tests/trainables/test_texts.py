"""Sentence embeddings on real SICK pairs: which sentences are alike, what is refused, learning and resuming."""

import math
import re
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
import torch
from refusals import refused
from to_the_bit import trained_and_resumed

from contrasweep.data import open_dataset, stage
from contrasweep.errors import DataError, SpecError
from contrasweep.trainables.texts import Settings, train
from contrasweep.trainables.texts.method import Batch, Texts, pairs_of
from contrasweep.trial import Trial

torch.set_num_threads(1)
QUICK: dict[str, Any] = {
    "epochs": 2,
    "encoder": {"width": 16},
    "batch_size": 32,
    "max_words": 16,
    "checkpoint_every": 1,
}


@pytest.fixture(scope="module")
def sick(shared, tmp_path_factory):
    """The first 900 training and 300 test pairs of SICK."""
    folder = tmp_path_factory.mktemp("sick")
    head, *lines = (shared / "data/sick/SICK.txt").read_text().splitlines()
    kept = [
        [line for line in lines if line.endswith(f"\t{part}")][:most]
        for part, most in (("TRAIN", 900), ("TEST", 300))
    ]
    (folder / "SICK.txt").write_text("\n".join([head, *chain(*kept)]))
    return stage("sick", str(folder / "staged"), source=folder)


def trial(data, **config):
    return Trial(
        "study", "arm", "contrasweep.trainables.texts:train", QUICK | config, data, None, 0
    )


def alike(scores: torch.Tensor, positives: torch.Tensor, negatives: torch.Tensor) -> torch.Tensor:
    """A loss of all rows of somebody else's."""
    return (negatives * scores.exp()).sum(1) - (positives * scores).sum(1)


def of_rows(scores: torch.Tensor) -> torch.Tensor:
    return scores.sum(1)


def test_sentences_are_alike_as_the_setting_says(sick):
    part = open_dataset(sick).split("train")
    sides = [part.column(name).to_pylist() for name in ("premise", "hypothesis")]
    entailed = {
        (a, b)
        for a, b, label in zip(*sides, part.labels, strict=True)
        if sick.classes[label] == "ENTAILMENT"
    }
    against = {
        frozenset(pair)
        for *pair, label in zip(*sides, part.labels, strict=True)
        if sick.classes[label] == "CONTRADICTION"
    }
    views, by_pair, groups = (
        pairs_of(part, Settings(positives=name, loss=loss), sick.classes)
        for name, loss in (("views", "clip"), ("entailed", "clip"), ("groups", "supcon"))
    )
    assert len(views.sentences) == len(views.first) == len({*sides[0], *sides[1]})
    assert torch.equal(views.first, views.second) and not views.contradictions
    text = by_pair.sentences
    assert {
        (text[a], text[b]) for a, b in zip(by_pair.first, by_pair.second, strict=True)
    } == entailed
    assert {
        frozenset((text[a], text[b])) for a, found in by_pair.contradictions.items() for b in found
    } == against
    group = dict(zip(groups.sentences, groups.groups.tolist(), strict=True))
    assert all(group[a] == group[b] for a, b in entailed)
    assert len(set(group.values())) > len(group) / 2 and not groups.contradictions


@pytest.mark.slow
def test_hard_negatives_are_of_the_batchs_premises_and_drawn_anew_each_epoch(sick):
    method = Texts(trial(sick, positives="entailed"), Settings(**QUICK, positives="entailed"))
    order = torch.arange(200)[None]
    (first, _, more, _), (_, _, later, _) = (
        next(method.batches(order, 0, None, epoch)) for epoch in (1, 2)
    )
    allowed = {b for a in first.tolist() for b in method.pairs.contradictions.get(a, [])}
    assert 0 < len(more) < 200 and set(more.tolist()) <= allowed and more.tolist() != later.tolist()
    first = first[:8]
    sides = method.embed(Batch(first, first, more, first))
    assert sides.hard_negatives is not None and len(sides.hard_negatives) == len(more)
    assert not torch.equal(sides.first, sides.second), (
        "dropout differs between the views of a sentence"
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "config",
    [
        {},
        {"positives": "entailed", "loss": "siglip", "learnable_temperature": True},
        {"positives": "entailed", "loss": "loss_batches:first_to_second"},
        {"positives": "groups", "loss": f"{__name__}:alike"},
        {
            "positives": "groups",
            "loss": {"name": "supcon", "temperature": 0.1},
            "projection": {"name": "mlp", "dim": 8},
        },
    ],
)
def test_it_learns_deterministically_and_resumes_bit_for_bit(sick, tmp_path, config):
    reports = trained_and_resumed(train, trial(sick, **config), tmp_path)
    assert reports[-1].metrics["loss"] < reports[0].metrics["loss"]
    assert 0.3 < reports[-1].metrics["spearman"] < 1 and "spearman" not in reports[0].metrics
    learned = {"loss_temperature", "loss_bias"} & set(reports[0].metrics)
    assert learned == (
        {"loss_temperature", "loss_bias"} if config.get("learnable_temperature") else set()
    )


def test_what_does_not_fit_is_refused_by_the_settings(sick, tmp_path):
    for wrong, said in (
        ({"positives": "groups"}, "groups have several positives"),
        ({"loss": "supcon", "learnable_temperature": True}, "of a loss of two sides"),
        ({"loss": "barlow_twins"}, "no such loss of texts"),
        (
            {"loss": f"{__name__}:of_rows"},
            "loss: a loss of two sides gives one number .* 'a tensor",
        ),
        ({"encoder": "hf:/no/such/folder"}, "no such folder with a model"),
    ):
        with refused(SpecError, match=said):
            Settings(**wrong).resolve(sick)
    with refused(DataError, "no class 'SAME'; its classes are CONTRADICTION"):
        Settings(positives="entailed", positive_class="SAME").resolve(sick)
    with refused(DataError, match=r"no column 'similarity'; .*relatedness"):
        next(train(trial(sick, score="similarity")))
    text = (Path(sick.uri).parent / "SICK.txt").read_text()
    text = re.sub(r"\t[\d.]+(\t.*\tTEST)$", r"\tnan\1", text, count=1, flags=re.MULTILINE)
    (tmp_path / "SICK.txt").write_text(text)
    with refused(DataError, "'relatedness' must hold scores"):
        next(train(trial(stage("sick", str(tmp_path / "staged"), source=tmp_path))))


@pytest.fixture
def tiny_bert(tmp_path, sick):
    """A BERT of two narrow layers with a vocabulary of SICK's words, made here."""
    package = pytest.importorskip("transformers", reason="pip install 'contrasweep[transformers]'")
    words = {
        word
        for text in open_dataset(sick).split("train").column("premise").to_pylist()
        for word in text.lower().split()
    }
    (tmp_path / "vocab.txt").write_text(
        "\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(words)])
    )
    package.BertTokenizer(str(tmp_path / "vocab.txt")).save_pretrained(tmp_path)
    config = package.BertConfig(
        vocab_size=len(words) + 5,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
    )
    package.BertModel(config).save_pretrained(tmp_path)
    return f"hf:{tmp_path}"


def test_a_hugging_face_model_is_read_from_its_folder(sick, tiny_bert, tmp_path):
    settings = Settings(**QUICK | {"encoder": {"name": tiny_bert}}).resolve(sick)
    assert len(settings.encoder.parameters["sha256"]) == 64
    method = Texts(trial(sick, encoder=settings.encoder.to_plain()), settings)
    import transformers

    tokenizer, model = (
        cls.from_pretrained(tmp_path, local_files_only=True)
        for cls in (transformers.AutoTokenizer, transformers.AutoModel)
    )
    texts = ["A man is running", "Two dogs are playing with a red ball"]
    with torch.no_grad():
        for text, ours in zip(texts, method.features(texts), strict=True):
            alone = (
                model.eval()(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0)
            )
            torch.testing.assert_close(ours, alone, atol=1e-5, rtol=1e-5)
    reports = list(train(trial(sick, encoder=settings.encoder.to_plain(), epochs=1)))
    assert math.isfinite(reports[-1].metrics["spearman"])
    (tmp_path / "config.json").write_text((tmp_path / "config.json").read_text() + " ")
    with refused(DataError, match=r"has digest \w{12}, the study's has"):
        next(train(trial(sick, encoder=settings.encoder.to_plain())))
