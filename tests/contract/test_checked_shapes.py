"""PROPALL_CHECK_SHAPES=1 checks annotated shapes and dtypes."""

import pytest
import torch
from jaxtyping import TypeCheckError

from propall.numerics import restricted_softmax
from propall.training.contract import State
from tests.conftest import SHAPES_CHECKED

pytestmark = pytest.mark.skipif(
    not SHAPES_CHECKED, reason="shapes are not checked: set PROPALL_CHECK_SHAPES=1"
)


def test_a_wrong_shape_is_refused() -> None:
    with pytest.raises(TypeCheckError):
        restricted_softmax(torch.zeros(2, 3), torch.ones(2, 4, dtype=torch.bool))


def test_a_wrong_dtype_is_refused() -> None:
    with pytest.raises(TypeCheckError):
        restricted_softmax(torch.zeros(2, 3), torch.ones(2, 3))


def test_methods_that_return_their_own_type_work() -> None:
    assert State().with_rows(weights=torch.zeros(1)).rows["weights"].shape == (1,)
