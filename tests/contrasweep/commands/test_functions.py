"""Plain functions, Optuna's objectives and Ray Tune's functions as trainables: they are other people's loops."""

import builtins
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from places import ROOT
from refusals import refused

import contrasweep as cs
from contrasweep import Arm, SpecError, data
from contrasweep.cluster.inventory import this_machine
from contrasweep.commands.functions import generator
from contrasweep.running.run_context import RunContext
from contrasweep.storage.checkpoints import Retention
from contrasweep.study.trainables import SettingsOfArms, as_generator, find_trainable
from contrasweep.trial import RevisedReport, Trial

ENDED = []


def plain(trial, resume=None):
    start = int((resume / "step").read_text()) if resume else 0
    try:
        for step in range(start + 1, 4):
            folder = Path(trial.config["folder"])
            (folder / "step").write_text(str(step))
            cs.report(step, {"accuracy": step / 4}, checkpoint=folder)
        if trial.config.get("fails"):
            raise getattr(builtins, trial.config["fails"])("theirs")
    finally:
        ENDED.append(step)


def trial_of(tmp_path, trainable="", **config):
    arm = Arm(trainable or plain, config)
    return Trial(
        "s",
        "a",
        arm.path,
        cs.canonical.Config(arm.config),
        data.resolve("none", folds=None, storage=""),
    )


def test_a_plain_function_reports_ends_where_it_is_stopped_and_goes_on(tmp_path):
    trial = trial_of(tmp_path, folder=str(tmp_path))
    train = find_trainable(Arm(plain), "arms.a")
    reports = train(trial)
    assert [next(reports).step, next(reports).step] == [1, 2]
    reports.close()
    assert ENDED.pop() == 2
    assert [(report.step, report.metrics) for report in train(trial, resume=tmp_path)] == [
        (3, {"accuracy": 0.75})
    ]
    with refused(SpecError, "report: a function reports while a trial of contrasweep's calls it"):
        cs.report(1, {})


def test_a_worker_gets_a_declared_plain_function_as_one_that_yields_reports(tmp_path, storage):
    trial = trial_of(tmp_path, folder=storage)
    context = RunContext(
        storage,
        "s",
        "accuracy",
        {},
        {trial.trainable: plain},
        0.0,
        this_machine(),
        Retention(),
    )
    assert [report.step for report in context.function(trial.trainable)(trial)] == [1, 2, 3]


def test_only_a_second_report_of_a_step_revises(tmp_path):
    def from_nought(trial, resume=None):
        for step in (0, 0, 1):
            cs.report(step, {"accuracy": 0.5})

    reports = list(generator(from_nought)(trial_of(tmp_path)))
    assert [isinstance(report, RevisedReport) for report in reports] == [False, True, False]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("error", ["ValueError", "SystemExit"])
def test_an_error_of_a_plain_function_is_its_trials(tmp_path, error):
    reports = generator(plain)(trial_of(tmp_path, folder=str(tmp_path), fails=error))
    with pytest.raises(getattr(builtins, error), match="theirs"):
        list(reports)
    assert as_generator(generator(plain)) is not plain


DOCS = (ROOT / "docs/your-own-training.md").read_text()


def tell(library):
    """Return the callback that the page has for a library."""
    pytest.importorskip(library)
    names = {}
    exec(DOCS.partition(f'title="{library}"\n')[2].partition("```")[0], names)
    return names["Tell"]


def of_lightning(trial, resume=None):
    from lightning import pytorch as lightning

    class Module(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def training_step(self, batch, index):
            loss = self.layer(batch).square().mean()
            self.log("loss", loss, on_epoch=True)
            return loss

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.1)

    folder = Path(trial.config["folder"])
    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_checkpointing": False,
        "accelerator": "cpu",
    }
    trainer = lightning.Trainer(max_epochs=3, callbacks=[tell("lightning")(folder)], **quiet)
    path = None if resume is None else resume / "last.ckpt"
    trainer.fit(Module(), torch.utils.data.DataLoader(torch.ones(8, 2), 4), ckpt_path=path)


def of_transformers(trial, resume=None):
    import transformers

    class Model(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)

        def forward(self, x, labels):
            out = self.layer(x)
            return {"loss": (out - labels).square().mean(), "logits": out}

    data = [{"x": torch.ones(2), "labels": torch.ones(1)}] * 8
    args = transformers.TrainingArguments(
        trial.config["folder"],
        num_train_epochs=3,
        eval_strategy="epoch",
        report_to=[],
        use_cpu=True,
        save_strategy="no",
    )
    trainer = transformers.Trainer(
        Model(), args, None, data, data, callbacks=[tell("transformers")()]
    )
    trainer.train()
    trainer.evaluate()


def of_keras(trial, resume=None):
    import keras

    model = keras.Sequential([keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    model.fit(np.ones((8, 2)), np.ones((8, 1)), epochs=3, verbose=0, callbacks=[tell("keras")()])


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "library", "metric", "steps"),
    [
        (of_lightning, "lightning", "loss", [1, 2, 3]),
        (of_transformers, "transformers", "eval_loss", [1, 2, 3, 3]),
        (of_keras, "keras", "loss", [1, 2, 3]),
    ],
)
def test_callbacks_of_the_page_report_from_loops_of_libraries(
    function, library, metric, steps, tmp_path
):
    tell(library)
    reports = list(
        find_trainable(Arm(function), "arms.a")(trial_of(tmp_path, function, folder=str(tmp_path)))
    )
    assert [report.step for report in reports] == steps
    assert all(report.metrics[metric] >= 0 for report in reports)


PAGE = (ROOT / "docs/coming-from.md").read_text()


@pytest.fixture
def example(tmp_path, monkeypatch):
    """Return a function that writes an example of the page, a module."""
    monkeypatch.syspath_prepend(tmp_path)

    def write(name):
        (tmp_path / name).write_text(PAGE.partition(f'title="{name}"\n')[2].partition("```")[0])
        monkeypatch.delitem(sys.modules, name.removesuffix(".py"), raising=False)

    return write


def test_an_objective_of_optuna_is_asked_for_what_the_trial_has(example, tmp_path):
    example("tried.py")
    arm = Arm("optuna:tried:objective", {"lr": 0.1, "layers": 2, "optimizer": "adam"})
    assert arm == Arm(
        "contrasweep.commands.functions:optuna", {"calls": "tried:objective", **arm.config}
    )
    train = find_trainable(arm, "arms.a")
    reports = list(
        train(trial_of(tmp_path, "optuna:tried:objective", lr=0.1, layers=2, optimizer="adam"))
    )
    assert [(report.step, report.metrics["objective"]) for report in reports] == [
        (1, 0.2),
        (2, 1.2),
        (3, 2.2),
        (4, 1.2),
    ]
    with refused(
        SpecError, begins="space: an objective suggests what the arm's space has, got 'layers'"
    ):
        list(train(trial_of(tmp_path, "optuna:tried:objective", lr=0.1)))


def test_an_objective_names_a_setting_within_another_by_its_dotted_name(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "dotted.py").write_text(
        "def objective(trial):\n"
        "    assert trial.params == {'optimizer': {'lr': 0.25}, 'optimizer.lr': 0.25}\n"
        "    trial.set_user_attr('of', 3)\n"
        "    assert trial.user_attrs == {'of': 3} and not hasattr(trial, 'number_of_trials')\n"
        "    return [trial.suggest_float('optimizer.lr', 0, 1), 2]\n"
    )
    (tmp_path / "returned.py").write_text("def train(config): return {'accuracy': config['lr']}\n")
    returned = trial_of(tmp_path, "tune:returned:train", lr=0.25)
    (report,) = find_trainable(Arm("tune:returned:train"), "arms.a")(returned)
    assert (report.step, report.metrics) == (1, {"accuracy": 0.25})
    trial = trial_of(tmp_path, "optuna:dotted:objective", optimizer={"lr": 0.25})
    (report,) = find_trainable(Arm("optuna:dotted:objective"), "arms.a")(trial)
    assert report.metrics == {"objective": 0.25, "objective_1": 2}


def test_a_function_of_ray_tune_reports_by_tune(example, tmp_path):
    from ray import tune

    example("tuned.py")
    before = tune.report
    trial = trial_of(tmp_path, "tune:tuned:train", lr=0.25, model={"width": 8})
    reports = list(find_trainable(Arm("tune:tuned:train"), "arms.a")(trial))
    assert [(report.step, report.metrics) for report in reports] == [
        (i, {"accuracy": 0.75, "loss": 8}) for i in (1, 2, 3)
    ]
    assert tune.report is before

    def steps(**until):
        ends = trial_of(tmp_path, "tune:tuned:train", lr=0.25, model={"width": 8}, until=until)
        return len(list(find_trainable(Arm("tune:tuned:train"), "arms.a")(ends)))

    assert (steps(training_iteration=2), steps(accuracy=0.5, training_iteration=9)) == (2, 1)
    with refused(SpecError, begins="until: what ends a trial is reported, got 'acc'; known"):
        steps(acc=1)


SAVES = """
import tempfile
import numpy
from ray import tune
def train(config):
    saved = tune.get_checkpoint()
    start = 0
    if saved:
        with saved.as_directory() as folder:
            start = int(open(f"{folder}/epoch").read())
    for epoch in range(start, 3):
        with tempfile.TemporaryDirectory() as folder:
            open(f"{folder}/epoch", "w").write(str(epoch + 1))
            saved = tune.Checkpoint.from_directory(folder)
            others = {"name": "text", "loss": numpy.array(0.5), "row": numpy.ones(2)}
            tune.report({"accuracy": numpy.float32(epoch), **others}, checkpoint=saved)
"""


def test_a_function_of_ray_tune_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    import shutil

    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "saves_here.py").write_text(SAVES)
    train = find_trainable(Arm("tune:saves_here:train"), "arms.a")
    trial = trial_of(tmp_path, "tune:saves_here:train")
    reports = train(trial)
    next(reports)
    shutil.copytree(next(reports).checkpoint, tmp_path / "kept")
    reports.close()
    assert [(report.step, report.metrics) for report in train(trial, resume=tmp_path / "kept")] == [
        (3, {"accuracy": 2, "loss": 0.5})
    ]


def test_a_function_that_is_not_there_is_refused_by_the_plan():
    with refused(
        SpecError, begins="arms.a.config.calls: the trainable's module cannot be imported, got 'no"
    ):
        SettingsOfArms({"a": Arm("optuna:no_module:f")}).build(
            "a", cs.canonical.Config(Arm("optuna:no_module:f").config)
        )
