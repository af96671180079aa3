"""The work of a step: operations and bytes by hand, seconds beside published ones."""

import pytest
import torch
import torchvision
from torch import nn

from contrasweep.cluster.memory import LAUNCH_S, NO_WORK, Work, Workload, count


def test_a_matrix_product_by_hand():
    """[8 16] by [16 4]: a product and a sum for each of 8 x 16 x 4, three passes; float32 in and out, without bias."""
    work = count(lambda: nn.Linear(16, 4, bias=False), (8, 16)).work
    assert work == Work(3 * 2 * 8 * 16 * 4, 3 * 4 * (8 * 16 + 16 * 4 + 8 * 4), 3)


def test_views_and_what_has_no_tensors_cost_nothing():
    shaped = nn.Sequential(nn.Flatten(), nn.Unflatten(1, (4, 4)), nn.Flatten(), nn.Linear(16, 4, bias=False))
    assert count(lambda: shaped, (8, 4, 4)).work == count(lambda: nn.Linear(16, 4, bias=False), (8, 16)).work


def test_real_tensors_are_counted_as_fake_ones():
    def build() -> nn.Module:
        return nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 2))

    counted, real = (count(build, lambda: (torch.zeros(4, 3, 8, 8),), fake=fake).work for fake in (True, False))
    assert counted == real and counted.operations > 0


@pytest.mark.parametrize(
    ("gpu", "precision", "images_per_s"),
    [("V100", "fp32", 367), ("V100", "fp16", 1200), ("A100-80G", "fp32", 938), ("A100-80G", "fp16", 2470)],
)
def test_resnet50_takes_about_what_nvidia_publishes(gpu, precision, images_per_s):
    """DeepLearningExamples, ResNet50 v1.5 for PyTorch, training on one GPU of a DGX-1 16GB and of a DGX A100 80GB."""
    work = count(torchvision.models.resnet50, (128, 3, 224, 224), precision=precision).work
    counted = work.seconds(gpu, half=precision != "fp32")
    assert 0.6 < counted / (128 / images_per_s) < 1.1


def test_small_steps_are_bound_by_launches_on_every_gpu():
    work = count(torchvision.models.resnet18, (8, 3, 32, 32)).work
    assert work.seconds("H100", half=False) == work.seconds("L4", half=True) == work.kernels * LAUNCH_S


def test_what_is_not_known_has_no_seconds():
    assert Work(1e12, 1e9, 1).seconds("GTX9999", half=False) is None
    assert NO_WORK.seconds("A100", half=False) is None


def test_parts_of_a_batch_are_scaled_and_their_kernels_are_not():
    one = Workload("tiny", (2,), lambda: nn.Linear(4, 4), (2, 4)).count().work
    ten = Workload("tiny", (2,), lambda: nn.Linear(4, 4), (2, 4), parts=10).count().work
    assert ten == Work(10 * one.operations, 10 * one.moved, one.kernels)
