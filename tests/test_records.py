"""Records behave as the standard library's frozen slotted dataclasses do."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest

from tribunus import records


@records.dataclass(frozen=True, slots=True)
class Ours:
    """A record."""

    one: int
    two: str = "two"
    three: tuple[int, ...] = ()


@dataclasses.dataclass(frozen=True, slots=True)
class Theirs:
    """Its twin."""

    one: int
    two: str = "two"
    three: tuple[int, ...] = ()


@records.dataclass(frozen=True, slots=True, kw_only=True, order=True)
class Keyed:
    """A record by keyword."""

    name: str
    size: int = 3


@records.dataclass(frozen=True, slots=True)
class Derived:
    """A record that checks itself and computes a field."""

    seed: bytes = records.field(repr=False)
    digest: str = records.field(init=False)

    def __post_init__(self) -> None:
        if not self.seed:
            raise ValueError("empty")
        object.__setattr__(self, "digest", self.seed.hex())


def _fresh() -> Callable[..., Any]:
    @records.dataclass(frozen=True, slots=True)
    class Fresh:
        """Another record of the same form, of which no instance was made."""

        one: int
        two: str = "two"
        three: tuple[int, ...] = ()

    return Fresh


CALLS: tuple[Callable[[Callable[..., object]], object], ...] = (
    lambda make: make(1),
    lambda make: make(1, "x"),
    lambda make: make(1, "x", (2,)),
    lambda make: make(one=1, three=(4,)),
    lambda make: make(1, three=(4,)),
)
WRONG: tuple[Callable[[Callable[..., object]], object], ...] = (
    lambda make: make(),
    lambda make: make(1, "x", (), 4),
    lambda make: make(1, one=2),
    lambda make: make(1, four=2),
    lambda make: make(two="x"),
)


@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize("made_before", [0, 500])
def test_instances_are_those_of_the_standard_library(
    call: Callable[[Callable[..., object]], object], made_before: int
) -> None:
    make = _fresh()
    for _ in range(made_before):
        make(0)
    ours, theirs = call(make), call(Theirs)
    assert [getattr(ours, n) for n in ("one", "two", "three")] == [getattr(theirs, n) for n in ("one", "two", "three")]
    assert repr(ours).partition("(")[2] == repr(theirs).partition("(")[2]
    assert hash(ours) == hash(theirs)
    for _ in range(made_before + 1):
        assert ours == call(make) and ours != theirs and hash(ours) == hash(call(make)) and ours != make(7)


@pytest.mark.parametrize("call", WRONG)
@pytest.mark.parametrize("made_before", [0, 500])
def test_wrong_arguments_are_refused_in_the_same_words(
    call: Callable[[Callable[..., object]], object], made_before: int
) -> None:
    make = _fresh()
    for _ in range(made_before):
        make(0)
    with pytest.raises(TypeError) as theirs:
        call(Theirs)
    with pytest.raises(TypeError) as ours:
        call(make)
    assert str(ours.value).partition("__init__")[2] == str(theirs.value).partition("__init__")[2]


def test_a_record_cannot_be_changed() -> None:
    record = Ours(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        record.one = 2  # type: ignore[misc]
    with pytest.raises(dataclasses.FrozenInstanceError):
        del record.one
    with pytest.raises(AttributeError):
        record.other = 2  # type: ignore[attr-defined]
    assert not hasattr(record, "__dict__")


def test_replace_fields_and_patterns_work() -> None:
    record = dataclasses.replace(Ours(1, three=(5,)), two="x")
    assert record == Ours(1, "x", (5,))
    assert [(f.name, f.type) for f in dataclasses.fields(Ours)] == [
        (f.name, f.type) for f in dataclasses.fields(Theirs)
    ]
    assert dataclasses.is_dataclass(Ours) and dataclasses.asdict(record) == {"one": 1, "two": "x", "three": (5,)}
    match record:
        case Ours(1, two):
            assert two == "x"
    assert dataclasses.replace(Derived(b"a"), seed=b"b").digest == "62"


def test_keyword_records_are_ordered_and_take_no_positions() -> None:
    assert Keyed(name="a", size=9) < Keyed(name="b") and Keyed(name="b", size=4) >= Keyed(name="b")
    assert sorted([Keyed(name="b"), Keyed(name="a")])[0].name == "a"
    with pytest.raises(TypeError):
        Keyed("a")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Ours(1) < Ours(2)  # type: ignore[operator]  # noqa: B015


def test_a_record_checks_itself_and_hides_what_is_not_to_be_shown() -> None:
    record = Derived(b"ab")
    assert record.digest == "6162" and repr(record) == "Derived(digest='6162')"
    with pytest.raises(ValueError, match="empty"):
        Derived(b"")
    with pytest.raises(TypeError):
        Derived(b"a", "62")  # type: ignore[call-arg]


def test_copies_and_pickles_are_equal() -> None:
    record = Derived(b"ab")
    again: object = pickle.loads(pickle.dumps(record))  # noqa: S301  (our own bytes)
    assert again == record == copy.deepcopy(record)


def test_threads_may_make_the_first_instances() -> None:
    make = _fresh()
    found: list[Any] = []
    threads = [threading.Thread(target=lambda: found.extend(make(n) for n in range(200))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(r.one for r in found) == sorted([*range(200)] * 4)


def test_records_of_no_field_and_of_many_are_made_too() -> None:
    @records.dataclass(frozen=True, slots=True)
    class Empty:
        """No field."""

    names = [f"field_{n}" for n in range(20)]
    base = type("Wide", (), {"__annotations__": dict.fromkeys(names, "int"), "field_19": 19})
    wide: Any = records.dataclass(frozen=True, slots=True)(base)
    assert Empty() == Empty()
    assert [getattr(wide(*range(19)), name) for name in names] == [*range(20)]
    assert wide(*range(19)) == wide(**{name: n for n, name in enumerate(names)})


def test_a_field_without_a_default_behind_one_with_a_default_is_refused() -> None:
    with pytest.raises(TypeError, match="default"):

        @records.dataclass(frozen=True, slots=True)
        class Wrong:
            """As the standard library does."""

            one: int = 1
            two: int  # type: ignore[misc]


def test_no_thawed_record_is_made() -> None:
    with pytest.raises(TypeError):

        @records.dataclass(frozen=False, slots=True)
        class Thawed:
            one: int
