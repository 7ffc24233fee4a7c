"""Trains the example model: a small network that reads handwritten digits, in numpy alone, and writes it as ONNX.

    python examples/train_digits.py [FOLDER]

Needs scikit-learn (for its bundled 8 x 8 digits) and onnx.  FOLDER defaults to the folder of this file and receives
digits.onnx, inputs/one.npz and inputs/four.npz, and heldout.npz (the images that were kept from training, with their
labels).  The seed is fixed: on one machine two runs write the same bytes, on two machines the last bits of the
weights may differ.  Takes some seconds.

The images are a part of "Optical Recognition of Handwritten Digits" by E. Alpaydin and C. Kaynak (UCI Machine
Learning Repository, 1998, CC BY 4.0), as scikit-learn bundles it.

Imported by: nobody.  Imports: numpy, onnx, scikit-learn.
"""

from __future__ import annotations

import sys
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from io import BytesIO
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

F32 = NDArray[np.float32]
I64 = NDArray[np.int64]

SEED = 20
HELD_OUT = 360
EPOCHS = 30
BATCH = 32
CLASSES = 10
KERNEL = 3
FIRST, SECOND = 16, 32
FEATURES = SECOND * 4 * 4  # 8 x 8 pixels, halved once
REQUIRED_ACCURACY = 0.97


@dataclass(frozen=True, slots=True)
class Weights:
    """Parameters of the network, or anything of the same shapes: their gradients, Adam's moments."""

    conv1: F32  # (FIRST, 1, 3, 3)
    bias1: F32  # (FIRST,)
    conv2: F32  # (SECOND, FIRST, 3, 3)
    bias2: F32  # (SECOND,)
    dense: F32  # (CLASSES, FEATURES)
    bias3: F32  # (CLASSES,)

    def arrays(self) -> Iterator[F32]:
        return (getattr(self, field.name) for field in fields(self))


def initial_weights(draw: np.random.Generator) -> Weights:
    """He initialisation: variance 2 / (inputs of a unit)."""

    def he(*shape: int) -> F32:
        return np.asarray(draw.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:])), np.float32)

    def zeros(size: int) -> F32:
        return np.zeros(size, np.float32)

    return Weights(
        he(FIRST, 1, KERNEL, KERNEL),
        zeros(FIRST),
        he(SECOND, FIRST, KERNEL, KERNEL),
        zeros(SECOND),
        he(CLASSES, FEATURES),
        zeros(CLASSES),
    )


def patches(image: F32) -> F32:
    """(N, C, H, W) -> (N, H, W, C * 9): the 3 x 3 neighbourhood of every pixel, zeros outside."""
    wide = np.pad(image, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(wide, (KERNEL, KERNEL), (2, 3))
    n, c, h, w = image.shape
    return np.asarray(windows.transpose(0, 2, 3, 1, 4, 5).reshape(n, h, w, c * KERNEL * KERNEL), np.float32)


def patches_back(gradient: NDArray[np.floating], channels: int) -> F32:
    """Transpose of ``patches``: every pixel collects what its nine neighbourhoods ask of it."""
    n, h, w, _ = gradient.shape
    parts = gradient.reshape(n, h, w, channels, KERNEL, KERNEL)
    wide = np.zeros((n, channels, h + 2, w + 2), np.float32)
    for y in range(KERNEL):
        for x in range(KERNEL):
            wide[:, :, y : y + h, x : x + w] += parts[..., y, x].transpose(0, 3, 1, 2)
    return wide[:, :, 1:-1, 1:-1]


def convolve(columns: F32, kernel: F32, bias: F32) -> F32:
    """(N, H, W, C * 9) -> (N, O, H, W)."""
    return np.asarray((columns @ kernel.reshape(len(kernel), -1).T + bias).transpose(0, 3, 1, 2), np.float32)


def pool(image: F32) -> tuple[F32, F32]:
    """Maximum of each 2 x 2 square, and where in the square it was (shared equally in a tie)."""
    n, c, h, w = image.shape
    squares = image.reshape(n, c, h // 2, 2, w // 2, 2)
    top = squares.max(axis=(3, 5), keepdims=True)
    here = (squares == top).astype(np.float32)
    return top.reshape(n, c, h // 2, w // 2), here / here.sum(axis=(3, 5), keepdims=True)


def softmax(logits: F32) -> F32:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True), np.float32)


def classify(weights: Weights, images: F32) -> F32:
    """(N, 1, 8, 8) in 0..1 -> (N, 10) probabilities."""
    hidden1 = np.maximum(convolve(patches(images), weights.conv1, weights.bias1), 0)
    hidden2 = np.maximum(convolve(patches(pool(hidden1)[0]), weights.conv2, weights.bias2), 0)
    return softmax(hidden2.reshape(len(images), -1) @ weights.dense.T + weights.bias3)


def gradients(weights: Weights, images: F32, labels: I64) -> Weights:
    """Gradient of the mean cross-entropy over a batch."""
    columns1 = patches(images)
    hidden1 = np.maximum(convolve(columns1, weights.conv1, weights.bias1), 0)
    pooled, share = pool(hidden1)
    columns2 = patches(pooled)
    hidden2 = np.maximum(convolve(columns2, weights.conv2, weights.bias2), 0)
    flat = hidden2.reshape(len(images), -1)
    # d loss / d logits of softmax and cross-entropy together is probability minus truth
    d_logits = softmax(flat @ weights.dense.T + weights.bias3)
    d_logits[np.arange(len(labels)), labels] -= 1
    d_logits /= len(labels)

    d_hidden2 = (d_logits @ weights.dense).reshape(hidden2.shape) * (hidden2 > 0)
    d_out2 = d_hidden2.transpose(0, 2, 3, 1)
    d_pooled = patches_back(d_out2 @ weights.conv2.reshape(SECOND, -1), FIRST)
    n, c, h, w = d_pooled.shape
    d_hidden1 = (share * d_pooled.reshape(n, c, h, 1, w, 1)).reshape(hidden1.shape) * (hidden1 > 0)
    d_out1 = d_hidden1.transpose(0, 2, 3, 1)
    return Weights(
        np.tensordot(d_out1, columns1, ((0, 1, 2), (0, 1, 2))).reshape(weights.conv1.shape),
        d_out1.sum(axis=(0, 1, 2)),
        np.tensordot(d_out2, columns2, ((0, 1, 2), (0, 1, 2))).reshape(weights.conv2.shape),
        d_out2.sum(axis=(0, 1, 2)),
        d_logits.T @ flat,
        d_logits.sum(axis=0),
    )


def train(images: F32, labels: I64) -> Weights:
    """Adam (Kingma and Ba 2015) with the usual constants and a learning rate that falls linearly to a tenth."""
    draw = np.random.Generator(np.random.PCG64(SEED))
    weights = initial_weights(draw)
    mean, square = (Weights(*(np.zeros_like(a) for a in weights.arrays())) for _ in range(2))
    steps = EPOCHS * (len(images) // BATCH)
    step = 0
    for _ in range(EPOCHS):
        order = draw.permutation(len(images))
        for batch in order[: len(order) // BATCH * BATCH].reshape(-1, BATCH):
            found = gradients(weights, images[batch], labels[batch])
            step += 1
            rate = 2e-3 * (1 - 0.9 * step / steps)
            for value, g, m, v in zip(weights.arrays(), found.arrays(), mean.arrays(), square.arrays(), strict=True):
                m += 0.1 * (g - m)
                v += 0.001 * (g * g - v)
                value -= rate * (m / (1 - 0.9**step)) / (np.sqrt(v / (1 - 0.999**step)) + 1e-8)
    return weights


def as_onnx(weights: Weights) -> onnx.ModelProto:
    """The network with a free dim ``batch``: image (batch, 1, 8, 8) -> probabilities (batch, 10)."""
    nodes = [
        helper.make_node("Conv", ["image", "conv1", "bias1"], ["c1"], "first_conv", kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Relu", ["c1"], ["r1"], "first_relu"),
        helper.make_node("MaxPool", ["r1"], ["p1"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        helper.make_node("Conv", ["p1", "conv2", "bias2"], ["c2"], "second_conv", kernel_shape=[3, 3], pads=[1] * 4),
        helper.make_node("Relu", ["c2"], ["r2"], "second_relu"),
        helper.make_node("Flatten", ["r2"], ["f"], "flatten", axis=1),
        helper.make_node("Gemm", ["f", "dense", "bias3"], ["logits"], "dense_layer", transB=1),
        helper.make_node("Softmax", ["logits"], ["probabilities"], "softmax", axis=1),
    ]
    graph = helper.make_graph(
        nodes,
        "digits",
        [helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", CLASSES])],
        [numpy_helper.from_array(getattr(weights, field.name), field.name) for field in fields(weights)],
    )
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8, producer_name="tribunus-examples")
    onnx.checker.check_model(model, full_check=True)
    return model


def write_npz(path: Path, arrays: Mapping[str, NDArray[np.generic]]) -> None:
    """Like numpy.savez_compressed, without the time of writing in the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            member = BytesIO()
            np.lib.format.write_array(member, array, allow_pickle=False)
            entry = zipfile.ZipInfo(f"{name}.npy", (1980, 1, 1, 0, 0, 0))
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, member.getvalue())


def load_images() -> tuple[F32, I64]:
    """1797 images (N, 1, 8, 8) in multiples of 1/16, shuffled by the seed, and their labels."""
    from sklearn.datasets import load_digits

    bunch = load_digits()
    order = np.random.Generator(np.random.PCG64(SEED)).permutation(len(bunch.target))
    images = (bunch.images[order, None] / 16).astype(np.float32)
    return images, bunch.target[order].astype(np.int64)


def main(folder: Path) -> int:
    """Returns 1 if the network did not learn to read; nothing is written then."""
    images, labels = load_images()
    weights = train(images[HELD_OUT:], labels[HELD_OUT:])
    right = classify(weights, images[:HELD_OUT]).argmax(axis=1) == labels[:HELD_OUT]
    print(f"{right.mean():.2%} of {HELD_OUT} held-out digits read correctly")
    if right.mean() < REQUIRED_ACCURACY:
        print(f"less than the {REQUIRED_ACCURACY:.0%} that the example promises: nothing written", file=sys.stderr)
        return 1
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "digits.onnx").write_bytes(as_onnx(weights).SerializeToString(deterministic=True))
    write_npz(folder / "inputs" / "one.npz", {"image": images[:1]})
    write_npz(folder / "inputs" / "four.npz", {"image": images[1:5]})
    pixels = np.round(images[:HELD_OUT, 0] * 16).astype(np.uint8)
    write_npz(folder / "heldout.npz", {"pixels": pixels, "labels": labels[:HELD_OUT].astype(np.uint8)})
    print(f"wrote digits.onnx, inputs and heldout.npz to {folder}")
    return 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).resolve().parent))
