"""Copies of extents that only the call knows, and of fixed ones that no vector divides: every element, no byte else."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tribunus_native.backend import NativeBackend
from tribunus_native.toolchain import Cpu

from tests.native.groups import Group, GroupBuilder, Workshop
from tribunus.admission.flat_audit import audit_flat
from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim, Sym, Symbol
from tribunus.phaseir.layouts import Layout
from tribunus.targets.detect import host_arch
from tribunus.targets.target import Target

from .conftest import Array, Lab

D0, D1 = Sym("d0"), Sym("d1")
SYMBOLS = (Symbol("d0", "d0", 1, 7, 70), Symbol("d1", "d1", 1, 2, 70))
EXTENTS = (1, 2, 3, 4, 5, 7, 8, 9, 12, 15, 16, 17, 23, 31, 32, 33, 47, 65)
DTYPES = (DType.U8, DType.F16, DType.F32, DType.I64)
Order = tuple[int, ...]


def a_copy(shape: tuple[Dim, ...], dtype: DType) -> Group:
    """The signature of a conversion between layouts."""
    known = {symbol.name: symbol.opt for symbol in SYMBOLS}
    builder = GroupBuilder(*SYMBOLS)
    extents = dims.evaluate_shape(shape, known)
    array = np.arange(np.prod(extents)).reshape(extents).astype(dtype.numpy)
    return builder.group("copy", builder.op("copy", builder.x(*shape, dtype=dtype, array=array)))


class Copier:
    """One kernel for all values of its symbols, called on buffers that end at guard pages."""

    def __init__(
        self, lab: Lab, scratch: Path, group: Group, orders: tuple[Order, Order], parts: int = 1, arch: str = ""
    ) -> None:
        target = Target("cpu", arch or host_arch(), parts)
        self.shape = group.signature.type_of(group.signature.inputs[0]).shape
        self.dtype = group.signature.type_of(group.signature.inputs[0]).dtype.numpy
        self.orders = orders
        workshop = Workshop(NativeBackend(), target, scratch)
        candidate, *_ = workshop.candidates(group, 1, (Layout(orders[0]), Layout(orders[1])))
        artifact = workshop.build(group, candidate)
        self.recipe = artifact.recipe
        self.kernel = lab.mapped(artifact.code.data)

    def wrong(self, **bindings: int) -> bool:
        """Whether the copy is not what was to be copied."""
        extents = dims.evaluate_shape(self.shape, bindings)
        source = np.random.default_rng(sum(extents)).integers(0, 256, (*extents, self.dtype.itemsize), dtype=np.uint8)
        array = source.view(self.dtype)[..., 0]
        given, wanted = (np.ascontiguousarray(array.transpose(order)).reshape(-1) for order in self.orders)
        got: Array = np.zeros_like(wanted)
        given.flags.writeable = False
        params = [dims.evaluate(param, bindings) for param in self.recipe.params]
        self.kernel.call([given, got], params, self.recipe.split.parts)
        return got.tobytes() != wanted.tobytes()


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_transposition_of_any_extents_is_exact(dtype: DType, lab: Lab, tmp_path: Path) -> None:
    copier = Copier(lab, tmp_path, a_copy((2, D0, D1), dtype), ((0, 1, 2), (0, 2, 1)))
    assert [(r, c) for r in EXTENTS for c in EXTENTS if copier.wrong(d0=r, d1=c)] == []


@pytest.mark.parametrize("dtype", DTYPES)
def test_runs_of_any_length_are_moved_exactly(dtype: DType, lab: Lab, tmp_path: Path) -> None:
    copier = Copier(lab, tmp_path, a_copy((2, 3, D1, D0), dtype), ((0, 1, 2, 3), (0, 2, 1, 3)))
    assert [n for n in range(1, 71) if copier.wrong(d0=n, d1=3)] == []


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("back", [False, True])
def test_a_batch_that_lies_inside_is_moved_exactly(back: bool, parts: int, lab: Lab, tmp_path: Path) -> None:
    """At batch 1 such a copy transposes nothing, and has code of its own."""
    orders: tuple[Order, Order] = ((0, 1, 2), (1, 2, 0))
    copier = Copier(lab, tmp_path, a_copy((D1, D0, 15), DType.F32), orders[::-1] if back else orders, parts)
    assert [(n, b) for n in (1, 5, 16, 41) for b in (1, 2, 3, 4, 6) if copier.wrong(d0=n, d1=b)] == []


def test_a_square_of_one_symbol_is_transposed_exactly(lab: Lab, tmp_path: Path) -> None:
    copier = Copier(lab, tmp_path, a_copy((2, D0, D0), DType.F32), ((0, 1, 2), (0, 2, 1)))
    assert [n for n in range(1, 71) if copier.wrong(d0=n)] == []


@pytest.mark.parametrize("run", [1, 2, 3, 7, 8, 15, 16, 24, 33])
def test_short_runs_between_symbolic_axes_are_moved_exactly(run: int, lab: Lab, tmp_path: Path) -> None:
    """Heads of an attention: from batch, step, (q, k, v), head to others; keys on edge; batch inside."""
    group = a_copy((3, D1, 8, D0, run), DType.F32)
    for target in ((0, 1, 2, 3, 4), (0, 1, 2, 4, 3), (0, 2, 3, 4, 1)):
        orders = ((1, 3, 0, 2, 4), target)
        copier = Copier(lab, tmp_path, group, orders)
        assert [(n, b) for n in (1, 5, 16, 41) for b in (1, 3) if copier.wrong(d0=n, d1=b)] == []


@pytest.mark.parametrize(("rows", "columns"), [(15, 40), (40, 15), (17, 33), (5, 64), (31, 9), (4, 4), (3, 50)])
def test_a_fixed_transposition_that_no_tile_divides_is_exact(rows: int, columns: int, lab: Lab, tmp_path: Path) -> None:
    copier = Copier(lab, tmp_path, a_copy((2, rows, columns), DType.F32), ((0, 1, 2), (0, 2, 1)))
    assert not copier.wrong()


@pytest.mark.parametrize("orders", [((1, 0), (0, 1)), ((0, 1), (0, 1))])
def test_parts_together_copy_everything(orders: tuple[Order, Order], lab: Lab, tmp_path: Path) -> None:
    copier = Copier(lab, tmp_path, a_copy((D0, D1), DType.F32), orders, parts=3)
    assert copier.recipe.split.parts == 3
    assert [(r, c) for r in EXTENTS for c in EXTENTS if copier.wrong(d0=r, d1=c)] == []


def test_a_transposition_by_narrower_vectors_is_exact(lab: Lab, tmp_path: Path) -> None:
    group = a_copy((2, D0, D1), DType.F32)
    for cpu in lab.cpus:
        copier = Copier(lab, tmp_path, group, ((0, 1, 2), (0, 2, 1)), arch=cpu.value)
        assert [(r, c) for r in EXTENTS for c in EXTENTS if copier.wrong(d0=r, d1=c)] == [], cpu


@pytest.mark.parametrize("order", [(0, 2, 1), (1, 0, 2)])
def test_copies_for_aarch64_are_flat_code(order: Order, lab: Lab, tmp_path: Path) -> None:
    workshop = Workshop(NativeBackend(), Target("cpu", Cpu.AARCH64.value, 1), tmp_path)
    for dtype in DTYPES:
        group = a_copy((2, D0, D1), dtype)
        candidate, *_ = workshop.candidates(group, 1, (Layout((0, 1, 2)), Layout(order)))
        code = workshop.build(group, candidate).code
        assert audit_flat(code.data, int(dict(code.facts)["text_size"]), is_arm=True) == ()
