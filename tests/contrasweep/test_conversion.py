"""Sweeps of other programs as studies, by the examples of the page for those who come from them."""

import re
from pathlib import Path

import optuna
import pytest
import yaml
from places import ROOT
from ray import tune
from refusals import refused
from typer.testing import CliRunner

from contrasweep import Arm, Choice, Float, Int, SpecError
from contrasweep.cli.app import app
from contrasweep.cli.conversion import converted
from contrasweep.study.file import as_study
from contrasweep.study.space import active

PAGE = (ROOT / "docs/coming-from.md").read_text()
EXAMPLE = re.compile(
    r'```\w+ title="(.+?)"\n(.+?)```\n\n```yaml\n(.+?)```\n((?:\nNo counterpart: `[^\n]+`\n)*)',
    re.S,
)
MORE = Path(__file__).with_name("converted.md").read_text()
EXAMPLES = {found[0]: found[1:] for found in EXAMPLE.findall(PAGE + MORE)}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text("import argparse, wandb")
    return tmp_path


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_becomes_the_study_that_stands_below_it(name, folder):
    source, study, left = EXAMPLES[name]
    (folder / name).write_text(source)
    done = CliRunner().invoke(app, ["init", "new", "--from", name], standalone_mode=False)
    assert done.exception is None, done.exception
    assert yaml.safe_load((folder / "new/study.yaml").read_text()) == yaml.safe_load(study)
    assert re.findall("no counterpart: (.+)", done.stdout) == re.findall("`(.+)`", left)
    as_study(yaml.safe_load(study))


def test_all_programs_have_an_example():
    assert set(EXAMPLES) == {
        "sweep.yaml",
        "tuned.py",
        "tried.py",
        "config.yaml",
        "experiments.yaml",
        "train.py",
    }


WANDB = "program: train.py\nmethod: {}\nparameters:\n  a: {}\n"
SEML = "seml: {executable: x.py}\n"
HYDRA = 'hydra: {sweeper: {params: {x: "int(tag(log, interval(1, 8)))", y: "shuffle(range(3))"}}}'
OPTUNA = "LOW = 0.5\ndef f(t):\n  t.suggest_int('n', 1, 9, step=2)\n  t.suggest_float(name(), 0, 1); t.report(1, 1)\n"
TUNE = "def f(c): ...\ndef main(): tune.run(f, config={'y': tune.randn(), 'x': tune.%s})"
HYPERBAND = "early_terminate: {type: hyperband, s: 2, eta: 3, max_iter: 27}\n"
STRICT = "early_terminate: {type: hyperband, min_iter: 3, strict: true}\n"
STUDY = OPTUNA + "study = optuna.create_study(%s)\ndef main(): study.optimize(f)"
MEDIAN = {"grace_steps": 2, "min_trials": 5}
TUNED = """
def f(c): ...
def main(smoke):
    sched = %s
    stop = {"training_iteration": 1 if smoke else 5, "loss": 0.5}
    config = tune.TuneConfig(num_samples=1 if smoke else 50, scheduler=sched)
    run = tune.RunConfig(stop=stop)
    needs = {"cpu": 2, "gpu": int(smoke) if smoke else 0}
    trained = tune.with_resources(f, needs)
    tune.Tuner(trained, param_space={"x": tune.uniform(0, 1)}, tune_config=config, run_config=run).fit()
"""
WRAPPED = """
def f(c): ...
def main():
    with_data = tune.with_parameters(f, n=1)
    config = tune.TuneConfig(metric="loss", mode="min")
    tune.Tuner(tune.with_resources(with_data, {"cpu": 1}), tune_config=config, param_space={"x": tune.choice([1])})
"""
SEARCHED = TUNED.replace("scheduler=sched", "search_alg=sched")
MORE = "metric: {name: l, target: 3}\nproject: p\ncommand: ['${envvar:A}']"
SWEPT = ["env", "WANDB_MODE=offline", "WANDB_SWEEP_PARAM_PATH={config:wandb}", "python", "train.py"]
SEEDED = [*SWEPT, "--seed", "{seed}", "{args:wandb}"]
PARTS = "seml: {executable: x.py}\ngrid: {a: {type: parameter_collection, params: {b: {type: choice, options: [1]}}}}"
PBT = "def f(c): ...\nsched = PBT({'x': tune.uniform(0, 1)})\nspace = {'x': tune.choice([1]), 'd': %s}\n"
PBT += "space['y'] = tune.choice([2])\ndef main(): tune.run(f, config=space, scheduler=sched)"
NAMED = "from ray.tune import choice as one, run\nimport ray.tune as rt\n"
NAMED += "def f(c): ...\ndef main(): run(f, config={'x': one([1]), 'y': rt.uniform(0, 1)})"
FLAGS = "p.add_argument('-lr', default=0.1); p.add_argument('--no-cuda', action='store_false', default=True)\n"
FLAGS += "p.add_argument('--amp', type=bool, default=True); p.add_argument('-v', action='count', default=0)\n"
FLAGS += "p.add_argument('--ema', action=argparse.BooleanOptionalAction, default=True); p.set_defaults(lr=1)\n"
FLAGS += "p.add_argument('--tag', required=False)"
CASES = [
    ("w.yaml", WANDB.format("grid", "{min: 1, max: 3}"), "axes", {"a": [1, 2, 3]}),
    (
        "w.yaml",
        WANDB.format("random", "{distribution: normal, mu: 0}"),
        "",
        "a: {'distribution': 'normal', 'mu': 0}",
    ),
    (
        "w.yaml",
        WANDB.format("bayes", "{distribution: q_uniform, min: 0, max: 1, q: 0.5}"),
        "a",
        Float(0, 1, step=0.5),
    ),
    ("w.yaml", WANDB.format("bayes", "{parameters: {b: {min: 1, max: 3}}}"), "a.b", Int(1, 3)),
    (
        "w.yaml",
        WANDB.format("bayes", "{distribution: q_uniform, min: 16, max: 64, q: 16}"),
        "a",
        Int(16, 64, step=16),
    ),
    (
        "w.yaml",
        WANDB.format("grid", "{values: [true, false]}") + "command: ['${program}', '${args}']",
        "command",
        [*SWEPT[:3], "train.py", "{args:wandb}"],
    ),
    (
        "w.yaml",
        WANDB.format("grid", "{values: [1]}") + "command: ['${program}', '${args_json_file}']",
        "command",
        [*SWEPT[:3], "train.py", "{config}"],
    ),
    ("s.yaml", PARTS, "axes", {"a.b": [1]}),
    (
        "h.yaml",
        "hydra: {sweeper: {params: {x: 'choice(resnet-18, a/b, yes, True, [b, null], {a: 1})'}}}",
        "x",
        Choice(["resnet-18", "a/b", "yes", True, ["b", None], {"a": 1}]),
    ),
    (
        "h.yaml",
        "hydra: {sweeper: {search_space: {x: {type: int, low: 1, high: 8, log: true}}}}",
        "x",
        Int(1, 8, log=True),
    ),
    (
        "h.yaml",
        "hydra: {sweeper: {search_space: {x: {type: categorical, choices: [1, 2]}, y: {type: odd}}}}",
        "x",
        Choice([1, 2]),
    ),
    ("h.yaml", "hydra: {sweeper: {search_space: {y: {type: odd}}}}", "", "y: {'type': 'odd'}"),
    ("t.py", PBT % "1", "x", Choice([1])),
    ("t.py", PBT % "1", "", "line 2: tune.uniform(0, 1)|line 4: tune.choice([2])"),
    ("t.py", PBT % "'cuda' if cuda() else 'cpu'", "", "d: 'cuda' if cuda() else 'cpu'"),
    ("t.py", PBT % "tune.grid_search([1])", "axes", {"x": [1], "d": [1]}),
    (
        "t.py",
        (PBT % "tune.grid_search([1])").replace("choice([1])", "uniform(0, 1)"),
        "searcher",
        "random",
    ),
    ("t.py", NAMED, "x", Choice([1])),
    ("t.py", "n = [1]\nn += [2]\n" + TUNE % "choice(n)", "", "x: tune.choice(n)"),
    ("t.py", "n = [1]\ndef g(n): ...\n" + TUNE % "choice(n)", "", "x: tune.choice(n)"),
    ("t.py", TUNE.replace("run(f,", "run(partial(f, a=1),") % "choice([1])", "", "partial(f, a=1)"),
    (
        "o.py",
        OPTUNA + "def main(): s.optimize(lambda t: f(t, 1))",
        "",
        "lambda t: f(t, 1)",
    ),
    ("t.py", "import ray.tune.search.optuna\n" + TUNE % "choice([1])", "mode", "max"),
    ("o.py", OPTUNA + "def g(t): ...\ns.optimize(f)\ns.optimize(g)", "trainable", "optuna:o:f"),
    ("t.py", NAMED, "y", Float(0, 1)),
    ("o.py", "# There is much to tune. See there.\n" + STUDY % "", "trainable", "optuna:o:f"),
    ("o.py", OPTUNA + "def main(): optuna.load_study('s').optimize(f)", "mode", "min"),
    ("o.py", OPTUNA + "def main(): s.optimize(f)\nmain()", "", "line 6 runs as the module is"),
    (
        "o.py",
        OPTUNA + "  t.suggest_int('n', 5, 7)\n  s.optimize(f)",
        "",
        "line 5: t.suggest_int('n', 5, 7)",
    ),
    (
        "f.py",
        FLAGS,
        "config",
        {"lr": 0.1, "no-cuda": False, "amp": "True", "v": False, "ema": True},
    ),
    ("f.py", FLAGS, "names", {"lr": "-lr", "v": "-v"}),
    ("f.py", FLAGS, "", "--ema: ema of false leaves|line 3: p.set_defaults(lr=1)"),
    (
        "s.yaml",
        SEML + "random: {lr: {type: loguniform, min: 0.1, max: 1}}",
        "lr",
        Float(0.1, 1, log=True),
    ),
    ("s.yaml", SEML + "random: {samples: 4, n: {type: randint, min: 1, max: 9}}", "n", Int(1, 8)),
    (
        "s.yaml",
        SEML + "grid: {a: {b: {type: range, min: 0, max: 3, step: 1}}}",
        "axes",
        {"a.b": [0, 1, 2]},
    ),
    (
        "s.yaml",
        SEML + "grid: {a: {type: choice, options: [1], zip_id: z}}",
        "",
        "a: {'type': 'choice', 'options': [1]",
    ),
    ("h.yaml", HYDRA, "x", Int(1, 8, log=True)),
    ("h.yaml", HYDRA, "", "y: shuffle(range(3))"),
    ("o.py", OPTUNA + "s.optimize(f)", "n", Int(1, 9, step=2)),
    ("o.py", OPTUNA, "type", "sweep"),
    ("o.py", OPTUNA + "s.optimize(f)", "", "line 4: t.suggest_float(name(), 0, 1)"),
    ("o.py", OPTUNA + "s.optimize(f)", "", "line 5 runs as the module is imported; put it below"),
    (
        "o.py",
        OPTUNA + "  t.suggest_discrete_uniform('x', LOW, 2.5, 1)\n  s.optimize(f)",
        "x",
        Float(0.5, 2.5, step=1),
    ),
    ("t.py", TUNE % "quniform(0, 1, 0.25)", "x", Float(0, 1, step=0.25)),
    ("t.py", TUNE % "uniform(0, 1)", "", "y: tune.randn()"),
    ("t.py", TUNE % "grid_search([1, 2])", "axes", {"x": [1, 2]}),
    ("t.py", "n = 1 if short else n\n" + TUNE % "choice(n)", "", "x: tune.choice(n)"),
    (
        "w.yaml",
        WANDB.format("bayes", "{min: 1, max: 3}") + HYPERBAND,
        "pruner_options",
        {"reduction": 3, "min_step": 3},
    ),
    (
        "w.yaml",
        WANDB.format("grid", "{values: [1]}") + HYPERBAND,
        "",
        "early stopping: {'pruner': 'asha', ",
    ),
    (
        "w.yaml",
        WANDB.format("bayes", "{min: 1, max: 3}") + STRICT,
        "",
        "early_terminate: {'type': 'hyperband', 'min_",
    ),
    (
        "o.py",
        STUDY % "pruner=optuna.pruners.MedianPruner(n_warmup_steps=2)",
        "pruner_options",
        MEDIAN,
    ),
    ("o.py", STUDY % "sampler=optuna.samplers.RandomSampler(seed=1)", "searcher", "random"),
    ("o.py", STUDY % "sampler=optuna.samplers.RandomSampler(seed=1)", "search_seed", 1),
    ("o.py", STUDY % "sampler=TPESampler(seed=1000)", "", "sampler: seed=1000"),
    (
        "o.py",
        STUDY % "pruner=optuna.pruners.WilcoxonPruner()",
        "",
        "pruner: optuna.pruners.WilcoxonPruner()",
    ),
    (
        "o.py",
        STUDY.replace("report", "note") % "pruner=MedianPruner()",
        "",
        "pruner: the objective reports no value before its last",
    ),
    ("t.py", TUNED % "PopulationBasedTraining()", "", "scheduler: PopulationBasedTraining()"),
    ("t.py", TUNED % "HyperBandScheduler(reduction_factor=4)", "pruner_options", {"reduction": 4}),
    (
        "t.py",
        TUNED % "ASHAScheduler(max_t=9)",
        "config",
        {"until": {"training_iteration": 5, "loss": 0.5}},
    ),
    ("t.py", TUNED % "ASHAScheduler(max_t=9)", "trials_per_arm", 50),
    ("t.py", TUNED % "ASHAScheduler(max_t=9)", "resources", {"cpus": 2}),
    ("w.yaml", WANDB.format("custom", "{values: [1], probabilities: [1]}") + MORE, "mode", "min"),
    (
        "w.yaml",
        WANDB.format("custom", "{values: [1], probabilities: [1]}") + MORE,
        "",
        "method: custom; the search is by tpe|a.probabilities: [1]|metric.target: 3|project: p|command: ${envvar:A}",
    ),
    ("w.yaml", WANDB.format("grid", "{value: 1}\n  seed: {values: [3, 4]}"), "command", SEEDED),
    ("s.yaml", SEML + "grid: {seed: {type: choice, options: [3, 4]}}", "seeds", [3, 4]),
    (
        "s.yaml",
        SEML + "grid: {a: &c {type: choice, options: [1, 2]}}\nmain: {grid: {b: *c, c: *c}}",
        "trials_per_arm",
        8,
    ),
    (
        "s.yaml",
        SEML + "grid: {a: &c {type: choice, options: [1, 2]}}\nrandom: {samples: 4, a_drawn: *c}",
        "trials_per_arm",
        8,
    ),
    (
        "s.yaml",
        "seml: {output_dir: logs}\nrandom: {samples: 4, seed: 7}\nsmall: {fixed: {a: 1}, tiny: {fixed: {b: 1}}}",
        "",
        "seml.output_dir: logs|random.seed: 7|small.tiny: {'fixed': {'b': 1}}",
    ),
    (
        "h.yaml",
        HYDRA.replace("params", "sampler: {_target_: a.GPSampler, seed: 1}, params"),
        "searcher",
        "gp",
    ),
    (
        "h.yaml",
        "defaults: [override hydra/launcher: joblib]\n"
        + HYDRA.replace("params", "sampler: {seed: 1}, n_jobs: 4, params"),
        "search_seed",
        1,
    ),
    (
        "h.yaml",
        "defaults: [override hydra/launcher: joblib]\n"
        + HYDRA.replace("params", "sampler: {seed: 1000}, n_jobs: 4, params"),
        "",
        "hydra.launcher: joblib|hydra.sampler.seed: 1000|n_jobs: 4",
    ),
    (
        "f.py",
        "p.add_argument('data'); p.add_argument('--out', required=True)",
        "",
        "data: the script needs|--out: the",
    ),
    (
        "o.py",
        STUDY.replace("(f)", "(f, 7, timeout=60)")
        % "storage='x', sampler=PartialFixedSampler({}), directions=['minimize']",
        "",
        "timeout: 60|storage: 'x'|sampler: PartialFixedSampler; the search is by tpe|directions: ['minimize']",
    ),
    ("o.py", STUDY.replace("(f)", "(f, 7)") % "", "trials_per_arm", 7),
    ("o.py", STUDY.replace("(f)", "(f, args.n)") % "", "", "n_trials: args.n; 20 stand for it"),
    ("o.py", STUDY % "study_name='my first'", "name", "my-first"),
    ("o.py", STUDY % "", "mode", "min"),
    (
        "o.py",
        STUDY % "sampler=TPESampler(multivariate=True), pruner=MedianPruner(interval_steps=3)",
        "",
        "sampler: multivariate=True|pruner: interval_steps=3",
    ),
    ("t.py", TUNED % "None", "searcher", "random"),
    (
        "t.py",
        TUNED % "ASHAScheduler(metric='loss', mode='min', brackets=3)",
        "",
        "scheduler: brackets=3",
    ),
    ("t.py", TUNED % "ASHAScheduler(metric='loss', mode='min', brackets=3)", "metric", "loss"),
    ("t.py", SEARCHED % "OptunaSearch(metric='loss', sampler=CmaEsSampler())", "searcher", "cmaes"),
    (
        "t.py",
        SEARCHED % "BayesOptSearch()\n    sched = ConcurrencyLimiter(sched, max_concurrent=4)",
        "searcher",
        "gp",
    ),
    (
        "t.py",
        SEARCHED % "ConcurrencyLimiter(AxSearch(), max_concurrent=4)",
        "",
        "search_alg: ConcurrencyLimiter: max_concurrent=4|search_alg: AxSearch; the search is by tpe",
    ),
    (
        "t.py",
        "class F: pass\ndef main(): tune.Tuner(F, param_space={'x': tune.choice([1])})",
        "",
        "trainable: no function at the top",
    ),
    (
        "t.py",
        SEARCHED.replace("def f", "class f: pass\ndef g") % "None",
        "",
        "trainable: no function at the top",
    ),
    (
        "t.py",
        TUNED.replace("scheduler=sched", "time_budget_s=60").replace('"gpu":', '"tpu": 1, "gpu":')
        % 1,
        "",
        "time_budget_s: 60|resources: tpu: 1",
    ),
    (
        "t.py",
        TUNE.replace("(f,", "(tune.with_parameters(f, a=1),") % "choice([1]), **b",
        "",
        "tune.with_par|**b",
    ),
    ("t.py", WRAPPED, "trainable", "tune:t:f"),
    ("t.py", WRAPPED + "asyncio.run(main())", "trainable", "tune:t:f"),
    ("t.py", WRAPPED.replace("def f", "class f: pass\ndef g"), "metric", "loss"),
    ("t.py", TUNE % "uniform(lower=0, upper=1)", "x", Float(0, 1)),
    ("t.py", "net(mode='nearest')\n" + TUNE % "choice([1])", "mode", "max"),
    (
        "t.py",
        TUNE.replace("config=", "resources_per_trial={'gpu': 1}, config=") % "choice([1])",
        "resources",
        {"gpus": 1},
    ),
    (
        "t.py",
        TUNED.replace("if smoke else 0", "") % "ASHAScheduler()",
        "",
        "line 9: tune.with_resources(f, needs)",
    ),
]


@pytest.mark.parametrize(("name", "text", "place", "wanted"), CASES)
def test_each_kind_of_parameter_is_what_it_was_or_is_named(name, text, place, wanted, folder):
    (folder / name).write_text(text)
    study, left = converted(folder / name)
    if not place:
        for start in wanted.split("|"):
            assert any(line.startswith(start) for line in left), left
    else:
        found = {**study, **study["arms"]["main"], **as_study(study).arms["main"].space}
        assert found[place] == wanted


CONDITIONAL = """
def objective(trial):
    optimizer = trial.suggest_categorical("optimizer", ["sgd", "adam", "lion"])
    nesterov = trial.suggest_categorical("nesterov", [True, False])
    layers = trial.suggest_int("layers", 1, 4)
    if optimizer == "sgd":
        trial.suggest_float("momentum", 0, 0.9)
        decay = trial.suggest_float("decay", 0, 1) if not nesterov else 0
        if nesterov:
            trial.suggest_float("lookahead", 0, 1)
    elif optimizer != "lion":
        trial.suggest_float("beta", 0, 0.9)
        trial.suggest_int("warmup", 1, 5)
    else:
        trial.suggest_int("warmup", 1, 5)
    if layers > 2:
        trial.suggest_float("dropout", 0, 0.5)
        width = trial.suggest_int("width", 1, 8)
    if layers in (1, 3):
        trial.suggest_float("skip", 0, 0.5)
        width = trial.suggest_int("width", 1, 8)
    {0}
    return layers
def main(): study.optimize(objective)
"""


def test_parameters_of_optuna_below_an_if_exist_where_optuna_suggests_them(folder):
    (folder / "o.py").write_text(CONDITIONAL.format(""))
    study, left = converted(folder / "o.py")
    space = as_study(study).arms["main"].space
    names = {}
    exec((folder / "o.py").read_text(), names)
    tried = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=1))
    tried.optimize(names["objective"], n_trials=60)
    for trial in tried.trials:
        assert {name for name in space if active(space[name].when, trial.params)} == {*trial.params}
    assert not left and len(space) == 11
    # What a condition says in any other way is named.
    for line in (
        "if trial.number > 3: trial.suggest_int('late', 1, 2)",
        "if layers > 9: trial.suggest_int('late', 1, 2)",
    ):
        (folder / "o.py").write_text(CONDITIONAL.format(line))
        study, left = converted(folder / "o.py")
        assert left == ["late: the condition of line 22; write `when`"]
        assert "when" not in study["arms"]["main"]["space"]["late"]
    # So is a line that may end the objective first.
    late = "if layers > 2 and layers < 9: raise optuna.TrialPruned\n    trial.suggest_int('late', 1, 2)"
    (folder / "o.py").write_text(CONDITIONAL.format(late))
    _, (line,) = converted(folder / "o.py")
    assert line.startswith("line 22 may end the function before it suggests late; write `when` if")


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("sweep.yaml", "parameters: []"),
        ("sweep.yaml", "parameters: {lr: 3}"),
        ("sweep.yaml", "metric: acc\nparameters: {lr: {min: 0, max: x}}"),
        ("sweep.yaml", "parameters: {lr: {distribution: log_uniform, min: 1, max: 10000}}"),
        ("sweep.yaml", "seml: 3"),
        ("sweep.yaml", "seml: {executable: x.py}\ngrid: {lr: {type: choice}}"),
        (
            "sweep.yaml",
            "seml: {executable: x.py}\ngrid: {lr: {type: range, min: 0, max: 1.0e+12, step: 1}}",
        ),
        (
            "sweep.yaml",
            "seml: {executable: x.py}\ngrid: {lr: {type: uniform, min: 0, max: 1, num: 1000000000000}}",
        ),
        ("sweep.yaml", "hydra: {sweeper: {params: 3}}"),
        ("sweep.yaml", b"\xff\xfe"),
        ("tuned.py", "def f(:"),
        (
            "tuned.py",
            "def objective(trial):\n    return trial.suggest_float('x', 0)\nstudy.optimize(objective)",
        ),
        ("nothing.yaml", None),
    ],
)
def test_what_is_wrong_in_a_file_of_another_program_is_one_line(name, content, folder):
    if content is not None:
        (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with refused(
        SpecError, name, match=r"^--from: this file breaks a rule of the program that it is for"
    ):
        converted(Path(name))


def test_a_function_of_a_script_elsewhere_is_refused(folder, tmp_path_factory):
    script = tmp_path_factory.mktemp("elsewhere") / "o.py"
    script.write_text(OPTUNA + "def main(): s.optimize(f)")
    with refused(SpecError, match=r"from below the current folder, got .*; go to the script"):
        converted(script)


@pytest.mark.parametrize("method", ["random", "grid"])
def test_a_range_of_four_thousand_million_seeds_is_searched_and_not_listed(method, folder):
    text = "method: METHOD\nprogram: train.py\nparameters: {s: {min: 0, max: 4294967295}}".replace(
        "METHOD", method
    )
    (folder / "sweep.yaml").write_text(text)
    study, _ = converted(Path("sweep.yaml"))
    assert study["type"] == "sweep" and study["arms"]["main"]["space"]["s"]["high"] == 4294967295


@pytest.mark.filterwarnings("ignore:.*Distribution has been deprecated:FutureWarning")
def test_objects_of_ray_tune_and_optuna_declare_a_space():
    of_optuna = optuna.distributions
    space = {
        "a": (tune.loguniform(1e-4, 0.1), Float(1e-4, 0.1, log=True)),
        "b": (tune.randint(1, 5), Int(1, 4)),
        "c": (tune.quniform(0, 1, 0.25), Float(0, 1, step=0.25)),
        "d": (tune.choice(["x", "y"]), Choice(["x", "y"])),
        "e": (tune.grid_search([1, 2]), Choice([1, 2])),
        "f": (of_optuna.FloatDistribution(0.1, 1, log=True), Float(0.1, 1, log=True)),
        "g": (of_optuna.IntDistribution(2, 8, step=2), Int(2, 8, step=2)),
        "h": (of_optuna.CategoricalDistribution([1, None]), Choice([1, None])),
        "i": (tune.lograndint(1, 100), Int(1, 99, log=True)),
        "j": (of_optuna.LogUniformDistribution(0.1, 1), Float(0.1, 1, log=True)),
        "k": (of_optuna.DiscreteUniformDistribution(0, 1, 0.5), Float(0, 1, step=0.5)),
        "l": (of_optuna.IntUniformDistribution(1, 5), Int(1, 5)),
    }
    arm = Arm("contrastive", space={name: theirs for name, (theirs, _) in space.items()})
    assert arm.space == {name: ours for name, (_, ours) in space.items()}
    with refused(
        SpecError,
        match=r"this parameter of Ray Tune cannot be searched, .*tune._Normal has no counter",
    ):
        Arm("contrastive", space={"x": tune.randn()})


def test_init_takes_the_one_script_of_a_folder_and_overwrites_nothing(folder):
    for says in (None, "FOLDER: there is a study already, got 'study.yaml'"):
        done = CliRunner().invoke(app, ["init"], standalone_mode=False)
        assert str(done.exception or None)[: len(says or "None")] == str(says)
    assert yaml.safe_load((folder / "study.yaml").read_text())["arms"]["main"]["command"][:2] == [
        "python",
        "train.py",
    ]
    (folder / "notes.yaml").write_text("a: 1")
    with refused(SpecError, begins="--from: this file holds no sweep that is known, got "):
        converted(folder / "notes.yaml")


def test_what_a_block_of_seml_fixes_is_not_searched_in_its_arm(folder):
    drawn = "random: {samples: 4, lr: {type: uniform, min: 0, max: 1}, n: {type: uniform, min: 0, max: 1}}"
    (folder / "s.yaml").write_text(
        f"{SEML}{drawn}\nsmall: {{fixed: {{lr: 0.5}}}}\nlarge: {{fixed: {{m: 1}}}}\n"
    )
    arms = converted(folder / "s.yaml")[0]["arms"]
    assert (arms["small"]["config"]["lr"], set(arms["small"]["space"])) == (0.5, {"n"})
    assert set(arms["large"]["space"]) == {"lr", "n"}
