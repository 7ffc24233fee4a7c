"""Products with constant weights, and what follows them, by the ``gemm`` template.

Imported by: table.  Imports: templates.gemm.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tribunus.candidates.model import Config, ConfigValue, Signature
from tribunus.numerics.dtypes import DType
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim
from tribunus.phaseir.program import Role
from tribunus.plan.code import WorkSplit
from tribunus.targets.target import Target
from tribunus_native.loops.stages import split_of
from tribunus_native.match.epilogues import Parsed, parse_epilogue
from tribunus_native.match.kernel import Kernel, Layouts, Proposal
from tribunus_native.match.layouts import all_row_major
from tribunus_native.match.operands import rebind
from tribunus_native.match.packing import panels_weight, vector_weight
from tribunus_native.match.sizes import Sizes
from tribunus_native.templates.csource import Size
from tribunus_native.templates.gemm import GemmParams, GemmPoint, Order, Split, gemm, gemm_points
from tribunus_native.toolchain import Contraction, Cpu

MOST_POINTS = 240


@dataclass(frozen=True, slots=True)
class Product:
    """``rows`` rows times weights [k, n].  x, weight: value ids."""

    x: int
    weight: int
    rows: Dim
    k: int
    n: int
    parsed: Parsed


def match_product(signature: Signature) -> Product | None:
    """A float32 matmul with a two-dimensional weight on the right, and an epilogue."""
    ops = signature.phase.ops
    if not ops or ops[0].kind != "matmul" or len(signature.outputs) != 1:
        return None
    x, weight = ops[0].inputs
    program = signature.program
    held, source = program.values[weight], program.values[x]
    if held.role not in (Role.WEIGHT, Role.CONSTANT) or source.role is not Role.INPUT:
        return None
    if held.type.rank != 2 or not held.type.is_static or held.type.dtype is not DType.F32 or source.type.rank < 1:
        return None
    k, n = held.type.numbers()
    result = signature.type_of(ops[0].outputs[0])
    if result.rank == 0 or k == 0 or n == 0:
        return None
    parsed = parse_epilogue(signature, ops[1:], ops[0].outputs[0], result.rank - 1, None)
    if parsed is None:
        return None
    return Product(x, weight, dims.product(source.type.shape[:-1]), k, n, parsed)


def gemm_config(point: GemmPoint, split: Split) -> dict[str, ConfigValue]:
    """A point as config entries."""
    return {
        "lanes": point.lanes,
        "mr": point.mr,
        "nv": point.nv,
        "kc": point.kc,
        "order": point.order.value,
        "pack_a": int(point.pack_a),
        "contraction": point.contraction.value,
        "split": split.value,
    }


def gemm_point(config: Config) -> GemmPoint:
    """Inverse of ``gemm_config``."""
    return GemmPoint(
        lanes=config.integer("lanes"),
        mr=config.integer("mr"),
        nv=config.integer("nv"),
        kc=config.integer("kc"),
        order=Order(config.text("order")),
        pack_a=bool(config.integer("pack_a")),
        contraction=Contraction(config.text("contraction")),
    )


class Gemm:
    """Row-major products with weights packed offline."""

    @property
    def name(self) -> str:
        return "gemm"

    def why_not(self, signature: Signature, cpu: Cpu) -> str:
        return "" if match_product(signature) is not None else "no float32 product with a constant matrix"

    def _rows(self, signature: Signature, product: Product) -> Size:
        return Sizes().size(product.rows)

    def propose(self, signature: Signature, cpu: Cpu, layouts: Layouts | None) -> Iterator[Proposal]:
        product = match_product(signature)
        border = all_row_major(signature)
        if product is None or layouts not in (None, border) or product.rows == 0:
            return
        strict = signature.policy is ComputePolicy.FP32_STRICT
        split = Split.PANELS if isinstance(product.rows, int) and product.rows < 64 else Split.ROWS
        points = gemm_points(self._rows(signature, product), product.n, product.k, cpu)
        for point in points[:MOST_POINTS]:
            if strict and point.contraction is not Contraction.SEPARATE and product.parsed.steps:
                continue
            yield Proposal({"template": self.name, **gemm_config(point, split)}, border)

    def build(self, signature: Signature, config: Config, layouts: Layouts, target: Target, cpu: Cpu) -> Kernel:
        product = match_product(signature)
        if product is None:
            raise LookupError(signature.name)
        sizes, point, parsed = Sizes(), gemm_point(config), product.parsed
        params = GemmParams(
            rows=sizes.size(product.rows),
            n=product.n,
            k=product.k,
            point=point,
            avx512=cpu.has_avx512,
            bias=parsed.bias is not None,
            epilogue=parsed.steps,
            split=Split(config.text("split")),
        )
        source = gemm(params)
        weights = [panels_weight(product.weight, params.panels, product.k, 1, "matrix")]
        vectors = ([parsed.bias] if parsed.bias else []) + list(parsed.vectors)
        weights += [vector_weight(v, product.n, point.lanes) for v in vectors]
        split = split_of(target.threads)
        return Kernel(
            text=rebind(source, signature, (product.x, *parsed.tensors), signature.outputs),
            contraction=point.contraction,
            weights=tuple(weights),
            workspace=sizes.workspace(source.workspace, split.parts),
            params=sizes.params,
            split=split if split.parts == 1 else WorkSplit(params.split.value, split.parts),
        )
