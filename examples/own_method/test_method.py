"""The method without Ray or MLflow: a trainable is a generator, so a list of its reports is a test."""

from own_method.method import Settings, train

from contrasweep import Trial, data


def small_trial(storage, **config):
    digits = data.resolve("digits", folds=3, storage=str(storage))
    return Trial("test", "ours", "own_method.method:train", config, digits, fold=0, seed=1)


def test_it_learns(tmp_path):
    reports = list(train(small_trial(tmp_path, epochs=3)))
    assert [report.step for report in reports] == [1, 2, 3]
    assert reports[-1].metrics["accuracy"] > 0.8
    assert reports[-1].metrics["loss"] < reports[0].metrics["loss"]


def test_a_resumed_trial_ends_like_one_that_was_not_interrupted(tmp_path):
    trial = small_trial(tmp_path, epochs=2)
    whole = [report.metrics for report in train(trial)]
    interrupted = train(trial)
    rest = list(train(trial, resume=next(interrupted).checkpoint))
    assert [report.metrics for report in rest] == whole[1:]


def test_the_defaults_are_settings():
    assert Settings().batch_size == 64
