"""What commands share when they open an image: the checks in order, the signers in words, recorded cases.

Imported by: the commands about images.  Imports: image, plan, runtime.  No compiler, no onnx.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from tribunus.errors import PlanError, TribunusError, UsageError
from tribunus.image.keys import load_development_key
from tribunus.image.plan_checker import check_region
from tribunus.image.policy import TrustPolicy, find_policy
from tribunus.image.read import ImageFile, open_image
from tribunus.phaseir import dims
from tribunus.plan.plan import Golden, Port, Profile
from tribunus.runtime.fitness import choose_region
from tribunus.runtime.region import LoadedRegion, RegionBytes
from tribunus.runtime.replayers import find_replayer
from tribunus.runtime.session import Array, Session, match_inputs


@dataclass(frozen=True, slots=True)
class Recorded:
    """A case that certification recorded: inputs, and the outputs that replay gave."""

    profile: Profile
    name: str
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class Opened:
    """An image that passed everything and whose kernels are loaded."""

    source: ImageFile
    region: LoadedRegion

    def session(self, inputs: Mapping[str, Array]) -> Session:
        """A new session of the profile that takes ``inputs``, which are written.  Raises InputError, ProfileError."""
        profile, values = match_inputs(self.region.plan, inputs)
        session = Session(self.region, profile, values)
        for label, view in session.inputs.items():
            np.copyto(view, inputs[label])
        return session

    def recorded(self) -> tuple[Recorded, ...]:
        """Every recorded case of the region that runs here.  Raises PlanError, IntegrityError."""
        plan = self.region.plan
        blob = self.source.region(plan.target).goldens()
        data = memoryview(b"") if blob is None else blob
        return tuple(
            Recorded(profile, golden.case, *read_golden(profile, golden, data))
            for profile in plan.profiles
            for golden in profile.goldens
        )


@contextmanager
def opened_image(path: Path, trust: Path | None) -> Iterator[Opened]:
    """Open an image with the checks of ``tribunus.open``, and keep file and region apart for the commands.

    Raises what ``tribunus.open`` raises.
    """
    with open_image(path) as source:
        policy = find_policy(trust, os.environ)
        chosen = choose_region(source)
        standing = source.verify_trust(policy, targets=[chosen.target])
        source.start(chosen.target)
        region = source.region(chosen.target)
        check_region(chosen.plan, region)
        weights = tuple(region.weights(i) for i in range(region.weights_count))
        loaded = LoadedRegion(RegionBytes(chosen.plan, region.kernels(), weights), find_replayer)
        try:
            loaded.load_all()
            source.check_unchanged()
            standing.record()
            yield Opened(source, loaded)
        finally:
            loaded.close()


def read_golden(profile: Profile, golden: Golden, blob: memoryview) -> tuple[Mapping[str, Array], Mapping[str, Array]]:
    """Inputs and outputs of a recorded case out of the goldens blob.  Raises PlanError if they do not fit."""
    where = f"recorded case {golden.case[:60]!r}"
    sides = ((profile.inputs, golden.inputs), (profile.outputs, golden.outputs))
    if len(golden.dims) != len(profile.symbols) or any(len(ports) != len(spans) for ports, spans in sides):
        raise PlanError(f"{where} has not the dims, inputs and outputs of its profile")
    values = {symbol.name: value for symbol, value in zip(profile.symbols, golden.dims, strict=True)}
    inputs, outputs = (
        {port.label: _array(port, span, values, blob, where) for port, span in zip(ports, spans, strict=True)}
        for ports, spans in sides
    )
    return inputs, outputs


def _array(port: Port, span: tuple[int, int], values: Mapping[str, int], blob: memoryview, where: str) -> Array:
    offset, size = span
    shape = dims.evaluate_shape(port.type.shape, values)
    dtype = port.type.dtype.numpy
    count = int(np.prod(shape, dtype=np.int64))
    if size != count * dtype.itemsize or offset + size > len(blob):
        raise PlanError(f"{where}: {port.label[:60]!r} does not lie in the recorded bytes")
    return np.frombuffer(blob[offset : offset + size], dtype=dtype).reshape(shape)


def signers(source: ImageFile, policy: TrustPolicy | None) -> tuple[str, ...]:
    """One line a signature: the key, and what is known of it here."""
    try:
        own = load_development_key(os.environ)
    except TribunusError:  # an unreadable key of the user's says nothing about the image
        own = None
    lines: list[str] = []
    for position in range(len(source.contents.evidence)):
        keyid = source.envelope(position).keyid
        notes = []
        if own is not None and own.keyid == keyid:
            notes.append("the development key of this user")
        if policy is not None:
            notes.append("in the policy" if keyid in policy.keys else "unknown to the policy, does not count")
        lines.append(keyid[:16] + (f"  ({'; '.join(notes)})" if notes else ""))
    return tuple(lines)


def parse_numbers(options: list[str]) -> dict[str, int]:
    """``NAME=NUMBER`` options.  Raises UsageError."""
    found: dict[str, int] = {}
    for option in options:
        name, separator, text = option.rpartition("=")
        if not separator or not name or not text.isascii() or not text.isdigit() or len(text) > 12:
            raise UsageError(f"--dim {option!r} is not NAME=NUMBER", remedy="for example --dim sequence=57")
        if name in found:
            raise UsageError(f"dim {name} is given twice", remedy="give each dim once")
        found[name] = int(text)
    return found
