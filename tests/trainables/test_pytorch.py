"""What a plan reads of the methods, without PyTorch."""

import os

import pytest
import torch
from command_line import python
from places import ROOT

from contrasweep.trainables import pytorch


def imports_of(code, **environment):
    """Which packages that train a process imported that ran `code`."""
    code += "\nimport sys; print('\\n', *({'torch', 'torchvision', 'scipy', 'sklearn', 'ray'} & set(sys.modules)))"
    paths = os.pathsep.join(map(str, (ROOT / "platform", ROOT)))
    environment = {**os.environ, "PYTHONPATH": paths, **environment}
    done = python("-c", code, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


def test_settings_of_all_methods_and_the_schema_of_studies_need_no_pytorch():
    assert not imports_of(
        "from contrasweep.cli.catalogue import TABLES, descriptions, settings, with_method_settings\n"
        "from contrasweep.study.file import study_schema\n"
        "with_method_settings(study_schema())\n"
        "for kind in sorted(set(TABLES) - {'searchers', 'trackers'}):\n"
        "    for name in descriptions(kind): settings(kind, name)\n"
    )


@pytest.mark.parametrize(
    "config",
    [
        {"learnable_temperature": True, "targets": {"name": "moco", "size": 64}},
        {"loss": {"name": "triplet", "mining": "hard"}, "optimizer": "lars", "encoder": "resnet18"},
        {
            "loss": {"name": "vicreg", "form": "paper"},
            "augmentation": {"name": "photos", "flip": 0.1},
        },
    ],
)
def test_settings_that_are_built_and_checked_need_no_pytorch(config):
    assert not imports_of(
        f"from contrasweep.trainables.contrastive import Settings\nSettings(**{config!r})"
    )


@pytest.mark.slow
def test_a_first_plan_of_the_quickstart_imports_nothing_that_trains(tmp_path):
    """But SciPy, for what the design can decide."""
    imported = imports_of(
        "from contrasweep.cli import main\n"
        "import sys; sys.argv = ['contrasweep', 'plan', 'contrasweep.search_spaces.quickstart:STUDY', '--storage']\n"
        f"sys.argv.append('{tmp_path}')\n"
        "try:\n    main()\nexcept SystemExit as end:\n    assert not end.code\n",
        CONTRASWEEP_CACHE=str(tmp_path / "cache"),
    )
    assert imported <= {"scipy"}


def test_what_stands_for_pytorch_is_pytorch():
    assert isinstance(torch.ones(1), pytorch.Tensor) and not isinstance([1.0], pytorch.Tensor)
    assert pytorch.torch.Tensor is torch.Tensor and pytorch.nn.Module is torch.nn.Module
    assert pytorch.F.relu is torch.nn.functional.relu
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = pytorch.torch.nothing
