"""Loading code: what was hashed is what runs, and a format nobody replays is said so."""

from __future__ import annotations

import ctypes
from dataclasses import replace
from pathlib import Path

import pytest

import tribunus
from tests.runtime.conftest import WEIGHT, MakeImage, Toy, rows
from tribunus.canon import Digest, decode
from tribunus.errors import DriverError, FeatureError, IntegrityError, KernelBoundsError, PlanError
from tribunus.image.read import ImageFile, open_image
from tribunus.plan.code import CodeFormat
from tribunus.plan.document import plan_from_json
from tribunus.plan.plan import Plan
from tribunus.runtime.region import LoadedRegion, RegionBytes
from tribunus.runtime.replayers import find_replayer
from tribunus.runtime.session import Session, match_inputs


def held_of(source: ImageFile) -> RegionBytes:
    region = source.region(source.targets[0])
    plan = plan_from_json(decode(region.plan(), limit=1 << 20))
    return RegionBytes(plan, region.kernels(), (region.weights(0),))


def changed(held: RegionBytes, plan: Plan) -> RegionBytes:
    return RegionBytes(plan, held.kernels, held.weights)


def test_a_region_without_a_file_replays(path: Path) -> None:
    """As the program check does it, before there is an image."""
    with open_image(path) as source:
        held = held_of(source)
    region = LoadedRegion(held, find_replayer)
    x = rows(4)
    profile, values = match_inputs(region.plan, {"x": x})
    session = Session(region, profile, values)
    session.inputs["x"][...] = x
    session.replay()
    assert (session.outputs["y"] == Toy().expected(x)).all()
    assert bytes(region.tensor_bytes(0)) == WEIGHT.tobytes()
    assert ctypes.string_at(region.tensor_address(0), WEIGHT.nbytes) == WEIGHT.tobytes()
    session.close()
    region.close()


def test_code_of_another_digest_or_outside_the_pack_is_not_bound(path: Path) -> None:
    with open_image(path) as source:
        held = held_of(source)
    plan = held.plan
    wrong = replace(plan.kernels[1], digest=Digest("00" * 32))
    region = LoadedRegion(changed(held, replace(plan, kernels=(plan.kernels[0], wrong))), find_replayer)
    region.kernel(0)
    with pytest.raises(IntegrityError, match="code at"):
        region.load_all()
    far = replace(plan.kernels[0], offset=1 << 20)
    with pytest.raises(KernelBoundsError, match="outside the pack"):
        LoadedRegion(changed(held, replace(plan, kernels=(far,))), find_replayer).load_all()
    host = replace(plan.host[0], digest=Digest("00" * 32))
    with pytest.raises(IntegrityError):
        LoadedRegion(changed(held, replace(plan, host=(host,))), find_replayer)


def test_bytes_that_are_no_flat_code_are_refused(path: Path) -> None:
    with open_image(path) as source:
        held = held_of(source)
    for facts in ((), (("text_size", 0),), (("text_size", 1 << 20),), (("text_size", "12"),)):
        kernel = replace(held.plan.kernels[0], facts=facts)
        with pytest.raises(DriverError, match="no flat code"):
            LoadedRegion(changed(held, replace(held.plan, kernels=(kernel,))), find_replayer).load_all()


def test_a_plan_without_a_sequencer_and_one_that_needs_more_are_refused(path: Path) -> None:
    with open_image(path) as source:
        held = held_of(source)
    with pytest.raises(PlanError, match="no sequencer"):
        LoadedRegion(changed(held, replace(held.plan, host=())), find_replayer)
    with pytest.raises(FeatureError, match="lacks warp-drive"):
        LoadedRegion(changed(held, replace(held.plan, features=("warp-drive",))), find_replayer)


def test_a_format_that_nothing_replays_is_named(make_image: MakeImage, tmp_path: Path) -> None:
    def foreign(plan: Plan) -> Plan:
        return replace(plan, kernels=tuple(replace(k, format=CodeFormat("punched-cards")) for k in plan.kernels))

    with pytest.raises(DriverError, match="'punched-cards'"):
        tribunus.open(make_image(tmp_path / "foreign.tci", change=foreign))
