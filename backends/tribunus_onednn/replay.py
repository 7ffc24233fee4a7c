"""A oneDNN recipe to a launch: the half that the runtime and the worker share.

Imported by: runtime and isolation, by the format's name.  Imports: ctypes, tribunus.plan (types only), devices.

The primitive of the recipe's name is created, never another that the library might prefer today, and the code that it
generates is compared with the recipe's digests.  A launch is one call of ``dnnl_primitive_execute``, which returns when
the work is done: the library's CPU streams are synchronous, and it has one thread.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, cast

from tribunus.devices.replayer import Words
from tribunus.errors import DriverError, FeatureError
from tribunus_onednn.generated import generated_ranges, new_code, read_mappings
from tribunus_onednn.library import REMEDY, Library, Missing, file_digest, find_library
from tribunus_onednn.primitives import Primitive, ZeroBuffers
from tribunus_onednn.recipe import FORMAT_NAME, PrimitiveRecipe, decode_recipe

if TYPE_CHECKING:
    from tribunus.plan.code import Code, CodeFormat, Recipe

FORMAT: Final = cast("CodeFormat", FORMAT_NAME)


class OneDnnBound:
    """A created primitive; argument arrays of its launches live as long as it."""

    def __init__(self, library: Library, primitive: Primitive) -> None:
        self._library = library
        self._primitive = primitive

    def launch(self, buffers: Sequence[int], params: Sequence[int], parts: int) -> tuple[Words, ...]:
        """The one call.  Raises DriverError for more parts than one: the library divides no work here."""
        if parts != 1:
            raise DriverError(f"a oneDNN primitive runs in one part, not in {parts}")
        rows, count = self._primitive.call_on(buffers)
        library = self._library
        words = Words(library.execute_address, self._primitive.address, library.stream, count, ctypes.addressof(rows))
        return (words,)

    def close(self) -> None:
        """Destroy the primitive and its memory objects."""
        self._primitive.close()


class OneDnnReplayer:
    """Replayer of the format ``onednn-recipe``: holds the process's one library once it was loaded."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._library: Library | None = None
        self._digest = ""
        self._known: set[str] = set()  # digests of all code generated so far

    @property
    def format(self) -> CodeFormat:
        """``onednn-recipe``."""
        return FORMAT

    def bind(self, code: Code, recipe: Recipe) -> OneDnnBound:
        """Create the primitive.

        Raises DriverError where the library is missing, another one, or generates other code than was certified;
        FeatureError where this processor cannot run it or the library already serves another instruction set.
        """
        wanted = decode_recipe(code.data)
        with self._lock:
            library = self._loaded(wanted)
            before = generated_ranges(read_mappings())
            primitive = Primitive(library, wanted.problem, wanted.implementation)
            try:
                self._verify(library, wanted, primitive, before)
            except BaseException:
                primitive.close()
                raise
        return OneDnnBound(library, primitive)

    def _loaded(self, wanted: PrimitiveRecipe) -> Library:
        """The library that the recipe names."""
        if self._library is None:
            place = find_library()
            if isinstance(place, Missing):
                raise DriverError(place.reason, remedy=place.remedy)
            self._digest = file_digest(place)
            self._require(wanted.library, self._digest, "library file")
            self._library = Library(place, wanted.isa)
        library = self._library
        self._require(wanted.library, self._digest, "library file")
        self._require(wanted.version, library.version, "version")
        self._require(wanted.commit, library.commit, "commit")
        if library.isa != wanted.isa:
            raise FeatureError(
                f"oneDNN generates code for instruction set {library.isa:#x} in this process, not {wanted.isa:#x}",
                remedy="replay images of different targets in different processes",
            )
        return library

    @staticmethod
    def _require(wanted: str, found: str, what: str) -> None:
        if wanted != found:
            raise DriverError(f"oneDNN: {what} {found[:16]} is installed, {wanted[:16]} was certified", remedy=REMEDY)

    def _verify(
        self, library: Library, wanted: PrimitiveRecipe, primitive: Primitive, before: Sequence[tuple[int, int]]
    ) -> None:
        """Scratchpad and code are those of the recipe."""
        if primitive.scratchpad != wanted.scratchpad:
            raise DriverError(
                f"oneDNN wants {primitive.scratchpad} bytes of workspace, {wanted.scratchpad} were planned"
            )
        if wanted.late:
            # What the first call generates is generated now, so that replay generates nothing.
            zeros = ZeroBuffers(library, wanted.problem, primitive.scratchpad)
            primitive.execute(zeros.addresses)
        found = new_code(before)
        self._known.update(found)
        if not wanted.stable:
            return
        # Kernels that several primitives share are generated by the first of them alone.
        foreign, missing = set(found) - set(wanted.code), set(wanted.code) - self._known
        if foreign or missing:
            raise DriverError(
                f"oneDNN generated other code than was certified: {len(foreign)} pages are unknown, "
                f"{len(missing)} are missing"
            )


REPLAYER: Final = OneDnnReplayer()
