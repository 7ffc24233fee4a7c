"""A tiny signed image that really replays: y = (x + w) + w for x f32[rows, 4], two launches of one native kernel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from tribunus_native.flat import build_flat
from tribunus_native.sequencer import sequencer_code
from tribunus_native.toolchain import Contraction, Cpu, Unavailable, find_toolchain

from tribunus.canon import Digest, JsonObject, digest_bytes, encode
from tribunus.cli import main
from tribunus.image.admissions import CHECK_NAMES, AdmissionLine, encode_lines
from tribunus.image.content import Platform, to_jsonl
from tribunus.image.keys import Ed25519Signer
from tribunus.image.policy import add_key
from tribunus.image.write import ImageDraft, RegionDraft, write_image
from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Sym, Symbol
from tribunus.phaseir.layouts import row_major
from tribunus.phaseir.program import Constants, ProgramBuilder, program_to_json
from tribunus.phaseir.types import TensorType
from tribunus.plan.code import CodeFormat, Operand, PackedWeight, Packing, Recipe, Slot, SlotKind, recipe_digest
from tribunus.plan.document import content_key_to_json, plan_bytes
from tribunus.plan.launch_list import ROLE
from tribunus.plan.plan import (
    Buffer,
    BufferRole,
    ContentKey,
    Golden,
    HostCode,
    Launch,
    Plan,
    PlanKernel,
    PlanTensor,
    Port,
    Profile,
)
from tribunus.targets.detect import cpu_flags, host_arch
from tribunus.targets.target import CPU_LEVELS

ALICE = Ed25519Signer(bytes(range(32)))
WEIGHT = np.array([1.0, -2.0, 0.5, 3.0], dtype=np.float32)
MAX_ROWS = 16
Array = npt.NDArray[np.generic]

_HEAD = """
#include <stdint.h>
__attribute__((section(".text.kernel"), visibility("default"), used)) void kernel(
    void *const *buffers, const int64_t *params, int64_t part, int64_t parts) {
"""
ADD = (
    _HEAD
    + """
  const float *x = buffers[0]; float *y = buffers[1]; const float *w = buffers[2];
  (void)part, (void)parts;
  for (int64_t i = 0; i < params[0]; i++) y[i] = x[i] + w[i % 4];
}
"""
)


@dataclass(frozen=True)
class Built:
    """Code of the kernel and of the sequencer, with their text sizes."""

    arch: str
    add: tuple[bytes, int]
    sequencer: tuple[bytes, int]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Skips, with the reason, where nothing can be compiled or run."""
    toolchain = find_toolchain()
    if isinstance(toolchain, Unavailable):
        pytest.skip(toolchain.reason)
    cpu = next((c for c in (Cpu.X86_64_V3, Cpu.AARCH64) if CPU_LEVELS[c.value] <= cpu_flags()), None)
    if cpu is None:
        pytest.skip(f"kernels for {host_arch()} are not built by these tests")
    scratch = tmp_path_factory.mktemp("flat")
    flats = [build_flat(text, cpu, Contraction.FUSED, toolchain, scratch) for text in (ADD, sequencer_code())]
    add, sequencer = ((flat.code, flat.text_size) for flat in flats)
    return Built(cpu.value, add, sequencer)


def expected(x: Array) -> Array:
    return (x.astype(np.float32) + WEIGHT) + WEIGHT


def a_plan(built: Built, target: str, features: Sequence[str]) -> tuple[Plan, bytes, bytes]:
    """Plan, kernel pack and goldens."""
    rows = Sym("d0")
    type_ = TensorType(DType.F32, (rows, 4))
    operand = Operand(type_, row_major(2), 64)
    recipe = Recipe(
        inputs=(operand,),
        outputs=(operand,),
        weights=(PackedWeight((1,), Packing("layout", (), row_major(1)), 16),),
        params=(dims.mul(rows, 4),),
    )
    key = ContentKey("toy", "add", "f32", "d0,4", "1", "none", "fp32", "row", built.arch, 1)
    code, text = built.add
    sequencer, sequencer_text = built.sequencer
    offset = -(-len(code) // 256) * 256
    pack = code + bytes(offset - len(code)) + sequencer
    flat = CodeFormat("flat")
    kernel = PlanKernel(
        "add-0a1b2c3d/toy-5c1e7a", Digest("0a" * 32), Digest("5c" * 32), flat, 0, len(code), digest_bytes(code),
        (("text_size", text),), ("d0",), recipe, key,
    )  # fmt: skip
    host = HostCode(ROLE, flat, offset, len(sequencer), digest_bytes(sequencer), (("text_size", sequencer_text),))
    own = Sym("s0")
    port_type = TensorType(DType.F32, (own, 4))
    size = MAX_ROWS * 16
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    y = expected(x)
    tensor = Slot(SlotKind.TENSOR, 0)
    buffers = [Slot(SlotKind.BUFFER, n) for n in range(3)]
    profile = Profile(
        name="rows=1:4:16",
        symbols=(Symbol("s0", "rows", 1, 4, MAX_ROWS),),
        arena=3 * size,
        buffers=(
            Buffer(0, size, BufferRole.INPUT),
            Buffer(size, size, BufferRole.TEMP),
            Buffer(2 * size, size, BufferRole.OUTPUT),
        ),
        inputs=(Port("x", 0, port_type, row_major(2)),),
        outputs=(Port("y", 2, port_type, row_major(2)),),
        states=(),
        launches=(
            Launch(0, (own,), (buffers[0], buffers[1], tensor), 1, ()),
            Launch(0, (own,), (buffers[1], buffers[2], tensor), 1, (0,)),
        ),
        representatives=((4,), (1,), (16,)),
        goldens=(Golden("three rows", (3,), ((0, 48),), ((48, 48),)),),
    )
    plan = Plan(
        target=target,
        arch=built.arch,
        features=tuple(sorted(features)),
        threads=1,
        kernels=(kernel,),
        host=(host,),
        tensors=(PlanTensor(0, 0, 16, 0, 0, (Digest("ee" * 32),)),),
        profiles=(profile,),
    )
    return plan, pack, x.tobytes() + y.tobytes()


def evidence(plan: Plan) -> tuple[bytes, bytes]:
    """Admissions and receipts of a plan's kernels."""
    lines: list[AdmissionLine] = []
    receipts: list[bytes] = []
    for kernel in plan.kernels:
        artifact = Digest("ab" * 32)
        checks: dict[str, tuple[str, Digest]] = {}
        for name in CHECK_NAMES:
            receipt = encode({"check": name, "verdict": "passed", "artifact": artifact})
            receipts.append(receipt)
            checks[name] = ("passed", digest_bytes(receipt))
        found = {name: str(value) for name, value in content_key_to_json(kernel.key).items()}
        found |= {"signature": kernel.signature, "candidate": kernel.candidate, "code": kernel.digest}
        found |= {"recipe": recipe_digest(kernel.recipe, kernel.symbols)}
        lines.append(
            AdmissionLine(kernel.id, artifact, found, checks, 0.25, 1500, 4000, "cd" * 32, "device", Digest("ef" * 32))
        )
    return encode_lines(lines), to_jsonl(receipts)


def a_phaseir() -> JsonObject:
    """A program document that the verifier accepts."""
    constants = Constants()
    builder = ProgramBuilder(constants, (Symbol("s0", "rows", 1, 4, MAX_ROWS),))
    x = builder.input(TensorType(DType.F32, (Sym("s0"), 4)), "x")
    w = builder.constant(WEIGHT, DType.F32)
    (once,) = builder.op("add", (x, w))
    (twice,) = builder.op("add", (once, w))
    return {"schema": "tribunus.phaseir-set/1", "programs": [program_to_json(builder.finish("main", (x,), (twice,)))]}


Change = Callable[[Plan], Plan]


@pytest.fixture(scope="session")
def make_image(built: Built) -> Callable[..., Path]:
    """Write an image; ``change`` alters its plan before it is signed, so that only later checks can notice."""

    def make(
        path: Path,
        change: Change | None = None,
        *,
        target: str = "",
        goldens: Callable[[bytes], bytes] | None = None,
        lines: Callable[[bytes, bytes], tuple[bytes, bytes]] | None = None,
        signer: Ed25519Signer = ALICE,
        model: str = "77" * 32,
        phaseir: JsonObject | None = None,
    ) -> Path:
        target = target or f"cpu-{built.arch}"
        plan, pack, blob = a_plan(built, target, sorted(CPU_LEVELS[built.arch]))
        plan = plan if change is None else change(plan)
        admissions, receipts = evidence(plan)
        if lines is not None:
            admissions, receipts = lines(admissions, receipts)
        region = RegionDraft(
            target=target,
            platform=Platform("amd64", "linux"),
            plan=plan_bytes(plan),
            phaseir=encode(a_phaseir() if phaseir is None else phaseir),
            kernels=pack,
            weights=(WEIGHT.tobytes(),),
            goldens=blob if goldens is None else goldens(blob),
            admissions=admissions,
            receipts=receipts,
            ledger_root=Digest("12" * 32),
            ledger_entries=9,
        )
        draft = ImageDraft(
            name="tiny", epoch=1, model={"digest": model, "opset": 18, "parameters": 4}, choices=Digest("34" * 32),
            toolchain={"numpy": "2"}, requires=(), regions=[region], policy=Digest("56" * 32), signers=[signer],
        )  # fmt: skip
        write_image(path, draft)
        return path

    return make


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has its own user, who trusts alice."""
    for name in ("CONFIG", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / "home" / name))
    monkeypatch.delenv("TRIBUNUS_TRUST", raising=False)
    monkeypatch.delenv("TRIBUNUS_DEBUG", raising=False)
    folder = tmp_path / "home" / "CONFIG" / "tribunus"
    folder.mkdir(parents=True)
    (folder / "trust.json").write_bytes(add_key(None, ALICE.public).encode())


@pytest.fixture(scope="session")
def honest(make_image: Callable[..., Path], tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return make_image(tmp_path_factory.mktemp("honest") / "tiny.tci").read_bytes()


@pytest.fixture
def image(honest: bytes, tmp_path: Path) -> Path:
    """The honest image in a file of the test's own."""
    path = tmp_path / "tiny.tci"
    path.write_bytes(honest)
    return path


@pytest.fixture
def inputs(tmp_path: Path) -> Path:
    """x of two rows."""
    path = tmp_path / "x.npz"
    np.savez(path, x=np.arange(8, dtype=np.float32).reshape(2, 4))
    return path


@dataclass(frozen=True)
class Said:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """What was printed as JSON; its fields are whatever the test expects."""
        found: dict[str, Any] = json.loads(self.out)
        return found


@pytest.fixture
def tribunus(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run a command in this process."""

    def run(*words: str | Path, wide: bool = False) -> Said:
        code = main([str(word) for word in words])
        out, err = capsys.readouterr()
        for line in out.splitlines():
            assert wide or len(line) <= 80 or line.lstrip().startswith('"'), line
        return Said(code, out, err)

    return run


@pytest.fixture
def process() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run the tool, or a script, in a fresh interpreter."""

    def run(*words: str | Path, script: str = "", shell: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, *(["-c", script] if script else ["-m", "tribunus"]), *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=dict(os.environ))

    return run


__all__ = ["ALICE", "WEIGHT", "Said", "expected", "replace"]
