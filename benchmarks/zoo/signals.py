"""Sound for audio models: synthetic speech and the spectra that speech models are fed.

Imported by: benchmarks.zoo.cases.  Imports: numpy.  Everything is a function of its arguments.

Speech here is a source and a filter: pulses at the pitch of a voice, or noise for a consonant, shaped by the
resonances of a vocal tract.  It is not meant to be understood, but detectors of voice and pitch react to it.
Samples are rounded to 16 bits, features to a grid, so that the last bit of a sine or an FFT is not in the data.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

F64 = NDArray[np.float64]
F32 = NDArray[np.float32]

# Resonances of five vowels in Hz (Peterson and Barney 1952, men), and their bandwidths.
_VOWELS: Final = ((730, 1090, 2440), (270, 2290, 3010), (300, 870, 2240), (530, 1840, 2480), (570, 840, 2410))
_BANDWIDTHS: Final = (80, 110, 160)
_PEAK: Final = 0.6


def random_source(seed: int) -> np.random.Generator:
    return np.random.Generator(np.random.PCG64(seed))


def on_grid(values: F64, step: float) -> F32:
    """Nearest multiples of ``step`` as float32."""
    return (np.round(values / step) * step).astype(np.float32)


def speech(samples: int, rate: int, seed: int, pitch_hz: float) -> F64:
    """``samples`` of a voice in [-0.6, 0.6], multiples of 2^-15: about four syllables a second and some pauses."""
    draw = random_source(seed)
    voice = np.zeros(samples)
    begin = 0
    while begin < samples:
        length = int(rate * draw.uniform(0.16, 0.30))
        kind = draw.uniform()
        if kind < 0.84 or begin == 0:
            shape = _vowel(length, rate, pitch_hz * draw.uniform(0.85, 1.2), draw)
            if kind < 0.25:
                hiss = _hiss(int(rate * 0.07), rate, draw)
                shape[: len(hiss)] += hiss
            end = min(begin + length, samples)
            voice[begin:end] += shape[: end - begin] * draw.uniform(0.5, 1.0)
        begin += int(length * 0.92)
    voice += draw.normal(0.0, 2e-3, samples)
    return to_16_bits(voice * (_PEAK / np.abs(voice).max()))


def noise(samples: int, level: float, seed: int) -> F64:
    """White noise of standard deviation ``level``, multiples of 2^-15."""
    return to_16_bits(random_source(seed).normal(0.0, level, samples))


def to_16_bits(wave: F64) -> F64:
    return np.asarray(np.round(wave * 32768) / 32768, np.float64)


def _vowel(samples: int, rate: int, pitch_hz: float, draw: np.random.Generator) -> F64:
    time = np.arange(samples) / rate
    glide = 1.0 + draw.uniform(-0.12, 0.06) * time / time[-1]
    cycles = np.cumsum(pitch_hz * glide) / rate
    pulses = np.diff(np.floor(cycles), prepend=0.0)
    source = pulses + draw.normal(0.0, 0.02, samples)
    size = 1 << (2 * samples - 1).bit_length()
    spectrum = np.fft.rfft(source, size) * _tract(size, rate, _VOWELS[int(draw.integers(len(_VOWELS)))])
    wave = np.fft.irfft(spectrum, size)[:samples]
    return np.asarray(wave / np.abs(wave).max() * _swell(samples, rate), np.float64)


def _hiss(samples: int, rate: int, draw: np.random.Generator) -> F64:
    spectrum = np.fft.rfft(draw.normal(0.0, 1.0, samples))
    hertz = np.fft.rfftfreq(samples, 1 / rate)
    wave = np.fft.irfft(spectrum * np.clip((hertz - 1500) / 2000, 0.0, 1.0), samples)
    return np.asarray(0.25 * wave / np.abs(wave).max() * _swell(samples, rate), np.float64)


def _tract(size: int, rate: int, resonances: tuple[int, int, int]) -> NDArray[np.complex128]:
    """Frequency response of two-pole resonators in series, of the glottis before them and the lips behind."""
    delay = np.exp(-2j * np.pi * np.fft.rfftfreq(size))
    response = (1.0 - delay) / (1.0 - 0.96 * delay) ** 2
    for hertz, width in zip(resonances, _BANDWIDTHS, strict=True):
        if hertz < rate / 2:
            pole = np.exp(-np.pi * width / rate + 2j * np.pi * hertz / rate)
            response = response / ((1 - pole * delay) * (1 - np.conj(pole) * delay))
    return np.asarray(response, np.complex128)


def _swell(samples: int, rate: int) -> F64:
    """Rises within 25 ms and fades within 60 ms."""
    time = np.arange(samples) / rate
    left = samples / rate - time
    return np.asarray(np.sqrt(np.clip(time / 0.025, 0, 1) * np.clip(left / 0.060, 0, 1)), np.float64)


def power_spectrum(wave: F64, window: F64, hop: int) -> F64:
    """(frames, window / 2 + 1) squared magnitudes of windowed frames, ``hop`` samples apart."""
    frames = np.lib.stride_tricks.sliding_window_view(wave, len(window))[::hop]
    return np.asarray(np.abs(np.fft.rfft(frames * window)) ** 2, np.float64)


def hann(samples: int) -> F64:
    """Periodic Hann window."""
    return np.asarray(0.5 - 0.5 * np.cos(2 * np.pi * np.arange(samples) / samples), np.float64)


def hamming(samples: int) -> F64:
    """Periodic Hamming window."""
    return np.asarray(0.54 - 0.46 * np.cos(2 * np.pi * np.arange(samples) / samples), np.float64)


def mel_filters(rate: int, window: int, bands: int, low_hz: float, high_hz: float) -> F64:
    """(window / 2 + 1, bands) triangles, equally wide in mel = 2595 log10(1 + f / 700), of equal area."""

    def mel(hertz: float) -> float:
        return 2595.0 * float(np.log10(1.0 + hertz / 700.0))

    corners = 700.0 * (10.0 ** (np.linspace(mel(low_hz), mel(high_hz), bands + 2) / 2595.0) - 1.0)
    left, top, right = corners[:-2], corners[1:-1], corners[2:]
    hertz = np.fft.rfftfreq(window, 1 / rate)[:, None]
    triangles = np.minimum((hertz - left) / (top - left), (right - hertz) / (right - top))
    return np.asarray(np.maximum(triangles, 0.0) * 2.0 / (right - left), np.float64)


def decibels(power: F64, floor: float) -> F64:
    return np.asarray(10.0 * np.log10(np.maximum(power, floor)), np.float64)


def whisper_features(wave: F64) -> F64:
    """(80, 800): the last 8 s of 16 kHz sound as the log-mel picture that Whisper encoders read.

    Hann windows of 400 samples every 160, 80 mel bands, logarithm clipped 8 decades below its maximum and scaled.
    """
    needed = 128_000
    padded = np.concatenate([np.zeros(max(0, needed - len(wave))), wave[-needed:]])
    power = power_spectrum(np.pad(padded, 200, mode="reflect"), hann(400), 160)[:800]
    logs = np.log10(np.maximum(power @ mel_filters(16_000, 400, 80, 0.0, 8_000.0), 1e-10))
    return np.asarray((np.maximum(logs, logs.max() - 8.0) + 4.0).T / 4.0, np.float64)
