"""Constructors of records, one for each number of fields; ``records`` renames their parameters to the fields.

Imported by: records.  Imports: nothing.

What stands here was compiled when this module was: to compile a constructor for each class would take longer than to
open a small image.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Setter = Callable[[object, object], None]


def _take_1(s0: Setter) -> Callable[..., None]:
    def __init__(self: object, a0: object) -> None:
        s0(self, a0)

    return __init__


def _take_2(s0: Setter, s1: Setter) -> Callable[..., None]:
    def __init__(self: object, a0: object, a1: object) -> None:
        s0(self, a0)
        s1(self, a1)

    return __init__


def _take_3(s0: Setter, s1: Setter, s2: Setter) -> Callable[..., None]:
    def __init__(self: object, a0: object, a1: object, a2: object) -> None:
        s0(self, a0)
        s1(self, a1)
        s2(self, a2)

    return __init__


def _take_4(s0: Setter, s1: Setter, s2: Setter, s3: Setter) -> Callable[..., None]:
    def __init__(self: object, a0: object, a1: object, a2: object, a3: object) -> None:
        s0(self, a0)
        s1(self, a1)
        s2(self, a2)
        s3(self, a3)

    return __init__


def _take_5(s0: Setter, s1: Setter, s2: Setter, s3: Setter, s4: Setter) -> Callable[..., None]:
    def __init__(self: object, a0: object, a1: object, a2: object, a3: object, a4: object) -> None:
        s0(self, a0)
        s1(self, a1)
        s2(self, a2)
        s3(self, a3)
        s4(self, a4)

    return __init__


def _take_6(s0: Setter, s1: Setter, s2: Setter, s3: Setter, s4: Setter, s5: Setter) -> Callable[..., None]:
    def __init__(self: object, a0: object, a1: object, a2: object, a3: object, a4: object, a5: object) -> None:
        s0(self, a0)
        s1(self, a1)
        s2(self, a2)
        s3(self, a3)
        s4(self, a4)
        s5(self, a5)

    return __init__


def _take_7(s0: Setter, s1: Setter, s2: Setter, s3: Setter, s4: Setter, s5: Setter, s6: Setter) -> Callable[..., None]:
    def __init__(
        self: object, a0: object, a1: object, a2: object, a3: object, a4: object, a5: object, a6: object
    ) -> None:
        s0(self, a0)
        s1(self, a1)
        s2(self, a2)
        s3(self, a3)
        s4(self, a4)
        s5(self, a5)
        s6(self, a6)

    return __init__


def _take_8(
    s0: Setter, s1: Setter, s2: Setter, s3: Setter, s4: Setter, s5: Setter, s6: Setter, s7: Setter
) -> Callable[..., None]:
    def __init__(
        self: object, a0: object, a1: object, a2: object, a3: object, a4: object, a5: object, a6: object, a7: object
    ) -> None:
        s0(self, a0)
        s1(self, a1)
        s2(self, a2)
        s3(self, a3)
        s4(self, a4)
        s5(self, a5)
        s6(self, a6)
        s7(self, a7)

    return __init__


def _take_9(
    s0: Setter, s1: Setter, s2: Setter, s3: Setter, s4: Setter, s5: Setter, s6: Setter, s7: Setter, s8: Setter
) -> Callable[..., None]:
    def __init__(
        self: object,
        a0: object,
        a1: object,
        a2: object,
        a3: object,
        a4: object,
        a5: object,
        a6: object,
        a7: object,
        a8: object,
    ) -> None:
        s0(self, a0)
        s1(self, a1)
        s2(self, a2)
        s3(self, a3)
        s4(self, a4)
        s5(self, a5)
        s6(self, a6)
        s7(self, a7)
        s8(self, a8)

    return __init__


def _take_10(
    s0: Setter,
    s1: Setter,
    s2: Setter,
    s3: Setter,
    s4: Setter,
    s5: Setter,
    s6: Setter,
    s7: Setter,
    s8: Setter,
    s9: Setter,
) -> Callable[..., None]:
    def __init__(
        self: object,
        a0: object,
        a1: object,
        a2: object,
        a3: object,
        a4: object,
        a5: object,
        a6: object,
        a7: object,
        a8: object,
        a9: object,
    ) -> None:
        s0(self, a0)
        s1(self, a1)
        s2(self, a2)
        s3(self, a3)
        s4(self, a4)
        s5(self, a5)
        s6(self, a6)
        s7(self, a7)
        s8(self, a8)
        s9(self, a9)

    return __init__


def _take_11(
    s0: Setter,
    s1: Setter,
    s2: Setter,
    s3: Setter,
    s4: Setter,
    s5: Setter,
    s6: Setter,
    s7: Setter,
    s8: Setter,
    s9: Setter,
    s10: Setter,
) -> Callable[..., None]:
    def __init__(
        self: object,
        a0: object,
        a1: object,
        a2: object,
        a3: object,
        a4: object,
        a5: object,
        a6: object,
        a7: object,
        a8: object,
        a9: object,
        a10: object,
    ) -> None:
        s0(self, a0)
        s1(self, a1)
        s2(self, a2)
        s3(self, a3)
        s4(self, a4)
        s5(self, a5)
        s6(self, a6)
        s7(self, a7)
        s8(self, a8)
        s9(self, a9)
        s10(self, a10)

    return __init__


def _take_12(
    s0: Setter,
    s1: Setter,
    s2: Setter,
    s3: Setter,
    s4: Setter,
    s5: Setter,
    s6: Setter,
    s7: Setter,
    s8: Setter,
    s9: Setter,
    s10: Setter,
    s11: Setter,
) -> Callable[..., None]:
    def __init__(
        self: object,
        a0: object,
        a1: object,
        a2: object,
        a3: object,
        a4: object,
        a5: object,
        a6: object,
        a7: object,
        a8: object,
        a9: object,
        a10: object,
        a11: object,
    ) -> None:
        s0(self, a0)
        s1(self, a1)
        s2(self, a2)
        s3(self, a3)
        s4(self, a4)
        s5(self, a5)
        s6(self, a6)
        s7(self, a7)
        s8(self, a8)
        s9(self, a9)
        s10(self, a10)
        s11(self, a11)

    return __init__


CONSTRUCTORS: Sequence[Callable[..., Callable[..., None]]] = (
    _take_1,
    _take_2,
    _take_3,
    _take_4,
    _take_5,
    _take_6,
    _take_7,
    _take_8,
    _take_9,
    _take_10,
    _take_11,
    _take_12,
)
"""Made with the setters of all fields in order; the first takes one field."""
