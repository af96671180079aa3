"""Memory and work of a step: against the LOCAL paper's Table 1, published times, hand counts, and laws."""

import functools
import random

import pytest
import torch
import torchvision
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refused
from torch import nn

from contrasweep.cluster.errors import ClusterError
from contrasweep.cluster.inventory import GPU_MODELS
from contrasweep.cluster.memory import (
    GIB,
    LAUNCH_S,
    NO_WORK,
    TURN_S,
    UTILISATION,
    Work,
    Workload,
    count,
)
from contrasweep.planning.learned import MARGIN, MARGIN_UNMEASURED, Calibration

TABLE_1_MIB = {(8, 512): 9753, (16, 512): 17495, (8, 256): 4303, (16, 256): 6153}
"""LOCAL, Table 1: (batch size, pixels) -> GPU memory; ResNet-50, both images of a pair in one pass, Adam."""


@functools.cache
def paper_count(batch_size, pixels):
    return count(torchvision.models.resnet50, (2 * batch_size, 3, pixels, pixels)).gib


def test_table_1_two_rows_calibrated_two_predicted_within_5_percent():
    counted = {row: paper_count(*row) for row in TABLE_1_MIB}
    learned = Calibration()
    for row in ((8, 256), (16, 256)):
        learned.observe("paper/resnet50", counted[row], TABLE_1_MIB[row] / 1024)
    for row, measured in TABLE_1_MIB.items():
        predicted = learned.predict("paper/resnet50", counted[row]) * 1024
        tolerance = 0.005 if row[1] == 256 else 0.05
        assert predicted == pytest.approx(measured, rel=tolerance), row


def test_count_of_a_small_network_by_hand():
    """Linear keeps its input [5 7], ReLU its output [5 11], which the second Linear keeps too: once."""
    counted = count(lambda: nn.Sequential(nn.Linear(7, 11), nn.ReLU(), nn.Linear(11, 3)), (5, 7))
    assert counted.saved == 4 * (5 * 7 + 5 * 11)
    assert counted.parameters == 4 * (7 * 11 + 11 + 11 * 3 + 3)
    assert counted.gib == pytest.approx((counted.saved + 4 * counted.parameters) / GIB)


def test_count_agrees_with_real_tensors():
    """The same hook on a real forward pass keeps the same bytes as on a fake one."""
    model = torchvision.models.resnet18().train()
    own = {p.untyped_storage().data_ptr() for p in (*model.parameters(), *model.buffers())}
    kept = {}

    def keep(tensor):
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        output = model(torch.randn(4, 3, 32, 32))
    assert count(torchvision.models.resnet18, (4, 3, 32, 32)).saved == sum(
        s.nbytes() for s in kept.values()
    )
    assert output.shape == (4, 1000)


def test_transformers_that_begin_with_truncated_normals_are_counted():
    """Such values are drawn until all of them fit, which fake tensors cannot tell."""
    from torch.nn import init
    from torchvision.models import VisionTransformer

    def model():
        return VisionTransformer(
            image_size=16, patch_size=8, num_layers=2, num_heads=2, hidden_dim=16, mlp_dim=32
        )

    drawn = init._no_grad_trunc_normal_
    assert count(model, (2, 3, 16, 16)) == count(model, (2, 3, 16, 16), fake=False)
    assert init._no_grad_trunc_normal_ is drawn


def test_half_precision_keeps_about_half_and_a_cast_of_the_weights():
    full = count(torchvision.models.resnet18, (64, 3, 64, 64))
    half = count(torchvision.models.resnet18, (64, 3, 64, 64), precision="bf16")
    activations = half.saved - half.parameters / 2
    assert 0.45 < activations / full.saved < 0.55
    assert half.parameters == full.parameters


def test_several_inputs_frozen_weights_and_the_loss_count():
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.frozen = nn.Linear(8, 8).requires_grad_(False)
            self.head = nn.Linear(8, 4)

        def forward(self, before, after):
            return self.head(self.frozen(before) - self.frozen(after))

    def inputs():
        return torch.randn(6, 8), torch.randn(6, 8)

    plain = count(Pair, inputs)
    assert plain.parameters == 4 * (8 * 4 + 4)
    with_loss = count(Pair, inputs, loss=lambda z: torch.logsumexp(z @ z.T, 1).mean())
    assert with_loss.saved > plain.saved


def test_a_model_that_looks_at_values_is_refused_in_one_line():
    class Looks(nn.Module):
        def forward(self, x):
            return x * x.sum().item()

    with refused(ClusterError, match="cannot be counted without running it"):
        count(Looks, (2, 2))


def test_what_is_resident_counts_and_is_scaled_with_the_rest():
    workload = Workload("tiny", (2,), lambda: nn.Linear(4, 4), (2, 4), resident_bytes=3 * GIB)
    assert workload.count().gib == pytest.approx(3, abs=1e-5)
    assert Calibration(prior=(0.5, 2.0)).predict("k", workload.count().gib) == pytest.approx(
        6.5, abs=1e-4
    )


def test_margin_narrows_after_five_measurements():
    learned = Calibration()
    for seen in range(6):
        assert learned.margin("k") == (MARGIN if seen >= 5 else MARGIN_UNMEASURED)
        learned.observe("k", 1.0, 2.0 + seen / 100)


@given(a=st.floats(0.2, 4), b=st.floats(0.9, 1.6), seed=st.integers(0, 2**20))
@settings(max_examples=30)
def test_learns_the_constants_of_a_host_within_a_few_percent(a, b, seed):
    """Twelve peaks with 1 % noise give a prediction within 5 % elsewhere in the range."""
    draw = random.Random(seed)
    learned = Calibration()
    for i in range(12):
        counted = 0.5 + i
        learned.observe("host", counted, (a + b * counted) * (1 + draw.gauss(0, 0.01)))
    for counted in (0.75, 5.2, 11.7):
        assert learned.predict("host", counted) == pytest.approx(a + b * counted, rel=0.05)


def test_a_new_key_begins_with_what_the_others_say():
    learned = Calibration()
    for counted in (1.0, 2.0, 4.0, 8.0):
        learned.observe("A100/resnet50", counted, 3.0 + 1.3 * counted)
    assert learned.predict("A100/resnet18", 3.0) == pytest.approx(3.0 + 1.3 * 3.0, rel=0.02)
    assert learned.margin("A100/resnet18") == MARGIN_UNMEASURED


def test_never_below_what_was_seen_or_overflowed():
    learned = Calibration()
    learned.observe("k", 1.0, 9.0)
    for counted in (2.0, 3.0, 4.0):
        learned.observe("k", counted, counted + 1)
    assert learned.predict("k", 1.0) >= 9.0
    learned.observe_out_of_memory("k", 3.0, 12.0)
    assert learned.predict("k", 3.0) > 12.0


def test_a_matrix_product_by_hand():
    """[8 16] by [16 4]: a product and a sum for each of 8 x 16 x 4, three passes; float32 in and out, without bias."""
    work = count(lambda: nn.Linear(16, 4, bias=False), (8, 16)).work
    assert work == Work(3 * 2 * 8 * 16 * 4, 3 * 4 * (8 * 16 + 16 * 4 + 8 * 4), 3)


def test_views_and_what_has_no_tensors_cost_nothing():
    shaped = nn.Sequential(
        nn.Flatten(), nn.Unflatten(1, (4, 4)), nn.Flatten(), nn.Linear(16, 4, bias=False)
    )
    assert (
        count(lambda: shaped, (8, 4, 4)).work
        == count(lambda: nn.Linear(16, 4, bias=False), (8, 16)).work
    )


def test_real_tensors_are_counted_as_fake_ones():
    def build():
        return nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 2)
        )

    counted, real = (
        count(build, lambda: (torch.zeros(4, 3, 8, 8),), fake=fake).work for fake in (True, False)
    )
    assert counted == real and counted.operations > 0


@pytest.mark.parametrize(
    ("gpu", "precision", "images_per_s"),
    [
        ("V100", "fp32", 367),
        ("V100", "fp16", 1200),
        ("A100-80G", "fp32", 938),
        ("A100-80G", "fp16", 2470),
    ],
)
def test_resnet50_takes_about_what_nvidia_publishes(gpu, precision, images_per_s):
    """DeepLearningExamples, ResNet50 v1.5 for PyTorch, training on one GPU of a DGX-1 16GB and of a DGX A100 80GB."""
    work = count(torchvision.models.resnet50, (128, 3, 224, 224), precision=precision).work
    assert 0.9 < work.seconds(gpu, in_half=precision != "fp32") / (128 / images_per_s) < 1.6


def test_operations_run_at_the_stated_utilisation_and_trials_on_a_gpu_share_it():
    work = Work(operations=1e15, kernels=1)
    launches = Work(operations=1.0, kernels=1000)
    peak = 1e12 * GPU_MODELS["H100"].half
    assert work.seconds("H100", in_half=True) == pytest.approx(1e15 / (UTILISATION * peak))
    assert work.seconds("H100", in_half=True, share=1 / 12) == pytest.approx(
        12 * work.seconds("H100", in_half=True)
    )
    # The work of a step is counted for each GPU of a trial, so further GPUs do not divide it again.
    assert work.seconds("H100", in_half=True, share=2) == work.seconds("H100", in_half=True)
    assert (
        launches.seconds("H100", in_half=True)
        == launches.seconds("H100", in_half=True, share=1 / 2)
        == 1000 * LAUNCH_S
    )
    assert launches.seconds("H100", in_half=True, share=1 / 12) == pytest.approx(12 * 1000 * TURN_S)


@pytest.mark.parametrize(("processes", "images_per_s"), [(1, 2812), (4, 7358), (8, 7913)])
def test_small_networks_train_about_as_measured_on_an_h100(processes, images_per_s):
    """ResNet-18 and a head, batch 16 at 32 px, float32 (benchmarks/results/gpu.md)."""
    work = count(
        lambda: nn.Sequential(torchvision.models.resnet18(), nn.Linear(1000, 128)), (32, 3, 32, 32)
    ).work
    seconds = work.seconds("H100", in_half=False, share=1 / processes)
    assert 0.8 < seconds / (32 * processes / images_per_s) < 1.25


def test_what_is_not_known_has_no_seconds():
    assert Work(1e12, 1e9, 1).seconds("GTX9999", in_half=False) is None
    assert NO_WORK.seconds("A100", in_half=False) is None


def test_an_lstm_counts_its_four_gates_in_every_word():
    work = count(lambda: nn.LSTM(5, 7, batch_first=True), (3, 11, 5)).work
    assert work.operations == 3 * 2 * (3 * 11) * 4 * 7 * (5 + 7), (
        "three passes of multiplications and additions"
    )


def test_parts_of_a_batch_are_scaled_and_their_kernels_are_not():
    one = Workload("tiny", (2,), lambda: nn.Linear(4, 4), (2, 4)).count().work
    ten = Workload("tiny", (2,), lambda: nn.Linear(4, 4), (2, 4), parts=10).count().work
    assert ten == Work(10 * one.operations, 10 * one.moved, one.kernels)
