"""Regions that the planners make: what the plan says of them, and how their bytes come back."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tests.planning.models import images, region, rows
from tribunus.image.plan_checker import check_plan
from tribunus.phaseir import dims
from tribunus.plan.document import plan_from_json, plan_to_json
from tribunus.plan.plan import BufferRole
from tribunus.planning.assemble import AssembledRegion


def checked(made: AssembledRegion) -> None:
    check_plan(made.plan, memoryview(made.kernels), [len(shard) for shard in made.shards])


def test_planned_regions_pass_the_independent_checker(tmp_path: Path) -> None:
    for models in ([images()], [rows()], [images(), rows()]):
        checked(region(models, tmp_path))
        checked(region(models, tmp_path, host=True))


def test_equal_signatures_share_a_kernel_and_equal_weights_a_tensor(tmp_path: Path) -> None:
    made = region([images(), images()], tmp_path)
    plan = made.plan
    assert len({kernel.id for kernel in plan.kernels}) == len(plan.kernels)
    single = region([images()], tmp_path)
    assert plan.kernels == single.plan.kernels
    assert plan.tensors == single.plan.tensors
    assert made.shards == single.shards


def test_weights_lie_in_the_shard_as_the_model_has_them(tmp_path: Path) -> None:
    model = images()
    made = region([model], tmp_path)
    for tensor in made.plan.tensors:
        data = made.shards[tensor.blob][tensor.offset : tensor.offset + tensor.size]
        (source,) = tensor.sources
        assert data == np.ascontiguousarray(model.constants.get(source)).tobytes()


def test_weights_that_two_kernels_pack_to_equal_bytes_lie_in_the_shard_once(tmp_path: Path) -> None:
    made = region([rows(), rows(10)], tmp_path)
    checked(made)
    assert len({tensor.kernel for tensor in made.plan.tensors}) == 2
    (single,) = region([rows()], tmp_path).shards
    assert made.shards == (single,)


def test_code_lies_in_the_pack_where_the_plan_says(tmp_path: Path) -> None:
    made = region([rows()], tmp_path, host=True)
    for kernel in made.plan.kernels:
        assert len(made.kernels[kernel.offset : kernel.offset + kernel.size]) == kernel.size
    (host,) = made.plan.host
    assert made.kernels[host.offset : host.offset + host.size] == b"walks"


def test_buffers_are_planned_at_the_upper_bounds(tmp_path: Path) -> None:
    model = rows()
    (profile,) = region([model], tmp_path).plan.profiles
    upper = model.program.scope.upper()
    (port,) = profile.inputs
    assert profile.buffers[port.buffer].size == dims.evaluate(port.type.nbytes, upper)
    assert profile.buffers[port.buffer].role is BufferRole.INPUT
    assert {profile.buffers[p.buffer].role for p in profile.outputs} == {BufferRole.OUTPUT}
    assert [p.label for p in profile.outputs] == ["y"]


def test_memory_is_no_more_than_planned_and_no_less_than_needed(tmp_path: Path) -> None:
    made = region([images()], tmp_path)
    (profile,) = made.plan.profiles
    (memory,) = made.memory
    assert profile.arena == memory.arena >= memory.lower_bound
    assert memory.arena < sum(-(-buffer.size // 64) * 64 for buffer in profile.buffers)


def test_assembly_is_deterministic_and_its_plan_round_trips(tmp_path: Path) -> None:
    first, second = (region([images(), rows()], tmp_path) for _ in range(2))
    assert first == second
    assert plan_from_json(plan_to_json(first.plan)) == first.plan
