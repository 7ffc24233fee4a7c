"""ONNX's own node tests: every node that lowers computes what ONNX says, in float64.

Operands that must be known at import (axes, shapes, pads) are made constants; extra outputs without a form are dropped.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Mapping

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

from tests.frontend.models import Array, Lowered
from tribunus.errors import LoweringError, ModelError
from tribunus.frontend.bindings import bindings_from_inputs, resolve
from tribunus.frontend.loading import load_model
from tribunus.frontend.lower import lower
from tribunus.phaseir.program import Constants
from tribunus.phaseir.verifier import verify

# another reading of the definition, each known: ties that binary32 rounds the other way; extents from unrounded scales
KNOWN = frozenset(
    (
        "test_dynamicquantizelinear",
        "test_dynamicquantizelinear_expanded",
        "test_resize_downsample_scales_linear_align_corners",
        "test_resize_downsample_scales_cubic_align_corners",
        "test_reduce_max_empty_set",
        "test_reduce_min_empty_set",
    )
)
NATIVE = frozenset("fiub")


def lowered(model: onnx.ModelProto, arrays: Mapping[str, Array]) -> Lowered:
    loaded = load_model(model.SerializeToString(), None)
    shapes = {f.label: arrays[f.label].shape for f in loaded.facts.inputs}
    constants = Constants()
    program = lower(loaded, resolve(loaded.facts, bindings_from_inputs(loaded.facts, shapes)), constants)
    verify(program)
    return Lowered(program, constants)


def with_constants(model: onnx.ModelProto, arrays: Mapping[str, Array]) -> onnx.ModelProto:
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for value in list(changed.graph.input)[1:]:
        if arrays[value.name].dtype.kind in "iub" or value.name in ("scales", "roi"):
            changed.graph.initializer.append(numpy_helper.from_array(arrays[value.name], value.name))
    del changed.graph.output[1:]
    return changed


@pytest.mark.slow
def test_nodes_compute_what_onnx_says() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from onnx.backend.test.case.node import collect_testcases

        cases = collect_testcases(None)
    counts: Counter[str] = Counter()
    wrong: list[str] = []
    for case in cases:
        model = case.model
        if model is None:
            continue
        for inputs, outputs in case.data_sets or ():
            if any(not isinstance(a, np.ndarray | np.generic) for a in (*inputs, *outputs)):
                counts["no tensors"] += 1
                continue
            arrays = {v.name: np.asarray(a) for v, a in zip(model.graph.input, inputs, strict=False)}
            if any(a.dtype.kind not in NATIVE for a in (*arrays.values(), *map(np.asarray, outputs))):
                counts["stored as bits"] += 1
                continue
            try:
                try:
                    found = lowered(model, arrays)
                except LoweringError:
                    found = lowered(with_constants(model, arrays), arrays)
            except (LoweringError, ModelError):
                counts["refused"] += 1
                continue
            if case.name in KNOWN:
                continue
            given = {found.program.values[i].label for i in found.program.only_phase.inputs}
            results = found.run(**{k: a for k, a in arrays.items() if k in given})
            share = 3e-2 if any(np.asarray(o).dtype == np.float16 for o in outputs) else 1e-4
            for result, output in zip(results, outputs, strict=False):
                expected = np.asarray(output)
                same = result.shape == expected.shape and np.allclose(
                    result.astype(np.float64), expected.astype(np.float64), rtol=share, atol=share, equal_nan=True
                )
                if not same:
                    wrong.append(case.name)
            counts["same"] += 1
    assert not wrong
    assert counts["same"] > 850, counts
