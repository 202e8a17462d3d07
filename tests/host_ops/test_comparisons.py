"""Comparisons against TFLite Micro, for every pair of values."""

from __future__ import annotations

import numpy as np
import pytest

from tests.support.single_op import TensorSpec, reference, write_model

every_int8 = np.arange(-128, 128, dtype=np.int8)


@pytest.mark.parametrize("name", ["EQUAL", "NOT_EQUAL", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL"])
def test_every_pair_of_values(compiled, name):
    first, second = TensorSpec((1, 256), "int8", 0.03, 4), TensorSpec((256, 1), "int8", 0.0201, -7)
    model = write_model(name, [first, second], [TensorSpec((256, 256), "bool")])
    data = [every_int8.reshape(1, 256), every_int8.reshape(256, 1)]
    (got,) = compiled(model).run(data)
    assert got.dtype == np.bool_
    assert 0 < got.sum() < got.size
    np.testing.assert_array_equal(got, reference(model, [data])[0][0])


def test_what_the_fixed_point_cannot_distinguish_is_equal(compiled):
    tiny = TensorSpec((256,), "int8", 2.0**-13, 0)
    model = write_model("EQUAL", [tiny, TensorSpec((1,), "int8", 2.0**-13, 0)], [TensorSpec((256,), "bool")])
    data = [every_int8, np.array([3], np.int8)]
    (got,) = compiled(model).run(data)
    assert got.sum() > 1
    np.testing.assert_array_equal(got, reference(model, [data])[0][0])
