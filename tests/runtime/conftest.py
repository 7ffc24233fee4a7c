"""Signed images of a toy program that really replays: launches of y = x + w, cut into parts, then a running sum."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from tribunus_native.flat import build_flat
from tribunus_native.sequencer import sequencer_code
from tribunus_native.toolchain import Contraction, Cpu, Unavailable, find_toolchain

import tribunus
from tribunus.canon import Digest, digest_bytes, encode
from tribunus.image.admissions import CHECK_NAMES, AdmissionLine, encode_lines
from tribunus.image.content import Platform, to_jsonl
from tribunus.image.keys import Ed25519Signer
from tribunus.image.policy import add_key
from tribunus.image.write import ImageDraft, RegionDraft, write_image
from tribunus.numerics.dtypes import DType
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Sym, Symbol
from tribunus.phaseir.layouts import row_major
from tribunus.phaseir.types import TensorType
from tribunus.plan.code import (
    CodeFormat,
    Operand,
    PackedWeight,
    Packing,
    Recipe,
    Slot,
    SlotKind,
    WorkSplit,
    recipe_digest,
)
from tribunus.plan.document import content_key_to_json, plan_bytes
from tribunus.plan.launch_list import ROLE
from tribunus.plan.plan import (
    Buffer,
    BufferRole,
    ContentKey,
    HostCode,
    Launch,
    Plan,
    PlanKernel,
    PlanTensor,
    Port,
    Profile,
    StateBinding,
)
from tribunus.runtime.session import Image
from tribunus.targets.detect import cpu_flags
from tribunus.targets.target import CPU_LEVELS

ALICE = Ed25519Signer(bytes(range(32)))
BOB = Ed25519Signer(bytes(range(32, 64)))
WEIGHT = np.array([1.0, -2.0, 0.5, 3.0], dtype=np.float32)
MAX_ROWS = 64
F32 = npt.NDArray[np.float32]

_HEAD = """
#include <stdint.h>
__attribute__((section(".text.kernel"), visibility("default"), used)) void kernel(
    void *const *buffers, const int64_t *params, int64_t part, int64_t parts) {
  const int64_t first = params[0] * part / parts, end = params[0] * (part + 1) / parts;
"""
ADD = (
    _HEAD
    + """
  const float *x = buffers[0]; float *y = buffers[1]; const float *w = buffers[2];
  for (int64_t i = first; i < end; i++) y[i] = x[params[0] - 1 - i] + w[i % 4];
}
"""
)
"""Reads from the far end, so that a part that runs ahead of the others reads what is not there yet."""
KEEP = (
    _HEAD
    + """
  const float *x = buffers[0]; const float *before = buffers[1]; float *y = buffers[2]; float *after = buffers[3];
  for (int64_t i = first; i < end; i++) { const float sum = x[i] + before[i]; y[i] = sum; after[i] = sum; }
}
"""
)
"""y = state + x; the new state is y."""


@dataclass(frozen=True)
class Built:
    """Bytes and text sizes of the flat codes."""

    arch: str
    add: tuple[bytes, int]
    keep: tuple[bytes, int]
    sequencer: tuple[bytes, int]


@dataclass(frozen=True)
class Toy:
    """What an image computes.

    launches: of ADD, before the one of KEEP.  parts: of every launch.  rows: lowest and highest of each profile.
    """

    launches: int = 4
    parts: int = 1
    rows: tuple[tuple[int, int], ...] = ((1, MAX_ROWS),)
    target: str = ""
    features: tuple[str, ...] | None = None
    signer: Ed25519Signer = ALICE
    name: str = "toy"

    def expected(self, x: F32) -> F32:
        """Output of the first replay."""
        y = x.reshape(-1)
        for _ in range(self.launches):
            y = y[::-1] + np.resize(WEIGHT, y.size)
        return y.reshape(x.shape)


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    """Skips, with the reason, where nothing can be compiled or run."""
    toolchain = find_toolchain()
    if isinstance(toolchain, Unavailable):
        pytest.skip(toolchain.reason)
    cpu = next((c for c in (Cpu.X86_64_V3, Cpu.AARCH64) if CPU_LEVELS[c.value] <= cpu_flags()), None)
    if cpu is None:
        pytest.skip("these tests build kernels for x86-64-v3 and aarch64")
    scratch = tmp_path_factory.mktemp("flat")
    texts = (ADD, KEEP, sequencer_code())
    flats = [build_flat(text, cpu, Contraction.FUSED, toolchain, scratch) for text in texts]
    add, keep, sequencer = ((flat.code, flat.text_size) for flat in flats)
    return Built(cpu.value, add, keep, sequencer)


def _plan(built: Built, toy: Toy) -> tuple[Plan, bytes]:
    """The plan and its kernel pack."""
    pack = bytearray()
    spans: list[tuple[int, int, Digest, tuple[tuple[str, int | str], ...]]] = []
    for data, text in (built.add, built.keep, built.sequencer):
        pack.extend(bytes(-len(pack) % 256))
        spans.append((len(pack), len(data), digest_bytes(data), (("text_size", text),)))
        pack.extend(data)
    rows, flat = Sym("d0"), CodeFormat("flat")
    operand = Operand(TensorType(DType.F32, (rows, 4)), row_major(2), 64)
    split = WorkSplit("rows", toy.parts)
    count = (dims.mul(rows, 4),)
    weight = PackedWeight((1,), Packing("layout", (), row_major(1)), WEIGHT.nbytes)
    add = Recipe((operand,), (operand,), (weight,), params=count, split=split)
    keep = Recipe((operand, operand), (operand, operand), params=count, split=split, in_place=((1, 1),))
    key = ContentKey("toy", "add", "f32", "d0,4", "1", "none", "fp32", "row", built.arch, toy.parts)
    kernels = tuple(
        PlanKernel(
            f"{name}-0a1b2c3d/toy-5c1e7a", Digest(mark * 32), Digest("5c" * 32), flat, offset, size, digest, facts,
            ("d0",), recipe, replace(key, op=name),
        )
        for name, mark, recipe, (offset, size, digest, facts) in zip(
            ("add", "keep"), ("0a", "0b"), (add, keep), spans, strict=False
        )
    )  # fmt: skip
    offset, size, digest, facts = spans[2]
    features = tuple(sorted(CPU_LEVELS[built.arch])) if toy.features is None else toy.features
    plan = Plan(
        target=toy.target or f"cpu-{built.arch}",
        arch=built.arch,
        features=features,
        threads=toy.parts,
        kernels=kernels,
        host=(HostCode(ROLE, flat, offset, size, digest, facts),),
        tensors=(PlanTensor(0, 0, WEIGHT.nbytes, 0, 0, (Digest("ee" * 32),)),),
        profiles=tuple(_profile(toy, low, high) for low, high in toy.rows),
    )
    return plan, bytes(pack)


def _profile(toy: Toy, low: int, high: int) -> Profile:
    own, size = Sym("s0"), high * 16
    port = TensorType(DType.F32, (own, 4))
    roles = (BufferRole.INPUT, BufferRole.TEMP, BufferRole.TEMP, BufferRole.STATE, BufferRole.OUTPUT)
    slots = [Slot(SlotKind.BUFFER, number) for number in range(len(roles))]
    launches: list[Launch] = []
    source = 0
    for number in range(toy.launches):
        target = 1 + number % 2
        wait = (number - 1,) if number else ()
        arguments = (slots[source], slots[target], Slot(SlotKind.TENSOR, 0))
        launches.append(Launch(0, (own,), arguments, toy.parts, wait))
        source = target
    last = (slots[source], slots[3], slots[4], slots[3])
    launches.append(Launch(1, (own,), last, toy.parts, (toy.launches - 1,)))
    return Profile(
        name=f"rows={low}:{high}",
        symbols=(Symbol("s0", "rows", low, low, high),),
        arena=len(roles) * size,
        buffers=tuple(Buffer(number * size, size, role) for number, role in enumerate(roles)),
        inputs=(Port("x", 0, port, row_major(2)),),
        outputs=(Port("y", 4, port, row_major(2)),),
        states=(StateBinding("sum", 3, port, None),),
        launches=tuple(launches),
        representatives=((low,),),
        goldens=(),
    )


def _evidence(plan: Plan) -> tuple[bytes, bytes]:
    lines: list[AdmissionLine] = []
    receipts: list[bytes] = []
    for kernel in plan.kernels:
        checks: dict[str, tuple[str, Digest]] = {}
        for name in CHECK_NAMES:
            receipt = encode({"check": name, "verdict": "passed", "artifact": kernel.digest})
            receipts.append(receipt)
            checks[name] = ("passed", digest_bytes(receipt))
        key = {name: str(value) for name, value in content_key_to_json(kernel.key).items()}
        key |= {"signature": kernel.signature, "candidate": kernel.candidate, "code": kernel.digest}
        key["recipe"] = recipe_digest(kernel.recipe, kernel.symbols)
        lines.append(
            AdmissionLine(
                kernel.id, kernel.digest, key, checks, 0.25, 1500, 4000, "cd" * 32, "device", Digest("ef" * 32)
            )
        )
    return encode_lines(lines), to_jsonl(receipts)


Change = Callable[[Plan], Plan]
MakeImage = Callable[..., Path]


@pytest.fixture(scope="session")
def make_image(built: Built) -> MakeImage:
    """Write the image of some toys, one region each; ``change`` alters the plans before they are signed."""

    def make(path: Path, *toys: Toy, change: Change | None = None) -> Path:
        regions: list[RegionDraft] = []
        for toy in toys or (Toy(),):
            plan, pack = _plan(built, toy)
            plan = plan if change is None else change(plan)
            admissions, receipts = _evidence(plan)
            regions.append(
                RegionDraft(
                    target=plan.target,
                    platform=Platform("amd64", "linux"),
                    plan=plan_bytes(plan),
                    phaseir=b'{"program":"not read by the runtime"}',
                    kernels=pack,
                    weights=(WEIGHT.tobytes(),),
                    goldens=b"golden vectors",
                    admissions=admissions,
                    receipts=receipts,
                    ledger_root=Digest("12" * 32),
                    ledger_entries=9,
                )
            )
        first = (toys or (Toy(),))[0]
        draft = ImageDraft(
            name=first.name, epoch=1, model={"digest": "77" * 32}, choices=Digest("34" * 32), toolchain={"numpy": "2"},
            requires=(), regions=regions, policy=Digest("56" * 32), signers=[first.signer],
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
    folder = tmp_path / "home" / "CONFIG" / "tribunus"
    folder.mkdir(parents=True)
    (folder / "trust.json").write_bytes(add_key(None, ALICE.public).encode())


@pytest.fixture(scope="session")
def honest(make_image: MakeImage, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """Bytes of the plain image."""
    return make_image(tmp_path_factory.mktemp("honest") / "toy.tci").read_bytes()


@pytest.fixture
def path(honest: bytes, tmp_path: Path) -> Path:
    """The plain image in a file of the test's own."""
    found = tmp_path / "toy.tci"
    found.write_bytes(honest)
    return found


@pytest.fixture
def image(path: Path) -> Iterator[Image]:
    """The plain image, open."""
    with tribunus.open(path) as opened:
        yield opened


@pytest.fixture
def fresh() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a script in a fresh interpreter with this environment, altered."""

    def run(
        script: str, *words: str | Path, wrapper: tuple[str, ...] = (), **environ: str
    ) -> subprocess.CompletedProcess[str]:
        command = [*wrapper, sys.executable, "-c", script, *map(str, words)]
        paths = os.pathsep.join(part for part in sys.path if part)
        surroundings = {**os.environ, "PYTHONPATH": paths, **environ}
        return subprocess.run(command, capture_output=True, text=True, check=False, env=surroundings, timeout=120)

    return run


def rows(count: int, seed: int = 0) -> F32:
    """An input."""
    return np.random.default_rng(seed).standard_normal((count, 4)).astype(np.float32)
