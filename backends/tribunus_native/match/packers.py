"""The table of named packings.

Imported by: backend.  Imports: packing, the families that have packings of their own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from tribunus.errors import InternalError
from tribunus.phaseir.program import Array
from tribunus.plan.code import Packing
from tribunus_native.match.packing import Options, pack_panels, pack_vector
from tribunus_native.match.quantized import pack as pack_quantized
from tribunus_native.match.quantized_batch import pack as pack_quantized_batch
from tribunus_native.match.recurrent import pack as pack_recurrent
from tribunus_native.match.transposed import pack as pack_transposed
from tribunus_native.match.windows import pack_narrow_weights, pack_winograd_weights

PACKERS: Final[Mapping[str, Callable[[Options, Sequence[Array]], Array]]] = MappingProxyType(
    {
        "vector": pack_vector,
        "panels": pack_panels,
        "transposed": pack_transposed,
        "winograd": pack_winograd_weights,
        "narrow": pack_narrow_weights,
        "recurrent": pack_recurrent,
        "quantized": pack_quantized,
        "quantized_batch": pack_quantized_batch,
    }
)


def pack_named(packing: Packing, arrays: Sequence[Array]) -> bytes:
    """Bytes of a named packing.  Raises InternalError for an unknown name."""
    if packing.name not in PACKERS:
        raise InternalError(f"no packing is called {packing.name!r}")
    return PACKERS[packing.name](dict(packing.config), arrays).tobytes()
