"""Text for language models as the token ids of their own vocabularies, and bytes for the file-type model.

Imported by: benchmarks.zoo.cases.  Imports: numpy.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]


def _ids(text: str) -> tuple[int, ...]:
    return tuple(int(word) for word in text.split())


# English sentences in the vocabulary of bert-base-uncased: 101 opens, 102 closes, 0 pads.
BERT: Final = (
    _ids("101 1037 21624 13184 2015 2296 3247 2077 1996 2034 19204 2003 7013 1012 102"),
    _ids(
        "101 1996 2448 7292 2515 2025 18365 1010 3984 1010 2030 4012 22090 1025 2009 15712 2015 1037 7378 3746 1012 102"
    ),
    _ids("101 2460 3793 1012 102"),
    _ids(
        "101 2169 4018 16293 2442 3413 2416 7642 14148 1024 14721 1010 4338 1010 9621 1010 10984 1010 15712 "
        "1998 17053 3145 1012 1037 4018 2008 11896 2151 4638 2003 15105 1010 1998 1996 21624 2089 2896 1996 "
        "3169 2153 2007 2367 14090 10826 1010 7077 4449 2030 16222 2819 20350 4127 1012 11702 2024 2772 1012 "
        "102"
    ),
)

# Phonemes of two English sentences in Kokoro's alphabet, between the zeros that close them in.
KOKORO: Final = (
    _ids("0 50 83 54 156 57 135 16 65 156 87 158 54 46 4 0"),
    _ids(
        "0 102 62 16 123 177 58 54 156 47 102 68 16 70 16 61 156 87 158 125 177 48 157 43 102 46 16 156 102 "
        "55 102 46 147 4 0"
    ),
)

# Texts to be given a title, in the vocabulary of flan-t5: 1 closes, 0 pads.
T5_SOURCE: Final = (
    _ids("21603 10 4037 8 794 3132 6 3599 192 12385 20563 7 11 8413 1480 11298 541 1"),
    _ids("2233 10 2270 8 13500 1601 6928 4115 20563 11 3 60 4312 15705 7 30 8 126 1437 1"),
)

# The titles as far as they have been written: 0 opens.
T5_TARGET: Final = (
    _ids("0 14269 12385 20563 3830"),
    _ids("0 6130 13500 1601 6928 4115 15705 7"),
)

# Chinese texts in the word segmenter's alphabet.
LAC: Final = (
    _ids("719 1914 1914 3792 2583 1959"),
    _ids("2834 742 1725 1194 697 2419 3977 6677 3212 4853 5556 6674 1655 58223 5497 3430 2583 5201 2173 58223"),
    _ids(
        "3670 1773 4853 3771 576 610 5326 2126 7202 6581 7098 7053 998 7751 3565 3467 58223 2869 5788 1028 "
        "994 6630 5326 7511 958 58223 7056 6490 3241 1303 6805 6809 7279 3167 58223 588 1022 7087 2961 1017 "
        "3506 58223"
    ),
)

# Arabic texts without vowel points in the alphabet of the model that sets them.
TASHKEEL: Final = (
    _ids("24 47 36 47 24 48 1 42 47 53 46 48 1 51 34 30 48 26 1 24 47 47 50"),
    _ids(
        "53 29 25 1 20 49 1 53 29 27 24 35 1 46 47 1 48 34 37 30 1 36 27 26 1 24 31 27 25 24 34 24 27 1 48 27 "
        "27 24 47 53 26 1 45 25 47 1 45 25 51 47 50"
    ),
)

# Hebrew texts without vowel points: two words, and a sentence.
HEBREW: Final = ("שלום עולם", "המהדר בודק כל גרעין לפני שהוא נכנס לתמונת החישוב")

MAGIKA_WINDOW: Final = 1024
MAGIKA_PADDING: Final = 256

PYTHON_SOURCE: Final = b'''"""Running statistics of a stream."""
from math import sqrt


class Welford:
    def __init__(self):
        self.count, self.mean, self.square = 0, 0.0, 0.0

    def add(self, value):
        self.count += 1
        step = value - self.mean
        self.mean += step / self.count
        self.square += step * (value - self.mean)

    @property
    def deviation(self):
        return sqrt(self.square / max(1, self.count - 1))


def main(lines):
    stream = Welford()
    for line in lines:
        for word in line.split():
            try:
                stream.add(float(word))
            except ValueError as error:
                print(f"skipped {word!r}: {error}")
    print(f"{stream.count} values, mean {stream.mean:.3f}, deviation {stream.deviation:.3f}")


if __name__ == "__main__":
    import sys

    main(sys.stdin)
'''
JSON_DOCUMENT: Final = b'{"image": "digits", "regions": ["cpu"], "signed": true, "kernels": 5}\n'


def hebrew_ids(text: str) -> list[int]:
    """Letters alef to tav are 16 to 42, a space is 4."""
    return [4 if character == " " else 16 + ord(character) - ord("א") for character in text]


def pad_batch(sentences: Sequence[Sequence[int]]) -> tuple[I64, I64]:
    """(batch, longest) ids padded with 0, and the mask with 1 where there is a token."""
    longest = max(len(sentence) for sentence in sentences)
    ids = np.zeros((len(sentences), longest), np.int64)
    mask = np.zeros_like(ids)
    for row, sentence in enumerate(sentences):
        ids[row, : len(sentence)] = sentence
        mask[row, : len(sentence)] = 1
    return ids, mask


def magika_features(content: bytes) -> NDArray[np.int32]:
    """(2048,): first and last 1024 bytes of ``content`` without outer white space; 256 where there is none."""
    content = content.strip()
    features = np.full(2 * MAGIKA_WINDOW, MAGIKA_PADDING, np.int32)
    head, tail = content[:MAGIKA_WINDOW], content[-MAGIKA_WINDOW:]
    features[: len(head)] = np.frombuffer(head, np.uint8)
    features[2 * MAGIKA_WINDOW - len(tail) :] = np.frombuffer(tail, np.uint8)
    return features
