"""oneDNN through its C API: where the library is, the few functions that are needed, what their results mean.

Imported by: primitives, probe, replay, backend (the location alone).  Imports: ctypes, errors.

The numbers below are oneDNN's public enumerations; they have been the same in every 3.x release.  Only children load
the library: it generates code and keeps pages writable and executable.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tribunus.errors import DriverError, FeatureError

DISTRIBUTION: Final = "onednn-cpu-gomp"
RELEASE: Final = "2023.2.0"
VERSION: Final = "3.2.0"
REMEDY: Final = f"pip install '{DISTRIBUTION}=={RELEASE}'"
OPENMP: Final = "libgomp.so.1"
OPENMP_REMEDY: Final = f"install GCC's OpenMP library {OPENMP} (package libgomp1 on Debian, libgomp on Fedora)"
MAX_DIMS: Final = 12

SUCCESS: Final = 0
STATUS: Final = MappingProxyType(
    {1: "out of memory", 2: "invalid arguments", 3: "unimplemented", 4: "no further implementation", 5: "runtime error"}
)
DATA_TYPES: Final = MappingProxyType({"f32": 3, "s32": 4, "s8": 5, "u8": 6})
FORWARD_INFERENCE: Final = 96
SCRATCHPAD_USER: Final = 1
FPMATH_STRICT: Final = 0
CPU_ENGINE: Final = 1
STREAM_DEFAULT: Final = 1
QUERY_IMPLEMENTATION, QUERY_WEIGHTS, QUERY_SCRATCHPAD = 8, 131, 136
MD_NDIMS, MD_DIMS, MD_TYPE, MD_PADDED_DIMS, MD_FORMAT = 256, 257, 258, 260, 262
MD_INNER_COUNT, MD_INNER_BLOCKS, MD_INNER_AXES, MD_STRIDES = 263, 264, 265, 14
FORMAT_BLOCKED: Final = 2
SCRATCHPAD: Final = "scratchpad"

ALGORITHMS: Final = MappingProxyType(
    {
        "": 0,
        "convolution_direct": 1,
        "deconvolution_direct": 10,
        "eltwise_relu": 32,
        "eltwise_tanh": 33,
        "eltwise_square": 35,
        "eltwise_abs": 36,
        "eltwise_sqrt": 37,
        "eltwise_linear": 38,
        "eltwise_hardsigmoid": 40,
        "eltwise_logistic": 41,
        "eltwise_exp": 42,
        "eltwise_gelu_tanh": 43,
        "eltwise_swish": 44,
        "eltwise_log": 45,
        "eltwise_clip": 46,
        "eltwise_pow": 48,
        "eltwise_gelu_erf": 49,
        "eltwise_round": 50,
        "eltwise_hardswish": 52,
        "pooling_max": 511,
        "pooling_avg_include_padding": 767,
        "pooling_avg_exclude_padding": 1023,
        "binary_add": 131056,
        "binary_mul": 131057,
        "binary_max": 131058,
        "binary_min": 131059,
        "binary_div": 131060,
        "binary_sub": 131061,
        "resampling_nearest": 196592,
        "resampling_linear": 196593,
        "reduction_max": 196594,
        "reduction_min": 196595,
        "reduction_sum": 196596,
        "reduction_mul": 196597,
        "reduction_mean": 196598,
        "reduction_norm_lp_sum": 196600,
        "reduction_norm_lp_power_p_sum": 196602,
        "softmax_accurate": 196608,
        "softmax_log": 196609,
    }
)
ARGUMENTS: Final = MappingProxyType(
    {
        "src": 1,
        "src_1": 2,
        "dst": 17,
        "weights": 33,
        "bias": 41,
        "mean": 49,
        "variance": 50,
        "scale": 51,
        "shift": 52,
        SCRATCHPAD: 80,
    }
)
POST_OP_ARGUMENT: Final = 32768
USE_GLOBAL_STATS, USE_SCALE, USE_SHIFT = 1, 2, 4

ISA_OF_LEVEL: Final = MappingProxyType({"x86-64-v2": 1, "x86-64-v3": 7, "x86-64-v4": 39, "znver4": 231})
"""Named level of the target -> the most that generated code may use (sse41, avx2, avx512_core, avx512_core_bf16)."""


@dataclass(frozen=True, slots=True)
class Place:
    """The library's file."""

    path: Path


@dataclass(frozen=True, slots=True)
class Missing:
    """Why there is no library, and what to do."""

    reason: str
    remedy: str


def find_library() -> Place | Missing:
    """The pinned wheel's library, found through its list of files; nothing is loaded."""
    import importlib.metadata  # costs the children, who are told the place, more than all their other imports

    try:
        distribution = importlib.metadata.distribution(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        return Missing(f"the Python package {DISTRIBUTION} (oneDNN {VERSION}) is not installed", REMEDY)
    if distribution.version != RELEASE:
        return Missing(f"{DISTRIBUTION} {distribution.version} is installed, {RELEASE} is needed", REMEDY)
    for file in distribution.files or ():
        if file.name == "libdnnl.so.3":
            path = Path(os.path.normpath(str(file.locate())))
            if path.is_file():
                return Place(path)
    return Missing(f"the package {DISTRIBUTION} lacks its file libdnnl.so.3", f"{REMEDY} --force-reinstall")


def file_digest(place: Place) -> str:
    """SHA-256 of the library's file, hexadecimal."""
    with open(place.path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


class _VersionRecord(ctypes.Structure):
    _fields_ = (
        ("major", ctypes.c_int),
        ("minor", ctypes.c_int),
        ("patch", ctypes.c_int),
        ("hash", ctypes.c_char_p),
        ("cpu_runtime", ctypes.c_uint),
        ("gpu_runtime", ctypes.c_uint),
    )


class ExecArg(ctypes.Structure):
    """``dnnl_exec_arg_t``."""

    _fields_ = (("arg", ctypes.c_int), ("memory", ctypes.c_void_p))


Dims = ctypes.c_int64 * MAX_DIMS
_POINTER, _INT, _FLOAT, _SIZE = ctypes.c_void_p, ctypes.c_int, ctypes.c_float, ctypes.c_size_t
_UINT = ctypes.c_uint
_DIMS = ctypes.POINTER(ctypes.c_int64)

_FUNCTIONS: Final = MappingProxyType(
    {
        # name without prefix: argument types; all return a status
        "engine_create": (_POINTER, _INT, _SIZE),
        "stream_create": (_POINTER, _POINTER, _UINT),
        "memory_desc_create_with_strides": (_POINTER, _INT, _DIMS, _INT, _DIMS),
        "memory_desc_create_with_string_tag": (_POINTER, _INT, _DIMS, _INT, ctypes.c_char_p),
        "memory_desc_create_with_tag": (_POINTER, _INT, _DIMS, _INT, _INT),
        "memory_desc_destroy": (_POINTER,),
        "memory_desc_query": (_POINTER, _INT, _POINTER),
        "memory_create": (_POINTER, _POINTER, _POINTER, _POINTER),
        "memory_destroy": (_POINTER,),
        "primitive_attr_create": (_POINTER,),
        "primitive_attr_destroy": (_POINTER,),
        "primitive_attr_set_scratchpad_mode": (_POINTER, _INT),
        "primitive_attr_set_fpmath_mode": (_POINTER, _INT),
        "primitive_attr_set_post_ops": (_POINTER, _POINTER),
        "post_ops_create": (_POINTER,),
        "post_ops_destroy": (_POINTER,),
        "post_ops_append_eltwise": (_POINTER, _INT, _FLOAT, _FLOAT),
        "post_ops_append_binary": (_POINTER, _INT, _POINTER),
        "matmul_primitive_desc_create": (_POINTER,) * 7,
        "convolution_forward_primitive_desc_create": (
            _POINTER, _POINTER, _INT, _INT, *(_POINTER,) * 4, *(_DIMS,) * 4, _POINTER,
        ),
        "deconvolution_forward_primitive_desc_create": (
            _POINTER, _POINTER, _INT, _INT, *(_POINTER,) * 4, *(_DIMS,) * 4, _POINTER,
        ),
        "pooling_forward_primitive_desc_create": (
            _POINTER, _POINTER, _INT, _INT, _POINTER, _POINTER, _DIMS, _DIMS, _DIMS, _DIMS, _DIMS, _POINTER,
        ),
        "softmax_forward_primitive_desc_create": (_POINTER, _POINTER, _INT, _INT, _POINTER, _POINTER, _INT, _POINTER),
        "layer_normalization_forward_primitive_desc_create": (
            _POINTER, _POINTER, _INT, _POINTER, _POINTER, _POINTER, _FLOAT, _UINT, _POINTER,
        ),
        "batch_normalization_forward_primitive_desc_create": (
            _POINTER, _POINTER, _INT, _POINTER, _POINTER, _FLOAT, _UINT, _POINTER,
        ),
        "eltwise_forward_primitive_desc_create": (
            _POINTER, _POINTER, _INT, _INT, _POINTER, _POINTER, _FLOAT, _FLOAT, _POINTER,
        ),
        "binary_primitive_desc_create": (_POINTER, _POINTER, _INT, _POINTER, _POINTER, _POINTER, _POINTER),
        "reduction_primitive_desc_create": (_POINTER, _POINTER, _INT, _POINTER, _POINTER, _FLOAT, _FLOAT, _POINTER),
        "resampling_forward_primitive_desc_create": (
            _POINTER, _POINTER, _INT, _INT, ctypes.POINTER(_FLOAT), _POINTER, _POINTER, _POINTER,
        ),
        "reorder_primitive_desc_create": (_POINTER,) * 6,
        "primitive_desc_next_impl": (_POINTER,),
        "primitive_desc_query": (_POINTER, _INT, _INT, _POINTER),
        "primitive_desc_destroy": (_POINTER,),
        "primitive_create": (_POINTER, _POINTER),
        "primitive_destroy": (_POINTER,),
        "primitive_execute": (_POINTER, _POINTER, _INT, _POINTER),
        "stream_wait": (_POINTER,),
        "set_max_cpu_isa": (_INT,),
        "set_primitive_cache_capacity": (_INT,),
    }
)  # fmt: skip


def _load_openmp() -> ctypes.CDLL:
    """The OpenMP runtime, with one thread for every thread of the process that may call it.  Raises DriverError."""
    before = os.environ.get("OMP_NUM_THREADS")
    # Read by the runtime when it is loaded, and from then on what every thread starts with.
    os.environ["OMP_NUM_THREADS"] = "1"
    try:
        openmp = ctypes.CDLL(OPENMP)
    except OSError as failure:
        raise DriverError(f"{OPENMP}, which oneDNN needs, cannot be loaded: {failure}", remedy=OPENMP_REMEDY) from None
    finally:
        if before is None:
            del os.environ["OMP_NUM_THREADS"]
        else:
            os.environ["OMP_NUM_THREADS"] = before
    found: list[int] = []
    asking = threading.Thread(target=lambda: found.append(int(openmp.omp_get_max_threads())))
    asking.start()
    asking.join()
    if found != [1]:
        raise DriverError(
            f"{OPENMP} was loaded into this process before, with {found[0] if found else 'unknown'} threads; a recipe "
            "was certified with one",
            remedy="set OMP_NUM_THREADS=1 before this process starts, or open the image before other libraries load",
        )
    openmp.omp_set_num_threads(1)
    return openmp


class Library:
    """The loaded library with one engine and one stream; its generated code uses at most the features of ``isa``.

    A process has one; ``isa`` and the thread count are fixed when it is made.
    """

    def __init__(self, place: Place, isa: int) -> None:
        """Load.  Raises DriverError, FeatureError where this processor has not all of ``isa``."""
        self._openmp = _load_openmp()
        try:
            self._library = ctypes.CDLL(str(place.path))
        except OSError as failure:
            raise DriverError(f"oneDNN cannot be loaded: {failure}", remedy=REMEDY) from None
        for name, arguments in _FUNCTIONS.items():
            function = getattr(self._library, f"dnnl_{name}")
            function.argtypes = list(arguments)
            function.restype = _INT
        self._library.dnnl_version.restype = ctypes.POINTER(_VersionRecord)
        self._library.dnnl_primitive_desc_query_md.restype = _POINTER
        self._library.dnnl_primitive_desc_query_md.argtypes = [_POINTER, _INT, _INT]
        self._library.dnnl_memory_desc_get_size.restype = _SIZE
        self._library.dnnl_memory_desc_get_size.argtypes = [_POINTER]
        self._library.dnnl_memory_desc_equal.argtypes = [_POINTER, _POINTER]
        record = self._library.dnnl_version().contents
        self.version = f"{record.major}.{record.minor}.{record.patch}"
        self.commit = (record.hash or b"").decode("ascii", "replace")
        self.call("set_max_cpu_isa", isa)
        self.isa = int(self._library.dnnl_get_effective_cpu_isa())
        if self.isa != isa:
            raise FeatureError(f"oneDNN would generate code for instruction set {self.isa:#x} here, not {isa:#x}")
        # Every primitive generates its own code, so that what it generated can be told.
        self.call("set_primitive_cache_capacity", 0)
        self.engine = self.make("engine_create", CPU_ENGINE, 0)
        self.stream = self.make("stream_create", self.engine, STREAM_DEFAULT)
        execute = ctypes.cast(self._library.dnnl_primitive_execute, ctypes.c_void_p).value
        self.execute_address = int(execute or 0)

    def status(self, name: str, *arguments: object) -> int:
        """Call ``dnnl_<name>``; its status."""
        return int(getattr(self._library, f"dnnl_{name}")(*arguments))

    def call(self, name: str, *arguments: object) -> None:
        """Call ``dnnl_<name>``.  Raises DriverError unless it succeeds."""
        status = self.status(name, *arguments)
        if status != SUCCESS:
            raise DriverError(f"oneDNN: {name}: {STATUS.get(status, f'status {status}')}")

    def make(self, name: str, *arguments: object) -> int:
        """Call a function that yields an object; the object.  Raises DriverError."""
        found = ctypes.c_void_p()
        self.call(name, ctypes.byref(found), *arguments)
        return int(found.value or 0)

    def try_make(self, name: str, *arguments: object) -> int:
        """As ``make``; 0 where the library has nothing for these arguments."""
        found = ctypes.c_void_p()
        return int(found.value or 0) if self.status(name, ctypes.byref(found), *arguments) == SUCCESS else 0

    def size(self, descriptor: int) -> int:
        """Bytes of a memory."""
        return int(self._library.dnnl_memory_desc_get_size(descriptor))

    def equal(self, left: int, right: int) -> bool:
        """Whether two memory descriptors describe the same bytes."""
        return bool(self._library.dnnl_memory_desc_equal(left, right))

    def queried(self, primitive_desc: int, query: int) -> int:
        """Memory descriptor that an implementation wants; it belongs to ``primitive_desc``."""
        return int(self._library.dnnl_primitive_desc_query_md(primitive_desc, query, 0) or 0)

    def implementation(self, primitive_desc: int) -> str:
        """Name of the implementation."""
        name = ctypes.c_char_p()
        self.call("primitive_desc_query", primitive_desc, QUERY_IMPLEMENTATION, 0, ctypes.byref(name))
        return (name.value or b"").decode("ascii", "replace")
