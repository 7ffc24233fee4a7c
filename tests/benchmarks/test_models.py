"""The table of the core models: what is measured, and what a person wrote beside it."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from benchmarks import models
from benchmarks.models import KEPT, Cost, Found, Opening, Replay, Row, page, turns_for
from benchmarks.zoo.manifest import Model

COST = Cost("n=1:2:3", 12.0, 2_500_000_000)
FOUND = Found("quick", "3 admitted", 0.25)
OPENING = Opening((2_000_000, 3_000_000), (4_000_000, 5_000_000), 14_000_000)
MEASURED = Row(
    "fast",
    "one",
    COST,
    FOUND,
    OPENING,
    (Replay("image", 1000, 1.5), Replay("onnxruntime", 4000, 2.0), Replay("openvino", 2000, 3.0)),
)
FAILED = Row("slow", "one", COST, FOUND, None, (), "certification ended with 1")


def test_ratios_are_of_the_engine_over_the_image() -> None:
    assert MEASURED.ratio("onnxruntime") == 4.0 and MEASURED.ratio("openvino") == 2.0
    assert math.isnan(FAILED.ratio("onnxruntime"))


def test_the_page_has_every_model_and_counts_what_was_measured() -> None:
    text = page([MEASURED, FAILED])
    assert "| fast, one | 0.001 | 4.00x | 2.00x | 1.50, 2.00 | 2.0, 4.0 | 3.0, 5.0 | 0.25 |" in text
    assert "| slow, one | certification ended with 1 |" in text
    assert "| fast | `n=1:2:3` | quick | 3 admitted | 12 | 2.50 |" in text
    assert "Ahead of onnxruntime on 1 of 1" in text and "2.00x.  Opening and first run ahead on 1 of 1" in text


def test_what_was_written_by_hand_stays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def nothing_but_a_row(model: Model, *_given: object) -> Row:
        return MEASURED

    monkeypatch.setattr(models, "certify", lambda *_given: (0, COST))
    monkeypatch.setattr(models, "measure", nothing_but_a_row)
    table = tmp_path / "page.md"
    table.write_text(f"an old table\n{KEPT}\n\nremarks\n")
    assert models.main([str(tmp_path), "--only", "swift-f0", "--table", str(table)]) == 0
    text = table.read_text()
    assert "an old table" not in text and text.endswith(f"{KEPT}\n\nremarks\n") and "| fast, one |" in text


def test_a_model_that_could_not_be_certified_is_told_by_the_exit_code(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(models, "certify", lambda *_given: (1, COST))
    (tmp_path / "inputs" / "swift-f0").mkdir(parents=True)
    (tmp_path / "inputs" / "swift-f0" / "1s.npz").touch()
    assert models.main([str(tmp_path), "--only", "swift-f0", "--output", str(tmp_path)]) == 1


@pytest.mark.parametrize(("ms", "turns"), [(0.02, (200, 20)), (6, (50, 20)), (60, (15, 20)), (350, (6, 4))])
def test_short_replays_are_timed_in_more_turns(ms: float, turns: tuple[int, int]) -> None:
    assert turns_for(int(ms * 1e6)) == turns
