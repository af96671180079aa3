"""A file that settings name is known by its content."""

from made_up import nowhere
from refusals import refused

from contrasweep.canonical import Config
from contrasweep.errors import DataError, SpecError
from contrasweep.study.trainables import resolved
from contrasweep.trainables.files import checked_file
from contrasweep.trainables.review_helpfulness.settings import Settings
from contrasweep.trainables.review_helpfulness.training import train
from contrasweep.trial import Trial

DATA = nowhere(None, "reviews")


def trial_of(**config):
    whole = resolved(train, Config(config), DATA)
    return Trial(
        "s", "a", "contrasweep.trainables.review_helpfulness.training:train", whole, DATA, None, 0
    )


def test_other_word_vectors_in_the_same_file_are_another_trial(tmp_path):
    file = tmp_path / "vectors.txt"
    file.write_text("a 1 2 3\n")
    first = trial_of(word_vectors=str(file))
    assert trial_of(word_vectors=str(file)).id == first.id != trial_of().id
    assert checked_file(first.config["word_vectors"], "word_vectors") == file
    file.write_text("a 1 2 4\n")
    assert trial_of(word_vectors=str(file)).id != first.id
    with refused(
        DataError, match=r"has digest \w{16} here and had \w{16} when the study was planned"
    ):
        checked_file(first.config["word_vectors"], "word_vectors")
    file.write_text("a 1 2 3\n")
    assert trial_of(word_vectors=str(file)).id == first.id
    again = resolved(train, Config(dict(first.config)), DATA)
    assert again == first.config, "what is resolved stays as it is"
    file.unlink()
    with refused(DataError, "is not on this host"):
        checked_file(first.config["word_vectors"], "word_vectors")
    with refused(SpecError, "there is no such file or dataset"):
        trial_of(word_vectors=str(file))


def test_without_a_file_nothing_is_added():
    assert Settings().resolve(DATA) == Settings(relevance_threshold=1), (
        "but what the dataset would have said"
    )
