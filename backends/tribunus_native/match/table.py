"""The families in the order of their speed.

Imported by: backend.  Imports: the families.
"""

from __future__ import annotations

from typing import Final

from tribunus_native.match.attention import Attention
from tribunus_native.match.conv import Conv, Depthwise
from tribunus_native.match.gemm import Gemm
from tribunus_native.match.generic import Loops
from tribunus_native.match.kernel import Family
from tribunus_native.match.norms import RowNorm, RowSoftmax
from tribunus_native.match.pool import Pooling
from tribunus_native.match.quantized import QuantizedProduct
from tribunus_native.match.quantized_batch import QuantizedBatch
from tribunus_native.match.recurrent import Recurrent
from tribunus_native.match.transposed import Transposed
from tribunus_native.match.windows import Narrow, Winograd

FAMILIES: Final[tuple[Family, ...]] = (
    Winograd(),
    Narrow(),
    Conv(),
    Depthwise(),
    Transposed(),
    Gemm(),
    QuantizedProduct(),
    QuantizedBatch(),
    Attention(),
    RowNorm(),
    RowSoftmax(),
    Pooling(),
    Recurrent(),
    Loops(),
)
