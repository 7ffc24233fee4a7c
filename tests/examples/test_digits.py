"""The committed example model is what its script makes, and reads digits as well as it says."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import onnx
import onnxruntime
import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
LIMIT_BYTES = 100_000


@pytest.fixture(scope="module")
def script() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("train_digits", EXAMPLES / "train_digits.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their own module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


@pytest.fixture(scope="module")
def session() -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(str(EXAMPLES / "digits.onnx"), providers=["CPUExecutionProvider"])


def test_the_model_is_valid_small_and_has_a_free_batch() -> None:
    path = EXAMPLES / "digits.onnx"
    assert path.stat().st_size < LIMIT_BYTES
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    [image], [probabilities] = model.graph.input, model.graph.output
    assert [dim.dim_param or dim.dim_value for dim in image.type.tensor_type.shape.dim] == ["batch", 1, 8, 8]
    assert [dim.dim_param or dim.dim_value for dim in probabilities.type.tensor_type.shape.dim] == ["batch", 10]


def test_the_model_reads_the_held_out_digits(session: onnxruntime.InferenceSession, script: ModuleType) -> None:
    with np.load(EXAMPLES / "heldout.npz") as stored:
        pixels, labels = stored["pixels"], stored["labels"]
    assert len(labels) == script.HELD_OUT
    assert set(labels.tolist()) == set(range(10))
    images = (pixels[:, None] / 16).astype(np.float32)
    [probabilities] = session.run(None, {"image": images})
    assert (probabilities.argmax(axis=1) == labels).mean() >= script.REQUIRED_ACCURACY


@pytest.mark.parametrize(("case", "batch"), [("one", 1), ("four", 4)])
def test_a_case_feeds_the_model_held_out_digits(session: onnxruntime.InferenceSession, case: str, batch: int) -> None:
    with np.load(EXAMPLES / "inputs" / f"{case}.npz") as stored:
        assert stored.files == ["image"]
        image = stored["image"]
    assert image.shape == (batch, 1, 8, 8)
    assert image.dtype == np.float32
    with np.load(EXAMPLES / "heldout.npz") as stored:
        held_out = {pixels.tobytes(): label for pixels, label in zip(stored["pixels"], stored["labels"], strict=True)}
    labels = [held_out[np.round(one[0] * 16).astype(np.uint8).tobytes()] for one in image]
    [probabilities] = session.run(None, {"image": image})
    assert probabilities.argmax(axis=1).tolist() == labels


def test_the_hand_written_gradient_is_the_slope_of_the_loss(script: ModuleType) -> None:
    draw = np.random.Generator(np.random.PCG64(3))
    weights = script.initial_weights(draw)
    images = draw.uniform(0, 1, (4, 1, 8, 8)).astype(np.float32)
    labels = np.array([1, 7, 7, 0])

    def loss() -> float:
        chosen = script.classify(weights, images)[np.arange(4), labels].astype(np.float64)
        return float(-np.log(chosen).mean())

    found = script.gradients(weights, images, labels)
    for value, gradient in zip(weights.arrays(), found.arrays(), strict=True):
        # the largest entry, so that the difference stands out of float32 rounding
        place = np.unravel_index(np.abs(gradient).argmax(), gradient.shape)
        old, step = value[place], np.float32(1e-3)
        value[place] = old + step
        above = loss()
        value[place] = old - step
        below = loss()
        value[place] = old
        assert (above - below) / (2 * step) == pytest.approx(float(gradient[place]), rel=0.05)


def test_the_numpy_network_and_the_onnx_file_agree(script: ModuleType) -> None:
    draw = np.random.Generator(np.random.PCG64(4))
    weights = script.initial_weights(draw)
    images = draw.uniform(0, 1, (3, 1, 8, 8)).astype(np.float32)
    written = onnxruntime.InferenceSession(script.as_onnx(weights).SerializeToString())
    [probabilities] = written.run(None, {"image": images})
    np.testing.assert_allclose(probabilities, script.classify(weights, images), atol=1e-5)


def test_training_again_reads_digits_as_well(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn, which brings the digits, is not installed")
    monkeypatch.setattr(script, "EPOCHS", 12)
    assert script.main(tmp_path) == 0
    assert "held-out digits read correctly" in capsys.readouterr().out
    for name in ("heldout.npz", "inputs/one.npz", "inputs/four.npz"):
        assert (tmp_path / name).read_bytes() == (EXAMPLES / name).read_bytes(), name
    assert (tmp_path / "digits.onnx").stat().st_size == (EXAMPLES / "digits.onnx").stat().st_size


def test_a_network_that_did_not_learn_is_not_written(
    script: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("sklearn", reason="scikit-learn, which brings the digits, is not installed")
    monkeypatch.setattr(script, "EPOCHS", 0)
    assert script.main(tmp_path / "new") == 1
    assert not (tmp_path / "new").exists()
