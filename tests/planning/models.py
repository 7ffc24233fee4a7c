"""Small programs, their schedules, and the regions that the planners make of them.

Imported by: the tests of planning, tests of the plan checker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tests.reference_backend.backend import BACKEND
from tribunus.admission.key import content_key
from tribunus.candidates.backend import Budget, Effort, Feedback
from tribunus.candidates.model import Signature
from tribunus.canon import Digest
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.passes.partition import partition
from tribunus.phaseir.attributes import Attributes, AttributeValue
from tribunus.phaseir.dims import Sym, Symbol
from tribunus.phaseir.layouts import Layout, channels_last, row_major
from tribunus.phaseir.program import Constants, Program, ProgramBuilder
from tribunus.phaseir.types import TensorType
from tribunus.plan.code import Code, CodeFormat
from tribunus.planning.assemble import AssembledRegion, ProfileDraft, Winner, assemble
from tribunus.planning.layout_plan import LayoutProblem, plan_layouts
from tribunus.planning.schedule import Demand, Schedule
from tribunus.targets.target import Target

TARGET = Target("cpu", "x86-64-v3", 1)
Choice = tuple[Layout, ...]
_WINDOW: dict[str, AttributeValue] = {"strides": (1, 1), "pads": (1, 1, 1, 1), "dilations": (1, 1), "group": 1}
_POOL: dict[str, AttributeValue] = {
    "kernel": (2, 2),
    "strides": (2, 2),
    "pads": (0, 0, 0, 0),
    "dilations": (1, 1),
    "ceil_mode": 0,
}


@dataclass
class Model:
    """A program with its constants."""

    program: Program
    constants: Constants


def images() -> Model:
    """Two convolutions, a residual, a transpose, a reshape, a product: branches, aliases, views."""
    builder = ProgramBuilder(Constants())
    random = np.random.default_rng(1)

    def weight(*shape: int) -> int:
        return builder.constant(random.standard_normal(shape).astype(np.float32), DType.F32)

    x = builder.input(TensorType(DType.F32, (1, 8, 6, 5)), "image")
    (a,) = builder.op("conv", (x, weight(8, 8, 3, 3)), Attributes.of(_WINDOW))
    (b,) = builder.op("conv", (a, weight(8, 8, 3, 3)), Attributes.of(_WINDOW))
    (c,) = builder.op("max_pool", (b,), Attributes.of(_POOL))
    (t,) = builder.op("transpose", (c,), Attributes.of({"perm": (0, 2, 3, 1)}))
    (r,) = builder.op("reshape", (t,), Attributes.of({"shape": (6, 8)}))
    (y,) = builder.op("matmul", (r, weight(8, 7)), labels=("scores",))
    (s,) = builder.op("softmax", (y,), Attributes.of({"axis": 1}), labels=("shares",))
    return Model(builder.finish("main", (x,), (y, s)), builder.constants)


def rows(least: int = 1) -> Model:
    """A range of nine numbers of rows, ``least`` the smallest, through two products and a sum."""
    symbol = Symbol("s0", "rows", least, least + 3, least + 8)
    builder = ProgramBuilder(Constants(), (symbol,))
    random = np.random.default_rng(2)
    x = builder.input(TensorType(DType.F32, (Sym("s0"), 12)), "x")
    w, v = (builder.constant(random.standard_normal((12, 12)).astype(np.float32), DType.F32) for _ in range(2))
    (a,) = builder.op("matmul", (x, w))
    (b,) = builder.op("matmul", (a, v))
    (s,) = builder.op("softmax", (b,), Attributes.of({"axis": 1}))
    (y,) = builder.op("add", (s, x), labels=("y",))
    return Model(builder.finish("main", (x,), (y,)), builder.constants)


def both_layouts(signature: Signature) -> Sequence[Choice]:
    """Row-major, and channels last."""
    ranks = [signature.type_of(v).rank for v in (*signature.inputs, *signature.outputs)]
    return tuple(dict.fromkeys((tuple(row_major(r) for r in ranks), tuple(channels_last(r) for r in ranks))))


def problem(model: Model, choices: Callable[[Signature], Sequence[Choice]] = both_layouts) -> LayoutProblem:
    """The most fused cover of a model."""
    cut = partition(model.program, 0, model.constants)
    uses = [use for region in cut.regions for use in region.alternatives[0]]
    signatures = [Signature(use.signature, ComputePolicy.FP32, model.constants) for use in uses]
    table: Mapping[Digest, Sequence[Choice]] = {s.digest: choices(s) for s in signatures}
    return LayoutProblem(model.program, model.program.only_phase, uses, signatures, cut.aliases, table)


def schedule(model: Model, choices: Callable[[Signature], Sequence[Choice]] = both_layouts) -> Schedule:
    """Its layouts planned."""
    return plan_layouts(problem(model, choices), ComputePolicy.FP32, model.constants)


def winner(demand: Demand, folder: Path) -> Winner:
    """The reference backend's only candidate."""
    budget = Budget(Effort.QUICK, 1)
    (candidate,) = BACKEND.propose(demand.signature, TARGET, budget, Feedback(layouts=demand.layouts))
    artifact = BACKEND.build(candidate, demand.signature, TARGET, folder)
    return Winner(artifact, BACKEND, content_key(candidate, demand.signature, TARGET))


def region(models: Sequence[Model], folder: Path, *, host: bool = False) -> AssembledRegion:
    """A region of one profile a model."""
    drafts: list[ProfileDraft] = []
    winners: dict[Demand, Winner] = {}
    constants = Constants()
    for number, model in enumerate(models):
        for digest, array in model.constants.view().items():
            assert constants.add(array, DType.F32) == digest
        made = schedule(model)
        points = tuple({tuple(at[s.name] for s in model.program.symbols) for at in (model.program.scope.optimum(),)})
        drafts.append(ProfileDraft(f"profile {number}", model.program, made, points))
        winners |= {demand: winner(demand, folder) for demand in made.demands()}
    served = (("sequencer", Code(CodeFormat("flat"), b"walks", (("text_size", 5),))),) if host else ()
    return assemble(drafts, winners, TARGET, constants, served)
