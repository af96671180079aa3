"""Hours of a study of which nothing has run: by the counted work of its steps, on GPUs whose peaks are known."""

import pytest
from command_line import printed, shown_json
from places import ROOT

from contrasweep import AblationGrid, Arm
from contrasweep.cluster.inventory import Gpu, Inventory, Node
from contrasweep.data import stage
from contrasweep.data.names import parse
from contrasweep.data.published import described
from contrasweep.errors import SpecError
from contrasweep.planning.footprints import Footprints
from contrasweep.planning.learned import Learned
from contrasweep.planning.planner import plan, plan_staged

EXAMPLE = str(ROOT / "docs/cluster/example-inventory.yaml")
CONFIG = {"loss": "supcon", "encoder": {"name": "resnet18"}, "epochs": 10, "batch_size": 64}


def seconds(gpu, tmp_path, **config):
    """Of a trial on digits, as a plan for hosts with this GPU counts it."""
    study = AblationGrid(
        "s",
        {"a": Arm("contrasweep.trainables.contrastive:train", config=CONFIG | config)},
        "digits",
        folds=5,
    )
    trial = plan(study, storage=str(tmp_path)).trials[0]
    inventory = Inventory((Node(16, 64, gpus=1 if gpu else 0, gpu=gpu),))
    return Footprints(study, inventory, Learned()).seconds(trial)


def test_seconds_are_those_of_the_steps_on_the_gpus_scale(tmp_path):
    """As on a GPU of speed 1: an A100 declared three times as fast takes a third of what is counted."""
    once = seconds(Gpu("A100", 39.4), tmp_path)
    assert once is not None and once > 0
    assert seconds(Gpu("A100", 39.4), tmp_path, epochs=20) == pytest.approx(2 * once)
    assert seconds(Gpu("A100", 39.4, speed=3.0), tmp_path) == pytest.approx(3 * once)
    assert seconds(Gpu("A100", 39.4), tmp_path, encoder={"name": "resnet50"}) > once


def test_no_seconds_without_a_gpu_whose_peak_is_known(tmp_path):
    assert seconds(None, tmp_path) is None
    assert seconds(Gpu("GTX9999", 8.0), tmp_path) is None
    assert seconds(Gpu("A100", 39.4), tmp_path, device="cpu") is None


def test_a_plan_of_a_paper_has_hours_with_nothing_staged(tmp_path, monkeypatch):
    monkeypatch.delenv("CONTRASWEEP_DATA", raising=False)
    words = "plan", "contrasweep.search_spaces.similarity_losses:CASE_STUDY", "--cluster", EXAMPLE
    done = printed(tmp_path, *words)
    assert "\ntime      about " in done
    assert "counted work of training steps at 0.3 of the GPUs' peak" in done
    assert (
        "missing   cifar10: 2 cells, 10 trials, planned by what its paper says; not staged: "
        in done
    )
    shown = shown_json(tmp_path, *words)
    assert shown["hours_are_counted"] and shown["hours"] > 1
    assert shown["makespan"]["gpu_hours"] > shown["hours"]
    assert [one["described"] for one in shown["missing"]] == [True, True] and shown["trials"] == 20
    assert list(tmp_path.iterdir()) == []


def test_what_a_paper_says_of_a_dataset():
    lt = described("cifar10-lt")
    half = described("cifar10-lt?imbalance_factor=50")
    assert (lt.rows("train"), lt.rows("test"), len(lt.classes)) == (
        12_406,
        10_000,
        10,
    )  # LDAM-DRW, imbalance 100
    assert half.rows("train") == 13_996 and half.digest != lt.digest
    large = described("imagenet-lt?size=112")
    assert large.columns["image"]["shape"] == [112, 112, 3]
    assert large.columns["image"]["encoding"] == "image"
    as_they_are = described("imagenet-lt?size=null")
    assert as_they_are and as_they_are.columns["image"]["shape"] == [0, 0, 3]
    pairs = described("hra")
    assert (
        pairs.rows("train") == 3_389 and pairs.kind == "image-pair" and not pairs.rows("test")
    )  # LOCAL, section 4
    assert described("image-folder") is None
    with pytest.raises(SpecError, match="size"):
        described("imagenet-lt?size=0")


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("sick", "sick"),
        (
            "contrasweep.trainables.review_helpfulness.datasets:CLOTHING_REVIEWS",
            "reviews/womens_clothing_reviews.csv.zip",
        ),
    ],
)
def test_what_is_published_of_real_data_is_what_is_staged(tmp_path, shared, name, source):
    wanted = parse(name)
    staged = stage(
        wanted.name,
        str(tmp_path / "to"),
        source=shared / "data" / source,
        settings=dict(wanted.settings),
    )
    published = described(name)
    assert (published.kind, published.classes, published.columns) == (
        staged.kind,
        staged.classes,
        staged.columns,
    )
    assert {split: published.rows(split) for split in staged.splits} == {
        s: staged.rows(s) for s in staged.splits
    }


def test_a_described_dataset_is_as_it_will_be_staged(storage, monkeypatch):
    """CIFAR-10's own class counts and shapes: all that a memory hook reads is the same as of staged data."""
    monkeypatch.delenv("CONTRASWEEP_DATA", raising=False)
    study = AblationGrid(
        "s",
        {"a": Arm("contrasweep.trainables.contrastive:train", config=CONFIG)},
        "cifar10-lt",
        folds=5,
    )
    planned, (missing,) = plan_staged(study, storage=storage)
    (data,) = planned.datasets.values()
    assert missing.described and data.folds.count == 5
    assert data.kind == "image"
    assert data.columns["image"] == {
        "dtype": "uint8",
        "shape": [32, 32, 3],
    }
