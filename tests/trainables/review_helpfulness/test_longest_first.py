"""The floor by length: what every ranker reports of it, in one report of its own, and the errors."""

from dataclasses import replace

import pytest
from refusals import refused

from contrasweep.data import resolve
from contrasweep.errors import DataError
from contrasweep.trainables import review_helpfulness
from contrasweep.trainables.review_helpfulness import longest_first
from contrasweep.trainables.review_helpfulness.longest_first import Settings
from contrasweep.trial import Trial

SMALL = {
    "word_dim": 8,
    "epochs": 1,
    "max_tokens": 32,
    "sampler": {"max_groups": 8},
    "model": {"name": "prh_net"},
}


@pytest.fixture(scope="module")
def reviews(tmp_path_factory):
    return resolve(
        "contrasweep.trainables.review_helpfulness.datasets:SYNTHETIC_REVIEWS?products=60",
        folds=None,
        storage=str(tmp_path_factory.mktemp("data")),
        write=True,
    )


@pytest.mark.parametrize("use_text", [True, False])
def test_it_is_the_floor_that_a_ranker_reports(use_text, reviews):
    """Also a ranker from which the texts are hidden."""
    (floor,) = longest_first.train(Trial("s", "a", "t", {"max_tokens": 32}, reviews, None, 0))
    config = SMALL | {"use_text": use_text}
    *_, ranker = review_helpfulness.train(Trial("s", "a", "t", config, reviews, None, 0))
    assert floor.step == 1 and floor.metrics["map"] == pytest.approx(ranker.metrics["length_map"])
    assert list(floor.items["map"]) == pytest.approx(list(ranker.items["length_map"]))
    assert set(floor.items) <= set(ranker.items) and len(floor.items["map"]) == 12


def test_words_beyond_what_a_ranker_reads_count_for_nothing(reviews):
    """All reviews are as long as one word, so that their order in the data decides."""
    (floor,) = longest_first.train(Trial("s", "a", "t", {"max_tokens": 1}, reviews, None, 0))
    (all_words,) = longest_first.train(Trial("s", "a", "t", {}, reviews, None, 0))
    assert floor.metrics["map"] != all_words.metrics["map"]


@pytest.mark.parametrize(("own", "chosen", "wanted"), [(None, None, 1), (0, None, 0), (0, 2, 2)])
def test_the_threshold_is_the_datasets_unless_one_is_chosen(reviews, own, chosen, wanted):
    said = {} if own is None else {"relevance_threshold": own}
    data = replace(reviews, source={**reviews.source, **said})
    config = {} if chosen is None else {"relevance_threshold": chosen}
    assert Settings(**config).resolve(data).relevance_threshold == wanted
    assert review_helpfulness.Settings(**config).resolve(data).relevance_threshold == wanted


@pytest.mark.parametrize("own", ["0", 4, 1.5])
def test_a_threshold_that_is_no_label_is_refused(reviews, own):
    data = replace(reviews, source={**reviews.source, "relevance_threshold": own})
    with refused(DataError, "relevance_threshold must be a label from 0 to 3"):
        Settings().resolve(data)
