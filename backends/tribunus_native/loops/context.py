"""What a stage may ask of the group it belongs to.

Imported by: lower and the stages.  Imports: frame.
"""

from __future__ import annotations

from typing import Protocol

from tribunus.candidates.model import Signature
from tribunus.phaseir.layouts import Layout
from tribunus.phaseir.types import TensorType
from tribunus_native.loops.frame import Frame, Tensor


class Group(Protocol):
    """A group that is being lowered.  Values are ids of the signature.

    frame: where text goes.  unroll: vectors a turn.  outputs: values that leave the group.
    """

    signature: Signature
    frame: Frame
    unroll: int
    outputs: tuple[int, ...]

    def type_of(self, value: int) -> TensorType:
        """Type of a value."""
        ...

    def tensor(self, value: int) -> Tensor:
        """A value in memory; a weight is packed row-major."""
        ...

    def weight(self, value: int, layout: Layout) -> Tensor:
        """A weight packed in a layout that only permutes."""
        ...

    def is_weight(self, value: int) -> bool:
        """Whether the bytes of a value are the model's."""
        ...

    def layout_for(self, rank: int) -> Layout:
        """Layout of a temporary."""
        ...

    def result(self, value: int) -> Tensor:
        """Memory for a result."""
        ...

    def define(self, value: int, tensor: Tensor) -> None:
        """A value that is a view of other memory."""
        ...
