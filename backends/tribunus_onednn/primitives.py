"""From a problem to a primitive: descriptors, the list of implementations, the one of a given name.

Imported by: probe, replay, listing (the record of an implementation).  Imports: library, problem.  Runs in children
and where images are replayed.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Final

from tribunus.errors import DriverError
from tribunus_onednn.library import (
    ALGORITHMS,
    ARGUMENTS,
    DATA_TYPES,
    FORMAT_BLOCKED,
    FORWARD_INFERENCE,
    FPMATH_STRICT,
    MAX_DIMS,
    MD_DIMS,
    MD_FORMAT,
    MD_INNER_AXES,
    MD_INNER_BLOCKS,
    MD_INNER_COUNT,
    MD_NDIMS,
    MD_PADDED_DIMS,
    MD_STRIDES,
    POST_OP_ARGUMENT,
    QUERY_SCRATCHPAD,
    QUERY_WEIGHTS,
    SCRATCHPAD,
    SCRATCHPAD_USER,
    SUCCESS,
    Dims,
    ExecArg,
    Library,
)
from tribunus_onednn.problem import Memory, Problem

FORMAT_ANY: Final = 1
MOST_IMPLEMENTATIONS: Final = 64


@dataclass(frozen=True, slots=True)
class Implementation:
    """One entry of the library's list.  weights: the memory it wants where the problem let it choose, else None."""

    name: str
    weights: Memory | None
    weights_bytes: int
    scratchpad: int


def create_memory_desc(library: Library, memory: Memory) -> int:
    """A memory descriptor; the caller destroys it.  Raises DriverError."""
    dims, kind = Dims(*memory.dims), DATA_TYPES[memory.dtype]
    if memory.strides is not None:
        return library.make("memory_desc_create_with_strides", len(memory.dims), dims, kind, Dims(*memory.strides))
    if memory.is_any:
        return library.make("memory_desc_create_with_tag", len(memory.dims), dims, kind, FORMAT_ANY)
    return library.make("memory_desc_create_with_string_tag", len(memory.dims), dims, kind, memory.tag.encode("ascii"))


def describe_memory(library: Library, descriptor: int, dtype: str) -> Memory | None:
    """What a descriptor says, None where it is no blocked layout that dims and a tag or strides describe fully."""
    rank, count, form = ctypes.c_int(), ctypes.c_int(), ctypes.c_int()
    library.call("memory_desc_query", descriptor, MD_NDIMS, ctypes.byref(rank))
    library.call("memory_desc_query", descriptor, MD_FORMAT, ctypes.byref(form))
    if rank.value == 0 or form.value != FORMAT_BLOCKED:
        return None
    library.call("memory_desc_query", descriptor, MD_INNER_COUNT, ctypes.byref(count))
    dims = _list(library, descriptor, MD_DIMS, rank.value)
    strides = _list(library, descriptor, MD_STRIDES, rank.value)
    if count.value == 0:
        return _verified(library, descriptor, Memory(dims, strides, dtype=dtype))
    blocks = _list(library, descriptor, MD_INNER_BLOCKS, count.value)
    axes = _list(library, descriptor, MD_INNER_AXES, count.value)
    outer_extents = [-(-d // _block(axis, blocks, axes)) for axis, d in enumerate(dims)]
    # Outer axes from slowest to fastest; of equal strides, the axis that has more than one step is the outermost.
    order = sorted(range(rank.value), key=lambda axis: (-strides[axis], outer_extents[axis] == 1, axis))
    outer = "".join(chr(ord("A" if axis in axes else "a") + axis) for axis in order)
    inner = "".join(f"{size}{chr(ord('a') + axis)}" for size, axis in zip(blocks, axes, strict=True))
    return _verified(library, descriptor, Memory(dims, None, outer + inner, dtype))


def _block(axis: int, blocks: Sequence[int], axes: Sequence[int]) -> int:
    return math.prod(size for size, blocked in zip(blocks, axes, strict=True) if blocked == axis)


def _verified(library: Library, descriptor: int, memory: Memory) -> Memory | None:
    """``memory`` if it makes the same descriptor; strides of axes with one step count, because implementations look."""
    again, rank = create_memory_desc(library, memory), len(memory.dims)
    same = library.equal(again, descriptor) and all(
        _list(library, again, query, rank) == _list(library, descriptor, query, rank)
        for query in (MD_STRIDES, MD_PADDED_DIMS)
    )
    library.call("memory_desc_destroy", again)
    return memory if same else None


def _list(library: Library, descriptor: int, query: int, length: int) -> tuple[int, ...]:
    found = ctypes.POINTER(ctypes.c_int64 * MAX_DIMS)()
    library.call("memory_desc_query", descriptor, query, ctypes.byref(found))
    return tuple(found.contents[:length])


@contextmanager
def first_primitive_desc(library: Library, problem: Problem) -> Iterator[ctypes.c_void_p]:
    """The first implementation's primitive descriptor (null where there is none), destroyed at the end."""
    with ExitStack() as stack:
        descriptors: dict[str, int] = {}
        for name, memory in problem.memories:
            descriptors[name] = create_memory_desc(library, memory)
            stack.callback(library.call, "memory_desc_destroy", descriptors[name])
        attr = library.make("primitive_attr_create")
        stack.callback(library.call, "primitive_attr_destroy", attr)
        library.call("primitive_attr_set_scratchpad_mode", attr, SCRATCHPAD_USER)
        library.call("primitive_attr_set_fpmath_mode", attr, FPMATH_STRICT)
        post_ops = library.make("post_ops_create")
        stack.callback(library.call, "post_ops_destroy", post_ops)
        for step in problem.post_ops:
            if step.memory:
                library.call("post_ops_append_binary", post_ops, ALGORITHMS[step.alg], descriptors[step.memory])
            else:
                library.call("post_ops_append_eltwise", post_ops, ALGORITHMS[step.alg], step.alpha, step.beta)
        library.call("primitive_attr_set_post_ops", attr, post_ops)
        found = ctypes.c_void_p()
        name, arguments = _creation(library, problem, descriptors)
        library.status(name, ctypes.byref(found), *arguments, attr)
        try:
            yield found
        finally:
            if found.value:
                library.call("primitive_desc_destroy", found)


def list_implementations(library: Library, problem: Problem) -> tuple[Implementation, ...]:
    """Everything the library offers, in its order, each (name, weights memory) once."""
    found: list[Implementation] = []
    seen: set[tuple[str, Memory | None]] = set()
    with first_primitive_desc(library, problem) as desc:
        for _ in range(MOST_IMPLEMENTATIONS if desc.value else 0):
            entry = _entry(library, problem, desc.value or 0)
            if entry is not None and (entry.name, entry.weights) not in seen:
                seen.add((entry.name, entry.weights))
                found.append(entry)
            if library.status("primitive_desc_next_impl", desc) != SUCCESS:
                break
    return tuple(found)


@contextmanager
def primitive_desc_of(library: Library, problem: Problem, implementation: str) -> Iterator[int]:
    """The primitive descriptor of the implementation of this name.  Raises DriverError where it is absent."""
    with first_primitive_desc(library, problem) as desc:
        names: list[str] = []
        for _ in range(MOST_IMPLEMENTATIONS if desc.value else 0):
            names.append(library.implementation(desc.value or 0))
            if names[-1] == implementation:
                yield desc.value or 0
                return
            if library.status("primitive_desc_next_impl", desc) != SUCCESS:
                break
        raise DriverError(
            f"oneDNN {library.version} has no implementation {implementation!r} of this {problem.op} here, "
            f"only {', '.join(dict.fromkeys(names)) or 'none at all'}"
        )


def _entry(library: Library, problem: Problem, desc: int) -> Implementation | None:
    name = library.implementation(desc)
    scratchpad = library.size(library.queried(desc, QUERY_SCRATCHPAD))
    if not problem.has("weights") or not problem.memory("weights").is_any:
        return Implementation(name, None, 0, scratchpad)
    wanted = library.queried(desc, QUERY_WEIGHTS)
    memory = describe_memory(library, wanted, problem.memory("weights").dtype)
    return None if memory is None else Implementation(name, memory, library.size(wanted), scratchpad)


def _creation(library: Library, problem: Problem, mds: Mapping[str, int]) -> tuple[str, tuple[object, ...]]:
    """Function and arguments (between the result and the attributes) that create a primitive descriptor."""
    engine, alg = library.engine, ALGORITHMS[problem.alg]
    inference = (engine, FORWARD_INFERENCE)
    bias = mds.get("bias")

    def dims(name: str) -> ctypes.Array[ctypes.c_int64]:
        return Dims(*problem.integers(name))

    match problem.op:
        case "matmul":
            return "matmul_primitive_desc_create", (engine, mds["src"], mds["weights"], bias, mds["dst"])
        case "convolution" | "deconvolution":
            geometry = (dims("strides"), dims("dilates"), dims("padding_l"), dims("padding_r"))
            operands = (mds["src"], mds["weights"], bias, mds["dst"])
            return f"{problem.op}_forward_primitive_desc_create", (*inference, alg, *operands, *geometry)
        case "pooling":
            names = ("strides", "kernel", "dilates", "padding_l", "padding_r")
            window = tuple(dims(name) for name in names)
            return "pooling_forward_primitive_desc_create", (*inference, alg, mds["src"], mds["dst"], *window)
        case "softmax":
            axis = problem.integer("axis")
            return "softmax_forward_primitive_desc_create", (*inference, alg, mds["src"], mds["dst"], axis)
        case "layer_normalization":
            rest = (None, problem.real("epsilon"), problem.integer("flags"))
            return "layer_normalization_forward_primitive_desc_create", (*inference, mds["src"], mds["dst"], *rest)
        case "batch_normalization":
            terms = (problem.real("epsilon"), problem.integer("flags"))
            return "batch_normalization_forward_primitive_desc_create", (*inference, mds["src"], mds["dst"], *terms)
        case "eltwise":
            scalars = (problem.real("alpha"), problem.real("beta"))
            return "eltwise_forward_primitive_desc_create", (*inference, alg, mds["src"], mds["dst"], *scalars)
        case "binary":
            return "binary_primitive_desc_create", (engine, alg, mds["src"], mds["src_1"], mds["dst"])
        case "reduction":
            norm = (problem.real("p"), problem.real("eps"))
            return "reduction_primitive_desc_create", (engine, alg, mds["src"], mds["dst"], *norm)
        case "resampling":
            return "resampling_forward_primitive_desc_create", (*inference, alg, None, mds["src"], mds["dst"])
        case "reorder":
            return "reorder_primitive_desc_create", (mds["src"], engine, mds["dst"], engine)
    raise DriverError(f"oneDNN primitive {problem.op!r} is unknown here")


class Primitive:
    """A created primitive with its memories' descriptors: what turns addresses into a call."""

    def __init__(self, library: Library, problem: Problem, implementation: str) -> None:
        """Create it, which generates its code.  Raises DriverError."""
        self._library = library
        self._stack = ExitStack()
        self._rows: list[ctypes.Array[ExecArg]] = []
        self._descriptors: list[tuple[int, int, int]] = []  # argument, buffer (-1: the scratchpad), descriptor
        self.scratchpad = 0
        try:
            self._create(problem, implementation)
        except BaseException:
            self.close()
            raise

    def _create(self, problem: Problem, implementation: str) -> None:
        library = self._library
        with primitive_desc_of(library, problem, implementation) as desc:
            self.address = library.make("primitive_create", desc)
            self._stack.callback(library.call, "primitive_destroy", self.address)
            self.scratchpad = library.size(library.queried(desc, QUERY_SCRATCHPAD))
        for argument in problem.arguments:
            descriptor = create_memory_desc(library, problem.memory(argument.memory))
            self._stack.callback(library.call, "memory_desc_destroy", descriptor)
            self._descriptors.append((argument_number(argument.name), argument.buffer, descriptor))
        if self.scratchpad:
            # The scratchpad is bytes whatever its descriptor says; 8-bit elements need no alignment of their own.
            descriptor = create_memory_desc(library, Memory((self.scratchpad,), (1,), dtype="u8"))
            self._stack.callback(library.call, "memory_desc_destroy", descriptor)
            self._descriptors.append((ARGUMENTS[SCRATCHPAD], -1, descriptor))

    def call_on(self, buffers: Sequence[int]) -> tuple[ctypes.Array[ExecArg], int]:
        """The argument array of a call on these addresses (the last one is the scratchpad if there is one).

        Kept alive, with the memory objects it names, as long as this primitive.
        """
        rows = (ExecArg * max(1, len(self._descriptors)))()
        for row, (argument, buffer, descriptor) in zip(rows, self._descriptors, strict=False):
            memory = self._library.make("memory_create", descriptor, self._library.engine, buffers[buffer])
            self._stack.callback(self._library.call, "memory_destroy", memory)
            row.arg, row.memory = argument, memory
        self._rows.append(rows)
        return rows, len(self._descriptors)

    def execute(self, buffers: Sequence[int]) -> None:
        """Call once and wait.  Raises DriverError."""
        rows, count = self.call_on(buffers)
        self._library.call("primitive_execute", self.address, self._library.stream, count, ctypes.addressof(rows))
        self._library.call("stream_wait", self._library.stream)

    def close(self) -> None:
        """Destroy everything."""
        self._stack.close()


def argument_number(name: str) -> int:
    """``src``, ``weights``, ..., or ``post3`` for the second operand of the fourth post-op."""
    if name.startswith("post"):
        return (POST_OP_ARGUMENT * (int(name[4:]) + 1)) | ARGUMENTS["src_1"]
    return ARGUMENTS[name]


class ZeroBuffers:
    """Zeroed memory for every argument of a problem, in the order of its buffers, and the scratchpad."""

    def __init__(self, library: Library, problem: Problem, scratchpad: int) -> None:
        sizes: dict[int, int] = {}
        for argument in problem.arguments:
            descriptor = create_memory_desc(library, problem.memory(argument.memory))
            sizes[argument.buffer] = max(sizes.get(argument.buffer, 0), library.size(descriptor))
            library.call("memory_desc_destroy", descriptor)
        self._kept: list[ctypes.Array[ctypes.c_char]] = []
        self.addresses: list[int] = []
        for size in (*(sizes.get(i, 0) for i in range(max(sizes, default=-1) + 1)), scratchpad):
            kept = ctypes.create_string_buffer(size + 64)
            self._kept.append(kept)
            self.addresses.append((ctypes.addressof(kept) + 63) // 64 * 64)
