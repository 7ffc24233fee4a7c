"""Bindings of declared dims."""

from __future__ import annotations

import pytest

from tribunus.canon import Digest
from tribunus.errors import DimError, InputError
from tribunus.frontend.bindings import (
    Bound,
    bindings_from_inputs,
    bindings_from_json,
    bindings_to_json,
    parse_dim_options,
    resolve,
)
from tribunus.frontend.facts import ModelFacts, TensorFact, facts_from_json, facts_to_json
from tribunus.numerics.dtypes import DType
from tribunus.phaseir.dims import Sym, Symbol

FACTS = ModelFacts(
    Digest("0" * 64),
    "p 1",
    17,
    (TensorFact("ids", DType.I64, ("batch", "seq")), TensorFact("x", DType.F32, ("batch", None, 3))),
    (TensorFact("y", DType.F32, ()),),
    0,
)


def test_equal_labels_are_one_symbol() -> None:
    profile = resolve(FACTS, parse_dim_options(["batch=1:2:4", "seq=16", "x[1]=2:8:32:2"], FACTS))
    assert profile.symbols == (Symbol("s0", "batch", 1, 2, 4), Symbol("s1", "x[1]", 2, 8, 32, 2))
    assert profile.shapes == ((Sym("s0"), 16), (Sym("s0"), Sym("s1"), 3))


def test_an_axis_overrides_a_declared_number() -> None:
    profile = resolve(FACTS, parse_dim_options(["batch=1", "seq=1", "x[1]=1", "x[2]=5"], FACTS))
    assert profile.shapes[1] == (1, 1, 5)


def test_every_dim_without_bounds_is_listed_with_how_to_bind_it() -> None:
    with pytest.raises(DimError) as caught:
        resolve(FACTS, parse_dim_options(["batch=1"], FACTS))
    assert "seq, x[1]" in caught.value.detail
    assert "--dim 'seq=min:opt:max[:step]'" in caught.value.remedy
    assert "--dim 'x[1]=number'" in caught.value.remedy


@pytest.mark.parametrize(
    "option", ["time=3", "x[3]=1", "y[0]=1", "batch", "batch=", "batch=1:2", "batch=4:2:1", "batch=1:2:8:3", "batch=-1"]
)
def test_options_that_mean_nothing_are_refused(option: str) -> None:
    with pytest.raises(DimError):
        parse_dim_options([option], FACTS)


def test_a_dim_given_twice_is_refused() -> None:
    with pytest.raises(DimError, match="twice"):
        parse_dim_options(["batch=1", "batch=2"], FACTS)


def test_captured_shapes_bind_labels_and_axes() -> None:
    found = bindings_from_inputs(FACTS, {"ids": (2, 7), "x": (2, 9, 3)})
    assert found == parse_dim_options(["x[1]=9", "seq=7", "batch=2"], FACTS)


def test_captured_shapes_override_a_declared_number() -> None:
    found = bindings_from_inputs(FACTS, {"ids": (2, 7), "x": (2, 9, 4)})
    assert ("x", 2, Bound(4, 4, 4)) in found.axes


def test_a_label_that_stands_for_two_numbers_is_bound_by_axis() -> None:
    profile = resolve(FACTS, bindings_from_inputs(FACTS, {"ids": (2, 7), "x": (5, 9, 3)}))
    assert profile.shapes == ((2, 7), (5, 9, 3))


@pytest.mark.parametrize(
    "shapes", [{"ids": (1, 1)}, {"ids": (1, 1), "x": (1, 1)}, {"ids": (1, 1), "x": (1, 1, 3), "z": ()}]
)
def test_missing_unknown_and_misshaped_inputs_are_refused(shapes: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(InputError):
        bindings_from_inputs(FACTS, shapes)


def test_documents_round_trip() -> None:
    bindings = parse_dim_options(["batch=1:2:4", "x[1]=3"], FACTS)
    assert bindings_from_json(bindings_to_json(bindings)) == bindings
    assert facts_from_json(facts_to_json(FACTS)) == FACTS
