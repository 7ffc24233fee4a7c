"""Recipes: their identity is the digest of their document, however it is put together."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tribunus.canon import Json, JsonObject, digest_of
from tribunus.errors import JsonCanonError, SchemaError
from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim, Sym
from tribunus.phaseir.layouts import Layout, layout_from_json, row_major
from tribunus.phaseir.types import Quantization, TensorType
from tribunus.plan.code import (
    Operand,
    PackedWeight,
    Packing,
    Recipe,
    WorkSplit,
    recipe_digest,
    recipe_from_json,
    recipe_to_json,
)

SYMBOLS = ("d0", "d1")
SIZES = st.integers(0, 2**40)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=8)
DIMS: st.SearchStrategy[Dim] = SIZES | st.sampled_from(
    [Sym("d0"), dims.mul(Sym("d1"), 3), dims.ceildiv(dims.add(Sym("d0"), 5), 16), dims.maximum(Sym("d0"), Sym("d1"))]
)
LAYOUTS = st.sampled_from(
    [row_major(2), Layout((1, 0)), Layout((0, 1), ((1, 16),)), Layout((1, 0), ((0, 4), (1, 8))), Layout((0, 1), (), 96)]
)
QUANTIZATIONS = st.none() | st.builds(Quantization, st.none() | st.integers(0, 1), st.none() | SIZES, st.booleans())
TYPES = st.builds(TensorType, st.sampled_from(DType), st.tuples(DIMS, DIMS), QUANTIZATIONS)
OPERANDS = st.lists(st.builds(Operand, TYPES, LAYOUTS, st.sampled_from([4, 64])), max_size=3).map(tuple)
CONFIGS = st.dictionaries(TEXTS, SIZES | TEXTS, max_size=3).map(lambda found: tuple(sorted(found.items())))
WEIGHTS = st.builds(
    PackedWeight,
    st.lists(SIZES, max_size=3).map(tuple),
    st.builds(Packing, TEXTS, CONFIGS, st.none() | LAYOUTS),
    SIZES,
    st.sampled_from([1, 64]),
)
RECIPES = st.builds(
    Recipe,
    OPERANDS,
    OPERANDS,
    st.lists(WEIGHTS, max_size=3).map(tuple),
    DIMS,
    st.lists(DIMS, max_size=3).map(tuple),
    st.builds(WorkSplit, TEXTS, st.integers(1, 1024)),
    st.lists(st.tuples(SIZES, SIZES), max_size=2).map(tuple),
    st.booleans(),
)


@given(RECIPES)
def test_the_identity_of_a_recipe_is_the_digest_of_its_document(recipe: Recipe) -> None:
    assert recipe_digest(recipe, SYMBOLS) == digest_of(recipe_to_json(recipe, SYMBOLS))


def test_text_that_has_no_canonical_form_has_no_digest_either() -> None:
    with pytest.raises(JsonCanonError):
        recipe_digest(Recipe((), (), split=WorkSplit("\ud800", 1)), ())


PAIRS: tuple[Json, ...] = ([], [0], [0, 1, 2], [0, True], [0, -1], "01")


@pytest.mark.parametrize("pair", PAIRS)
def test_a_pair_of_another_form_is_refused(pair: Json) -> None:
    document = recipe_to_json(Recipe((), ()), ())
    assert isinstance(document, dict)
    changed: JsonObject = {**document, "in_place": [pair]}
    with pytest.raises(SchemaError):
        recipe_from_json(changed, (), "kernel")
    layout: JsonObject = {"order": [0, 1], "blocks": [pair], "pitch": None}
    with pytest.raises(SchemaError):
        layout_from_json(layout, "layout")
