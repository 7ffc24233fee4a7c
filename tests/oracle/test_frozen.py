"""A worked out vector survives the way through bytes unchanged; other bytes are refused."""

from __future__ import annotations

from dataclasses import fields

import numpy as np
import pytest

from tests.oracle.nodes import Array, one_op
from tribunus.errors import EncodingError, StructureError
from tribunus.numerics.policy import ComputePolicy
from tribunus.oracle.families import VectorFamily
from tribunus.oracle.frozen import Worked, freeze, thaw
from tribunus.oracle.running import OutputGolden, golden_with_budget
from tribunus.phaseir.program import Constants

RNG = np.random.default_rng(5)
X = RNG.standard_normal((6, 40)).astype(np.float32)
CASES: dict[str, tuple[tuple[str, list[Array | None]], dict[str, object], VectorFamily]] = {
    "matmul": (("matmul", [X, RNG.standard_normal((40, 3)).astype(np.float32)]), {}, VectorFamily.RAND),
    "an exact probe": (("matmul", [np.ones((2, 8), np.float32), np.ones((8, 3), np.float32)]), {}, VectorFamily.EXACT),
    "a choice": (("arg_max", [X]), {"axis": 1, "keepdims": 0, "select_last": 0}, VectorFamily.RAND),
    "a move": (("relu", [np.array([np.nan, -0.0, np.inf], np.float32)]), {}, VectorFamily.SPECIAL),
    "16 bits": (("exp", [X.astype(np.float16)]), {}, VectorFamily.RAND),
    "nothing": (("relu", [np.zeros((0, 4), np.float32)]), {}, VectorFamily.RAND),
    "a number": (("exp", [np.array(1.5, np.float32)]), {}, VectorFamily.RAND),
}


def worked(name: str) -> Worked:
    (kind, operands), attributes, family = CASES[name]
    program, inputs = one_op(kind, operands, **attributes)
    goldens = golden_with_budget(program, inputs, Constants(), ComputePolicy.FP32, name, family)
    return Worked(inputs, goldens)


def frozen(name: str) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    return np.frombuffer(b"".join(freeze(worked(name))), np.uint8)


def equal(left: object, right: object) -> bool:
    if isinstance(left, np.ndarray) and isinstance(right, np.ndarray):
        return left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes()
    if hasattr(left, "__slots__") and not isinstance(left, str):
        return all(equal(getattr(left, f.name), getattr(right, f.name)) for f in fields(left))  # type: ignore[arg-type]
    return left == right


@pytest.mark.parametrize("name", CASES)
def test_what_is_thawed_is_what_was_frozen(name: str) -> None:
    before, after = worked(name), thaw(frozen(name))
    assert list(before.inputs) == list(after.inputs)
    assert all(equal(before.inputs[i], after.inputs[i]) for i in before.inputs)
    assert len(before.goldens) == len(after.goldens) > 0
    for one, other in zip(before.goldens, after.goldens, strict=True):
        for field in fields(OutputGolden):
            assert equal(getattr(one, field.name), getattr(other, field.name)), field.name
        assert one.golden_digest == other.golden_digest
        assert one.budget_digest == other.budget_digest


@pytest.mark.parametrize("length", [0, 1, 60, 400, -1])
def test_cut_bytes_are_refused(length: int) -> None:
    with pytest.raises((EncodingError, StructureError)):
        thaw(frozen("matmul")[:length] if length >= 0 else frozen("matmul")[:-200])
