"""Drawn images for vision models: lines of text, tables, pages, scenes with faces.

Imported by: benchmarks.zoo.cases.  Imports: numpy, benchmarks.zoo.signals (random source, grid).

Text is drawn with strokes, anti-aliased by the distance of a pixel from the stroke, so that it scales to any size and
a text recognizer can read it.  Images are (height, width, 3) float64 in 0..255, RGB.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from benchmarks.zoo.signals import F32, F64, on_grid, random_source

Image = NDArray[np.float64]

# A glyph is polylines of points xy, x in 0..4 from the left, y in 0..6 from the top.
_STROKES: Final = {
    "A": "06 20 46|14 34",
    "B": "00 06 36 45 44 33 03|00 30 41 42 33",
    "C": "41 30 10 01 05 16 36 45",
    "D": "00 06 26 45 41 20 00",
    "E": "40 00 06 46|03 33",
    "F": "40 00 06|03 33",
    "G": "41 30 10 01 05 16 36 45 43 23",
    "H": "00 06|40 46|03 43",
    "I": "10 30|20 26|16 36",
    "K": "00 06|40 03 46",
    "L": "00 06 46",
    "M": "06 00 23 40 46",
    "N": "06 00 46 40",
    "O": "10 01 05 16 36 45 41 30 10",
    "P": "06 00 30 41 42 33 03",
    "R": "06 00 30 41 42 33 03|23 46",
    "S": "41 30 10 01 02 13 33 44 45 36 16 05",
    "T": "00 40|20 26",
    "U": "00 05 16 36 45 40",
    "V": "00 26 40",
    "X": "00 46|40 06",
    "Y": "00 23 40|23 26",
    "0": "10 01 05 16 36 45 41 30 10",
    "1": "11 20 26|16 36",
    "2": "01 10 30 41 42 06 46",
    "3": "01 10 30 41 42 33 23|33 44 45 36 16 05",
    "4": "36 30 04 44",
    "5": "40 00 03 32 43 45 36 16 05",
    "6": "40 20 02 05 16 36 45 44 33 13 04",
    "7": "00 40 16",
    "8": "10 01 02 13 33 42 41 30 10|13 04 05 16 36 45 44 33",
    "9": "06 26 44 41 30 10 01 02 13 33 42",
    ".": "26 26",
    "-": "13 33",
    " ": "",
}
_ADVANCE: Final = 5.6
_THICKNESS: Final = 0.85


def text_size(text: str, scale: float) -> tuple[int, int]:
    """(height, width) in pixels that ``text`` takes at ``scale`` pixels a unit, strokes included."""
    return int(np.ceil(7 * scale)), int(np.ceil((len(text) * _ADVANCE + 0.4) * scale))


def text_ink(text: str, scale: float) -> F64:
    """(height, width) coverage in 0..1 of ``text``.  Raises KeyError for a character without a glyph."""
    height, width = text_size(text, scale)
    y, x = np.mgrid[0:height, 0:width] / scale
    ink = np.zeros((height, width))
    for place, character in enumerate(text):
        left = place * _ADVANCE
        near = slice(int(max(0.0, left - 0.6) * scale), int((left + 5.8) * scale) + 1)
        for stroke in filter(None, _STROKES[character].split("|")):
            points = [(int(point[0]) + left + 0.5, int(point[1]) + 0.5) for point in stroke.split()]
            for start, end in pairwise(points):
                distance = _distance(x[:, near], y[:, near], start, end)
                cover = np.clip((_THICKNESS / 2 - distance) * scale + 0.5, 0.0, 1.0)
                ink[:, near] = np.maximum(ink[:, near], cover)
    return ink


def _distance(x: F64, y: F64, start: tuple[float, float], end: tuple[float, float]) -> F64:
    """Distance of points from the segment between ``start`` and ``end``."""
    along = (end[0] - start[0], end[1] - start[1])
    square = along[0] ** 2 + along[1] ** 2
    share = np.zeros_like(x)
    if square > 0:
        share = np.clip(((x - start[0]) * along[0] + (y - start[1]) * along[1]) / square, 0.0, 1.0)
    return np.asarray(np.hypot(x - start[0] - share * along[0], y - start[1] - share * along[1]), np.float64)


def write(image: Image, text: str, top: int, left: int, scale: float, colour: Sequence[float]) -> None:
    """Draw ``text`` into ``image``; what lies outside is cut off."""
    height, width = max(0, image.shape[0] - top), max(0, image.shape[1] - left)
    ink = text_ink(text, scale)[:height, :width, None]
    area = image[top : top + ink.shape[0], left : left + ink.shape[1]]
    area += (np.asarray(colour) - area) * ink


def paper(height: int, width: int, seed: int) -> Image:
    """An off-white sheet, unevenly lit, with the grain of a scan."""
    draw = random_source(seed)
    y, x = np.mgrid[0:height, 0:width]
    light = 236 + 6 * (x / width - y / height) + 4 * np.cos(x / 83 + seed)
    return np.asarray((light + draw.normal(0.0, 1.5, (height, width)))[..., None] * (1.0, 0.985, 0.96), np.float64)


def text_lines(height: int, width: int, lines: Sequence[str], scale: float, seed: int) -> Image:
    """Lines of dark text on paper, from the top left."""
    image = paper(height, width, seed)
    margin = int(2.5 * scale)
    for row, line in enumerate(lines):
        write(image, line, margin + int(row * 11 * scale), margin, scale, (34, 32, 40))
    return finish(image)


def text_line(height: int, width: int, text: str, seed: int) -> Image:
    """One line of dark text that fills the strip."""
    image = paper(height, width, seed)
    scale = min(height / 9.5, (width - 8) / (_ADVANCE * len(text)))
    write(image, text, int((height - 7 * scale) / 2), 4, scale, (34, 32, 40))
    return finish(image)


def captcha(height: int, width: int, text: str, seed: int) -> Image:
    """Text in varying greys under lines and grain."""
    draw = random_source(seed)
    image = paper(height, width, seed)
    scale = min(height / 9.0, (width - 8) / (_ADVANCE * len(text)))
    for place, character in enumerate(text):
        grey = draw.uniform(40, 110)
        top = int((height - 7 * scale) / 2 + draw.uniform(-3, 3))
        write(image, character, max(0, top), int(4 + place * _ADVANCE * scale), scale, (grey, grey, grey))
    for row in draw.integers(0, height, 4):
        image[row] -= 25
    return finish(image)


def scene(height: int, width: int, seed: int, faces: int) -> Image:
    """Sky over ground, some buildings, and ``faces`` heads with eyes and mouth."""
    draw = random_source(seed)
    y, x = np.mgrid[0:height, 0:width] / min(height, width)
    low = np.clip(y * min(height, width) / height, 0, 1)[..., None]
    image = (1 - low) * (128, 168, 226) + low * (150, 136, 104)
    for _ in range(5):
        left, wide = int(draw.uniform(0, 0.8) * width), int(draw.uniform(0.08, 0.25) * width) + 1
        top = int(draw.uniform(0.2, 0.7) * height)
        image[top : int(0.85 * height) + 1, left : left + wide] = draw.uniform(40, 210, 3)
    for face in range(faces):
        middle = (face + draw.uniform(0.35, 0.65)) / faces * width / min(height, width)
        _head(image, y, x, float(draw.uniform(0.35, 0.6)) * height / min(height, width), float(middle), faces)
    return finish(image + draw.normal(0.0, 2.0, image.shape))


def _head(image: Image, y: F64, x: F64, top: float, left: float, crowd: int) -> None:
    size = 0.24 / crowd

    def oval(dy: float, dx: float, tall: float, wide: float) -> F64:
        return np.asarray(((y - top - dy * size) / (tall * size)) ** 2 + ((x - left - dx * size) / (wide * size)) ** 2)

    def paint(shape: F64, colour: tuple[int, int, int]) -> None:
        # (1 - shape) falls from the middle; a few hundredths of it are the soft edge
        cover = np.clip((1.0 - shape) / 0.12, 0.0, 1.0)[..., None]
        image[:] = image * (1 - cover) + np.asarray(colour) * cover * (1 - 0.18 * np.clip(shape, 0, 1))[..., None]

    paint(oval(-0.35, 0.0, 1.15, 1.05), (58, 42, 34))
    paint(oval(0.0, 0.0, 1.2, 0.9), (226, 178, 146))
    for side in (-0.36, 0.36):
        paint(oval(-0.22, side, 0.13, 0.2), (245, 242, 238))
        paint(oval(-0.22, side, 0.1, 0.1), (44, 34, 30))
        paint(oval(-0.46, side, 0.05, 0.26), (70, 50, 40))
    paint(oval(0.16, 0.0, 0.3, 0.12), (206, 152, 122))
    paint(oval(0.58, 0.0, 0.1, 0.36), (168, 74, 74))


def table(height: int, width: int, rows: int, columns: int, seed: int) -> Image:
    """A ruled table of numbers under a row of headings."""
    draw = random_source(seed)
    image = paper(height, width, seed)
    tall, wide = (height - 32) // rows, (width - 32) // columns
    for row in range(rows + 1):
        image[16 + row * tall : 18 + row * tall, 16 : 18 + columns * wide] = 50
    for column in range(columns + 1):
        image[16 : 18 + rows * tall, 16 + column * wide : 18 + column * wide] = 50
    scale = min(2.2, wide / 38, tall / 11)
    for row in range(rows):
        for column in range(columns):
            text = "ITEM" if row == 0 else f"{int(draw.integers(100, 9999)) / 10}"
            write(image, text, 16 + row * tall + tall // 4, 22 + column * wide, scale, (40, 40, 46))
    return finish(image)


def page(height: int, width: int, seed: int) -> Image:
    """A heading, two columns of text and a table below them."""
    draw = random_source(seed)
    image = paper(height, width, seed)
    write(image, "COMPILER REPORT", height // 20, width // 12, 4.5, (30, 30, 36))
    words = ("KERNEL", "LAYOUT", "SHAPE", "TIMING", "REPLAY", "CACHE", "KEY", "ORACLE", "TILE")
    for left in (width // 14, width // 2 + 8):
        for top in range(height // 7, height * 5 // 9, 19):
            line = " ".join(words[int(pick)] for pick in draw.integers(0, len(words), 4))
            write(image, line[: int(width / 2.6 / (_ADVANCE * 2))], top, left, 2.0, (30, 30, 36))
    grid = table(height // 3, width * 5 // 6, 5, 4, seed + 1)
    image[height * 3 // 5 : height * 3 // 5 + grid.shape[0], width // 12 : width // 12 + grid.shape[1]] = grid
    return finish(image)


def finish(image: Image) -> Image:
    """Soften by one pixel, as a lens does, and round to whole grey values."""
    for axis in (0, 1):
        pad = [(1, 1) if axis == other else (0, 0) for other in range(3)]
        wide = np.pad(image, pad, mode="edge")
        count = image.shape[axis]
        before, middle, after = (np.take(wide, range(shift, shift + count), axis) for shift in range(3))
        image = 0.2 * before + 0.6 * middle + 0.2 * after
    return np.asarray(np.clip(np.round(image), 0, 255), np.float64)


def planes(image: Image, mean: Sequence[float], spread: Sequence[float]) -> F32:
    """(1, 3, height, width): colours in 0..1 less ``mean``, divided by ``spread``."""
    scaled = (image / 255.0 - np.asarray(mean)) / np.asarray(spread)
    return on_grid(scaled.transpose(2, 0, 1)[None], 1e-5)
