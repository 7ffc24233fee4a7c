"""Laws of ulp, rounding and distances, against independent implementations."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

from tribunus.numerics.dtypes import FLOAT_FORMATS, DType
from tribunus.numerics.rounding import decode, encode, is_representable, round_value, saturate
from tribunus.numerics.ulp import checker_keeps_subnormals, ordered, ulp, ulp_distance

FOREIGN: dict[DType, npt.DTypeLike] = {
    DType.F16: np.float16,
    DType.BF16: ml_dtypes.bfloat16,
    DType.F8E4M3FN: ml_dtypes.float8_e4m3fn,
    DType.F8E5M2: ml_dtypes.float8_e5m2,
}
NARROW = tuple(FOREIGN)


def _bits(array: npt.NDArray[np.generic], dtype: DType) -> npt.NDArray[np.generic]:
    return array.view(np.uint8 if dtype.bits == 8 else np.uint16)


def _hard_values(dtype: DType) -> npt.NDArray[np.float64]:
    """All numbers of the format, their midpoints, and a hair on both sides of those."""
    codes = np.arange(1 << dtype.bits).astype(np.uint8 if dtype.bits == 8 else np.uint16)
    stored = codes if dtype is not DType.F16 else codes.view(np.float16)
    numbers = decode(stored, dtype).astype(np.float64)
    numbers = np.unique(numbers[np.isfinite(numbers)])
    middles = (numbers[1:] + numbers[:-1]) / 2
    return np.concatenate((numbers, middles, np.nextafter(middles, np.inf), np.nextafter(middles, -np.inf)))


@pytest.mark.parametrize("dtype", NARROW)
def test_rounding_agrees_with_an_independent_library_at_every_tie(dtype: DType) -> None:
    values = _hard_values(dtype)
    if dtype is not DType.F16:
        # That library goes by way of float32, which is wrong for values that float32 cannot hold.
        near = values.astype(np.float32)
        values = np.concatenate((near, np.nextafter(near, np.float32(np.inf)))).astype(np.float64)
    with np.errstate(over="ignore"):
        foreign = values.astype(FOREIGN[dtype])
    ours = encode(values, dtype)
    np.testing.assert_array_equal(_bits(ours, dtype), _bits(foreign, dtype))


def test_bf16_is_rounded_once_where_going_by_way_of_f32_would_round_twice() -> None:
    # Just above a bf16 tie, by less than f32 can hold: through f32 it becomes the tie and goes to even.
    value = np.array([1.0 + 2.0**-8 + 2.0**-40])
    assert decode(encode(value, DType.BF16), DType.BF16)[0] == 1.0 + 2.0**-7
    assert value.astype(np.float32).astype(ml_dtypes.bfloat16).astype(np.float64)[0] == 1.0


@pytest.mark.parametrize("dtype", NARROW)
def test_every_stored_number_survives_a_round_trip(dtype: DType) -> None:
    codes = np.arange(1 << dtype.bits).astype(np.uint8 if dtype.bits == 8 else np.uint16)
    stored = codes.view(np.float16) if dtype is DType.F16 else codes
    values = decode(stored, dtype)
    again = encode(values, dtype)
    finite = ~np.isnan(values.astype(np.float64))
    np.testing.assert_array_equal(_bits(again, dtype)[finite], _bits(stored, dtype)[finite])
    assert np.isnan(decode(again, dtype).astype(np.float64)[~finite]).all()


@pytest.mark.parametrize("dtype", (DType.F32, *NARROW))
def test_the_overflow_threshold_is_where_rounding_leaves_the_range(dtype: DType) -> None:
    fmt = FLOAT_FORMATS[dtype]
    below = np.nextafter(fmt.overflow_at, 0)
    above = np.nextafter(fmt.overflow_at, np.inf)
    assert round_value(below, dtype) == fmt.max_finite
    beyond = float(round_value(above, dtype))
    assert np.isnan(beyond) if dtype is DType.F8E4M3FN else np.isinf(beyond)
    at = float(round_value(fmt.overflow_at, dtype))
    assert at == (448.0 if dtype is DType.F8E4M3FN else np.inf)
    assert saturate(1e300, dtype) == fmt.max_finite


def test_ulp_of_zero_is_the_smallest_subnormal() -> None:
    for dtype, fmt in FLOAT_FORMATS.items():
        assert ulp(0.0, dtype) == fmt.smallest_subnormal
        assert ulp(fmt.smallest_subnormal, dtype) == fmt.smallest_subnormal


@pytest.mark.parametrize("dtype", (DType.F32, DType.F16, DType.BF16, DType.F64))
def test_ulp_changes_at_the_power_of_two_and_not_at_its_rounded_neighbour(dtype: DType) -> None:
    fmt = FLOAT_FORMATS[dtype]
    assert ulp(1.0, dtype) == 2.0 ** (1 - fmt.precision)
    if dtype is not DType.F64:
        # This rounds to 1.0, yet lies in the binade below.
        assert ulp(np.nextafter(1.0, 0), dtype) == 2.0**-fmt.precision
    assert ulp(-1.0, dtype) == ulp(1.0, dtype)
    assert ulp(np.inf, dtype) == fmt.smallest_subnormal == ulp(np.nan, dtype)


def test_ulp_is_the_spacing_that_numpy_reports_for_stored_numbers() -> None:
    x = np.random.default_rng(0).standard_normal(500).astype(np.float32) * np.float32(1e-30)
    np.testing.assert_array_equal(ulp(x.astype(np.float64), DType.F32), np.abs(np.spacing(x)).astype(np.float64))


@pytest.mark.parametrize("dtype", (DType.F32, DType.F16, DType.BF16, DType.F8E4M3FN, DType.F8E5M2))
def test_ordered_integers_ascend_with_the_value(dtype: DType) -> None:
    if dtype is DType.F32:
        stored: npt.NDArray[np.generic] = np.sort(np.random.default_rng(0).standard_normal(1000).astype(np.float32))
    else:
        codes = np.arange(1 << dtype.bits).astype(np.uint8 if dtype.bits == 8 else np.uint16)
        raw = codes.view(np.float16) if dtype is DType.F16 else codes
        values = decode(raw, dtype).astype(np.float64)
        stored = raw[np.argsort(np.where(np.isnan(values), np.inf, values), kind="stable")][
            : int((~np.isnan(values)).sum())
        ]
    values = decode(stored, dtype).astype(np.float64)
    steps = np.diff(ordered(stored, dtype))
    assert np.all((steps > 0) == (np.diff(values) > 0))


def test_distance_counts_numbers_across_zero() -> None:
    tiny = np.array([1e-45, -1e-45], np.float32)
    zero = np.array([0.0, -0.0], np.float32)
    np.testing.assert_array_equal(ulp_distance(tiny, zero, DType.F32), [1, 1])
    np.testing.assert_array_equal(ulp_distance(zero, zero[::-1].copy(), DType.F32), [0, 0])
    np.testing.assert_array_equal(ulp_distance(tiny, tiny[::-1].copy(), DType.F32), [2, 2])
    extremes = np.array([np.finfo(np.float64).max])
    assert int(ulp_distance(extremes, -extremes, DType.F64)[0]) == 2 * int(ordered(extremes, DType.F64)[0])


def test_f32_arithmetic_by_way_of_f64_is_correctly_rounded() -> None:
    r = np.random.default_rng(1)
    a, b = (r.integers(0, 1 << 32, 50_000, dtype=np.uint32).view(np.float32) for _ in range(2))
    with np.errstate(all="ignore"):
        for f in (np.add, np.subtract, np.multiply, np.divide):
            wide = encode(f(a.astype(np.float64), b.astype(np.float64)), DType.F32)
            np.testing.assert_array_equal(wide, f(a, b))
        np.testing.assert_array_equal(encode(np.sqrt(a.astype(np.float64)), DType.F32), np.sqrt(a))


def test_moved_nans_keep_their_payload_and_sign() -> None:
    bits = np.array([0x7FC12345, 0xFFC00001, 0x80000000], np.uint32)
    again = encode(decode(bits.view(np.float32), DType.F32), DType.F32)
    np.testing.assert_array_equal(again.view(np.uint32), bits)


def test_representable_numbers_are_those_that_rounding_leaves() -> None:
    np.testing.assert_array_equal(
        is_representable([1.0, 1.0 + 2.0**-24, np.nan, np.inf, 2.0**-149, 2.0**-150], DType.F32),
        [True, False, True, True, True, False],
    )


def test_this_process_computes_with_subnormals() -> None:
    assert checker_keeps_subnormals()
