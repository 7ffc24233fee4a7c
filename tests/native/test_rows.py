"""Tiles of an output row: they cover it once, know their taps, and no width needs a kind that the text lacks."""

from __future__ import annotations

import pytest
from tribunus_native.templates.conv import Window
from tribunus_native.templates.rows import Rows, Tile

CASES = {
    "same padding": (3, 1, (1, 1), 1, 8, range(1, 3000)),
    "stride": (3, 2, (1, 1), 1, 6, range(1, 3000)),
    "wide kernel, dilation": (5, 1, (6, 2), 3, 4, range(5, 2000, 3)),
    "long strides": (2, 5, (0, 4), 1, 12, range(7, 4000, 2)),
    "long kernel": (400, 160, (200, 200), 1, 8, range(400, 30_000)),
    "long kernel, every column": (40, 1, (20, 19), 1, 6, range(40, 2000)),
    "single pixels": (4, 3, (3, 3), 2, 1, range(1, 300)),
}


def rows_of(name: str) -> Rows:
    kernel, stride, (left, right), dilation, most, widths = CASES[name]
    window = Window(
        height=1, width=widths[0], kernel=(1, kernel), stride=(1, stride), pads=(0, left, 0, right),
        dilation=(1, dilation), widths=widths,
    )  # fmt: skip
    return window.rows(most)


@pytest.mark.parametrize("name", CASES)
def test_tiles_cover_a_row_once_and_leave_out_what_lies_outside(name: str) -> None:
    rows, (kernel, stride, (left, _), dilation, most, widths) = rows_of(name), CASES[name]
    for width in widths[:60]:
        column = 0
        for run in rows.runs(width):
            for _ in range(run.many):
                assert run.tile.pixels <= most
                assert run.first <= column
                for tap in range(kernel):
                    low, high = run.tile.pixels_of(rows.line, tap * dilation)
                    inside = [
                        i for i in range(run.tile.pixels) if 0 <= (column + i) * stride - left + tap * dilation < width
                    ]
                    assert list(range(low, high)) == inside
                column += run.tile.pixels
        assert column == rows.pixels(width)


@pytest.mark.parametrize("name", CASES)
def test_no_width_needs_a_kind_that_was_not_found(name: str) -> None:
    rows = rows_of(name)
    found = set(rows.kinds())
    assert {run.tile for width in rows.widths for run in rows.runs(width)} == found


def test_widths_too_narrow_for_a_pixel_need_no_tile() -> None:
    window = Window(height=1, width=9, kernel=(1, 5), widths=range(10))
    assert window.rows(4).kinds() == tuple(Tile(pixels) for pixels in (1, 2, 3, 4))


def test_a_million_widths_are_told_by_few() -> None:
    window = Window(height=1, width=500, kernel=(1, 5), pads=(0, 2, 0, 2), widths=range(400, 1_000_000))
    assert window.rows(8).kinds() == (
        Tile(7, 0, 0), Tile(7, 0, 2), Tile(8, 0, 0), Tile(8, 0, 2), Tile(8, 2, 0),
    )  # fmt: skip
