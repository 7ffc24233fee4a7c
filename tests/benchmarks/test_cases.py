"""Inputs of the zoo: the same bits every time, within what a model can be fed, and not degenerate."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import pytest

from benchmarks.zoo import pictures, signals, tokens
from benchmarks.zoo.__main__ import main
from benchmarks.zoo.archive import read_arrays, same_arrays, write_arrays
from benchmarks.zoo.cases import Feeds, case_names, make_case, models_with_cases
from benchmarks.zoo.manifest import read_manifest
from tribunus.errors import UsageError

ALL = {(model, case): make_case(model, case) for model in models_with_cases() for case in case_names(model)}


@pytest.fixture(params=sorted(ALL), ids="/".join)
def made(request: pytest.FixtureRequest) -> tuple[str, str, Feeds]:
    model, case = request.param
    return model, case, ALL[model, case]


def test_making_a_case_twice_gives_the_same_bits(made: tuple[str, str, Feeds]) -> None:
    model, case, feeds = made
    assert same_arrays(make_case(model, case), feeds)


def test_every_input_is_finite_and_contiguous(made: tuple[str, str, Feeds]) -> None:
    for name, array in made[2].items():
        assert array.flags.c_contiguous, name
        assert array.size > 0, name
        assert np.isfinite(np.asarray(array, np.float64)).all(), name


def test_some_input_of_a_case_is_not_flat(made: tuple[str, str, Feeds]) -> None:
    assert any(len(np.unique(array)) >= min(4, max(a.size for a in made[2].values())) for array in made[2].values())


@pytest.mark.parametrize("model", models_with_cases())
def test_no_two_cases_of_a_model_are_the_same(model: str) -> None:
    for left, right in combinations(case_names(model), 2):
        assert not same_arrays(ALL[model, left], ALL[model, right])


def test_every_recipe_belongs_to_a_model_of_the_manifest() -> None:
    assert set(models_with_cases()) <= {model.name for model in read_manifest().models}


def test_an_unknown_case_is_refused() -> None:
    with pytest.raises(UsageError, match="no-such-case"):
        make_case("swift-f0", "no-such-case")


def test_speech_has_the_pitch_it_was_asked_for() -> None:
    wave = signals.speech(16_000, 16_000, 1, 120.0)[1000:3000]
    echo = np.correlate(wave, wave, "full")[len(wave) :]
    period = int(np.argmax(echo[60:300])) + 61
    assert 16_000 / period == pytest.approx(120.0, rel=0.25)


def test_speech_has_pauses_and_no_offset() -> None:
    wave = signals.speech(64_000, 16_000, 3, 120.0)
    loudness = np.sqrt((wave.reshape(-1, 400) ** 2).mean(axis=1))
    assert loudness.min() < 0.03 < 0.15 < loudness.max()
    assert abs(wave.mean()) < 0.01
    assert np.array_equal(wave * 32768, np.round(wave * 32768))


def test_mel_filters_cover_the_band_and_weigh_as_much_each() -> None:
    filters = signals.mel_filters(16_000, 512, 32, 60.0, 3800.0)
    hertz = np.fft.rfftfreq(512, 1 / 16_000)
    inside = (hertz > 200) & (hertz < 3500)
    assert (filters[inside].sum(axis=1) > 0).all()
    assert (filters[(hertz <= 60) | (hertz >= 3800)] == 0).all()


def test_text_is_drawn_where_it_is_asked_for_and_cut_at_the_edge() -> None:
    sheet = np.full((40, 60, 3), 200.0)
    pictures.write(sheet, "H", 10, 50, 3.0, (0, 0, 0))
    assert (sheet[:, :48] == 200).all()
    assert sheet[10:31, 50:].min() < 20


def test_different_characters_look_different() -> None:
    drawn = {character: pictures.text_ink(character, 4.0).tobytes() for character in "ABCDEFGHIKLMNOPRSTUVXY0123456789"}
    drawn.pop("O")  # the letter and the digit share a shape, as they do in many typefaces
    assert len(set(drawn.values())) == len(drawn)


def test_file_features_are_head_and_tail_with_padding_between() -> None:
    short = tokens.magika_features(b"  {} \n")
    assert short[:3].tolist() == [ord("{"), ord("}"), tokens.MAGIKA_PADDING]
    assert short[-2:].tolist() == [ord("{"), ord("}")]
    long = tokens.magika_features(bytes(range(33, 233)) * 20)
    assert (long < 256).all()


def test_padding_is_masked() -> None:
    ids, mask = tokens.pad_batch([(7, 8, 9), (5,)])
    assert ids.tolist() == [[7, 8, 9], [5, 0, 0]]
    assert mask.tolist() == [[1, 1, 1], [1, 0, 0]]


def test_an_archive_keeps_odd_names_and_its_bytes_do_not_depend_on_time(tmp_path: Path) -> None:
    arrays = {"serving/input:0": np.arange(6.0).reshape(2, 3), "file": np.array(3, np.int64)}
    write_arrays(tmp_path / "a.npz", arrays)
    write_arrays(tmp_path / "b.npz", arrays)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert same_arrays(read_arrays(tmp_path / "a.npz"), arrays)


def test_an_archive_gives_rows_in_order_whatever_order_was_stored(tmp_path: Path) -> None:
    stored = np.arange(6.0).reshape(2, 3).T
    np.savez(tmp_path / "a.npz", x=stored)
    found = read_arrays(tmp_path / "a.npz")
    assert found is not None
    assert found["x"].flags.c_contiguous
    assert np.array_equal(found["x"], stored)


def test_a_broken_archive_reads_as_none(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    write_arrays(path, {"x": np.arange(1000)})
    path.write_bytes(path.read_bytes()[:200])
    assert read_arrays(path) is None
    assert read_arrays(tmp_path / "missing.npz") is None


def test_inputs_are_written_once_and_repaired(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["inputs", str(tmp_path), "--only", "swift-f0"]
    assert main(command) == 0
    case = tmp_path / "inputs" / "swift-f0" / "1s.npz"
    before = case.stat().st_mtime_ns
    assert main(command) == 0
    assert case.stat().st_mtime_ns == before
    case.write_bytes(b"")
    assert main(command) == 0
    assert same_arrays(read_arrays(case), ALL["swift-f0", "1s"])
    assert [line.split(": ")[1] for line in capsys.readouterr().out.splitlines()] == [
        "3 cases and 0 witnesses written",
        "0 cases and 0 witnesses written",
        "1 cases and 0 witnesses written",
    ]
