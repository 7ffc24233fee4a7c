"""Convolutions by the ``winograd`` template (its own policy) and the ``narrow`` template (few output channels).

Imported by: table, packers.  Imports: conv, templates.winograd, templates.narrow.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from tribunus.candidates.model import Config, ConfigValue, Signature
from tribunus.numerics.policy import ComputePolicy
from tribunus.phaseir.program import Array
from tribunus.plan.code import PackedWeight, Packing
from tribunus.targets.target import Target
from tribunus_native.loops.stages import split_of
from tribunus_native.match.conv import Convolution, has_too_many_tiles, match_convolution, required
from tribunus_native.match.kernel import Kernel, Layouts, Proposal
from tribunus_native.match.layouts import all_channels_last
from tribunus_native.match.operands import rebind
from tribunus_native.match.packing import Options, integer_option, vector_weight
from tribunus_native.match.sizes import Sizes
from tribunus_native.templates.csource import Size, ceil_div
from tribunus_native.templates.epilogue import Epilogue
from tribunus_native.templates.narrow import (
    MOST_OUTPUTS,
    NarrowParams,
    NarrowPoint,
    narrow,
    narrow_points,
)
from tribunus_native.templates.winograd import (
    WinogradParams,
    WinogradPoint,
    pack_winograd,
    winograd,
    winograd_points,
)
from tribunus_native.toolchain import Contraction, Cpu


def _wants_winograd(signature: Signature) -> Convolution | None:
    found = match_convolution(signature)
    if found is None or signature.policy is not ComputePolicy.FP32_WINOGRAD or found.groups != 1:
        return None
    window = found.window
    if not window.is_fixed:
        return None
    plain = window.kernel == (3, 3) and window.stride == (1, 1) and window.dilation == (1, 1)
    channels = found.channels_in % 4 == 0 and found.channels_out % 4 == 0
    return found if plain and channels and min(window.out_height, window.out_width) >= 2 else None


def _winograd_params(
    found: Convolution, point: WinogradPoint, batch: Size, epilogue: Epilogue, bias: bool, avx512: bool
) -> WinogradParams:
    window = found.window
    return WinogradParams(
        batch=batch, height=window.height, width=window.width, channels_in=found.channels_in,
        channels_out=found.channels_out, pads=window.pads, point=point, avx512=avx512, bias=bias, epilogue=epilogue,
    )  # fmt: skip


def pack_winograd_weights(options: Options, arrays: Sequence[Array]) -> Array:
    """Named packing ``winograd``."""
    point = WinogradPoint(
        lanes=integer_option(options, "lanes"), mr=1, nv=integer_option(options, "nv"), tile_rows=1,
        contraction=Contraction.FUSED,
    )  # fmt: skip
    weights = np.asarray(arrays[0], dtype=np.float32)
    params = WinogradParams(
        batch=1, height=4, width=4, channels_in=weights.shape[1], channels_out=weights.shape[0], pads=(0, 0, 0, 0),
        point=point, avx512=False,
    )  # fmt: skip
    return pack_winograd(weights, params)


class Winograd:
    """F(2x2, 3x3)."""

    @property
    def name(self) -> str:
        return "winograd"

    def why_not(self, signature: Signature, cpu: Cpu) -> str:
        return "" if _wants_winograd(signature) is not None else "no 3x3 convolution under the policy fp32-winograd"

    def propose(self, signature: Signature, cpu: Cpu, layouts: Layouts | None) -> Iterator[Proposal]:
        found, border = _wants_winograd(signature), all_channels_last(signature)
        if found is None or border is None or layouts not in (None, border):
            return
        window = found.window
        points = winograd_points(window.out_height, window.out_width, found.channels_in, found.channels_out, cpu)
        for point in points:
            choice: dict[str, ConfigValue] = {
                "template": self.name,
                "lanes": point.lanes,
                "mr": point.mr,
                "nv": point.nv,
                "tile_rows": point.tile_rows,
                "contraction": point.contraction.value,
            }
            yield Proposal(choice, border)

    def build(self, signature: Signature, config: Config, layouts: Layouts, target: Target, cpu: Cpu) -> Kernel:
        found = required(_wants_winograd(signature), signature)
        sizes, parsed = Sizes(), found.parsed
        contraction = Contraction(config.text("contraction"))
        point = WinogradPoint(
            lanes=config.integer("lanes"),
            mr=config.integer("mr"),
            nv=config.integer("nv"),
            tile_rows=config.integer("tile_rows"),
            contraction=contraction,
        )
        params = _winograd_params(
            found, point, sizes.size(found.batch), parsed.steps, parsed.bias is not None, cpu.has_avx512
        )
        source = winograd(params)
        nbytes = 16 * found.channels_in * params.panels.padded * 4
        packing = Packing("winograd", (("lanes", point.lanes), ("nv", point.nv)))
        vectors = ([parsed.bias] if parsed.bias else []) + list(parsed.vectors)
        split = split_of(target.threads)
        return Kernel(
            text=rebind(source, signature, (found.x, *parsed.tensors), signature.outputs),
            contraction=contraction,
            weights=(
                PackedWeight((found.weight,), packing, nbytes),
                *(vector_weight(v, found.channels_out, point.lanes) for v in vectors),
            ),
            workspace=sizes.workspace(source.workspace, split.parts),
            params=sizes.params,
            split=split,
        )


def _wants_narrow(signature: Signature) -> Convolution | None:
    found = match_convolution(signature)
    if found is None or found.groups != 1 or found.channels_out > MOST_OUTPUTS or found.channels_in < 8:
        return None
    return found


def pack_narrow_weights(options: Options, arrays: Sequence[Array]) -> Array:
    """Named packing ``narrow``."""
    weights = np.asarray(arrays[0], dtype=np.float32)
    if weights.ndim == 3:
        weights = weights[:, :, None, :]
    lanes = integer_option(options, "lanes")
    out, channels, rows, columns = weights.shape
    full = np.zeros((out, rows, columns, ceil_div(channels, lanes) * lanes), dtype=np.float32)
    full[..., :channels] = weights.transpose(0, 2, 3, 1)
    return full


class Narrow:
    """Vectors along the input channels, for up to four outputs."""

    @property
    def name(self) -> str:
        return "narrow"

    def why_not(self, signature: Signature, cpu: Cpu) -> str:
        return "" if _wants_narrow(signature) is not None else "more than four output channels"

    def propose(self, signature: Signature, cpu: Cpu, layouts: Layouts | None) -> Iterator[Proposal]:
        found, border = _wants_narrow(signature), all_channels_last(signature)
        if found is None or border is None or layouts not in (None, border):
            return
        strict = signature.policy is ComputePolicy.FP32_STRICT and found.parsed.steps
        for point in narrow_points(found.window, found.channels_in, cpu):
            if has_too_many_tiles(found.window, point.mr):
                continue
            choice: dict[str, ConfigValue] = {
                "template": self.name,
                "lanes": point.lanes,
                "mr": point.mr,
                "contraction": Contraction.SEPARATE.value if strict else point.contraction.value,
            }
            yield Proposal(choice, border)

    def build(self, signature: Signature, config: Config, layouts: Layouts, target: Target, cpu: Cpu) -> Kernel:
        found = required(_wants_narrow(signature), signature)
        sizes, parsed = Sizes(), found.parsed
        contraction = Contraction(config.text("contraction"))
        point = NarrowPoint(lanes=config.integer("lanes"), mr=config.integer("mr"), contraction=contraction)
        params = NarrowParams(
            batch=sizes.size(found.batch),
            window=found.window,
            channels_in=found.channels_in,
            channels_out=found.channels_out,
            point=point,
            avx512=cpu.has_avx512,
            bias=parsed.bias is not None,
            epilogue=parsed.steps,
            extents=found.image.extents(sizes, found.batch),
        )
        padded = ceil_div(found.channels_in, point.lanes) * point.lanes
        nbytes = found.channels_out * found.taps * padded * 4
        vectors = ([parsed.bias] if parsed.bias else []) + list(parsed.vectors)
        return Kernel(
            text=rebind(narrow(params), signature, (found.x, *parsed.tensors), signature.outputs),
            contraction=contraction,
            weights=(
                PackedWeight((found.weight,), Packing("narrow", (("lanes", point.lanes),)), nbytes),
                *(vector_weight(v, found.channels_out, point.lanes) for v in vectors),
            ),
            params=sizes.params,
            split=split_of(target.threads),
        )
