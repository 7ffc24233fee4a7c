"""Frozen slotted dataclasses that cost little to define, for the modules that opening an image loads.

Imported by: every room that the runtime loads.  Imports: constructors.

The standard decorator compiles up to seven methods for each class when its module is imported, which costs more than
opening a small image.  This one compiles nothing then: a constructor is a renamed copy of one that was compiled before,
other methods are closures over the names of the fields, and a class of which many instances are compared gets compiled
comparisons.  Type checkers see the standard decorator, and ``dataclasses.replace`` and ``dataclasses.fields`` work:
their table is made when it is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass, field
else:
    from operator import attrgetter

    from tribunus.constructors import CONSTRUCTORS

    COMPARISONS_BEFORE_COMPILING = 400

    class field:
        """A field outside the constructor (``init=False``) or not shown (``repr=False``)."""

        __slots__ = ("init", "repr")

        def __init__(self, *, init=True, repr=True):
            self.init = init
            self.repr = repr

    def dataclass(*, frozen, slots, kw_only=False, order=False, eq=True):
        """Make the decorated class a frozen slotted dataclass.  Fields of a base class are not inherited."""
        if not (frozen and slots):
            raise TypeError("a record is frozen and has slots")

        def make(cls):
            members = dict(cls.__dict__)
            members.pop("__dict__", None)
            members.pop("__weakref__", None)
            names = tuple(members.get("__annotations__", ()))
            stated = {name: members.pop(name) for name in names if name in members}
            special = {name: value for name, value in stated.items() if type(value) is field}
            taken = shown = names
            if special:
                taken = tuple(name for name in names if name not in special or special[name].init)
                shown = tuple(name for name in names if name not in special or special[name].repr)
            defaults = {name: value for name, value in stated.items() if name not in special}
            shape = _Shape(names, defaults, taken, shown, kw_only, "__post_init__" in members)
            members |= {
                "__slots__": names,
                "__match_args__": () if kw_only else shape.taken,
                "__record__": shape,
            }
            base = _OrderedRecord if order else _EqualRecord if eq else _Record
            bases = (*[other for other in cls.__bases__ if other is not object], base)
            made = type(cls)(cls.__name__, bases, members)
            made.__qualname__ = cls.__qualname__
            shape.owner = made
            made.__init__ = _init_of(made, shape)
            return made

        return make

    class _Shape:
        """What a record's methods are made from."""

        __slots__ = (
            "comparisons",
            "defaults",
            "has_post_init",
            "key",
            "kw_only",
            "names",
            "owner",
            "shown",
            "taken",
        )

        def __init__(self, names, defaults, taken, shown, kw_only, has_post_init):
            self.names = names
            self.defaults = defaults
            self.taken = taken
            self.shown = shown
            self.kw_only = kw_only
            self.has_post_init = has_post_init
            self.comparisons = 0
            self.key = attrgetter(*names) if len(names) > 1 else lambda record: [getattr(record, n) for n in names]
            self.owner = None

    class _FieldTable:
        """Fields as the standard library describes them, taken from a twin that it makes itself."""

        __slots__ = ()

        def __get__(self, instance, owner):
            import dataclasses

            shape, annotations = owner.__record__, owner.__annotations__
            stated = []
            for name in shape.names:
                described = dataclasses.field(init=name in shape.taken, repr=name in shape.shown)
                stated.append((name, annotations[name], shape.defaults.get(name, described)))
            twin = dataclasses.make_dataclass(owner.__name__, stated, frozen=True, kw_only=shape.kw_only)
            owner.__dataclass_fields__ = twin.__dataclass_fields__
            return owner.__dataclass_fields__

    class _Record:
        """What all records do alike, by the shape of their class."""

        __slots__ = ()
        __dataclass_fields__ = _FieldTable()

        def __repr__(self):
            shown = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__record__.shown)
            return f"{type(self).__qualname__}({shown})"

        def __setattr__(self, name, value):
            from dataclasses import FrozenInstanceError

            raise FrozenInstanceError(f"cannot assign to field {name!r}")

        def __delattr__(self, name):
            from dataclasses import FrozenInstanceError

            raise FrozenInstanceError(f"cannot delete field {name!r}")

        def __getstate__(self):
            return [getattr(self, name) for name in self.__record__.names]

        def __setstate__(self, state):
            for name, value in zip(self.__record__.names, state, strict=True):
                object.__setattr__(self, name, value)

    class _EqualRecord(_Record):
        """Records of one class are equal if their fields are."""

        __slots__ = ()

        def __eq__(self, other):
            key = _counted_key(self.__record__)
            return key(self) == key(other) if other.__class__ is self.__class__ else NotImplemented

        def __hash__(self):
            key = _counted_key(self.__record__)
            return hash(tuple(key(self)))

    class _OrderedRecord(_EqualRecord):
        """Records of one class are ordered as their fields are."""

        __slots__ = ()

        def __lt__(self, other):
            key = self.__record__.key
            return key(self) < key(other) if other.__class__ is self.__class__ else NotImplemented

        def __le__(self, other):
            key = self.__record__.key
            return key(self) <= key(other) if other.__class__ is self.__class__ else NotImplemented

        def __gt__(self, other):
            key = self.__record__.key
            return key(self) > key(other) if other.__class__ is self.__class__ else NotImplemented

        def __ge__(self, other):
            key = self.__record__.key
            return key(self) >= key(other) if other.__class__ is self.__class__ else NotImplemented

    def _counted_key(shape):
        """The fields as one value, of a class that gets comparisons of its own once many were made."""
        shape.comparisons += 1
        if shape.comparisons > COMPARISONS_BEFORE_COMPILING:
            _compile_equality(shape)
        return shape.key

    def _init_of(owner, shape):
        """A constructor with the fields as its parameters: a copy of one that is compiled already, renamed."""
        setters = [owner.__dict__[name].__set__ for name in shape.taken]
        if not 0 < len(setters) <= len(CONSTRUCTORS):
            return _compiled_init(owner, shape, setters)
        fill = CONSTRUCTORS[len(setters) - 1](*setters)
        names = ("self", *shape.taken)
        if shape.kw_only:
            fill.__code__ = fill.__code__.replace(co_varnames=names, co_argcount=1, co_kwonlyargcount=len(setters))
            fill.__kwdefaults__ = shape.defaults
        else:
            optional = [name for name in shape.taken if name in shape.defaults]
            if optional != list(shape.taken[len(shape.taken) - len(optional) :]):
                raise TypeError(f"{owner.__qualname__}: a field without a default follows one with a default")
            fill.__code__ = fill.__code__.replace(co_varnames=names)
            fill.__defaults__ = tuple(shape.defaults[name] for name in optional)
        fill.__qualname__ = f"{owner.__qualname__}.__init__"
        return _checked(fill) if shape.has_post_init else fill

    def _checked(fill):
        def __init__(self, *args, **keywords):
            fill(self, *args, **keywords)
            self.__post_init__()

        return __init__

    def _compiled_init(owner, shape, setters):
        values = {f"set_{name}": set_field for name, set_field in zip(shape.taken, setters, strict=True)}
        values |= {f"default_{name}": value for name, value in shape.defaults.items()}
        parameters = [f"{name}=default_{name}" if name in shape.defaults else name for name in shape.taken]
        star = ["*"] if shape.kw_only and parameters else []
        body = [f"set_{name}(self, {name})" for name in shape.taken]
        text = f"def __init__({', '.join(['self', *star, *parameters])}):\n " + "\n ".join(body or ["pass"])
        _install(owner, text, values)
        fill = owner.__dict__["__init__"]
        return _checked(fill) if shape.has_post_init else fill

    def _install(owner, text, values):
        made = {}
        exec(text, {"__name__": owner.__module__, **values}, made)  # noqa: S102  (names of fields and nothing else)
        for name, function in made.items():
            function.__qualname__ = f"{owner.__qualname__}.{name}"
            setattr(owner, name, function)

    def _compile_equality(shape):
        left, right = (f"({''.join(f'{side}.{name}, ' for name in shape.names)})" for side in ("self", "other"))
        text = (
            "def __eq__(self, other):\n if other.__class__ is not self.__class__:\n  return NotImplemented\n"
            f" return {left} == {right}\n"
            f"def __hash__(self):\n return hash({left})"
        )
        _install(shape.owner, text, {})


__all__ = ["dataclass", "field"]
