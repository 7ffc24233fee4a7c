"""The zoo's manifest: which wheel holds which model, all of it pinned by SHA-256.

Imported by: the rest of benchmarks.zoo.  Imports: tribunus.errors.  Reads zoo.toml, nothing else.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path, PurePosixPath

from tribunus.errors import SchemaError, UsageError

SCHEMA = 1
DEFAULT_EFFORT = "quick"
DEFAULT_PATH = Path(__file__).with_name("zoo.toml")

_SHA256 = re.compile(r"[0-9a-f]{64}")
_FILE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_DIM = re.compile(r"(?P<name>[^=\[\]]+)(\[\d+\])?=\d+(:\d+){0,3}")


class Group(StrEnum):
    """What is expected of a model."""

    CORE = "core"
    WIDER = "wider"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True, kw_only=True)
class Wheel:
    """One file of the package index.  ``platform``, ``python`` and ``abi`` are pip's words, empty if any will do."""

    key: str
    project: str
    version: str
    file: str
    sha256: str
    size_bytes: int
    platform: str
    python: str
    abi: str

    def __post_init__(self) -> None:
        if not _FILE_NAME.fullmatch(self.file) or not self.file.endswith(".whl"):
            raise SchemaError(f"wheel {self.key}: {self.file!r} is not the name of a wheel")
        _require_hash(f"wheel {self.key}", self.sha256, self.size_bytes)
        distribution, version = self.file.split("-")[:2]
        if _normal(distribution) != _normal(self.project) or version != self.version:
            raise SchemaError(f"wheel {self.key}: {self.file} is not {self.project} {self.version}")


@dataclass(frozen=True, slots=True)
class Part:
    """A member of a wheel; a model is its parts joined in order."""

    wheel: str
    member: str

    def __post_init__(self) -> None:
        path = PurePosixPath(self.member)
        if path.is_absolute() or ".." in path.parts:
            raise SchemaError(f"wheel {self.wheel}: member {self.member!r} leaves the wheel")


@dataclass(frozen=True, slots=True, kw_only=True)
class Model:
    """One .onnx file.  ``dims`` is a suggested binding, one ``NAME=min[:opt:max[:step]]`` each; ``effort`` that of a
    certification that takes minutes."""

    name: str
    group: Group
    about: str
    licence: str
    parts: tuple[Part, ...]
    gzip: bool
    sha256: str
    size_bytes: int
    opset: int
    dims: tuple[str, ...]
    effort: str

    def __post_init__(self) -> None:
        if not _FILE_NAME.fullmatch(self.name):
            raise SchemaError(f"model name {self.name!r} is not a plain file name")
        if not self.parts:
            raise SchemaError(f"model {self.name} has no parts")
        _require_hash(f"model {self.name}", self.sha256, self.size_bytes)
        for dim in self.dims:
            if not _DIM.fullmatch(dim):
                raise SchemaError(f"model {self.name}: {dim!r} is not NAME=min[:opt:max[:step]]")

    @property
    def file(self) -> str:
        return f"{self.name}.onnx"


@dataclass(frozen=True, slots=True)
class Manifest:
    """All wheels and models; every part names a wheel that exists, every name occurs once."""

    wheels: Mapping[str, Wheel]
    models: tuple[Model, ...]

    def __post_init__(self) -> None:
        names = [model.name for model in self.models]
        if len(set(names)) != len(names):
            raise SchemaError("two models of the zoo have the same name")
        for model in self.models:
            missing = [part.wheel for part in model.parts if part.wheel not in self.wheels]
            if missing:
                raise SchemaError(f"model {model.name} names unknown wheels: {', '.join(missing)}")

    def select(self, groups: Sequence[str], names: Sequence[str]) -> tuple[Model, ...]:
        """Models of ``groups`` or with one of ``names``, in manifest order; neither means core."""
        unknown = sorted(set(names) - {model.name for model in self.models})
        if unknown:
            raise UsageError(
                f"the zoo has no model {', '.join(unknown)}", remedy="`python -m benchmarks.zoo list` names them all"
            )
        wanted = {Group(group) for group in groups} if groups or names else {Group.CORE}
        return tuple(model for model in self.models if model.group in wanted or model.name in names)

    def wheels_of(self, models: Iterable[Model]) -> tuple[Wheel, ...]:
        needed = {part.wheel for model in models for part in model.parts}
        return tuple(wheel for key, wheel in self.wheels.items() if key in needed)


def read_manifest(path: Path = DEFAULT_PATH) -> Manifest:
    """Read and check the manifest.  Raises SchemaError naming the first entry that is wrong."""
    try:
        document: dict[str, object] = tomllib.loads(path.read_text(encoding="utf-8"))
    except tomllib.TOMLDecodeError as error:
        raise SchemaError(f"{path} is not TOML: {error}") from error
    if document.get("schema") != SCHEMA:
        raise SchemaError(f"{path} has schema {document.get('schema')!r}, this program reads {SCHEMA}")
    wheels = {key: _wheel(key, _table(value, key)) for key, value in _table(document.get("wheel"), "wheel").items()}
    models = tuple(_model(_table(value, "model")) for value in _list(document.get("model"), "model"))
    return Manifest(wheels, models)


def _wheel(key: str, table: Mapping[str, object]) -> Wheel:
    return Wheel(
        key=key,
        project=_text(table, "project"),
        version=_text(table, "version"),
        file=_text(table, "file"),
        sha256=_text(table, "sha256"),
        size_bytes=_number(table, "bytes"),
        platform=_text(table, "platform") if "platform" in table else "",
        python=_text(table, "python") if "python" in table else "",
        abi=_text(table, "abi") if "abi" in table else "",
    )


def _model(table: Mapping[str, object]) -> Model:
    name = _text(table, "name")
    parts: list[Part] = []
    for pair in _list(table.get("parts"), name):
        match pair:
            case [str(wheel), str(member)]:
                parts.append(Part(wheel, member))
            case _:
                raise SchemaError(f"model {name}: a part is [wheel, member], not {pair!r}")
    group = _text(table, "group")
    if group not in set(Group):
        raise SchemaError(f"model {name}: no group {group!r}")
    return Model(
        name=name,
        group=Group(group),
        about=_text(table, "about"),
        licence=_text(table, "licence"),
        parts=tuple(parts),
        gzip=table.get("gzip") is True,
        sha256=_text(table, "sha256"),
        size_bytes=_number(table, "bytes"),
        opset=_number(table, "opset"),
        dims=tuple(str(dim) for dim in _list(table.get("dims"), name)),
        effort=_text(table, "effort") if "effort" in table else DEFAULT_EFFORT,
    )


def _require_hash(what: str, sha256: str, size_bytes: int) -> None:
    if not _SHA256.fullmatch(sha256):
        raise SchemaError(f"{what}: {sha256!r} is not a SHA-256 in lower-case hex")
    if size_bytes <= 0:
        raise SchemaError(f"{what}: a size of {size_bytes} bytes")


def _normal(project: str) -> str:
    return re.sub(r"[-_.]+", "_", project).lower()


def _table(value: object, where: str) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise SchemaError(f"zoo manifest: {where} must be a table")
    return {str(key): item for key, item in value.items()}


def _list(value: object, where: str) -> list[object]:
    if not isinstance(value, list):
        raise SchemaError(f"zoo manifest: {where} must hold a list")
    return list(value)


def _text(table: Mapping[str, object], key: str) -> str:
    value = table.get(key)
    if not isinstance(value, str) or not value:
        raise SchemaError(f"zoo manifest: {key} must be text in {dict(table)!r}")
    return value


def _number(table: Mapping[str, object], key: str) -> int:
    value = table.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise SchemaError(f"zoo manifest: {key} must be a number in {dict(table)!r}")
    return value
