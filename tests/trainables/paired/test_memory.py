"""What a pair trial says of its memory: the shapes that it will see, and its images on the device counted once."""

from dataclasses import replace

import pytest

from contrasweep.trainables.paired_images import memory

SMALL = {"encoder": {"name": "resnet10", "width": 8}, "batch_size": 4}


def taken(pairs, shape, **config):
    columns = {name: {**spec, "shape": list(shape)} for name, spec in pairs.columns.items()}
    return memory(SMALL | config, replace(pairs, columns=columns))


@pytest.mark.parametrize(("image_size", "side"), [(0, 24), (16, 16)])
def test_images_that_are_no_squares_become_squares(pairs, image_size, side):
    workload = taken(pairs, (24, 40, 3), image_size=image_size)
    assert [tuple(x.shape) for x in workload.inputs()] == [(4, 3, side, side)] * 2
    assert workload.resident_bytes == 2 * 240 * 3 * side * side


def test_one_side_fed_twice_lies_on_the_device_once(pairs):
    assert (
        2 * taken(pairs, (8, 8, 3), input="pre").resident_bytes
        == taken(pairs, (8, 8, 3)).resident_bytes
    )
