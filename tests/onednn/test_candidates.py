"""What the library offers: stable lists, honest refusals, artifacts that are the same every time."""

from __future__ import annotations

import importlib.metadata
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from tribunus_onednn import library
from tribunus_onednn.anchors import match_signature
from tribunus_onednn.backend import OneDnnBackend, core_layout
from tribunus_onednn.listing import Prober
from tribunus_onednn.match import Arrangement, Matched
from tribunus_onednn.problem import Memory
from tribunus_onednn.recipe import decode_recipe

from tests.onednn import signatures
from tests.onednn.signatures import CASES
from tribunus.candidates.backend import NO_FEEDBACK, Budget, Effort, Feedback, Refusal, pack_weight
from tribunus.candidates.model import Candidate, Signature
from tribunus.errors import ToolError
from tribunus.phaseir.layouts import channels_last, row_major
from tribunus.plan.code import Packing
from tribunus.targets.target import Target

ALL = Budget(Effort.EXHAUSTIVE, 512)


def proposals(backend: OneDnnBackend, signature: Signature, target: Target) -> list[Candidate]:
    return list(backend.propose(signature, target, ALL, NO_FEEDBACK))


@pytest.mark.parametrize("name", CASES)
def test_every_family_is_covered_and_proposed(name: str, backend: OneDnnBackend, target: Target) -> None:
    signature = CASES[name]().signature
    assert backend.covers(signature, target).available
    assert list(backend.propose(signature, target, Budget(Effort.QUICK, 1), NO_FEEDBACK))


@pytest.mark.parametrize("name", ["matmul", "conv", "conv-depthwise", "max_pool", "relu"])
def test_the_list_is_the_same_in_another_process_and_names_nothing_twice(
    name: str, backend: OneDnnBackend, target: Target
) -> None:
    signature = CASES[name]().signature
    first = proposals(backend, signature, target)
    other = OneDnnBackend()
    second = proposals(other, signature, target)
    other.close()
    assert [c.digest for c in first] == [c.digest for c in second]
    assert len({c.digest for c in first}) == len(first) > 1


def test_reference_implementations_of_products_come_last_and_only_if_everything_is_wanted(
    backend: OneDnnBackend, target: Target
) -> None:
    signature = signatures.conv().signature
    usual = backend.propose(signature, target, Budget(Effort.STANDARD, 100), NO_FEEDBACK)
    assert not any(c.config.text("implementation").startswith("ref") for c in usual)
    assert proposals(backend, signature, target)[-1].config.text("implementation").startswith("ref")


def test_proposals_keep_to_the_layouts_of_the_plan_and_leave_out_what_was_refused(
    backend: OneDnnBackend, target: Target
) -> None:
    signature = signatures.conv().signature
    plan = (row_major(4), row_major(4))
    wanted = list(backend.propose(signature, target, ALL, Feedback(plan)))
    assert wanted and all(c.layouts == plan for c in wanted)
    refusal = Refusal(wanted[0].digest, "timing", "too slow", ())
    assert wanted[0] not in list(backend.propose(signature, target, ALL, Feedback(plan, (refusal,))))


def test_a_conversion_of_layouts_is_proposed_as_the_plan_wants_it(backend: OneDnnBackend, target: Target) -> None:
    plan = (row_major(4), channels_last(4))
    found = list(backend.propose(signatures.copy().signature, target, ALL, Feedback(plan)))
    assert found and all(c.layouts == plan for c in found)


@pytest.mark.parametrize("name", ["matmul+bias+gelu", "conv-depthwise"])
def test_an_artifact_is_the_same_every_time(name: str, backend: OneDnnBackend, target: Target, tmp_path: Path) -> None:
    signature = CASES[name]().signature
    candidate = proposals(backend, signature, target)[0]
    first = backend.build(candidate, signature, target, tmp_path)
    other = OneDnnBackend()
    second = other.build(candidate, signature, target, tmp_path)
    other.close()
    assert first.digest == second.digest
    recipe = decode_recipe(first.code.data)
    assert recipe.stable and recipe.code, "generated code with its addresses replaced is the same in every process"
    assert first.recipe.jit_at_open and first.recipe.workspace == recipe.scratchpad


def test_lower_levels_of_the_processor_get_lower_code(backend: OneDnnBackend) -> None:
    signature = signatures.conv().signature
    names = [c.config.text("implementation") for c in proposals(backend, signature, Target("cpu", "x86-64-v2", 1))]
    assert not any("avx" in name for name in names) and any("sse41" in name for name in names)


@pytest.mark.parametrize("name", ["matmul+bias+gelu", "conv-depthwise", "conv_transpose"])
def test_a_packed_weight_has_the_bytes_that_the_library_itself_makes(
    name: str, backend: OneDnnBackend, target: Target
) -> None:
    case = CASES[name]()
    weight = case.signature.weights[0]
    array = case.inputs[weight]
    place = library.find_library()
    assert isinstance(place, library.Place)
    prober = Prober(place, library.ISA_OF_LEVEL[target.arch])
    found = match_signature(case.signature, Arrangement.PLAIN)
    assert isinstance(found, Matched)
    stored, described = found.weights[0].stored, 0
    for candidate in backend.propose(case.signature, target, Budget(Effort.STANDARD, 3), NO_FEEDBACK):
        text = candidate.config.text("weights")
        nbytes = candidate.config.integer("weights_bytes")
        packed = Memory(stored.dims, None, text)
        if text.startswith("strides:"):
            packed = Memory(stored.dims, tuple(int(s) for s in text.removeprefix("strides:").split(",")))
        layout = core_layout(packed, stored, array.shape, nbytes)
        if layout is not None:
            described += 1
            assert layout.pack(array).tobytes() == prober.pack(stored, packed, array.tobytes()), text
    assert described


def test_packing_in_another_process_is_pure(backend: OneDnnBackend, target: Target, tmp_path: Path) -> None:
    case = signatures.conv(32, 32, group=4)
    candidate = proposals(backend, case.signature, target)[0]
    weight = backend.build(candidate, case.signature, target, tmp_path).recipe.weights[0]
    assert weight.packing.name == "onednn-reorder"
    arrays = [case.inputs[source] for source in weight.sources]
    first, second = (pack_weight(backend, weight.packing, arrays) for _ in range(2))
    assert first == second and len(first) == weight.nbytes


def test_the_factor_and_term_of_a_batch_normalization_are_rounded_once(backend: OneDnnBackend) -> None:
    scale, shift, mean, variance = (np.asarray([v], np.float32) for v in (3.0, 1.0, 2.0, 0.25))
    made = [
        np.frombuffer(backend.pack(Packing(name, (("eps", "f32:00000000"),)), (scale, shift, mean, variance)), "<f4")
        for name in ("onednn-batch-norm-scale", "onednn-batch-norm-shift")
    ]
    assert [float(v[0]) for v in made] == [6.0, -11.0]


def test_without_the_library_the_backend_imports_and_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch, target: Target
) -> None:
    def absent(name: str) -> importlib.metadata.Distribution:
        raise importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(importlib.metadata, "distribution", absent)
    answer = OneDnnBackend().serves(target)
    assert not answer.available
    assert "onednn-cpu-gomp" in answer.reason and "pip install" in answer.remedy


def test_a_library_that_cannot_be_loaded_is_a_reason_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, target: Target, tmp_path: Path
) -> None:
    (tmp_path / "libdnnl.so.3").write_bytes(b"no library")
    monkeypatch.setattr("tribunus_onednn.backend.find_library", lambda: library.Place(tmp_path / "libdnnl.so.3"))
    made = OneDnnBackend()
    answer = made.serves(target)
    made.close()
    assert not answer.available and "cannot be loaded" in answer.reason and answer.remedy


def test_other_processors_are_not_served(backend: OneDnnBackend) -> None:
    assert "x86-64" in backend.serves(Target("cpu", "aarch64", 1)).reason


def test_a_missing_implementation_cannot_be_built(backend: OneDnnBackend, target: Target, tmp_path: Path) -> None:
    signature = signatures.matmul().signature
    candidate = proposals(backend, signature, target)[0]
    items = tuple((k, "brg:unheard_of" if k == "implementation" else v) for k, v in candidate.config.items)
    config = type(candidate.config)(items)
    foreign = Candidate("onednn", signature.digest, config, candidate.layouts, candidate.reproducibility)
    with pytest.raises(ToolError, match="unheard_of"):
        backend.build(foreign, signature, target, tmp_path)


def test_the_compile_time_half_never_loads_the_library() -> None:
    script = (
        "import tribunus_onednn.backend as b, tribunus_onednn.replay, pathlib\n"
        "from tribunus.targets.target import Target\n"
        "from tribunus.targets.detect import host_arch\n"
        "print(b.BACKEND.serves(Target('cpu', host_arch(), 1)).available)\n"
        "maps = pathlib.Path('/proc/self/maps').read_text()\n"
        "print('libdnnl' in maps, 'libgomp.so' in maps)\n"
        "b.BACKEND.close()\n"
    )
    environment = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PATH": os.defpath}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False", "False"]


def test_the_replaying_half_needs_neither_numpy_nor_the_compile_time_rooms() -> None:
    script = (
        "import sys, tribunus_onednn.replay\n"
        "rooms = ('numpy', 'onnx', 'tribunus.candidates', 'tribunus.passes', 'tribunus.plan', 'tribunus.phaseir')\n"
        "print(sorted(room for room in rooms if room in sys.modules))\n"
    )
    environment = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path), "PATH": os.defpath}
    done = subprocess.run([sys.executable, "-c", script], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(("then", "more"), [("relu", False), ("leaky_relu", True)])
def test_a_known_deviation_is_proposed_once_unless_everything_is_wanted(
    then: str, more: bool, backend: OneDnnBackend, target: Target
) -> None:
    signature = signatures.conv(then=then).signature
    usual = list(backend.propose(signature, target, Budget(Effort.STANDARD, 100), NO_FEEDBACK))
    assert (len(usual) > 1) is more
    assert len(proposals(backend, signature, target)) > len(usual)
