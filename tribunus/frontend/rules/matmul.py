"""Rules: matrix products and Einsum.

Imported by: the rule table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tribunus.errors import LoweringError
from tribunus.frontend.lowering import Lowering, Operand, Outputs, Rule, Site
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim


def _matmul(to: Lowering, site: Site) -> Outputs:
    return to.emit("matmul", [site.x(0), site.x(1)])


def _matmul_integer(to: Lowering, site: Site) -> Outputs:
    operands: list[Operand | None] = [site.x(0), site.x(1), site.optional(2), site.optional(3)]
    zero_point = operands[2]
    if zero_point is not None and zero_point.rank == 1 and zero_point.shape != (1,):
        operands[2] = to.reshape(zero_point, (*zero_point.shape, 1))  # one a row
    while operands[-1] is None:
        operands.pop()
    return to.emit("matmul_integer", operands)


def _scaled(to: Lowering, x: Operand, factor: float) -> Operand:
    return x if factor == 1.0 else to.one("mul", x, to.scalar(factor, x.dtype))


def _gemm(to: Lowering, site: Site) -> Outputs:
    a, b, c = site.x(0), site.x(1), site.optional(2)
    if a.rank != 2 or b.rank != 2:
        raise LoweringError("operands must have rank 2")
    a = to.transpose(a, (1, 0)) if site.integer("transA", 0) else a
    b = to.transpose(b, (1, 0)) if site.integer("transB", 0) else b
    product = _scaled(to, to.one("matmul", a, b), site.number("alpha", 1.0))
    beta = site.number("beta", 1.0)
    if c is None or beta == 0.0:
        return (product,)
    return to.emit("add", [product, _scaled(to, c, beta)])


def _einsum(to: Lowering, site: Site) -> Outputs:
    equation = site.text("equation", "").replace(" ", "")
    left, arrow, result = equation.partition("->")
    terms = left.split(",")
    operands = site.all()
    if "." in equation:
        raise LoweringError("an ellipsis in the equation is not supported")
    if not arrow:
        letters = "".join(terms)
        result = "".join(sorted(c for c in set(letters) if letters.count(c) == 1))
    if len(terms) != len(operands) or any(len(t) != x.rank for t, x in zip(terms, operands, strict=False)):
        raise LoweringError(f"equation {equation!r} does not fit the operands")
    if any(len(set(t)) != len(t) for t in (*terms, result)):
        raise LoweringError(f"equation {equation!r} repeats an index in one operand")
    value, term = operands[0], terms[0]
    for i in range(1, len(operands)):
        rest = set(result).union(*terms[i + 1 :])
        value, term = _contract(to, (value, operands[i]), (term, terms[i]), rest)
    value, term = _sum_out(to, value, term, set(result))
    return (to.transpose(value, [term.index(c) for c in result]),)


def _sum_out(to: Lowering, x: Operand, term: str, keep: set[str]) -> tuple[Operand, str]:
    axes = [i for i, c in enumerate(term) if c not in keep]
    if not axes:
        return x, term
    return to.reduce("reduce_sum", x, axes, keepdims=False), "".join(c for c in term if c in keep)


def _contract(
    to: Lowering, pair: tuple[Operand, Operand], terms: tuple[str, str], rest: set[str]
) -> tuple[Operand, str]:
    """One product of two operands as a batched matrix product; indices in ``rest`` survive."""
    a, left = _sum_out(to, pair[0], terms[0], set(terms[1]) | rest)
    b, right = _sum_out(to, pair[1], terms[1], set(left) | rest)
    batch = [c for c in left if c in right and c in rest]
    inner = [c for c in left if c in right and c not in rest]
    rows = [c for c in left if c not in right]
    columns = [c for c in right if c not in left]
    a_sizes, b_sizes = dict(zip(left, a.shape, strict=True)), dict(zip(right, b.shape, strict=True))
    if any(a_sizes[c] != b_sizes[c] and not to.scope.equal(a_sizes[c], b_sizes[c]) for c in batch + inner):
        raise LoweringError("an index stands for two extents")
    sizes = {**b_sizes, **a_sizes}

    def grouped(x: Operand, term: str, groups: Sequence[Sequence[str]]) -> Operand:
        order = [c for group in groups for c in group]
        moved = to.transpose(x, [term.index(c) for c in order])
        shape: list[Dim] = [sizes[c] for c in groups[0]]
        shape += [dims.product([sizes[c] for c in group]) for group in groups[1:]]
        return to.reshape(moved, tuple(shape))

    product = to.one("matmul", grouped(a, left, (batch, rows, inner)), grouped(b, right, (batch, inner, columns)))
    term = "".join((*batch, *rows, *columns))
    return to.reshape(product, tuple(sizes[c] for c in term)), term


RULES: Final[Mapping[str, Rule]] = MappingProxyType(
    {"MatMul": _matmul, "MatMulInteger": _matmul_integer, "Gemm": _gemm, "Einsum": _einsum}
)
