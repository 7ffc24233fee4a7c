"""Documents of plans: canonical JSON with a closed schema.

Imported by: planning (to_json), image and runtime (from_json).  Imports: canon, phaseir, plan.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from tribunus.canon import (
    Json,
    JsonObject,
    digest_from_json,
    encode,
    int_of,
    ints_of,
    is_identifier,
    list_of,
    object_of,
    str_of,
)
from tribunus.errors import SchemaError, VersionError
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim, Symbol
from tribunus.phaseir.layouts import layout_from_json, layout_to_json
from tribunus.phaseir.types import type_from_json, type_to_json
from tribunus.plan.code import (
    CodeFormat,
    Slot,
    SlotKind,
    facts_from_json,
    recipe_from_json,
    recipe_to_json,
)
from tribunus.plan.plan import (
    SCHEMA,
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
    StateBinding,
)

SIZE_LIMIT: Final = 1 << 48
_SLOT_KINDS: Final = {kind.value: kind for kind in SlotKind}
_ROLES: Final = {role.value: role for role in BufferRole}
_CONTENT_TEXTS: Final = ("backend", "op", "dtype", "shape", "batch", "quantization", "policy", "layouts", "arch")
_CONTENT_KEYS: Final = frozenset((*_CONTENT_TEXTS, "threads"))
_PLAN_KEYS: Final = frozenset(
    ("schema", "target", "arch", "features", "threads", "kernels", "host", "tensors", "profiles")
)
_KERNEL_KEYS: Final = frozenset(
    ("id", "signature", "candidate", "format", "offset", "size", "digest", "facts", "symbols", "recipe", "key")
)
_HOST_KEYS: Final = frozenset(("role", "format", "offset", "size", "digest", "facts"))
_TENSOR_KEYS: Final = frozenset(("blob", "offset", "size", "kernel", "operand", "sources"))
_PROFILE_KEYS: Final = frozenset(
    ("name", "symbols", "arena", "buffers", "inputs", "outputs", "states", "launches", "representatives", "goldens")
)
_PORT_KEYS: Final = frozenset(("label", "buffer", "type", "layout"))
_LAUNCH_KEYS: Final = frozenset(("kernel", "bind", "args", "parts", "wait"))
_SYMBOL_KEYS: Final = frozenset(("name", "label", "lo", "opt", "hi", "step"))
_BUFFER_KEYS: Final = frozenset(("offset", "size", "role", "view_of"))
_STATE_KEYS: Final = frozenset(("label", "buffer", "type", "initial"))
_GOLDEN_KEYS: Final = frozenset(("case", "dims", "inputs", "outputs"))
T = TypeVar("T")


def plan_to_json(plan: Plan) -> JsonObject:
    """Document form of a plan."""
    return {
        "schema": SCHEMA,
        "target": plan.target,
        "arch": plan.arch,
        "features": list(plan.features),
        "threads": plan.threads,
        "kernels": [_kernel_to_json(k) for k in plan.kernels],
        "host": [
            {
                "role": h.role,
                "format": h.format,
                "offset": h.offset,
                "size": h.size,
                "digest": h.digest,
                "facts": [[k, v] for k, v in h.facts],
            }
            for h in plan.host
        ],
        "tensors": [
            {
                "blob": t.blob,
                "offset": t.offset,
                "size": t.size,
                "kernel": t.kernel,
                "operand": t.operand,
                "sources": list(t.sources),
            }
            for t in plan.tensors
        ],
        "profiles": [_profile_to_json(p) for p in plan.profiles],
    }


def plan_bytes(plan: Plan) -> bytes:
    """Canonical bytes of a plan."""
    return encode(plan_to_json(plan))


def plan_from_json(value: Json) -> Plan:
    """Inverse of ``plan_to_json``.  Raises SchemaError, VersionError, DigestSyntaxError.

    Checks form only; what a plan may do is proved by the plan checker.
    """
    document = object_of(value, "plan", _PLAN_KEYS)
    if document["schema"] != SCHEMA:
        raise VersionError(f"plan schema {str(document['schema'])[:40]!r}, this release reads {SCHEMA!r}")
    features = tuple(_identifier(f, "plan.features") for f in list_of(document["features"], "plan.features"))
    if list(features) != sorted(set(features)):
        raise SchemaError("plan.features: not sorted")
    return Plan(
        _identifier(document["target"], "plan.target"),
        _identifier(document["arch"], "plan.arch"),
        features,
        int_of(document["threads"], "plan.threads", 1, 1024),
        _each(document["kernels"], "kernels", _kernel_from_json),
        _each(document["host"], "host", _host_from_json),
        _each(document["tensors"], "tensors", _tensor_from_json),
        _each(document["profiles"], "profiles", _profile_from_json),
    )


def _kernel_to_json(kernel: PlanKernel) -> Json:
    key = kernel.key
    return {
        "id": kernel.id,
        "signature": kernel.signature,
        "candidate": kernel.candidate,
        "format": kernel.format,
        "offset": kernel.offset,
        "size": kernel.size,
        "digest": kernel.digest,
        "facts": [[k, v] for k, v in kernel.facts],
        "symbols": list(kernel.symbols),
        "recipe": recipe_to_json(kernel.recipe, kernel.symbols),
        "key": content_key_to_json(key),
    }


def content_key_to_json(key: ContentKey) -> JsonObject:
    """Document form of the content fields of a key."""
    return {
        "backend": key.backend,
        "op": key.op,
        "dtype": key.dtype,
        "shape": key.shape,
        "batch": key.batch,
        "quantization": key.quantization,
        "policy": key.policy,
        "layouts": key.layouts,
        "arch": key.arch,
        "threads": key.threads,
    }


def content_key_from_json(value: Json, where: str) -> ContentKey:
    """Inverse of ``content_key_to_json``.  Raises SchemaError."""
    document = object_of(value, where, _CONTENT_KEYS)
    backend, op, dtype, shape, batch, quantization, policy, layouts, arch = [
        str_of(document[name], where) for name in _CONTENT_TEXTS
    ]
    threads = int_of(document["threads"], where, 1, 1024)
    return ContentKey(backend, op, dtype, shape, batch, quantization, policy, layouts, arch, threads)


def _kernel_from_json(value: Json, where: str) -> PlanKernel:
    document = object_of(value, where, _KERNEL_KEYS)
    symbols = tuple(_identifier(s, where) for s in list_of(document["symbols"], where))
    return PlanKernel(
        _identifier(document["id"], where),
        digest_from_json(document["signature"], where),
        digest_from_json(document["candidate"], where),
        CodeFormat(_identifier(document["format"], where)),
        int_of(document["offset"], where, 0, SIZE_LIMIT),
        int_of(document["size"], where, 1, SIZE_LIMIT),
        digest_from_json(document["digest"], where),
        facts_from_json(document["facts"], where),
        symbols,
        recipe_from_json(document["recipe"], symbols, where),
        content_key_from_json(document["key"], where),
    )


def _host_from_json(value: Json, where: str) -> HostCode:
    document = object_of(value, where, _HOST_KEYS)
    return HostCode(
        _identifier(document["role"], where),
        CodeFormat(_identifier(document["format"], where)),
        int_of(document["offset"], where, 0, SIZE_LIMIT),
        int_of(document["size"], where, 1, SIZE_LIMIT),
        digest_from_json(document["digest"], where),
        facts_from_json(document["facts"], where),
    )


def _tensor_from_json(value: Json, where: str) -> PlanTensor:
    document = object_of(value, where, _TENSOR_KEYS)
    return PlanTensor(
        int_of(document["blob"], where, 0, 1 << 16),
        int_of(document["offset"], where, 0, SIZE_LIMIT),
        int_of(document["size"], where, 0, SIZE_LIMIT),
        int_of(document["kernel"], where, 0, 1 << 20),
        int_of(document["operand"], where, 0, 1 << 16),
        tuple([digest_from_json(s, where) for s in list_of(document["sources"], where)]),
    )


def _profile_to_json(profile: Profile) -> Json:
    index = {s.name: i for i, s in enumerate(profile.symbols)}
    return {
        "name": profile.name,
        "symbols": [
            {"name": s.name, "label": s.label, "lo": s.lo, "opt": s.opt, "hi": s.hi, "step": s.step}
            for s in profile.symbols
        ],
        "arena": profile.arena,
        "buffers": [
            {"offset": b.offset, "size": b.size, "role": b.role.value, "view_of": b.view_of} for b in profile.buffers
        ],
        "inputs": [_port_to_json(p, index) for p in profile.inputs],
        "outputs": [_port_to_json(p, index) for p in profile.outputs],
        "states": [
            {"label": s.label, "buffer": s.buffer, "type": type_to_json(s.type, index), "initial": s.initial}
            for s in profile.states
        ],
        "launches": [
            {
                "kernel": launch.kernel,
                "bind": [dims.to_json(d, index) for d in launch.bind],
                "args": [{slot.kind.value: slot.index} for slot in launch.args],
                "parts": launch.parts,
                "wait": list(launch.wait),
            }
            for launch in profile.launches
        ],
        "representatives": [list(r) for r in profile.representatives],
        "goldens": [
            {
                "case": g.case,
                "dims": list(g.dims),
                "inputs": [list(span) for span in g.inputs],
                "outputs": [list(span) for span in g.outputs],
            }
            for g in profile.goldens
        ],
    }


def _profile_from_json(value: Json, where: str) -> Profile:
    document = object_of(value, where, _PROFILE_KEYS)
    symbols = _each(document["symbols"], f"{where}.symbols", _symbol_from_json)
    names = [s.name for s in symbols]
    if len(set(names)) != len(names):
        raise SchemaError(f"{where}: a symbol is declared twice")

    def port(item: Json, at: str) -> Port:
        fields = object_of(item, at, _PORT_KEYS)
        return Port(
            str_of(fields["label"], at),
            int_of(fields["buffer"], at),
            type_from_json(fields["type"], names, at),
            layout_from_json(fields["layout"], at),
        )

    def state(item: Json, at: str) -> StateBinding:
        fields = object_of(item, at, _STATE_KEYS)
        initial = fields["initial"]
        return StateBinding(
            str_of(fields["label"], at),
            int_of(fields["buffer"], at),
            type_from_json(fields["type"], names, at),
            None if initial is None else int_of(initial, at),
        )

    def launch(item: Json, at: str) -> Launch:
        fields = object_of(item, at, _LAUNCH_KEYS)
        return Launch(
            int_of(fields["kernel"], at),
            dims.shape_from_json(fields["bind"], names, at),
            tuple([_slot_from_json(slot, at) for slot in list_of(fields["args"], at)]),
            int_of(fields["parts"], at, 1, 1024),
            _integers(fields["wait"], at),
        )

    return Profile(
        str_of(document["name"], where),
        symbols,
        int_of(document["arena"], where, 0, SIZE_LIMIT),
        _each(document["buffers"], f"{where}.buffers", _buffer_from_json),
        _each(document["inputs"], f"{where}.inputs", port),
        _each(document["outputs"], f"{where}.outputs", port),
        _each(document["states"], f"{where}.states", state),
        _each(document["launches"], f"{where}.launches", launch),
        tuple(_integers(r, where) for r in list_of(document["representatives"], where)),
        _each(document["goldens"], f"{where}.goldens", _golden_from_json),
    )


def _symbol_from_json(value: Json, where: str) -> Symbol:
    document = object_of(value, where, _SYMBOL_KEYS)
    lo, opt, hi = (int_of(document[k], where, 0, 1 << 40) for k in ("lo", "opt", "hi"))
    step = int_of(document["step"], where, 1, 1 << 40)
    if not lo <= opt <= hi or (opt - lo) % step or (hi - lo) % step:
        raise SchemaError(f"{where}: bounds {lo}:{opt}:{hi}:{step} are not ordered")
    return Symbol(_identifier(document["name"], where), str_of(document["label"], where), lo, opt, hi, step)


def _buffer_from_json(value: Json, where: str) -> Buffer:
    document = object_of(value, where, _BUFFER_KEYS)
    role, view = str_of(document["role"], where), document["view_of"]
    parsed = _ROLES.get(role)
    if parsed is None:
        raise SchemaError(f"{where}: unknown role {role[:20]!r}")
    return Buffer(
        int_of(document["offset"], where, 0, SIZE_LIMIT),
        int_of(document["size"], where, 0, SIZE_LIMIT),
        parsed,
        None if view is None else int_of(view, where),
    )


def _golden_from_json(value: Json, where: str) -> Golden:
    document = object_of(value, where, _GOLDEN_KEYS)
    return Golden(
        str_of(document["case"], where),
        _integers(document["dims"], where),
        _spans(document["inputs"], where),
        _spans(document["outputs"], where),
    )


def _spans(value: Json, where: str) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for span in list_of(value, where):
        numbers = _integers(span, where)
        if len(numbers) != 2:
            raise SchemaError(f"{where}: [offset, size] was expected")
        found.append((numbers[0], numbers[1]))
    return tuple(found)


def _slot_from_json(value: Json, where: str) -> Slot:
    if type(value) is dict and len(value) == 1:
        for name, index in value.items():
            kind = _SLOT_KINDS.get(name)
            if kind is not None:
                return Slot(kind, int_of(index, where))
    raise SchemaError(f"{where}: an argument names one buffer or one tensor")


def _port_to_json(port: Port, index: Mapping[str, int]) -> Json:
    return {
        "label": port.label,
        "buffer": port.buffer,
        "type": type_to_json(port.type, index),
        "layout": layout_to_json(port.layout),
    }


def _each(value: Json, where: str, read: Callable[[Json, str], T]) -> tuple[T, ...]:
    return tuple([read(item, f"{where}[{i}]") for i, item in enumerate(list_of(value, where))])


def _integers(value: Json, where: str) -> tuple[int, ...]:
    return ints_of(value, where, 0, SIZE_LIMIT)


def _identifier(value: Json, where: str) -> str:
    if type(value) is str and is_identifier(value):
        return value
    raise SchemaError(f"{where}: {str_of(value, where)[:40]!r} is no identifier")


def evaluate_all(values: Sequence[Dim], bindings: Mapping[str, int]) -> tuple[int, ...]:
    """Each dim at ``bindings``."""
    return tuple(dims.evaluate(v, bindings) for v in values)


__all__ = [
    "content_key_from_json",
    "content_key_to_json",
    "evaluate_all",
    "plan_bytes",
    "plan_from_json",
    "plan_to_json",
]
