"""One output row in tiles of neighbouring pixels, of a width known when the text is written or only at the call.

Imported by: conv, depthwise, narrow, transposed.  Imports: csource.

Pixel c of a row reads ``reach`` input columns from column ``c * stride + first`` on.  A row is cut into the fewest
tiles, as even as possible; a tile at an edge has code for exactly the taps that lie inside the image.  Where widths
vary, text is written for every kind of tile that some width needs, and the call picks them: the same tiles as for a
fixed width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tribunus_native.templates.csource import Code, ceil_div, even_tiles

MOST_KINDS = 64  # kinds of tiles in one text


@dataclass(frozen=True, slots=True)
class Line:
    """How the pixels of an output row read an input row."""

    stride: int
    first: int
    reach: int


@dataclass(frozen=True, slots=True, order=True)
class Tile:
    """A kind of tile.  left, right: input columns that its first and its last pixel miss."""

    pixels: int
    left: int = 0
    right: int = 0

    @property
    def is_inside(self) -> bool:
        return self.left == self.right == 0

    def pixels_of(self, line: Line, offset: int) -> tuple[int, int]:
        """[low, high): pixels whose tap at ``offset`` columns lies inside the image; (0, 0) for none."""
        low, high = 0, self.pixels
        if self.left:
            low = max(0, ceil_div(self.left - offset, line.stride))
        if self.right:
            high = min(high, self.pixels - ceil_div(self.right - (line.reach - 1 - offset), line.stride))
        return (low, high) if low < high else (0, 0)


@dataclass(frozen=True, slots=True)
class Run:
    """``many`` tiles of one kind from output column ``first`` on."""

    first: int
    tile: Tile
    many: int


@dataclass(frozen=True, slots=True)
class Rows:
    """The tiles of a row.  most: pixels of a tile.  widths: of the input that may come, those too narrow for a pixel do
    not; one of them: it is fixed.

    pixels: from the input's width to the output's, never falling.  plan: name of the C variable with the tiling.
    """

    line: Line
    most: int
    widths: range
    pixels: Callable[[int], int]
    plan: str = "plan"

    @property
    def is_fixed(self) -> bool:
        return len(self.widths) == 1

    @property
    def x_row(self) -> str:
        """C expression: floats from input row to input row."""
        return "X_ROW" if self.is_fixed else f"{self.plan}->x_row"

    def kinds(self) -> tuple[Tile, ...]:
        """Every kind of tile that some width needs."""
        found = (run.tile for width in self._telling() for run in self.runs(width))
        return tuple(dict.fromkeys(found)) if self.is_fixed else tuple(sorted(set(found)))

    def runs(self, width: int) -> list[Run]:
        """One row from left to right."""
        line, found, column = self.line, list[Run](), 0
        for pixels, many in even_tiles(self.pixels(width), self.most):
            step = pixels * line.stride
            end = (column + pixels - 1) * line.stride + line.first + line.reach
            whole_first = min(many, max(0, ceil_div(-line.first - column * line.stride, step)))
            whole_last = min(many, max(0, (width - end) // step + 1))
            done = 0
            while done < many:
                left = max(0, -line.first - column * line.stride - done * step)
                right = max(0, end + done * step - width)
                equal = whole_last - done if whole_first <= done < whole_last else 1
                found.append(Run(column + done * pixels, Tile(pixels, left, right), equal))
                done += equal
            column += many * pixels
        return found

    def _telling(self) -> Iterator[int]:
        """Widths that show every kind of tile.

        From ``settled`` pixels on, tiles have ``most`` pixels or one less, the smaller ones on the right and fewer than
        ``most``, those that miss columns on the left are all larger ones, and everything repeats with the width modulo
        ``most * stride``.
        """
        line = self.line
        edge = line.reach // (line.stride * max(1, self.most - 1)) + 2  # tiles that may miss columns
        settled = self.most * (self.most + edge)
        beyond = 0
        for width in self.widths:
            pixels = self.pixels(width)
            beyond += pixels > settled
            if beyond > self.most * line.stride:
                return
            if pixels > 0:
                yield width

    @property
    def parameter(self) -> str:
        """What functions of a row take behind their other parameters."""
        return "" if self.is_fixed else f", const tiling *{self.plan}"

    @property
    def argument(self) -> str:
        return "" if self.is_fixed else f", {self.plan}"

    def write_type(self, code: Code) -> None:
        """At file scope."""
        if not self.is_fixed:
            code.line("// a row: its tiles, `large` of small + 1 pixels, then the others of `small` pixels")
            code.line("typedef struct { int64_t x_row, width, tiles, small, large; } tiling;")

    def write_plan(self, code: Code, x_row: str, width: str, pixels: str) -> None:
        """In the kernel: the tiling of this call."""
        if not self.is_fixed:
            own = f"own_{self.plan}"
            tiles = f"({pixels} + {self.most - 1}) / {self.most}"
            code.line(
                f"const tiling {own} = {{{x_row}, {width}, {tiles}, {pixels} / ({tiles}), {pixels} % ({tiles})}};"
            )
            code.line(f"const tiling *const {self.plan} = &{own};")

    def walk(self, code: Code, call: Callable[[Tile, str], str]) -> None:
        """The tiles from left to right; ``call``: one of them at an output column, a C expression."""
        if not self.is_fixed:
            self._walk_any(code, call)
            return
        for run in self.runs(self.widths[0]):
            if run.many == 1:
                code.line(call(run.tile, str(run.first)))
            else:
                last = run.first + run.many * run.tile.pixels
                code.line(f"for (int64_t c = {run.first}; c < {last}; c += {run.tile.pixels})")
                code.line("  " + call(run.tile, "c"))

    def _walk_any(self, code: Code, call: Callable[[Tile, str], str]) -> None:
        line, plan, kinds = self.line, self.plan, self.kinds()
        code.line("int64_t c = 0;")
        with code.block(f"for (int64_t t = 0; t < {plan}->tiles; t++)"):
            code.line(f"const int64_t pixels = {plan}->small + (t < {plan}->large);")
            inside = [kind for kind in kinds if kind.is_inside]
            if len(inside) < len(kinds):
                end = line.first + line.reach
                code.line(f"const int64_t left = {-line.first} - c * {line.stride};")
                code.line(f"const int64_t right = (c + pixels - 1) * {line.stride} + {end} - {plan}->width;")
                with code.block("if (left <= 0 && right <= 0)"):
                    _choose(code, inside, call)
                for sides in ((True, False), (False, True), (True, True)):
                    some = [kind for kind in kinds if (kind.left > 0, kind.right > 0) == sides]
                    if some:
                        with code.block(
                            f"else if (left {'>' if sides[0] else '<='} 0 && right {'>' if sides[1] else '<='} 0)"
                        ):
                            _choose(code, some, call)
            else:
                _choose(code, inside, call)
            code.line("c += pixels;")


def _choose(code: Code, kinds: list[Tile], call: Callable[[Tile, str], str]) -> None:
    """The call of the tile whose kind was computed."""
    for index, kind in enumerate(reversed(kinds)):
        tests = [f"pixels == {kind.pixels}"]
        tests += [f"left == {kind.left}"] if kind.left else []
        tests += [f"right == {kind.right}"] if kind.right else []
        code.line(f"{'else ' if index else ''}if ({' && '.join(tests)}) {call(kind, 'c')}")
