"""Registries that map names to classes, and checks that settings dataclasses share."""

import dataclasses
import functools
from collections.abc import Iterable
from numbers import Integral
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from propall.wording import did_you_mean

Named = TypeVar("Named")


class UnknownNameError(KeyError, ValueError):
    """A name that is not in a registry."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would quote the message


class Registry(dict[str, Named]):
    """A dictionary of named things that suggests similar names when one is unknown.

    Args:
        kind: what the names stand for ("method", "data set"), for error messages.
        items: pairs of name and thing; names must be unique.
    """

    def __init__(self, kind: str, items: Iterable[tuple[str, Named]]) -> None:
        super().__init__()
        self.kind = kind
        for name, item in items:
            if name in self:
                raise ValueError(f"{kind}: the name {name!r} is used twice")
            self[name] = item

    def __missing__(self, name: str) -> Named:
        similar = did_you_mean(str(name).lower().replace("-", "_"), self)
        hint = similar or f"expected one of {', '.join(self)}."
        raise UnknownNameError(f"{self.kind}: unknown name {name!r}; {hint}")


def by_name(kind: str, *items: Any) -> Registry[Any]:
    """Return a registry of things under their `name` attributes, which must be unique."""
    return Registry(kind, ((item.name, item) for item in items))


def check_choices(settings: Any) -> None:
    """Raise ValueError if a dataclass field annotated with `Literal` holds a value it does not list."""
    settings_class: Any = type(settings)
    for name, choices in _literal_fields(settings_class).items():
        value = getattr(settings, name)
        if value not in choices:
            raise ValueError(f"{name}: got {value!r}; expected {' or '.join(map(repr, choices))}.")


def check_integers(settings: Any, **minima: int) -> None:
    """Raise ValueError unless each named attribute is an integer of at least the given minimum."""
    for name, minimum in minima.items():
        value = getattr(settings, name)
        if not isinstance(value, Integral) or value < minimum:
            raise ValueError(f"{name}: got {value!r}; expected an integer of at least {minimum}.")


@functools.cache
def _literal_fields(settings_class: Any) -> dict[str, tuple[Any, ...]]:
    try:
        hints = get_type_hints(settings_class)
    except NameError:  # a user's class whose annotations are strings that do not resolve
        return {}
    choices = {}
    for field in dataclasses.fields(settings_class):
        hint = hints[field.name]
        parts = get_args(hint) if get_origin(hint) in (Union, UnionType) else (hint,)
        if all(get_origin(part) is Literal or part is NoneType for part in parts):
            choices[field.name] = tuple(value for part in parts for value in get_args(part) or (None,))
    return choices
