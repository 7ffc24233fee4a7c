"""Recipes of the wider group.

Imported by: benchmarks.zoo.cases.  Imports: benchmarks.zoo.recipes, signals, pictures, tokens, graphs.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

import numpy as np

from benchmarks.zoo import graphs, pictures, signals, tokens
from benchmarks.zoo.recipes import (
    CAPTCHAS,
    IMAGENET_MEAN,
    IMAGENET_SPREAD,
    RATE,
    Feeds,
    MakeFeeds,
    Recipes,
    pixels,
    sentences,
    state,
    vad_windows,
    zeros,
)
from benchmarks.zoo.signals import F32, on_grid, random_source, speech

_MUSIC_RATE: Final = 22_050
_C_MAJOR: Final = (60, 62, 64, 65, 67, 69, 71, 72)


# sound --------------------------------------------------------------------------------------------------------------
def _plucked(notes: tuple[tuple[int, float], ...], seed: int) -> F32:
    """(1, 43844, 1): strings plucked at the given seconds, each a MIDI number with eight dying overtones."""
    time = np.arange(43_844) / _MUSIC_RATE
    wave = random_source(seed).normal(0.0, 1e-3, time.shape)
    for number, begin in notes:
        since = np.maximum(time - begin, 0.0)
        hertz = 440.0 * 2.0 ** ((number - 69) / 12)
        for overtone in range(1, 9):
            decay = np.exp(-since * (1.5 + 0.6 * overtone)) * (time >= begin)
            wave += decay * np.sin(2 * np.pi * hertz * overtone * since) / overtone
    return signals.to_16_bits(0.7 * wave / np.abs(wave).max()).astype(np.float32)[None, :, None]


def _music(*pieces: F32) -> Feeds:
    return {"serving_default_input_2:0": np.concatenate(pieces)}


def _chord() -> F32:
    return _plucked(((60, 0.1), (64, 0.3), (67, 0.5)), 201)


def _scale() -> F32:
    return _plucked(tuple((number, 0.1 + 0.22 * step) for step, number in enumerate(_C_MAJOR)), 202)


def _vad_one(rate: int) -> Feeds:
    window = vad_windows(12, 41, rate)[-1:].copy()
    return {"input": window, "state": zeros(2, 1, 128), "sr": np.array(rate, np.int64)}


def _vad_four() -> Feeds:
    windows = vad_windows(16, 46, RATE)[::4].copy()
    return {"input": windows, "state": state(47, 0.4, 2, 4, 128), "sr": np.array(RATE, np.int64)}


_VAD: Final[Mapping[str, MakeFeeds]] = {
    "16k": partial(_vad_one, RATE),
    "8k": partial(_vad_one, RATE // 2),
    "16k_batch4": _vad_four,
}


def _smooth(seed: int, spread: float, *shape: int) -> F32:
    """Noise whose neighbours along the last axis but one resemble each other, as features of consecutive frames do."""
    values = random_source(seed).normal(size=shape)
    for step in range(1, shape[-2]):
        values[..., step, :] = 0.8 * values[..., step - 1, :] + 0.6 * values[..., step, :]
    return on_grid(values * spread, 1e-3)


def _wake_word(seed: int, spread: float) -> Feeds:
    return {"x.1": _smooth(seed, spread, 1, 16, 96)}


def _echo(samples: int, seed: int) -> Feeds:
    """Log-mels of the far end, the microphone with its echo, and the microphone after cancellation."""
    far, near = speech(samples, RATE, seed, 120.0), speech(samples, RATE, seed + 1, 190.0)
    echo = np.concatenate([np.zeros(400), far[:-400]])
    spectra = []
    for wave in (far, near + 0.3 * echo, near + 0.03 * echo):
        power = signals.power_spectrum(np.pad(wave, 256), signals.hann(512), 256)
        level = signals.decibels(power @ signals.mel_filters(RATE, 512, 160, 0.0, 8000.0), 1e-10)
        spectra.append((np.maximum(level - level.max(), -80.0) + 40.0) / 40.0)
    return {"input": on_grid(np.stack(spectra), 1e-4)[None], "h0": zeros(4, 1, 64)}


# pictures -----------------------------------------------------------------------------------------------------------
def _thumbnails(*seeds: int) -> Feeds:
    """Channels last, blue first, less the mean colour of the training images."""
    images = [pictures.scene(224, 224, seed, 1)[..., ::-1] - (104.0, 117.0, 123.0) for seed in seeds]
    return {"input:0": np.stack(images).astype(np.float32)}


def _people(height: int, width: int, *seeds: int) -> Feeds:
    images = [pixels(pictures.scene(height, width, seed, 3)) for seed in seeds]
    return {"images": on_grid(np.concatenate(images).astype(np.float64) / 255.0, 1e-5)}


def _page(seed: int) -> Feeds:
    return {"image": pictures.planes(pictures.page(800, 608, seed), IMAGENET_MEAN, IMAGENET_SPREAD)}


def _table(size: int, rows: int, columns: int, seed: int) -> Feeds:
    image = pictures.table(size, size, rows, columns, seed)
    return {"x": pictures.planes(image, IMAGENET_MEAN, IMAGENET_SPREAD)}


# text ---------------------------------------------------------------------------------------------------------------
def _sentences_of_one_type(*which: int) -> Feeds:
    feeds = sentences(*which)
    return {**feeds, "token_type_ids": np.zeros_like(feeds["input_ids"])}


def _hebrew(*texts: str) -> Feeds:
    ids, _ = tokens.pad_batch([tokens.hebrew_ids(text) for text in texts])
    return {"input_1": ids.astype(np.float32)}


def _arabic(*which: int) -> Feeds:
    ids, mask = tokens.pad_batch([tokens.TASHKEEL[index] for index in which])
    return {"char_inputs": ids, "diac_inputs": mask, "input_lengths": mask.sum(axis=1)}


def _chinese(which: int) -> Feeds:
    ids = np.array([tokens.LAC[which]], np.int64)
    return {"token_ids": ids, "length": np.array([ids.shape[1]], np.int64)}


def _t5_source(*which: int) -> Feeds:
    ids, mask = tokens.pad_batch([tokens.T5_SOURCE[index] for index in which])
    return {"input_ids": ids, "attention_mask": mask}


def _t5_end_only() -> Feeds:
    ids = np.ones((1, 1), np.int64)
    return {"input_ids": ids, "attention_mask": ids.copy()}


def _t5_prefix(seed: int, length: int, *which: int) -> Feeds:
    ids, _ = tokens.pad_batch([tokens.T5_TARGET[index] for index in which])
    mask = _t5_source(*which)["attention_mask"]
    return {
        "input_ids": ids[:, :length].copy(),
        "encoder_hidden_states": state(seed, 0.15, *mask.shape, 512),
        "encoder_attention_mask": mask,
    }


WIDER: Final[Recipes] = {
    "basic-pitch": {"chord": lambda: _music(_chord()), "batch2": lambda: _music(_chord(), _scale())},
    "open_nsfw-resnet50thin": {"one": partial(_thumbnails, 211), "batch4": partial(_thumbnails, 212, 213, 214, 215)},
    "nudenet-320n": {
        "320": partial(_people, 320, 320, 221),
        "256x384": partial(_people, 256, 384, 222),
        "batch2_320": partial(_people, 320, 320, 223, 224),
    },
    "layout-cdla": {"page1": partial(_page, 231), "page2": partial(_page, 232)},
    "slanet-plus": {
        "t3x3": partial(_table, 488, 3, 3, 241),
        "t6x4": partial(_table, 488, 6, 4, 242),
        # the model sees no end of this table: its Loop runs to the bound that it was given
        "t2x2_352": partial(_table, 352, 2, 2, 243),
    },
    "silero_vad": _VAD,
    "silero_vad_op18_ifless": _VAD,
    "oww-hey_jarvis": {
        "quiet": partial(_wake_word, 251, 3.0),
        "speech": partial(_wake_word, 252, 12.0),
        "loud": partial(_wake_word, 253, 25.0),
    },
    "nakdimon": {
        "short": partial(_hebrew, tokens.HEBREW[0]),
        "sentence": partial(_hebrew, tokens.HEBREW[1]),
        "batch2_padded": partial(_hebrew, tokens.HEBREW[1], tokens.HEBREW[0]),
    },
    "piper-tashkeel": {
        "len23": partial(_arabic, 0),
        "len51": partial(_arabic, 1),
        "batch2": partial(_arabic, 1, 0),
    },
    "lac-encoder": {"len6": partial(_chinese, 0), "len20": partial(_chinese, 1), "len42": partial(_chinese, 2)},
    "caustic-painn": {"helix8": partial(graphs.helix, 8, 261), "helix24": partial(graphs.helix, 24, 262)},
    "minimol": {"one": partial(graphs.molecules, 0), "batch3": partial(graphs.molecules, 0, 1, 2)},
    "minilm-l6-v2-int8": {
        "len15": partial(_sentences_of_one_type, 0),
        "len58": partial(_sentences_of_one_type, 3),
        "batch4_padded": partial(_sentences_of_one_type, 0, 1, 2, 3),
    },
    "traceforge-t5-encoder-int8": {
        "len18": partial(_t5_source, 0),
        "batch2_padded": partial(_t5_source, 0, 1),
        "len1": _t5_end_only,
    },
    "traceforge-t5-decoder-int8": {
        "first_token": partial(_t5_prefix, 271, 1, 0),
        "prefix5": partial(_t5_prefix, 271, 5, 0),
        "batch2_prefix8": partial(_t5_prefix, 272, 8, 0, 1),
    },
    "ddddocr-ocr": CAPTCHAS,
    "aecmos-1663829550": {"2s": partial(_echo, 32_000, 281), "6s": partial(_echo, 96_000, 283)},
}
