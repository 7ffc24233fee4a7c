"""What ``tribunus.open`` refuses, and with which error; what it reads, and what it leaves unread."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import tribunus
from tests.runtime.conftest import BOB, WEIGHT, MakeImage, Toy, rows
from tribunus.canon import Digest
from tribunus.devices import cpu
from tribunus.errors import (
    ContainerError,
    EncodingError,
    FeatureError,
    IntegrityError,
    NoExecError,
    OverlapError,
    PlanError,
    PolicyError,
    ReceiptError,
    StructureError,
    TargetError,
    TribunusError,
    UntrustedError,
)
from tribunus.image import tar
from tribunus.image.plan_checker import CheckedRegion, check_region
from tribunus.image.policy import add_key
from tribunus.image.read import ImageFile, open_image
from tribunus.image.source import MemorySource, WeightsMode
from tribunus.phaseir.layouts import Layout
from tribunus.plan.plan import Plan
from tribunus.runtime import fitness, session


def spans(data: bytes) -> dict[str, tuple[int, int]]:
    """Byte ranges of the file by what lies there."""
    source = MemorySource(data)
    entries = tar.walk(source)
    path_of = {entry.name[-64:]: entry for entry in entries}
    found = {"layout": entries[0], "index.json": entries[1]}
    with open_image_of(data) as image:
        contents = image.contents
        (region,) = contents.regions.values()
        (evidence,) = contents.evidence
        named = {
            "image": contents.image, "index": contents.index, "plan": region.plan, "phaseir": region.phaseir,
            "kernels": region.kernels, "weights": region.weights[0], "goldens": region.goldens,
            "envelope": evidence.envelope, "admissions": evidence.admissions[0], "receipts": evidence.receipts[0],
        }  # fmt: skip
        found |= {name: path_of[blob.digest] for name, blob in named.items() if blob is not None}
        found |= {f"manifest {n}": path_of[blob.digest] for n, blob in enumerate(contents.manifests)}
    (pad,) = [entry for entry in entries if entry not in found.values()]
    found["pad"] = pad
    ranges = {name: (entry.offset, entry.size) for name, entry in found.items()}
    ranges |= {f"header of {name}": (entry.offset - tar.RECORD, tar.RECORD) for name, entry in found.items()}
    ranges |= {
        f"padding of {name}": (entry.offset + entry.size, tar.padding(entry.size))
        for name, entry in found.items()
        if tar.padding(entry.size)
    }
    ranges["end"] = (len(data) - len(tar.END), len(tar.END))
    return ranges


def open_image_of(data: bytes) -> ImageFile:
    return ImageFile(MemorySource(data))


UNREAD = {"phaseir", "goldens", "receipts"}
"""Only ``verify`` reads these."""


def expected_refusals(name: str) -> tuple[type[TribunusError], ...]:
    if name.startswith(("header", "padding")) or name in ("layout", "pad", "end"):
        return (ContainerError,)
    if name == "index.json":  # nothing vouches for its bytes but their form and what they name
        return (EncodingError, StructureError, ContainerError, IntegrityError)
    return (IntegrityError,)


def test_a_flipped_bit_anywhere_is_refused_as_what_it_is(honest: bytes, path: Path) -> None:
    covered = 0
    for name, (offset, size) in spans(honest).items():
        covered += size
        for position in (0, size // 2, size - 1):
            forged = bytearray(honest)
            forged[offset + position] ^= 1
            path.write_bytes(forged)
            if name in UNREAD:
                tribunus.open(path).close()
                continue
            with pytest.raises(expected_refusals(name)):
                tribunus.open(path)
    assert covered == len(honest)  # no byte of the file was left out


@pytest.mark.parametrize("size", [0, 511, 512, 4096, -1024, -512, -1])
def test_a_truncated_image_is_refused(honest: bytes, path: Path, size: int) -> None:
    path.write_bytes(honest[:size])
    with pytest.raises(ContainerError):
        tribunus.open(path)


def test_an_unknown_key_is_refused_and_a_policy_that_names_it_is_followed(
    make_image: MakeImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = make_image(tmp_path / "bob.tci", Toy(signer=BOB))
    with pytest.raises(UntrustedError):
        tribunus.open(path)
    policy = tmp_path / "bob.json"
    policy.write_bytes(add_key(None, BOB.public).encode())
    with tribunus.open(path, trust=policy) as image:
        np.testing.assert_array_equal(image.run({"x": rows(2)})["y"], Toy().expected(rows(2)))
    monkeypatch.setenv("TRIBUNUS_TRUST", str(policy))
    tribunus.open(path).close()


def test_without_a_policy_nothing_opens(path: Path, tmp_path: Path) -> None:
    (tmp_path / "home" / "CONFIG" / "tribunus" / "trust.json").unlink()
    with pytest.raises(PolicyError):
        tribunus.open(path)


def test_a_missing_processor_feature_is_named(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tribunus.open(path) as image:
        features = image.plan.features
    monkeypatch.setattr(fitness, "cpu_features", lambda: frozenset(features) - {features[0]})
    with pytest.raises(FeatureError, match=f"cpu feature {features[0]}"):
        tribunus.open(path)


def test_the_richest_region_that_fits_is_chosen(
    make_image: MakeImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, rich = (
        Toy(target="cpu-plain", features=("one",)),
        Toy(target="cpu-rich", features=("one", "two"), launches=5),
    )
    path = make_image(tmp_path / "both.tci", plain, rich)
    for available, chosen in (({"one", "two", "three"}, "cpu-rich"), ({"one"}, "cpu-plain")):
        monkeypatch.setattr(fitness, "cpu_features", lambda found=available: frozenset(found))
        with tribunus.open(path) as image:
            assert image.plan.target == chosen
    monkeypatch.setattr(fitness, "cpu_features", frozenset)
    with pytest.raises(FeatureError, match="cpu-plain: cpu feature one; cpu-rich: cpu feature one, cpu feature two"):
        tribunus.open(path)


def test_an_image_for_another_family_or_machine_is_refused(
    make_image: MakeImage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(TargetError, match="no device for cuda-sm90 here"):
        tribunus.open(make_image(tmp_path / "gpu.tci", Toy(target="cuda-sm90")))
    path = make_image(tmp_path / "cpu.tci")
    monkeypatch.setattr(os, "uname", lambda: replace_machine("riscv64"))
    with pytest.raises(FeatureError, match="this is riscv64"):
        tribunus.open(path)


def replace_machine(machine: str) -> os.uname_result:
    return os.uname_result(("Linux", "host", "6", "1", machine))


def test_where_memory_cannot_be_made_executable_the_image_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cpu.System, "protect", lambda self, address, size, protection: not protection & cpu.PROT_EXEC)
    with pytest.raises(NoExecError):
        tribunus.open(path)


def overlapping(plan: Plan) -> Plan:
    profile = plan.profiles[0]
    buffers = list(profile.buffers)
    buffers[2] = replace(buffers[2], offset=buffers[1].offset)
    return replace(plan, profiles=(replace(profile, buffers=tuple(buffers)),))


def other_digest(plan: Plan) -> Plan:
    return replace(plan, kernels=(replace(plan.kernels[0], digest=Digest("00" * 32)), *plan.kernels[1:]))


def no_sequencer(plan: Plan) -> Plan:
    return replace(plan, host=())


def blocked_port(plan: Plan) -> Plan:
    profile = plan.profiles[0]
    port = replace(profile.inputs[0], layout=Layout((1, 0)))
    return replace(plan, profiles=(replace(profile, inputs=(port,)),))


def test_a_signed_plan_that_is_unsound_is_refused(make_image: MakeImage, tmp_path: Path) -> None:
    cases: tuple[tuple[Callable[[Plan], Plan], type[TribunusError]], ...] = (
        (overlapping, OverlapError),
        (other_digest, IntegrityError),
        (no_sequencer, PlanError),
        (lambda plan: replace(plan, threads=2, kernels=plan.kernels[:1]), PlanError),
        (lambda plan: replace(plan, arch="x86-64-v2"), ReceiptError),
    )
    for number, (change, error) in enumerate(cases):
        with pytest.raises(error):
            tribunus.open(make_image(tmp_path / f"{number}.tci", change=change))


def test_a_port_that_is_not_row_major_is_refused_when_it_is_bound(make_image: MakeImage, tmp_path: Path) -> None:
    with (
        tribunus.open(make_image(tmp_path / "blocked.tci", change=blocked_port)) as image,
        pytest.raises(PlanError, match="row-major"),
    ):
        image.bind()


def test_what_can_be_written_by_others_is_copied_and_gives_the_same(path: Path) -> None:
    path.chmod(0o600)
    with open_image(path) as source:
        in_place = source.weights_copied_because
    path.chmod(0o666)
    with open_image(path) as source:
        assert source.weights_copied_because == f"{path} can be written by others"
    with tribunus.open(path) as image:
        np.testing.assert_array_equal(image.run({"x": rows(2)})["y"], Toy().expected(rows(2)))
    assert in_place is None or "can be written by others" in in_place or "belongs to another user" in in_place


@pytest.mark.parametrize("mode", list(WeightsMode))
def test_weights_are_the_same_in_every_mode(path: Path, mode: WeightsMode) -> None:
    with open_image(path, mode) as source:
        view = source.region(source.targets[0]).weights(0)
        assert view.readonly and bytes(view[: WEIGHT.nbytes]) == WEIGHT.tobytes()
    assert bytes(view[: WEIGHT.nbytes]) == WEIGHT.tobytes()


def test_the_file_may_vanish_once_it_is_open(path: Path) -> None:
    with tribunus.open(path) as image:
        path.unlink()
        np.testing.assert_array_equal(image.run({"x": rows(2)})["y"], Toy().expected(rows(2)))


@pytest.mark.parametrize("collecting", [True, False])
def test_the_collector_rests_while_an_image_is_opened_and_is_left_as_it_was(
    path: Path, collecting: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[bool] = []

    def noting(plan: Plan, region: CheckedRegion) -> None:
        seen.append(gc.isenabled())
        check_region(plan, region)

    monkeypatch.setattr(session, "check_region", noting)
    before = gc.isenabled()
    (gc.enable if collecting else gc.disable)()
    try:
        with tribunus.open(path):
            assert gc.isenabled() is collecting
        with pytest.raises(TribunusError):
            tribunus.open(path.with_name("absent.tci"))
        assert gc.isenabled() is collecting
    finally:
        (gc.enable if before else gc.disable)()
    assert seen == [False]
