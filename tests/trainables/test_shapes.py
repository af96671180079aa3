"""The checks of types and shapes that run with the tests (tests/support/shapes.py): on here, off in production."""

import os
import sys

import pytest
import torch
from command_line import python
from jaxtyping import TypeCheckError

from contrasweep.trainables.review_helpfulness.networks.layers import masked_mean


def test_wrong_shapes_and_types_are_refused():
    x = torch.ones(2, 3, 4)
    mask = torch.ones(2, 3, dtype=torch.bool)
    assert masked_mean(x, mask).shape == (2, 4)
    for wrong in (mask[:, :2], mask[:1], mask.float()):
        with pytest.raises(TypeCheckError):
            masked_mean(x, wrong)


@pytest.mark.slow
def test_nothing_is_checked_outside_the_tests():
    code = (
        "import sys, torch\n"
        "from contrasweep.trainables.review_helpfulness.networks.layers import masked_mean\n"
        "print(masked_mean(torch.ones(2, 3, 4), torch.ones(1, 3, dtype=torch.bool)).shape, 'beartype' in sys.modules)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    assert python("-c", code, env=environment, check=True).stdout == "torch.Size([2, 4]) False\n"
