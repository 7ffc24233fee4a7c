"""Limits of what the frontend accepts, each refused before anything of that size is allocated.

Imported by: the frontend.
"""

from __future__ import annotations

from typing import Final

MODEL_BYTES: Final = 2**31 - 1 - 65536
"""A protobuf message cannot be larger than 2 GiB; external data counts, because the checker sees one message."""
NODES: Final = 1_000_000
FUNCTIONS: Final = 1_024
SUBGRAPH_DEPTH: Final = 8
RANK: Final = 16
NAME_BYTES: Final = 4_096
FOLD_ELEMENTS: Final = 4_096
"""Tensors of up to this many elements are tracked element by element; larger ones are data."""
TENSOR_BYTES: Final = 2**48
"""The largest tensor of a program, at the upper bounds of its dims."""
GENERATED_BYTES: Final = 64 * 2**20
"""The largest constant that lowering makes itself (masks, ranges)."""
DOCUMENT_BYTES: Final = 256 * 2**20
PARSER_MEMORY_BYTES: Final = 3 * 2**30
"""Address space of the parsing process beside eight times the model's size."""
PARSER_CPU_SECONDS: Final = 900
