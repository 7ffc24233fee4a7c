"""When earlier evidence holds, and what is kept beside it: artifacts and documents."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.admission.samples import artifact, receipt
from tests.faults.subjects import gemm
from tribunus.admission.receipt import CHECKS, Check, Timing, Verdict
from tribunus.canon import Json, digest_bytes, int_of, object_of
from tribunus.errors import EnvironmentFault
from tribunus.ledger.artifacts import ArtifactStore
from tribunus.ledger.documents import DocumentStore
from tribunus.ledger.evidence import find_evidence
from tribunus.ledger.store import Ledger
from tribunus.phaseir.dims import Symbol

KEY = {"op": "relu", "shape": "[4, 8]", "demands": "x"}
MACHINE, OTHER = digest_bytes(b"machine"), digest_bytes(b"another machine")
CANDIDATE = receipt().candidate


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger.sqlite")


@pytest.mark.parametrize("check", CHECKS)
def test_equal_keys_reuse_evidence(check: Check, ledger: Ledger) -> None:
    made = receipt(check)
    ledger.append(made, KEY)
    assert find_evidence(ledger, CANDIDATE, check, KEY, MACHINE).receipt == made
    assert find_evidence(ledger, digest_bytes(b"x"), check, KEY, MACHINE).receipt is None


@pytest.mark.parametrize("name", [*KEY, "added"])
def test_a_differing_field_is_named_and_nothing_is_reused(name: str, ledger: Ledger) -> None:
    ledger.append(receipt(), KEY)
    reuse = find_evidence(ledger, CANDIDATE, Check.ORACLE, {**KEY, name: "new"}, MACHINE)
    assert reuse.receipt is None
    assert reuse.differing == ((name, KEY.get(name, "absent"), "new"),)
    without = {key: value for key, value in KEY.items() if key != name}
    if name in KEY:
        lost = find_evidence(ledger, CANDIDATE, Check.ORACLE, without, MACHINE)
        assert lost.receipt is None
        assert lost.differing == ((name, KEY[name], "absent"),)


def test_only_timing_is_bound_to_the_machine(ledger: Ledger) -> None:
    for check in CHECKS:
        ledger.append(receipt(check), KEY)
    found = {check: find_evidence(ledger, CANDIDATE, check, KEY, OTHER) for check in CHECKS}
    assert [check for check, reuse in found.items() if reuse.receipt is None] == [Check.TIMING]
    assert found[Check.TIMING].differing[0][0] == "machine"


@pytest.mark.parametrize("verdict", Verdict)
def test_only_conclusions_are_reused_and_refusals_by_a_time_near_the_budget_are_not(
    verdict: Verdict, ledger: Ledger
) -> None:
    for check in (Check.ORACLE, Check.TIMING):
        ledger.append(receipt(check, verdict), KEY)
    oracle, timing = (
        find_evidence(ledger, CANDIDATE, check, KEY, MACHINE).receipt is not None
        for check in (Check.ORACLE, Check.TIMING)
    )
    assert oracle == (verdict in (Verdict.PASSED, Verdict.REJECTED))
    assert timing == (verdict is Verdict.PASSED)


@pytest.mark.parametrize(("calls", "lasts"), [((121, 130, 500), True), ((119, 400, 500), False), ((), False)])
def test_a_kernel_that_was_slow_in_every_call_is_not_timed_again(
    calls: tuple[int, ...], lasts: bool, ledger: Ledger
) -> None:
    slow = replace(receipt(Check.TIMING, Verdict.REJECTED), timing=Timing((9,), (9,), calls, 80, 2, 50))
    ledger.append(slow, KEY)
    found = find_evidence(ledger, CANDIDATE, Check.TIMING, KEY, MACHINE).receipt
    assert found == (slow if lasts else None)


def test_evidence_holds_though_another_key_was_judged_since(ledger: Ledger) -> None:
    first = receipt(started_us=1)
    ledger.append(first, KEY)
    ledger.append(receipt(started_us=2), {**KEY, "op": "gelu"})
    assert find_evidence(ledger, CANDIDATE, Check.ORACLE, KEY, MACHINE).receipt == first
    lost = find_evidence(ledger, CANDIDATE, Check.ORACLE, {**KEY, "op": "erf"}, MACHINE)
    assert lost.receipt is None
    assert lost.differing == (("op", "gelu", "erf"),), "not the newest one is compared with"


def test_of_receipts_with_equal_keys_the_newest_decides(ledger: Ledger) -> None:
    ledger.append(receipt(started_us=1), KEY)
    ledger.append(receipt(Check.ORACLE, Verdict.MISTRUSTED), KEY)
    assert find_evidence(ledger, CANDIDATE, Check.ORACLE, KEY, MACHINE).receipt is None
    again = receipt(Check.ORACLE, Verdict.REJECTED)
    ledger.append(again, KEY)
    assert find_evidence(ledger, CANDIDATE, Check.ORACLE, KEY, MACHINE).receipt == again


# artifacts ----------------------------------------------------------------------------------------------------------
TOOLS = digest_bytes(b"tools")
MADE = artifact(gemm(Symbol("d0", "rows", 1, 4, 9), 4, 5, x_pitch=8).with_workspace(64))


def test_a_stored_artifact_comes_back_equal(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path / "artifacts")
    assert store.get(MADE.candidate, MADE.signature, TOOLS) is None
    store.put(MADE, TOOLS)
    assert store.get(MADE.candidate, MADE.signature, TOOLS) == MADE
    assert store.get(MADE.candidate, MADE.signature, digest_bytes(b"other tools")) is None
    assert (tmp_path / "artifacts").stat().st_mode & 0o077 == 0


def test_any_damaged_byte_makes_it_no_artifact(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    store.put(MADE, TOOLS)
    (path,) = tmp_path.iterdir()
    whole = path.read_bytes()
    header = whole.index(b"\n", whole.index(b"\n") + 1)
    build = whole.index(b'"build"')
    for place in (0, 25, header, header + 1, len(whole) - 1, *range(30, header, 97)):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(bytes(damaged))
        found = store.get(MADE.candidate, MADE.signature, TOOLS)
        # The record of the build is no part of the identity: damage there may only be told by the key.
        assert found is None or (place > build and replace(found, build=MADE.build) == MADE)
    for length in (0, 10, header, len(whole) - 1):
        path.write_bytes(whole[:length])
        assert store.get(MADE.candidate, MADE.signature, TOOLS) is None


def test_an_artifact_of_another_candidate_in_its_place_is_refused(tmp_path: Path) -> None:
    store = ArtifactStore(tmp_path)
    other = artifact(gemm(Symbol("d0", "rows", 1, 4, 9), 4, 5, x_pitch=8).with_workspace(64), "b")
    store.put(MADE, TOOLS)
    (path,) = tmp_path.iterdir()
    store.put(other, TOOLS)
    (stranger,) = set(tmp_path.iterdir()) - {path}
    path.write_bytes(stranger.read_bytes())
    assert store.get(MADE.candidate, MADE.signature, TOOLS) is None


def test_a_folder_that_cannot_be_made_is_a_fault_of_the_environment(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    for store in (ArtifactStore, DocumentStore):
        with pytest.raises(EnvironmentFault):
            store(tmp_path / "file" / "deep")


def test_documents_come_back_or_are_made_again(tmp_path: Path) -> None:
    def read(value: Json) -> int:
        return int_of(object_of(value, "contest", frozenset(("a",)))["a"], "contest")

    store = DocumentStore(tmp_path)
    assert store.get("contest", TOOLS, read) is None
    store.put("contest", TOOLS, {"a": 1})
    assert store.get("contest", TOOLS, read) == 1
    assert store.get("program", TOOLS, read) is None
    store.put("contest", TOOLS, {"a": 1, "b": 2})
    assert store.get("contest", TOOLS, read) is None, "written by another version"
    (path,) = tmp_path.iterdir()
    path.write_bytes(b"{")
    assert store.get("contest", TOOLS, read) is None
