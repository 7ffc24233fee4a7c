"""What a built kernel is to replay: its code, and the recipe by which it is launched.

Imported by: devices, runtime, candidates, planning, image, backends (both halves).  Imports: canon, phaseir.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, NewType

from tribunus.canon import Digest, Json, digest_bytes, int_of, ints_of, list_of, object_of, read_once, str_of, text_of
from tribunus.errors import SchemaError
from tribunus.phaseir import dims
from tribunus.phaseir.dims import Dim
from tribunus.phaseir.layouts import Layout, layout_from_json, layout_to_json
from tribunus.phaseir.types import TensorType, type_from_json, type_to_json
from tribunus.records import dataclass, field

CodeFormat = NewType("CodeFormat", str)
"""Name of a code format: ``flat``, ``onednn-recipe``, ... ; a Replayer is looked up by it."""
_RECIPE_KEYS: Final = frozenset(
    ("inputs", "outputs", "weights", "workspace", "params", "split", "in_place", "jit_at_open")
)
_SPLIT_KEYS: Final = frozenset(("axis", "parts"))
_OPERAND_KEYS: Final = frozenset(("type", "layout", "align"))
_WEIGHT_KEYS: Final = frozenset(("sources", "packing", "nbytes", "align"))
_PACKING_KEYS: Final = frozenset(("name", "config", "layout"))


@dataclass(frozen=True, slots=True)
class Code:
    """Bytes of a kernel in a named format.

    facts: static facts that the format needs, sorted by name, e.g. ``("text_size", 812)`` for flat code.
    """

    format: CodeFormat
    data: bytes
    facts: tuple[tuple[str, int | str], ...] = ()
    digest: Digest = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", digest_bytes(self.data))

    def fact(self, name: str) -> int:
        """An integer fact.  Raises SchemaError if it is missing."""
        for key, value in self.facts:
            if key == name and isinstance(value, int):
                return value
        raise SchemaError(f"code of format {self.format} lacks the fact {name!r}")


@dataclass(frozen=True, slots=True)
class Operand:
    """An input or output of a kernel.  type: over the signature's symbols.  align: of its address, in bytes."""

    type: TensorType
    layout: Layout
    align: int


@dataclass(frozen=True, slots=True)
class Packing:
    """How a weight operand's bytes are made from values of the signature.

    name: ``layout`` where ``layout`` describes it fully (core code makes the bytes: permutation, blocking, zero
    padding), else a named packing of the backend (``Backend.pack``).  config: its parameters, sorted by name.
    """

    name: str
    config: tuple[tuple[str, int | str], ...] = ()
    layout: Layout | None = None


@dataclass(frozen=True, slots=True)
class PackedWeight:
    """A weight operand of a kernel as the image holds it.

    sources: signature value ids (WEIGHT, or CONSTANT by value) whose arrays the packing reads, in its order.
    nbytes: exact size of the packed bytes.  align: bytes its address is a multiple of.
    """

    sources: tuple[int, ...]
    packing: Packing
    nbytes: int
    align: int = 64


@dataclass(frozen=True, slots=True)
class WorkSplit:
    """Static partition: the kernel is called once for each part in 0 .. parts - 1, on as many threads.

    axis: what is divided, in words.  Never a reduction.
    """

    axis: str
    parts: int


ONE_PART = WorkSplit("none", 1)


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a kernel is called: ``kernel(buffers, params, part, parts)``.

    buffers: addresses of inputs, outputs, weights, then the workspace if it has bytes.  params: int64 values of these
    dims.  workspace: bytes, a dim over the signature's symbols.  in_place: (output, input) pairs that may share memory.
    jit_at_open: code is generated when the image is opened.
    """

    inputs: tuple[Operand, ...]
    outputs: tuple[Operand, ...]
    weights: tuple[PackedWeight, ...] = ()
    workspace: Dim = 0
    params: tuple[Dim, ...] = ()
    split: WorkSplit = ONE_PART
    in_place: tuple[tuple[int, int], ...] = ()
    jit_at_open: bool = False

    @property
    def has_workspace(self) -> bool:
        """Whether the kernel gets a workspace buffer."""
        return self.workspace != 0

    @property
    def buffer_count(self) -> int:
        """Length of the ``buffers`` array."""
        return len(self.inputs) + len(self.outputs) + len(self.weights) + self.has_workspace


class SlotKind(StrEnum):
    """What a launch argument points to."""

    BUFFER = "buffer"  # a buffer of the profile
    TENSOR = "tensor"  # weight bytes


@dataclass(frozen=True, slots=True)
class Slot:
    """One launch argument: an index into the profile's buffers, or into the plan's tensors."""

    kind: SlotKind
    index: int


def recipe_to_json(recipe: Recipe, symbols: Sequence[str]) -> Json:
    """Document form; ``symbols``: names of the signature's symbols in order."""
    index = {name: i for i, name in enumerate(symbols)}
    return {
        "inputs": [_operand_to_json(o, index) for o in recipe.inputs],
        "outputs": [_operand_to_json(o, index) for o in recipe.outputs],
        "weights": [
            {
                "sources": list(w.sources),
                "packing": {
                    "name": w.packing.name,
                    "config": [[k, v] for k, v in w.packing.config],
                    "layout": None if w.packing.layout is None else layout_to_json(w.packing.layout),
                },
                "nbytes": w.nbytes,
                "align": w.align,
            }
            for w in recipe.weights
        ],
        "workspace": dims.to_json(recipe.workspace, index),
        "params": [dims.to_json(p, index) for p in recipe.params],
        "split": {"axis": recipe.split.axis, "parts": recipe.split.parts},
        "in_place": [[o, i] for o, i in recipe.in_place],
        "jit_at_open": recipe.jit_at_open,
    }


def recipe_from_json(value: Json, symbols: Sequence[str], where: str) -> Recipe:
    """Inverse of ``recipe_to_json``.  Raises SchemaError."""
    document = object_of(value, where, _RECIPE_KEYS)
    split = object_of(document["split"], where, _SPLIT_KEYS)
    jit = document["jit_at_open"]
    if type(jit) is not bool:
        raise SchemaError(f"{where}: jit_at_open must be true or false")
    pairs: list[tuple[int, int]] = []
    for pair in list_of(document["in_place"], where):
        numbers = ints_of(pair, where)
        if len(numbers) != 2:
            raise SchemaError(f"{where}: in_place pairs are [output, input]")
        pairs.append((numbers[0], numbers[1]))
    return Recipe(
        tuple(_operand_from_json(o, symbols, where) for o in list_of(document["inputs"], where)),
        tuple(_operand_from_json(o, symbols, where) for o in list_of(document["outputs"], where)),
        tuple(_weight_from_json(w, where) for w in list_of(document["weights"], where)),
        dims.from_json(document["workspace"], symbols, where),
        dims.shape_from_json(document["params"], symbols, where),
        WorkSplit(str_of(split["axis"], where), int_of(split["parts"], where, 1, 1024)),
        tuple(pairs),
        jit,
    )


def recipe_digest(recipe: Recipe, symbols: Sequence[str]) -> Digest:
    """Identity of a recipe: SHA-256 of its document's canonical bytes.

    The text is put together here, because opening an image asks this of every kernel.
    """
    index = {name: i for i, name in enumerate(symbols)}
    split, jit = recipe.split, "true" if recipe.jit_at_open else "false"
    text = (
        f'{{"in_place":{_pairs_text(recipe.in_place)},"inputs":[{_operands_text(recipe.inputs, index)}],'
        f'"jit_at_open":{jit},"outputs":[{_operands_text(recipe.outputs, index)}],'
        f'"params":{_dims_text(recipe.params, index)},"split":{{"axis":{text_of(split.axis)},"parts":{split.parts}}},'
        f'"weights":[{",".join(map(_weight_text, recipe.weights))}],'
        f'"workspace":{_dim_text(recipe.workspace, index)}}}'
    )
    return digest_bytes(text.encode("utf-8"))


def _operands_text(operands: Sequence[Operand], index: Mapping[str, int]) -> str:
    return ",".join(
        [
            f'{{"align":{o.align},"layout":{_layout_text(o.layout)},"type":'
            + (
                f'{{"dtype":"{o.type.dtype}","shape":{_dims_text(o.type.shape, index)}}}}}'
                if o.type.quantization is None
                else f"{text_of(type_to_json(o.type, index))}}}"
            )
            for o in operands
        ]
    )


def _weight_text(weight: PackedWeight) -> str:
    packing = weight.packing
    layout = "null" if packing.layout is None else _layout_text(packing.layout)
    config = text_of([[name, value] for name, value in packing.config]) if packing.config else "[]"
    return (
        f'{{"align":{weight.align},"nbytes":{weight.nbytes},"packing":{{"config":{config},"layout":{layout},'
        f'"name":{text_of(packing.name)}}},"sources":{_numbers_text(weight.sources)}}}'
    )


def _layout_text(layout: Layout) -> str:
    blocks, order = _pairs_text(layout.blocks), _numbers_text(layout.order)
    return f'{{"blocks":{blocks},"order":{order},"pitch":{"null" if layout.pitch is None else layout.pitch}}}'


def _dims_text(values: Sequence[Dim], index: Mapping[str, int]) -> str:
    return f"[{','.join([_dim_text(value, index) for value in values])}]"


def _dim_text(value: Dim, index: Mapping[str, int]) -> str:
    if isinstance(value, int):
        return text_of(value)
    if isinstance(value, dims.Sym):
        return f'["s",{index[value.name]}]'
    return f'["{value.op}",{",".join([_dim_text(arg, index) for arg in value.args])}]'


def _numbers_text(values: Sequence[int]) -> str:
    return f"[{','.join(map(str, values))}]"


def _pairs_text(pairs: Sequence[tuple[int, int]]) -> str:
    return f"[{','.join([f'[{left},{right}]' for left, right in pairs])}]"


def _operand_to_json(operand: Operand, index: Mapping[str, int]) -> Json:
    return {
        "type": type_to_json(operand.type, index),
        "layout": layout_to_json(operand.layout),
        "align": operand.align,
    }


@read_once(1024)
def _operand_from_json(value: Json, symbols: tuple[str, ...]) -> Operand:
    """Inverse of ``_operand_to_json``: what one kernel writes others read, so most stand there again."""
    fields = object_of(value, "operand", _OPERAND_KEYS)
    type_ = type_from_json(fields["type"], symbols, "type")
    layout = layout_from_json(fields["layout"], "layout")
    if layout.rank != type_.rank:
        raise SchemaError(f"a layout of rank {layout.rank} for a tensor of rank {type_.rank}")
    return Operand(type_, layout, int_of(fields["align"], "align", 1, 1 << 16))


def _weight_from_json(value: Json, where: str) -> PackedWeight:
    document = object_of(value, where, _WEIGHT_KEYS)
    packing = object_of(document["packing"], where, _PACKING_KEYS)
    layout = packing["layout"]
    return PackedWeight(
        ints_of(document["sources"], where),
        Packing(
            str_of(packing["name"], where),
            facts_from_json(packing["config"], where),
            None if layout is None else layout_from_json(layout, where),
        ),
        int_of(document["nbytes"], where, 0, 1 << 48),
        int_of(document["align"], where, 1, 1 << 16),
    )


def facts_from_json(value: Json, where: str) -> tuple[tuple[str, int | str], ...]:
    """Sorted (name, integer or text) pairs from ``[[name, value], ...]``.  Raises SchemaError."""
    found: list[tuple[str, int | str]] = []
    for pair in list_of(value, where):
        items = list_of(pair, where)
        name, fact = items if len(items) == 2 else (None, None)
        if type(name) is str and (type(fact) is int or type(fact) is str):
            found.append((name, fact))
        else:
            raise SchemaError(f"{where}: [name, integer or text] was expected")
    if len(found) > 1 and found != sorted(found, key=lambda f: f[0]):
        raise SchemaError(f"{where}: facts are not sorted")
    return tuple(found)
