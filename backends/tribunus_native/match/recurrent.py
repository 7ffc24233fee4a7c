"""LSTM and GRU of one direction by the ``recurrent`` template.

Imported by: table, packers.  Imports: templates.recurrent.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tribunus.candidates.model import Config, ConfigValue, Signature
from tribunus.errors import InternalError
from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim
from tribunus.phaseir.program import Array, Op, Role
from tribunus.plan.code import PackedWeight, Packing
from tribunus.targets.target import Target
from tribunus_native.loops.stages import split_of
from tribunus_native.match.kernel import Kernel, Layouts, Proposal
from tribunus_native.match.layouts import all_row_major
from tribunus_native.match.operands import bind, is_constant
from tribunus_native.match.packing import Options, integer_option
from tribunus_native.match.sizes import Sizes
from tribunus_native.templates.csource import ceil_div
from tribunus_native.templates.recurrent import (
    Cell,
    Direction,
    RecurrentParams,
    RecurrentPoint,
    pack_recurrent,
    recurrent,
    recurrent_points,
)
from tribunus_native.toolchain import Contraction, Cpu

_PARTS = ("w", "r", "bias", "candidate_bias")


@dataclass(frozen=True, slots=True)
class OneDirection:
    """One direction of one layer.  initial: value ids of h0 and c0, empty where they are zero."""

    op: Op
    cell: Cell
    direction: Direction
    time: Dim
    batch: Dim
    inputs: int
    hidden: int
    initial: tuple[int, ...]


def match_recurrent(signature: Signature) -> OneDirection | None:
    """A float32 lstm or gru of one direction with constant weights and no lengths."""
    ops = signature.phase.ops
    if len(ops) != 1 or ops[0].kind not in ("lstm", "gru"):
        return None
    op = ops[0]
    given = [*op.inputs, *([-1] * 7)]
    x = signature.type_of(op.inputs[0])
    if x.dtype is not DType.F32 or signature.program.values[op.inputs[0]].role is not Role.INPUT:
        return None
    if not all(v < 0 or is_constant(signature, v) for v in given[1:4]) or given[4] >= 0:
        return None
    if op.attributes.text("direction") == "bidirectional" or not isinstance(x.shape[2], int) or x.shape[2] < 1:
        return None
    lstm = op.kind == "lstm"
    initial = tuple(v for v in given[5 : 7 if lstm else 6])
    if any(v >= 0 for v in initial) and any(v < 0 for v in initial):
        return None
    unread = [v for v in op.outputs if v not in signature.outputs]
    if any(not signature.type_of(v).is_static for v in unread):
        return None
    after = not lstm and op.attributes.flag("linear_before_reset")
    cell = Cell.LSTM if lstm else Cell.GRU if after else Cell.GRU_RESET_FIRST
    direction = Direction(op.attributes.text("direction"))
    kept = () if any(v < 0 for v in initial) else initial
    hidden = op.attributes.integer("hidden")
    return OneDirection(op, cell, direction, x.shape[0], x.shape[1], x.shape[2], hidden, kept)


def pack(options: Options, arrays: Sequence[Array]) -> Array:
    """Named packing ``recurrent``: one part of a packed cell.  Arrays: w, r and the bias if there is one."""
    cell = Cell(str(options["cell"]))
    w, r = (np.asarray(a, dtype=np.float32)[0] for a in arrays[:2])
    bias = np.asarray(arrays[2], dtype=np.float32)[0] if len(arrays) > 2 else None
    point = RecurrentPoint(lanes=integer_option(options, "lanes"), mr=1, contraction=Contraction.FUSED)
    params = RecurrentParams(
        cell=cell, time=1, batch=1, inputs=w.shape[1], hidden=r.shape[1], direction=Direction.FORWARD, initial=False,
        point=point, avx512=False,
    )  # fmt: skip
    packed = pack_recurrent(w, r, bias, params)
    return {"w": packed.w, "r": packed.r, "bias": packed.bias, "candidate_bias": packed.candidate_bias}[
        str(options["part"])
    ]


class Recurrent:
    """A whole sequence in one kernel."""

    @property
    def name(self) -> str:
        return "recurrent"

    def why_not(self, signature: Signature, cpu: Cpu) -> str:
        return "" if match_recurrent(signature) is not None else "no recurrent layer of one direction"

    def propose(self, signature: Signature, cpu: Cpu, layouts: Layouts | None) -> Iterator[Proposal]:
        found, border = match_recurrent(signature), all_row_major(signature)
        if found is None or layouts not in (None, border):
            return
        for point in recurrent_points(found.cell, found.hidden, cpu):
            choice: dict[str, ConfigValue] = {
                "template": self.name,
                "lanes": point.lanes,
                "mr": point.mr,
                "contraction": point.contraction.value,
            }
            yield Proposal(choice, border)

    def build(self, signature: Signature, config: Config, layouts: Layouts, target: Target, cpu: Cpu) -> Kernel:
        found = match_recurrent(signature)
        if found is None:
            raise InternalError(f"{signature.name} is no recurrent layer for this template")
        sizes = Sizes()
        contraction = Contraction(config.text("contraction"))
        point = RecurrentPoint(lanes=config.integer("lanes"), mr=config.integer("mr"), contraction=contraction)
        params = RecurrentParams(
            cell=found.cell,
            time=sizes.size(found.time),
            batch=sizes.size(found.batch),
            inputs=found.inputs,
            hidden=found.hidden,
            direction=found.direction,
            initial=bool(found.initial),
            point=point,
            avx512=cpu.has_avx512,
        )
        source = recurrent(params)
        bound = bind(source, signature, (found.op.inputs[0], *found.initial), found.op.outputs)
        split = split_of(target.threads)
        return Kernel(
            text=bound.text,
            contraction=contraction,
            weights=(*self._weights(found, point.lanes), *bound.extra),
            workspace=dims.add(bound.spill, sizes.workspace(source.workspace, split.parts)),
            params=sizes.params,
            split=split,
        )

    def _weights(self, found: OneDirection, lanes: int) -> list[PackedWeight]:
        sources = tuple(v for v in found.op.inputs[1:4] if v >= 0)
        padded = ceil_div(found.hidden, lanes) * lanes
        gates = found.cell.gates * padded
        sizes = {"w": gates * found.inputs, "r": gates * found.hidden, "bias": gates, "candidate_bias": padded}
        parts = _PARTS if found.cell is Cell.GRU else _PARTS[:3]
        weights: list[PackedWeight] = []
        for part in parts:
            options = (("cell", found.cell.value), ("lanes", lanes), ("part", part))
            weights.append(PackedWeight(sources, Packing("recurrent", options), 4 * sizes[part]))
        return weights
