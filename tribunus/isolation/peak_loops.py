"""Loops of machine code whose speed is a peak of the processor, disassembled beside their bytes.

Imported by: calibration.  Imports: nothing.

They have the ABI of a kernel, (buffers, params, part, parts).  Arithmetic loops: params[0] turns, each turn with
independent accumulators enough to fill the pipelines.  Reading loops: params[0] bytes (a multiple of 256) from
buffers[0]; 64 bytes are written to buffers[1].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

_X86_FMA3: Final = bytes.fromhex(
    "488b0e"  # 00: mov rcx, qword ptr [rsi]
    "c5fc57c0"  # 03: vxorps ymm0, ymm0, ymm0
    "c5fc28c8"  # 07: vmovaps ymm1, ymm0
    "c5fc28d0"  # 0b: vmovaps ymm2, ymm0
    "c5fc28d8"  # 0f: vmovaps ymm3, ymm0
    "c5fc28e0"  # 13: vmovaps ymm4, ymm0
    "c5fc28e8"  # 17: vmovaps ymm5, ymm0
    "c5fc28f0"  # 1b: vmovaps ymm6, ymm0
    "c5fc28f8"  # 1f: vmovaps ymm7, ymm0
    "c57c28c0"  # 23: vmovaps ymm8, ymm0
    "c57c28c8"  # 27: vmovaps ymm9, ymm0
    "c57c28d0"  # 2b: vmovaps ymm10, ymm0
    "c57c28d8"  # 2f: vmovaps ymm11, ymm0
    "c57c28e0"  # 33: vmovaps ymm12, ymm0
    "c4c21db8c4"  # 37: vfmadd231ps ymm0, ymm12, ymm12
    "c4c21db8cc"  # 3c: vfmadd231ps ymm1, ymm12, ymm12
    "c4c21db8d4"  # 41: vfmadd231ps ymm2, ymm12, ymm12
    "c4c21db8dc"  # 46: vfmadd231ps ymm3, ymm12, ymm12
    "c4c21db8e4"  # 4b: vfmadd231ps ymm4, ymm12, ymm12
    "c4c21db8ec"  # 50: vfmadd231ps ymm5, ymm12, ymm12
    "c4c21db8f4"  # 55: vfmadd231ps ymm6, ymm12, ymm12
    "c4c21db8fc"  # 5a: vfmadd231ps ymm7, ymm12, ymm12
    "c4421db8c4"  # 5f: vfmadd231ps ymm8, ymm12, ymm12
    "c4421db8cc"  # 64: vfmadd231ps ymm9, ymm12, ymm12
    "c4421db8d4"  # 69: vfmadd231ps ymm10, ymm12, ymm12
    "c4421db8dc"  # 6e: vfmadd231ps ymm11, ymm12, ymm12
    "48ffc9"  # 73: dec rcx
    "75bf"  # 76: jne 0x37
    "c5f877"  # 78: vzeroupper
    "c3"  # 7b: ret
)

_X86_FMA4: Final = bytes.fromhex(
    "488b0e"  # 00: mov rcx, qword ptr [rsi]
    "c5f857c0"  # 03: vxorps xmm0, xmm0, xmm0
    "62f17c4828c8"  # 07: vmovaps zmm1, zmm0
    "62f17c4828d0"  # 0d: vmovaps zmm2, zmm0
    "62f17c4828d8"  # 13: vmovaps zmm3, zmm0
    "62f17c4828e0"  # 19: vmovaps zmm4, zmm0
    "62f17c4828e8"  # 1f: vmovaps zmm5, zmm0
    "62f17c4828f0"  # 25: vmovaps zmm6, zmm0
    "62f17c4828f8"  # 2b: vmovaps zmm7, zmm0
    "62717c4828c0"  # 31: vmovaps zmm8, zmm0
    "62717c4828c8"  # 37: vmovaps zmm9, zmm0
    "62717c4828d0"  # 3d: vmovaps zmm10, zmm0
    "62717c4828d8"  # 43: vmovaps zmm11, zmm0
    "62717c4828e0"  # 49: vmovaps zmm12, zmm0
    "62d21d48b8c4"  # 4f: vfmadd231ps zmm0, zmm12, zmm12
    "62d21d48b8cc"  # 55: vfmadd231ps zmm1, zmm12, zmm12
    "62d21d48b8d4"  # 5b: vfmadd231ps zmm2, zmm12, zmm12
    "62d21d48b8dc"  # 61: vfmadd231ps zmm3, zmm12, zmm12
    "62d21d48b8e4"  # 67: vfmadd231ps zmm4, zmm12, zmm12
    "62d21d48b8ec"  # 6d: vfmadd231ps zmm5, zmm12, zmm12
    "62d21d48b8f4"  # 73: vfmadd231ps zmm6, zmm12, zmm12
    "62d21d48b8fc"  # 79: vfmadd231ps zmm7, zmm12, zmm12
    "62521d48b8c4"  # 7f: vfmadd231ps zmm8, zmm12, zmm12
    "62521d48b8cc"  # 85: vfmadd231ps zmm9, zmm12, zmm12
    "62521d48b8d4"  # 8b: vfmadd231ps zmm10, zmm12, zmm12
    "62521d48b8dc"  # 91: vfmadd231ps zmm11, zmm12, zmm12
    "48ffc9"  # 97: dec rcx
    "75b3"  # 9a: jne 0x4f
    "c5f877"  # 9c: vzeroupper
    "c3"  # 9f: ret
)

_X86_DOT3: Final = bytes.fromhex(
    "488b0e"  # 00: mov rcx, qword ptr [rsi]
    "c5fdefc0"  # 03: vpxor ymm0, ymm0, ymm0
    "c5fd6fc8"  # 07: vmovdqa ymm1, ymm0
    "c5fd6fd0"  # 0b: vmovdqa ymm2, ymm0
    "c5fd6fd8"  # 0f: vmovdqa ymm3, ymm0
    "c5fd6fe0"  # 13: vmovdqa ymm4, ymm0
    "c5fd6fe8"  # 17: vmovdqa ymm5, ymm0
    "c57d6fe0"  # 1b: vmovdqa ymm12, ymm0
    "c4c21d04f4"  # 1f: vpmaddubsw ymm6, ymm12, ymm12
    "c59df5f6"  # 24: vpmaddwd ymm6, ymm12, ymm6
    "c5fdfec6"  # 28: vpaddd ymm0, ymm0, ymm6
    "c4c21d04fc"  # 2c: vpmaddubsw ymm7, ymm12, ymm12
    "c59df5ff"  # 31: vpmaddwd ymm7, ymm12, ymm7
    "c5f5fecf"  # 35: vpaddd ymm1, ymm1, ymm7
    "c4421d04c4"  # 39: vpmaddubsw ymm8, ymm12, ymm12
    "c4413df5c4"  # 3e: vpmaddwd ymm8, ymm8, ymm12
    "c5bdfed2"  # 43: vpaddd ymm2, ymm8, ymm2
    "c4421d04cc"  # 47: vpmaddubsw ymm9, ymm12, ymm12
    "c44135f5cc"  # 4c: vpmaddwd ymm9, ymm9, ymm12
    "c5b5fedb"  # 51: vpaddd ymm3, ymm9, ymm3
    "c4421d04d4"  # 55: vpmaddubsw ymm10, ymm12, ymm12
    "c4412df5d4"  # 5a: vpmaddwd ymm10, ymm10, ymm12
    "c5adfee4"  # 5f: vpaddd ymm4, ymm10, ymm4
    "c4421d04dc"  # 63: vpmaddubsw ymm11, ymm12, ymm12
    "c44125f5dc"  # 68: vpmaddwd ymm11, ymm11, ymm12
    "c5a5feed"  # 6d: vpaddd ymm5, ymm11, ymm5
    "48ffc9"  # 71: dec rcx
    "75a9"  # 74: jne 0x1f
    "c5f877"  # 76: vzeroupper
    "c3"  # 79: ret
)

_X86_DOT4: Final = bytes.fromhex(
    "488b0e"  # 00: mov rcx, qword ptr [rsi]
    "c5f9efc0"  # 03: vpxor xmm0, xmm0, xmm0
    "62f17d486fc8"  # 07: vmovdqa32 zmm1, zmm0
    "62f17d486fd0"  # 0d: vmovdqa32 zmm2, zmm0
    "62f17d486fd8"  # 13: vmovdqa32 zmm3, zmm0
    "62f17d486fe0"  # 19: vmovdqa32 zmm4, zmm0
    "62f17d486fe8"  # 1f: vmovdqa32 zmm5, zmm0
    "62f17d486ff0"  # 25: vmovdqa32 zmm6, zmm0
    "62f17d486ff8"  # 2b: vmovdqa32 zmm7, zmm0
    "62717d486fc0"  # 31: vmovdqa32 zmm8, zmm0
    "62717d486fc8"  # 37: vmovdqa32 zmm9, zmm0
    "62717d486fd0"  # 3d: vmovdqa32 zmm10, zmm0
    "62717d486fd8"  # 43: vmovdqa32 zmm11, zmm0
    "62717d486fe0"  # 49: vmovdqa32 zmm12, zmm0
    "62d21d4850c4"  # 4f: vpdpbusd zmm0, zmm12, zmm12
    "62d21d4850cc"  # 55: vpdpbusd zmm1, zmm12, zmm12
    "62d21d4850d4"  # 5b: vpdpbusd zmm2, zmm12, zmm12
    "62d21d4850dc"  # 61: vpdpbusd zmm3, zmm12, zmm12
    "62d21d4850e4"  # 67: vpdpbusd zmm4, zmm12, zmm12
    "62d21d4850ec"  # 6d: vpdpbusd zmm5, zmm12, zmm12
    "62d21d4850f4"  # 73: vpdpbusd zmm6, zmm12, zmm12
    "62d21d4850fc"  # 79: vpdpbusd zmm7, zmm12, zmm12
    "62521d4850c4"  # 7f: vpdpbusd zmm8, zmm12, zmm12
    "62521d4850cc"  # 85: vpdpbusd zmm9, zmm12, zmm12
    "62521d4850d4"  # 8b: vpdpbusd zmm10, zmm12, zmm12
    "62521d4850dc"  # 91: vpdpbusd zmm11, zmm12, zmm12
    "48ffc9"  # 97: dec rcx
    "75b3"  # 9a: jne 0x4f
    "c5f877"  # 9c: vzeroupper
    "c3"  # 9f: ret
)

_X86_READ3: Final = bytes.fromhex(
    "488b07"  # 00: mov rax, qword ptr [rdi]
    "488b0e"  # 03: mov rcx, qword ptr [rsi]
    "c5fdefc0"  # 06: vpxor ymm0, ymm0, ymm0
    "c5f5efc9"  # 0a: vpxor ymm1, ymm1, ymm1
    "c5edefd2"  # 0e: vpxor ymm2, ymm2, ymm2
    "c5e5efdb"  # 12: vpxor ymm3, ymm3, ymm3
    "c5fdfe00"  # 16: vpaddd ymm0, ymm0, ymmword ptr [rax]
    "c5f5fe4820"  # 1a: vpaddd ymm1, ymm1, ymmword ptr [rax + 0x20]
    "c5edfe5040"  # 1f: vpaddd ymm2, ymm2, ymmword ptr [rax + 0x40]
    "c5e5fe5860"  # 24: vpaddd ymm3, ymm3, ymmword ptr [rax + 0x60]
    "c5fdfe8080000000"  # 29: vpaddd ymm0, ymm0, ymmword ptr [rax + 0x80]
    "c5f5fe88a0000000"  # 31: vpaddd ymm1, ymm1, ymmword ptr [rax + 0xa0]
    "c5edfe90c0000000"  # 39: vpaddd ymm2, ymm2, ymmword ptr [rax + 0xc0]
    "c5e5fe98e0000000"  # 41: vpaddd ymm3, ymm3, ymmword ptr [rax + 0xe0]
    "480500010000"  # 49: add rax, 0x100
    "4881e900010000"  # 4f: sub rcx, 0x100
    "7fbe"  # 56: jg 0x16
    "c5fdfec1"  # 58: vpaddd ymm0, ymm0, ymm1
    "c5edfed3"  # 5c: vpaddd ymm2, ymm2, ymm3
    "c5fdfec2"  # 60: vpaddd ymm0, ymm0, ymm2
    "488b4708"  # 64: mov rax, qword ptr [rdi + 8]
    "c5fe7f00"  # 68: vmovdqu ymmword ptr [rax], ymm0
    "c5f877"  # 6c: vzeroupper
    "c3"  # 6f: ret
)

_X86_READ4: Final = bytes.fromhex(
    "488b07"  # 00: mov rax, qword ptr [rdi]
    "488b0e"  # 03: mov rcx, qword ptr [rsi]
    "c5f9efc0"  # 06: vpxor xmm0, xmm0, xmm0
    "c5f1efc9"  # 0a: vpxor xmm1, xmm1, xmm1
    "c5e9efd2"  # 0e: vpxor xmm2, xmm2, xmm2
    "c5e1efdb"  # 12: vpxor xmm3, xmm3, xmm3
    "62f17d48fe00"  # 16: vpaddd zmm0, zmm0, zmmword ptr [rax]
    "62f17548fe4801"  # 1c: vpaddd zmm1, zmm1, zmmword ptr [rax + 0x40]
    "62f16d48fe5002"  # 23: vpaddd zmm2, zmm2, zmmword ptr [rax + 0x80]
    "62f16548fe5803"  # 2a: vpaddd zmm3, zmm3, zmmword ptr [rax + 0xc0]
    "480500010000"  # 31: add rax, 0x100
    "4881e900010000"  # 37: sub rcx, 0x100
    "7fd6"  # 3e: jg 0x16
    "62f17d48fec1"  # 40: vpaddd zmm0, zmm0, zmm1
    "62f16d48fed3"  # 46: vpaddd zmm2, zmm2, zmm3
    "62f17d48fec2"  # 4c: vpaddd zmm0, zmm0, zmm2
    "488b4708"  # 52: mov rax, qword ptr [rdi + 8]
    "62f17e487f00"  # 56: vmovdqu32 zmmword ptr [rax], zmm0
    "c5f877"  # 5c: vzeroupper
    "c3"  # 5f: ret
)

_X86_EMPTY: Final = bytes.fromhex(
    "c3"  # 00: ret
)

_ARM_FMA: Final = bytes.fromhex(
    "220040f9"  # 00: ldr x2, [x1]
    "1f04004f"  # 04: movi v31.4s, #0
    "0004004f"  # 08: movi v0.4s, #0
    "0104004f"  # 0c: movi v1.4s, #0
    "0204004f"  # 10: movi v2.4s, #0
    "0304004f"  # 14: movi v3.4s, #0
    "0404004f"  # 18: movi v4.4s, #0
    "0504004f"  # 1c: movi v5.4s, #0
    "0604004f"  # 20: movi v6.4s, #0
    "0704004f"  # 24: movi v7.4s, #0
    "1004004f"  # 28: movi v16.4s, #0
    "1104004f"  # 2c: movi v17.4s, #0
    "1204004f"  # 30: movi v18.4s, #0
    "1304004f"  # 34: movi v19.4s, #0
    "1404004f"  # 38: movi v20.4s, #0
    "1504004f"  # 3c: movi v21.4s, #0
    "1604004f"  # 40: movi v22.4s, #0
    "1704004f"  # 44: movi v23.4s, #0
    "e0cf3f4e"  # 48: fmla v0.4s, v31.4s, v31.4s
    "e1cf3f4e"  # 4c: fmla v1.4s, v31.4s, v31.4s
    "e2cf3f4e"  # 50: fmla v2.4s, v31.4s, v31.4s
    "e3cf3f4e"  # 54: fmla v3.4s, v31.4s, v31.4s
    "e4cf3f4e"  # 58: fmla v4.4s, v31.4s, v31.4s
    "e5cf3f4e"  # 5c: fmla v5.4s, v31.4s, v31.4s
    "e6cf3f4e"  # 60: fmla v6.4s, v31.4s, v31.4s
    "e7cf3f4e"  # 64: fmla v7.4s, v31.4s, v31.4s
    "f0cf3f4e"  # 68: fmla v16.4s, v31.4s, v31.4s
    "f1cf3f4e"  # 6c: fmla v17.4s, v31.4s, v31.4s
    "f2cf3f4e"  # 70: fmla v18.4s, v31.4s, v31.4s
    "f3cf3f4e"  # 74: fmla v19.4s, v31.4s, v31.4s
    "f4cf3f4e"  # 78: fmla v20.4s, v31.4s, v31.4s
    "f5cf3f4e"  # 7c: fmla v21.4s, v31.4s, v31.4s
    "f6cf3f4e"  # 80: fmla v22.4s, v31.4s, v31.4s
    "f7cf3f4e"  # 84: fmla v23.4s, v31.4s, v31.4s
    "420400f1"  # 88: subs x2, x2, #1
    "e1fdff54"  # 8c: b.ne #0x48
    "c0035fd6"  # 90: ret
)

_ARM_DOT: Final = bytes.fromhex(
    "220040f9"  # 00: ldr x2, [x1]
    "1f04004f"  # 04: movi v31.4s, #0
    "0004004f"  # 08: movi v0.4s, #0
    "0104004f"  # 0c: movi v1.4s, #0
    "0204004f"  # 10: movi v2.4s, #0
    "0304004f"  # 14: movi v3.4s, #0
    "0404004f"  # 18: movi v4.4s, #0
    "0504004f"  # 1c: movi v5.4s, #0
    "0604004f"  # 20: movi v6.4s, #0
    "0704004f"  # 24: movi v7.4s, #0
    "e0979f4e"  # 28: sdot v0.4s, v31.16b, v31.16b
    "e1979f4e"  # 2c: sdot v1.4s, v31.16b, v31.16b
    "e2979f4e"  # 30: sdot v2.4s, v31.16b, v31.16b
    "e3979f4e"  # 34: sdot v3.4s, v31.16b, v31.16b
    "e4979f4e"  # 38: sdot v4.4s, v31.16b, v31.16b
    "e5979f4e"  # 3c: sdot v5.4s, v31.16b, v31.16b
    "e6979f4e"  # 40: sdot v6.4s, v31.16b, v31.16b
    "e7979f4e"  # 44: sdot v7.4s, v31.16b, v31.16b
    "420400f1"  # 48: subs x2, x2, #1
    "e1feff54"  # 4c: b.ne #0x28
    "c0035fd6"  # 50: ret
)

_ARM_MLAL: Final = bytes.fromhex(
    "220040f9"  # 00: ldr x2, [x1]
    "1f04004f"  # 04: movi v31.4s, #0
    "0004004f"  # 08: movi v0.4s, #0
    "0104004f"  # 0c: movi v1.4s, #0
    "0204004f"  # 10: movi v2.4s, #0
    "0304004f"  # 14: movi v3.4s, #0
    "0404004f"  # 18: movi v4.4s, #0
    "0504004f"  # 1c: movi v5.4s, #0
    "0604004f"  # 20: movi v6.4s, #0
    "0704004f"  # 24: movi v7.4s, #0
    "e0833f0e"  # 28: smlal v0.8h, v31.8b, v31.8b
    "e1833f0e"  # 2c: smlal v1.8h, v31.8b, v31.8b
    "e2833f0e"  # 30: smlal v2.8h, v31.8b, v31.8b
    "e3833f0e"  # 34: smlal v3.8h, v31.8b, v31.8b
    "e4833f0e"  # 38: smlal v4.8h, v31.8b, v31.8b
    "e5833f0e"  # 3c: smlal v5.8h, v31.8b, v31.8b
    "e6833f0e"  # 40: smlal v6.8h, v31.8b, v31.8b
    "e7833f0e"  # 44: smlal v7.8h, v31.8b, v31.8b
    "420400f1"  # 48: subs x2, x2, #1
    "e1feff54"  # 4c: b.ne #0x28
    "c0035fd6"  # 50: ret
)

_ARM_READ: Final = bytes.fromhex(
    "030040f9"  # 00: ldr x3, [x0]
    "220040f9"  # 04: ldr x2, [x1]
    "0004004f"  # 08: movi v0.4s, #0
    "0104004f"  # 0c: movi v1.4s, #0
    "0204004f"  # 10: movi v2.4s, #0
    "0304004f"  # 14: movi v3.4s, #0
    "641440ad"  # 18: ldp q4, q5, [x3]
    "661c41ad"  # 1c: ldp q6, q7, [x3, #0x20]
    "704442ad"  # 20: ldp q16, q17, [x3, #0x40]
    "724c43ad"  # 24: ldp q18, q19, [x3, #0x60]
    "0084a44e"  # 28: add v0.4s, v0.4s, v4.4s
    "2184a54e"  # 2c: add v1.4s, v1.4s, v5.4s
    "4284a64e"  # 30: add v2.4s, v2.4s, v6.4s
    "6384a74e"  # 34: add v3.4s, v3.4s, v7.4s
    "0084b04e"  # 38: add v0.4s, v0.4s, v16.4s
    "2184b14e"  # 3c: add v1.4s, v1.4s, v17.4s
    "4284b24e"  # 40: add v2.4s, v2.4s, v18.4s
    "6384b34e"  # 44: add v3.4s, v3.4s, v19.4s
    "63000291"  # 48: add x3, x3, #0x80
    "420002f1"  # 4c: subs x2, x2, #0x80
    "4cfeff54"  # 50: b.gt #0x18
    "0084a14e"  # 54: add v0.4s, v0.4s, v1.4s
    "4284a34e"  # 58: add v2.4s, v2.4s, v3.4s
    "0084a24e"  # 5c: add v0.4s, v0.4s, v2.4s
    "040440f9"  # 60: ldr x4, [x0, #8]
    "8000803d"  # 64: str q0, [x4]
    "c0035fd6"  # 68: ret
)

_ARM_EMPTY: Final = bytes.fromhex(
    "c0035fd6"  # 00: ret
)


@dataclass(frozen=True, slots=True)
class Loop:
    """code: its bytes.  work: operations (a multiply-add is two) or bytes of one turn."""

    code: bytes
    work: int


@dataclass(frozen=True, slots=True)
class PeakLoops:
    """The loops for one processor."""

    fma: Loop
    dot: Loop
    read: Loop
    empty: Loop


def peak_loops(machine: str, features: frozenset[str]) -> PeakLoops | None:
    """Loops for ``machine`` (as ``os.uname`` names it) with these features; None where there are none."""
    if machine == "aarch64":
        dot = Loop(_ARM_DOT, 2 * 16 * 8) if "asimddp" in features else Loop(_ARM_MLAL, 2 * 8 * 8)
        return PeakLoops(Loop(_ARM_FMA, 2 * 4 * 16), dot, Loop(_ARM_READ, 128), Loop(_ARM_EMPTY, 0))
    if machine != "x86_64" or not {"avx2", "fma"} <= features:
        return None
    wide = "avx512f" in features
    fma = Loop(_X86_FMA4, 2 * 16 * 12) if wide else Loop(_X86_FMA3, 2 * 8 * 12)
    vnni = wide and "avx512_vnni" in features
    dot = Loop(_X86_DOT4, 2 * 64 * 12) if vnni else Loop(_X86_DOT3, 2 * 32 * 6)
    read = Loop(_X86_READ4 if wide else _X86_READ3, 256)
    return PeakLoops(fma, dot, read, Loop(_X86_EMPTY, 0))
