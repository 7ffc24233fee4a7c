"""What the families of integer products share: the kinds of bytes, a point as config entries.

Imported by: quantized, quantized_batch.  Imports: templates.integer_dot.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tribunus.candidates.model import Config, ConfigValue
from tribunus.numerics.dtypes import DType
from tribunus_native.templates.integer_dot import Byte, Dot, QuantizedPoint
from tribunus_native.toolchain import Contraction

BYTES: Final[Mapping[DType, Byte]] = {DType.U8: Byte.U8, DType.I8: Byte.S8}


def quantized_config(point: QuantizedPoint) -> dict[str, ConfigValue]:
    """A point as config entries."""
    return {
        "dot": point.dot.value,
        "lanes": point.lanes,
        "mr": point.mr,
        "nv": point.nv,
        "contraction": point.contraction.value,
    }


def quantized_point(config: Config) -> QuantizedPoint:
    """Inverse of ``quantized_config``."""
    return QuantizedPoint(
        dot=Dot(config.integer("dot")),
        lanes=config.integer("lanes"),
        mr=config.integer("mr"),
        nv=config.integer("nv"),
        contraction=Contraction(config.text("contraction")),
    )
