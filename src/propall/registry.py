"""Names to things, so that a word on the command line finds its class, and words that settings take."""

import dataclasses
import functools
from collections.abc import Iterable
from difflib import get_close_matches
from numbers import Integral
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

Named = TypeVar("Named")


class UnknownNameError(KeyError, ValueError):
    """A name that no registry entry has."""

    def __str__(self) -> str:
        return str(self.args[0])


class Registry(dict[str, Named]):
    """Names to things; an unknown name is answered with the near ones."""

    def __init__(self, what: str, items: Iterable[tuple[str, Named]]) -> None:
        super().__init__()
        self.what = what
        for name, item in items:
            if name in self:
                raise ValueError(f"{what}: the name {name!r} is used twice")
            self[name] = item

    def __missing__(self, name: str) -> Named:
        near = get_close_matches(str(name).lower().replace("-", "_"), self, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(self)}."
        raise UnknownNameError(f"{self.what}: {name!r} is not known; {hint}")


def by_name(what: str, *classes: Any) -> Registry[Any]:
    """A registry of classes under their own `name`; a repeat is refused."""
    return Registry(what, ((cls.name, cls) for cls in classes))


def check_choices(settings: Any) -> None:
    """Refuse a dataclass that has, where its annotation lists the choices, something else."""
    kind: Any = type(settings)
    for name, allowed in _choices(kind).items():
        value = getattr(settings, name)
        if value not in allowed:
            expected = " or ".join(map(repr, allowed))
            raise ValueError(f"{name}: {value!r} given; expected {expected}.")


def check_whole(settings: Any, **least: int) -> None:
    """Refuse settings where one that is named here is not a whole number, or below what is given here."""
    for name, smallest in least.items():
        value = getattr(settings, name)
        if not isinstance(value, Integral) or value < smallest:
            raise ValueError(f"{name}: {value!r} given; a whole number of at least {smallest} is needed.")


@functools.cache
def _choices(kind: Any) -> dict[str, tuple[Any, ...]]:
    try:
        hints = get_type_hints(kind)
    except NameError:  # somebody's own class, with annotations that are words only
        return {}
    found = {}
    for field in dataclasses.fields(kind):
        hint = hints[field.name]
        parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        if all(get_origin(part) is Literal or part is NoneType for part in parts):
            found[field.name] = tuple(value for part in parts for value in get_args(part) or (None,))
    return found
