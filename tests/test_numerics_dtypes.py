"""Facts of the element types, against NumPy where it knows them."""

from __future__ import annotations

import numpy as np
import pytest

from tribunus.numerics.dtypes import FLOAT_FORMATS, DType, from_numpy


@pytest.mark.parametrize(
    ("dtype", "native"), [(DType.F64, np.float64), (DType.F32, np.float32), (DType.F16, np.float16)]
)
def test_formats_agree_with_numpy(dtype: DType, native: type[np.floating]) -> None:
    facts, info = FLOAT_FORMATS[dtype], np.finfo(native)
    assert facts.max_finite == float(info.max)
    assert facts.smallest_subnormal == float(info.smallest_subnormal)
    assert facts.unit_roundoff == float(info.eps) / 2
    assert 2.0**facts.emin == float(info.smallest_normal)


@pytest.mark.parametrize("dtype", [DType.F32, DType.F16])
def test_overflow_begins_half_a_spacing_above_the_largest(dtype: DType) -> None:
    facts = FLOAT_FORMATS[dtype]
    native = dtype.numpy.type
    with np.errstate(over="ignore"):
        assert np.isinf(np.float64(facts.overflow_at).astype(native))
        assert np.float64(np.nextafter(facts.overflow_at, 0.0)).astype(native) == native(facts.max_finite)


@pytest.mark.parametrize("dtype", list(DType))
def test_storage_fits(dtype: DType) -> None:
    assert dtype.numpy.itemsize == dtype.itemsize
    assert from_numpy(dtype.numpy) is not None
    assert dtype.is_float + dtype.is_integer + (dtype is DType.BOOL) == 1
