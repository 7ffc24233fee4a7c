"""Recipes of the core and the refuse group: what each of these models was trained for, made from fixed seeds.

Imported by: benchmarks.zoo.cases, benchmarks.zoo.recipes_wider.  Imports: benchmarks.zoo.signals, pictures, tokens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

import numpy as np

from benchmarks.zoo import pictures, signals, tokens
from benchmarks.zoo.archive import Array
from benchmarks.zoo.signals import F32, F64, on_grid, random_source, speech

Feeds = dict[str, Array]
MakeFeeds = Callable[[], Feeds]
Recipes = Mapping[str, Mapping[str, MakeFeeds]]

RATE: Final = 16_000
HALF: Final = (0.5, 0.5, 0.5)
IMAGENET_MEAN: Final = (0.485, 0.456, 0.406)
IMAGENET_SPREAD: Final = (0.229, 0.224, 0.225)


def zeros(*shape: int) -> F32:
    return np.zeros(shape, np.float32)


def state(seed: int, spread: float, *shape: int) -> F32:
    return on_grid(random_source(seed).normal(0.0, spread, shape), 1e-4)


# files --------------------------------------------------------------------------------------------------------------
def _magika(*contents: bytes) -> Feeds:
    return {"bytes": np.stack([tokens.magika_features(content) for content in contents])}


def _machine_code() -> bytes:
    """The start of an ELF file for x86-64, followed by noise."""
    header = b"\x7fELF\x02\x01\x01" + bytes(9) + (3).to_bytes(2, "little") + (62).to_bytes(2, "little")
    return header + random_source(31).integers(0, 256, 3000, np.uint8).tobytes()


# sound --------------------------------------------------------------------------------------------------------------
def vad_windows(count: int, seed: int, rate: int) -> F32:
    """(count, 0.036 rate): windows of 32 ms, each behind the 4 ms before it."""
    window, before = rate * 32 // 1000, rate * 4 // 1000
    wave = np.concatenate([np.zeros(before), speech(window * count, rate, seed, 130.0)])
    return np.lib.stride_tricks.sliding_window_view(wave, window + before)[::window].astype(np.float32)


def _vad(windows: int, take_last: int, seed: int, h: F32, c: F32) -> Feeds:
    return {"input": vad_windows(windows, seed, RATE)[-take_last:].copy(), "h": h, "c": c}


def _vad_cold(windows: int, take_last: int, seed: int) -> Feeds:
    return _vad(windows, take_last, seed, zeros(1, 1, 128), zeros(1, 1, 128))


def _vad_warm() -> Feeds:
    return _vad(94, 94, 43, state(44, 0.3, 1, 1, 128), state(45, 0.6, 1, 1, 128))


def _samples_in_16_bit_steps(samples: int, seed: int) -> Feeds:
    return {"input": (speech(samples, RATE, seed, 120.0) * 32768).astype(np.float32)[None]}


def _mel_windows(count: int) -> Feeds:
    """(count, 76, 32, 1): overlapping windows of a log-mel, 8 frames apart, in the scale of the embedding model."""
    frames = 76 + 8 * (count - 1)
    wave = speech(160 * (frames - 1) + 512, RATE, 51, 140.0) * 32768
    power = signals.power_spectrum(wave, signals.hann(512), 160)
    level = signals.decibels(power @ signals.mel_filters(RATE, 512, 32, 60.0, 3800.0), 1e-10)
    picture = on_grid(np.maximum(level, level.max() - 80.0) / 10.0 - 4.0, 1e-3)
    return {"input_1": np.stack([picture[8 * first : 8 * first + 76, :, None] for first in range(count)])}


def _pitch(samples: int, seed: int, pitch_hz: float) -> Feeds:
    audio = speech(samples, RATE, seed, pitch_hz).astype(np.float32)[None]
    return {"audio": audio, "fmin": np.array(46.875, np.float32), "fmax": np.array(2093.75, np.float32)}


def _quality_clean() -> Feeds:
    return {"input_1": speech(144_160, RATE, 61, 120.0).astype(np.float32)[None]}


def _quality_noisy() -> Feeds:
    noisy = speech(144_160, RATE, 62, 190.0) + signals.noise(144_160, 0.05, 63)
    return {"input_1": np.stack([noisy, speech(144_160, RATE, 64, 120.0)]).astype(np.float32)}


def _packet_loss(samples: int, seed: int, lost_share: float) -> Feeds:
    """Log spectrum of speech of which packets of 20 ms are missing, as the loss model reads it."""
    wave = speech(samples, RATE, seed, 125.0)
    packets = wave.reshape(-1, 320).copy()
    packets[random_source(seed + 1).uniform(size=len(packets)) < lost_share] = 0.0
    power = signals.power_spectrum(np.concatenate([np.zeros(256), packets.ravel()]), signals.hamming(512), 256)
    logs = np.log(np.maximum(power, 1e-12)) / 20.0
    return {"degraded_audio": on_grid(logs, 1e-4)[None, None], "rater_embed": state(seed + 2, 1.0, 1, 64)}


def _turn(*waves: F64) -> Feeds:
    return {"input_features": np.stack([on_grid(signals.whisper_features(wave), 1e-3) for wave in waves])}


def _turn_full() -> Feeds:
    return _turn(speech(128_000, RATE, 81, 120.0))


def _turn_short() -> Feeds:
    return _turn(speech(40_000, RATE, 82, 200.0))


def _turn_two() -> Feeds:
    with_pause = np.concatenate([speech(64_000, RATE, 83, 110.0), np.zeros(24_000)])
    return _turn(with_pause, speech(40_000, RATE, 82, 200.0))


def _separation(steps: int, h0: F32) -> Feeds:
    """Four stacked log-mel frames a step, the unit voice print of the speaker to keep, and the recurrent state."""
    power = signals.power_spectrum(speech(512 + 160 * 195, RATE, 91, 120.0), signals.hann(512), 160)
    logs = np.log(np.maximum(power @ signals.mel_filters(RATE, 512, 128, 0.0, 8000.0), 1e-6))
    voice = random_source(92).normal(size=(1, 256))
    return {
        "stacked_logmel": on_grid(logs.reshape(1, 49, 512), 1e-3)[:, :steps].copy(),
        "dvec": on_grid(voice / np.linalg.norm(voice), 1e-4),
        "h0": h0,
        "c0": h0.copy(),
    }


# pictures -----------------------------------------------------------------------------------------------------------
def _line(width: int, text: str, seed: int) -> F32:
    return pictures.planes(pictures.text_line(48, width, text, seed), HALF, HALF)


def _upside_down(planes: F32) -> F32:
    return np.ascontiguousarray(planes[..., ::-1, ::-1])


def _lines(width: int, *texts: str) -> Feeds:
    return {"x": np.concatenate([_line(width, text, 100 + place) for place, text in enumerate(texts)])}


def _flipped() -> Feeds:
    return {"x": _upside_down(_line(192, "BATCH 128", 100))}


def _orientations() -> Feeds:
    first, second = _line(192, "BATCH 128", 100), _line(192, "REPLAY 42", 101)
    return {"x": np.concatenate([first, _upside_down(second), second])}


def _document(height: int, width: int, scale: float, seed: int, *lines: str) -> Feeds:
    image = pictures.text_lines(height, width, lines, scale, seed)
    return {"x": pictures.planes(image, IMAGENET_MEAN, IMAGENET_SPREAD)}


def pixels(image: pictures.Image) -> F32:
    return image.transpose(2, 0, 1)[None].astype(np.float32)


def _faces(height: int, width: int, seed: int, faces: int) -> Feeds:
    return {"input.1": pixels(pictures.scene(height, width, seed, faces))}


def _face_tiles() -> Feeds:
    return {"input.1": np.concatenate([pixels(pictures.scene(32, 32, 120 + tile, 1)) for tile in range(10)])}


def _glyphs(seed: int, *words: str) -> Feeds:
    image = pictures.scene(416, 416, seed, 0)
    draw = random_source(seed)
    for row, word in enumerate(words):
        place = (40 + 120 * row, int(draw.uniform(20, 180)))
        pictures.write(image, word, *place, float(draw.uniform(5, 8)), draw.uniform(180, 255, 3).tolist())
    return {"images": pixels(pictures.finish(image))}


def _captcha(width: int, text: str, seed: int) -> Feeds:
    grey = pictures.captcha(64, width, text, seed).mean(axis=-1)
    return {"input1": on_grid((np.round(grey) / 255.0 - 0.5) / 0.5, 1e-5)[None, None]}


# text ---------------------------------------------------------------------------------------------------------------
def sentences(*which: int) -> Feeds:
    ids, mask = tokens.pad_batch([tokens.BERT[index] for index in which])
    return {"input_ids": ids, "attention_mask": mask}


def _phonemes(which: int) -> Feeds:
    return {
        "tokens": np.array([tokens.KOKORO[which]], np.int64),
        "style": state(140, 0.12, 1, 256),
        "speed": np.ones(1, np.float32),
    }


# tables -------------------------------------------------------------------------------------------------------------
def _counts() -> Feeds:
    return {"float_input": random_source(150).integers(0, 20, (3, 132)).astype(np.float32)}


def _flowers() -> Feeds:
    """Sepal length and width of three irises in cm."""
    return {"float_input": np.array([[5.1, 3.5], [6.2, 2.9], [7.7, 3.8]], np.float32)}


_INVOICE: Final = ("INVOICE 2051", "TOTAL 398.50", "DATE 04-12-25", "NET 14 DAYS", "TAX 19", "PAID")
CAPTCHAS: Final[Mapping[str, MakeFeeds]] = {
    "w160": partial(_captcha, 160, "4K7P", 130),
    "w96": partial(_captcha, 96, "83", 131),
    "w240": partial(_captcha, 240, "X92H5R", 132),
}

CORE_AND_REFUSE: Final[Recipes] = {
    "magika-v3_3": {
        "python": partial(_magika, tokens.PYTHON_SOURCE * 3),
        "json": partial(_magika, tokens.JSON_DOCUMENT),
        "batch3": lambda: _magika(tokens.PYTHON_SOURCE * 3, tokens.JSON_DOCUMENT, _machine_code()),
    },
    "silero_vad_16k_sequence": {
        "one": partial(_vad_cold, 12, 1, 41),
        "seq31": partial(_vad_cold, 31, 31, 42),
        "seq94_state": _vad_warm,
    },
    "oww-melspectrogram": {
        "1s": partial(_samples_in_16_bit_steps, 16_000, 46),
        "80ms": partial(_samples_in_16_bit_steps, 1_760, 47),
        "2s": partial(_samples_in_16_bit_steps, 32_000, 48),
    },
    "oww-embedding": {"one": partial(_mel_windows, 1), "batch8": partial(_mel_windows, 8)},
    "ppocr-cls": {"upright": partial(_lines, 192, "BATCH 128"), "flipped": _flipped, "batch3": _orientations},
    "ppocrv4-det": {
        "320": partial(_document, 320, 320, 3.4, 110, *_INVOICE),
        "160x320": partial(_document, 160, 320, 3.4, 111, *_INVOICE[:3]),
        "480x640": partial(_document, 480, 640, 6.2, 112, *_INVOICE),
    },
    "ppocrv4-rec": {
        "w320": partial(_lines, 320, "LATENCY 1.25"),
        "w100": partial(_lines, 100, "A 42"),
        "batch3_w224": partial(_lines, 224, "CACHE KEY", "7031.9", "TILE 64"),
    },
    "centerface-dyn": {
        "declared": _face_tiles,
        "rebind_320x320": partial(_faces, 320, 320, 115, 3),
        "rebind_224x416": partial(_faces, 224, 416, 116, 4),
    },
    "swift-f0": {
        "1s": partial(_pitch, 16_000, 56, 120.0),
        "256ms": partial(_pitch, 4_096, 57, 220.0),
        "3s_high": partial(_pitch, 48_000, 58, 260.0),
    },
    "dnsmos-sig_bak_ovr": {"clean": _quality_clean, "noisy_batch2": _quality_noisy},
    "plcmos_v2": {
        "2s_10pct": partial(_packet_loss, 32_000, 71, 0.1),
        "5s_30pct": partial(_packet_loss, 80_000, 74, 0.3),
    },
    "smart-turn-v3.2-int8-qdq": {"full8s": _turn_full, "short": _turn_short, "batch2": _turn_two},
    "minilm-l3-fp32": {
        "len15": partial(sentences, 0),
        "len58": partial(sentences, 3),
        "batch4_padded": partial(sentences, 0, 1, 2, 3),
    },
    "ddddocr-det-yolox": {
        "words": partial(_glyphs, 125, "KEY", "TILE", "42"),
        "empty": partial(_glyphs, 126),
    },
    "ddddocr-ocr-old-int8": CAPTCHAS,
    "vfl-filter-int8": {
        "stream1": lambda: _separation(1, zeros(3, 1, 512)),
        "t49": lambda: _separation(49, zeros(3, 1, 512)),
        "t8_state": lambda: _separation(8, state(93, 0.2, 3, 1, 512)),
    },
    "kokoro-int8": {"hello": partial(_phonemes, 0), "sentence": partial(_phonemes, 1)},
    "luscinia-treeensemble": {"rows3": _counts},
    "ort-logreg-iris": {"iris3": _flowers},
}
