"""Every pass against its text golden, and the laws that all passes share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tribunus.passes.pipeline import PIPELINE, Pass, run_passes
from tribunus.phaseir.program import Constants, Program
from tribunus.phaseir.verifier import verify

HERE = Path(__file__).parent
Apply = Callable[[Program, Constants], Program]
Read = Callable[[str, Constants], Program]


def _cases() -> list[tuple[str, str]]:
    files = sorted(HERE.glob("*.pir"))
    return [
        (path.stem, case.partition("// ----\n")[0]) for path in files for case in path.read_text().split("// ====\n")
    ]


def test_every_pass_has_a_golden() -> None:
    assert {p.stem for p in HERE.glob("*.pir")} == {step.name for step in PIPELINE}


@pytest.mark.parametrize("step", PIPELINE, ids=lambda step: step.name)
def test_a_pass_gives_its_golden(step: Pass, check_golden: Callable[[Path, Apply], None]) -> None:
    check_golden(HERE / f"{step.name}.pir", step.apply)


@pytest.mark.parametrize("step", PIPELINE, ids=lambda step: step.name)
def test_a_pass_keeps_the_laws_and_is_idempotent(step: Pass, read: Read) -> None:
    for _, source in _cases():
        constants = Constants()
        program = read(source, constants)
        verify(program)
        once = step.apply(program, constants)
        verify(once)
        assert step.apply(once, constants) == once


def test_the_pipeline_settles_and_keeps_the_interface(read: Read) -> None:
    for _, source in _cases():
        constants = Constants()
        program = read(source, constants)
        settled = run_passes(program, constants)
        assert run_passes(settled, constants) == settled
        before, after = program.only_phase, settled.only_phase
        assert [program.values[v].label for v in before.outputs] == [settled.values[v].label for v in after.outputs]
        assert [program.values[v] for v in before.inputs] == [settled.values[v] for v in after.inputs]
