"""Dims as template sizes: numbers stay numbers, everything else becomes a parameter.

Imported by: the families.  Imports: phaseir, templates.csource.
"""

from __future__ import annotations

from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim
from tribunus_native.templates.csource import Param, Size, Workspace


class Sizes:
    """Parameters of one kernel in the order of their first use."""

    def __init__(self) -> None:
        self._params: list[Dim] = []

    def size(self, dim: Dim) -> Size:
        """A number, or the parameter that holds it."""
        if isinstance(dim, int):
            return dim
        if dim not in self._params:
            self._params.append(dim)
        return Param(self._params.index(dim))

    @property
    def params(self) -> tuple[Dim, ...]:
        return tuple(self._params)

    def workspace(self, workspace: Workspace, parts: int) -> Dim:
        """Bytes of a template's scratch."""
        total: Dim = workspace.fixed_bytes
        for index, each in workspace.per_param:
            total = dims.add(total, dims.mul(each, self._params[index]))
        return dims.mul(parts, total)
