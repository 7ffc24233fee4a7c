"""The code format ``onednn-recipe``: which primitive to create, from which library, and what code that must yield.

Imported by: backend, replay.  Imports: canon, problem.  No NumPy, no library.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tribunus import canon
from tribunus.canon import Json, bool_of, int_of, list_of, object_of, str_of
from tribunus.errors import SchemaError
from tribunus_onednn.problem import Problem, problem_from_json, problem_to_json

FORMAT_NAME: Final = "onednn-recipe"
SCHEMA: Final = "tribunus.onednn-recipe/1"
RECIPE_LIMIT: Final = 1 << 20
_WHERE: Final = "onednn recipe"


@dataclass(frozen=True, slots=True)
class PrimitiveRecipe:
    """Everything that decides a primitive's code.

    implementation: oneDNN's name of it.  version, commit, library: of the library; the last is its file's SHA-256.
    isa: the most features that generated code uses.  threads: always 1.  scratchpad: bytes.  code: sorted digests of
    the pages of generated code with addresses replaced; empty where there are none.  stable: whether two processes
    generated the same, so that ``code`` can be compared.  late: whether the first call generates code too.
    """

    problem: Problem
    implementation: str
    version: str
    commit: str
    library: str
    isa: int
    threads: int
    scratchpad: int
    code: tuple[str, ...]
    stable: bool
    late: bool


def encode_recipe(recipe: PrimitiveRecipe) -> bytes:
    """Canonical bytes."""
    document: Json = {
        "schema": SCHEMA,
        "problem": problem_to_json(recipe.problem),
        "implementation": recipe.implementation,
        "library": {"version": recipe.version, "commit": recipe.commit, "digest": recipe.library},
        "isa": recipe.isa,
        "threads": recipe.threads,
        "scratchpad": recipe.scratchpad,
        "generated": {"code": list(recipe.code), "stable": recipe.stable, "late": recipe.late},
    }
    return canon.encode(document)


def decode_recipe(data: bytes) -> PrimitiveRecipe:
    """Inverse of ``encode_recipe``.  Raises EncodingError and its kinds."""
    keys = ("schema", "problem", "implementation", "library", "isa", "threads", "scratchpad", "generated")
    document = object_of(canon.decode(data, limit=RECIPE_LIMIT), _WHERE, frozenset(keys))
    if document["schema"] != SCHEMA:
        raise SchemaError(f"{_WHERE}: schema {str(document['schema'])[:60]!r} instead of {SCHEMA}")
    library = object_of(document["library"], _WHERE, frozenset(("version", "commit", "digest")))
    generated = object_of(document["generated"], _WHERE, frozenset(("code", "stable", "late")))
    return PrimitiveRecipe(
        problem_from_json(document["problem"], _WHERE),
        str_of(document["implementation"], _WHERE),
        str_of(library["version"], _WHERE),
        str_of(library["commit"], _WHERE),
        str_of(library["digest"], _WHERE),
        int_of(document["isa"], _WHERE),
        int_of(document["threads"], _WHERE, 1, 1),
        int_of(document["scratchpad"], _WHERE),
        tuple(str_of(code, _WHERE) for code in list_of(generated["code"], _WHERE)),
        bool_of(generated["stable"], _WHERE),
        bool_of(generated["late"], _WHERE),
    )
