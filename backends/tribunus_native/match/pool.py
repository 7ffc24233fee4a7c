"""Pooling of images, channels last, by the ``pooling`` template.

Imported by: table.  Imports: templates.pooling.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tribunus.candidates.model import Config, ConfigValue, Signature
from tribunus.errors import InternalError
from tribunus.numerics.dtypes import DType
from tribunus.phaseir.dims import Dim
from tribunus.phaseir.program import Op, Role
from tribunus.targets.target import Target
from tribunus_native.loops.stages import split_of
from tribunus_native.match.conv import Image, seen_through
from tribunus_native.match.kernel import Kernel, Layouts, Proposal
from tribunus_native.match.layouts import all_channels_last
from tribunus_native.match.operands import rebind
from tribunus_native.match.sizes import Sizes
from tribunus_native.templates.pooling import Pool, PoolParams, PoolPoint, pool_points, pooling
from tribunus_native.toolchain import Contraction, Cpu


@dataclass(frozen=True, slots=True)
class Pooled:
    """One pooling."""

    op: Op
    batch: Dim
    image: Image
    channels: int
    pool: Pool


def match_pool(signature: Signature) -> Pooled | None:
    """max_pool or average_pool of float32 images."""
    ops = signature.phase.ops
    if len(ops) != 1 or ops[0].kind not in ("max_pool", "average_pool"):
        return None
    op = ops[0]
    x = signature.type_of(op.inputs[0])
    if signature.program.values[op.inputs[0]].role is not Role.INPUT or x.dtype is not DType.F32:
        return None
    image = seen_through(signature, op, op.inputs[0], op.attributes.integers("kernel"))
    channels = x.shape[1]
    if image is None or not isinstance(channels, int) or channels < 1:
        return None
    pool = Pool.MAX
    if op.kind == "average_pool":
        pool = Pool.AVERAGE_PADDED if op.attributes.flag("count_include_pad") else Pool.AVERAGE
    return Pooled(op, x.shape[0], image, channels, pool)


class Pooling:
    """Max and average pooling."""

    @property
    def name(self) -> str:
        return "pool"

    def why_not(self, signature: Signature, cpu: Cpu) -> str:
        return "" if match_pool(signature) is not None else "no pooling of float32 images over one or two axes"

    def propose(self, signature: Signature, cpu: Cpu, layouts: Layouts | None) -> Iterator[Proposal]:
        found, border = match_pool(signature), all_channels_last(signature)
        if found is None or border is None or layouts not in (None, border):
            return
        for point in pool_points(found.channels, cpu):
            choice: dict[str, ConfigValue] = {
                "template": self.name,
                "lanes": point.lanes,
                "vectors": point.vectors,
                "contraction": point.contraction.value,
            }
            yield Proposal(choice, border)

    def build(self, signature: Signature, config: Config, layouts: Layouts, target: Target, cpu: Cpu) -> Kernel:
        found = match_pool(signature)
        if found is None:
            raise InternalError(f"{signature.name} is no pooling for this template")
        sizes = Sizes()
        contraction = Contraction(config.text("contraction"))
        params = PoolParams(
            batch=sizes.size(found.batch),
            window=found.image.window,
            channels=found.channels,
            pool=found.pool,
            point=PoolPoint(lanes=config.integer("lanes"), vectors=config.integer("vectors"), contraction=contraction),
            avx512=cpu.has_avx512,
            out=found.image.out_numbers,
            extents=found.image.extents(sizes, found.batch),
        )
        return Kernel(
            text=rebind(pooling(params), signature, signature.inputs, signature.outputs),
            contraction=contraction,
            params=sizes.params,
            split=split_of(target.threads),
        )
