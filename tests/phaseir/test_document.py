"""Documents of programs: exact round trip, and nothing hostile gets through."""

from __future__ import annotations

import copy
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tribunus.canon import Json, decode, digest_bytes
from tribunus.errors import SchemaError
from tribunus.phaseir.document import canonical_bytes, program_from_json
from tribunus.phaseir.program import Program, program_digest, program_to_json


def test_a_program_survives_its_document(programs: st.SearchStrategy[Program]) -> None:
    @settings(max_examples=60, derandomize=True, deadline=None)
    @given(programs)
    def law(program: Program) -> None:
        data = canonical_bytes(program)
        again = program_from_json(decode(data, limit=1 << 24))
        assert again == program
        assert digest_bytes(data) == program_digest(program)

    law()


def test_every_feature_survives(everything: Program) -> None:
    assert program_from_json(program_to_json(everything)) == everything


_S0: Json = ["s", 0]
HUGE_SUM: Json = ["+", *[_S0] * 40]
HOSTILE: list[tuple[list[str | int], Json]] = [
    (["schema"], "tribunus.phaseir/2"),
    (["values", 0, "role"], "owner"),
    (["values", 0, "constant"], "ab" * 32),
    (["values", 0, "type", "dtype"], "f128"),
    (["values", 0, "type", "shape"], [-1, 3]),
    (["values", 0, "type", "shape"], [1] * 40),
    (["values", 0, "type", "shape"], [True, 3]),
    (["values", 0, "type", "shape"], [["s", 0], 3]),
    (["values", 0, "type", "shape"], [["+", 1, 1], 3]),
    (["values", 0, "type", "shape"], [["floordiv", 1, 0], 3]),
    (["values", 0, "type", "extra"], 1),
    (["values", 0, "label"], 7),
    (["values", 0, "label"], "\ud800"),
    (["phases", 0, "inputs"], [0, 99]),
    (["phases", 0, "inputs"], [-1]),
    (["phases", 0, "ops", 0, "inputs"], [0, -2]),
    (["phases", 0, "ops", 0, "outputs"], [-1]),
    (["phases", 0, "ops", 0, "source"], [1]),
    (["phases", 0, "ops", 0, "kind"], "../relu"),
    (["phases", 0, "ops", 0, "attributes"], {"alpha": "f64:3ff0000000000000"}),
    (["phases", 0, "ops", 0, "attributes"], {"alpha": "f32:7F800000"}),
    (["phases", 0, "ops", 0, "attributes"], {"alpha": [1, "f32:3f800000"]}),
    (["phases", 0, "ops", 0, "attributes"], {"alpha": None}),
    (["phases", 0, "ops", 0, "attributes"], {"alpha": {"text": 1}}),
    (["phases", 0, "ops", 0, "attributes"], {"Alpha": 1}),
    (["edges", 0, "target"], 2),
    (["edges", 0, "condition"], "sometimes"),
    (["edges", 0, "predicate"], -1),
    (["edges", 1, "predicate"], 1),
    (["states", 0, "read"], 99),
    (["sources", 0], ["n", "Add"]),
    (["provenance"], {"model": ""}),
    (["symbols"], [{"name": "s0", "label": "n", "lo": 5, "opt": 4, "hi": 8, "step": 1}]),
    (["symbols"], [{"name": "n", "label": "n", "lo": 1, "opt": 4, "hi": 8, "step": 1}]),
    (["symbols"], [{"name": "s0", "label": "n", "lo": 1, "opt": 4, "hi": 8, "step": 0}]),
]


@pytest.mark.parametrize(("path", "value"), HOSTILE, ids=lambda v: json.dumps(v)[:60])
def test_a_hostile_field_is_a_schema_error(everything: Program, path: list[str | int], value: Json) -> None:
    document = _changed(program_to_json(everything), path, value)
    with pytest.raises(SchemaError):
        program_from_json(document)


def test_an_expression_that_would_explode_is_refused(everything: Program) -> None:
    symbol: Json = [{"name": "s0", "label": "n", "lo": 1, "opt": 4, "hi": 8, "step": 1}]
    document = _changed(program_to_json(everything), ["symbols"], symbol)
    product: Json = ["*", HUGE_SUM, HUGE_SUM, HUGE_SUM, HUGE_SUM, HUGE_SUM]
    with pytest.raises(SchemaError, match="terms"):
        program_from_json(_changed(document, ["values", 0, "type", "shape"], [product, 3]))
    deep: Json = 1
    for _ in range(25):
        deep = ["min", deep, ["s", 0]]
    with pytest.raises(SchemaError, match="nested"):
        program_from_json(_changed(document, ["values", 0, "type", "shape"], [deep, 3]))


def test_any_damage_is_a_schema_error_or_another_program(everything: Program) -> None:
    junk = st.one_of(
        st.none(), st.booleans(), st.integers(-3, 2**60), st.text(max_size=4), st.just([]), st.just({}),
        st.just(["s", 0]), st.just(["mod", ["s", 0], 0]), st.just("f32:7fc00001"),
    )  # fmt: skip

    @settings(max_examples=200, derandomize=True, deadline=None)
    @given(st.data())
    def law(data: st.DataObject) -> None:
        document = program_to_json(everything)
        path = data.draw(st.sampled_from(list(_paths(document))))
        damaged = _changed(document, path, data.draw(junk))
        try:
            program = program_from_json(damaged)
        except SchemaError:
            return
        assert program_to_json(program) == damaged

    law()


def _paths(value: Json, prefix: tuple[str | int, ...] = ()) -> list[list[str | int]]:
    found = [list(prefix)] if prefix else []
    if isinstance(value, dict):
        for key, item in value.items():
            found += _paths(item, (*prefix, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found += _paths(item, (*prefix, index))
    return found


def _changed(document: Json, path: list[str | int], value: Json) -> Json:
    changed = copy.deepcopy(document)
    place = changed
    for key in path[:-1]:
        if isinstance(place, dict):
            place = place[str(key)]
        elif isinstance(place, list):
            place = place[int(key)]
    if isinstance(place, dict):
        place[str(path[-1])] = value
    elif isinstance(place, list):
        place[int(path[-1])] = value
    return changed
