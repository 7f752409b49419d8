"""Check JSON values against Python types before anything is built from them."""

import math
import reprlib
import types
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from propall.wording import join_names, list_names

_JSON_NAMES = {str: "text", int: "an integer", float: "a number", bool: "true or false", type(None): "null"}


@dataclass(frozen=True)
class Between:
    """Bounds of a number, for `Annotated[int, Between(1, 100)]`."""

    low: float
    high: float

    def __str__(self) -> str:
        return f"from {self.low:g} to {self.high:g}"


class _Mismatch(Exception):
    """Where a value differs from its type: the path to it, what it is, and what was expected."""


def check_json(value: Any, expected: Any, what: str) -> None:
    """Raise ValueError unless a JSON value has the expected type.

    Understands the JSON types, `None`, `Any`, `Literal`, unions, `list`, `tuple` and `Sequence`, `dict` and
    `Mapping` with text keys, `TypedDict` (other keys are allowed) and `Annotated` with `Between`. An integer
    is a number; true and false are not. NaN and infinity are not JSON.

    Args:
        value: what `json.loads` returned.
        expected: the type.
        what: what the value is, for the message, such as "model.json".

    Examples:
        >>> check_json({"rows": [1, "2"]}, dict[str, list[int]], "header")
        Traceback (most recent call last):
            ...
        ValueError: header: rows[1] is '2'; expected an integer.
    """
    try:
        _check(value, expected, "")
    except _Mismatch as mismatch:
        raise ValueError(f"{what}: {mismatch}.") from None


def check_fields(values: Mapping[str, Any], settings: Any, what: str) -> None:
    """Raise ValueError unless every value is a field of a dataclass, or a parameter of a class, of its type.

    Types that JSON has no value for, such as a function, are not checked.
    """
    hints = get_type_hints(settings)
    unknown = [name for name in values if name not in hints]
    if unknown:
        raise ValueError(f"{what}: unknown entry {unknown[0]!r}; expected {list_names(list(hints), 20)}.")
    for name, value in values.items():
        check_json(value, hints[name], f"{what} {name}")


def _check(value: Any, expected: Any, path: str) -> None:
    origin, arguments = get_origin(expected), get_args(expected)
    if origin is Annotated:
        _check(value, arguments[0], path)
        for bounds in arguments[1:]:
            if isinstance(bounds, Between) and not bounds.low <= value <= bounds.high:
                raise _mismatch(path, value, f"{_described(arguments[0])} {bounds}")
    elif origin in (Union, types.UnionType):
        if not any(_fits(value, choice, path) for choice in arguments):
            raise _mismatch(path, value, _described(expected))
    elif origin is Literal:
        if not any(value == choice and type(value) is type(choice) for choice in arguments):
            raise _mismatch(path, value, _described(expected))
    elif is_typeddict(expected):
        _check_object(value, expected, path)
    elif origin in (list, tuple, Sequence) or expected in (list, tuple):
        _check_array(value, expected, origin, arguments, path)
    elif origin in (dict, Mapping) or expected is dict:
        _require(isinstance(value, dict), value, expected, path)
        for key, part in value.items():
            _check(part, arguments[1] if arguments else Any, _inside(path, key))
    elif expected in _JSON_NAMES or expected is None:
        _check_scalar(value, type(None) if expected is None else expected, path)


def _check_object(value: Any, expected: Any, path: str) -> None:
    _require(isinstance(value, dict), value, expected, path)
    for name, hint in get_type_hints(expected, include_extras=True).items():
        optional = get_origin(hint) is NotRequired
        if name not in value:
            if optional or name in expected.__optional_keys__:
                continue
            raise _Mismatch(f"{_inside(path, name)} is missing")
        _check(value[name], get_args(hint)[0] if optional else hint, _inside(path, name))


def _check_array(value: Any, expected: Any, origin: Any, arguments: tuple[Any, ...], path: str) -> None:
    _require(isinstance(value, (list, tuple)), value, expected, path)
    fixed = origin is tuple and Ellipsis not in arguments
    if fixed and len(value) != len(arguments):
        raise _mismatch(path, value, f"a list of length {len(arguments)}")
    for i, part in enumerate(value):
        part_type = (arguments[i] if fixed else arguments[0]) if arguments else Any
        _check(part, part_type, f"{path}[{i}]")


def _check_scalar(value: Any, expected: Any, path: str) -> None:
    if expected is float:
        number = isinstance(value, (int, float)) and not isinstance(value, bool)
        # An integer beyond the range of float is a number in JSON, but nothing can compute with it.
        _require(number and abs(value) < 1e308 and not math.isnan(value), value, expected, path)
    elif expected is int:
        integer = isinstance(value, int) and not isinstance(value, bool)
        _require(integer and abs(value) < 2**63, value, expected, path)
    elif expected is str:
        # A lone surrogate can be neither printed nor written.
        _require(isinstance(value, str) and not _has_surrogate(value), value, expected, path)
    else:
        _require(isinstance(value, expected), value, expected, path)


def _has_surrogate(text: str) -> bool:
    return any("\ud800" <= character <= "\udfff" for character in text)


def _fits(value: Any, expected: Any, path: str) -> bool:
    try:
        _check(value, expected, path)
    except _Mismatch:
        return False
    # A type without a JSON value, such as a function, is not what a file holds.
    return _is_json_type(expected)


def _is_json_type(expected: Any) -> bool:
    origin = get_origin(expected)
    known = (list, tuple, Sequence, dict, Mapping, Literal, Annotated, Union, types.UnionType)
    return (
        expected in (Any, list, tuple, dict, None, *_JSON_NAMES) or origin in known or is_typeddict(expected)
    )


def _require(condition: bool, value: Any, expected: Any, path: str) -> None:
    if not condition:
        raise _mismatch(path, value, _described(expected))


def _mismatch(path: str, value: Any, expected: str) -> _Mismatch:
    return _Mismatch(f"{path or 'the value'} is {reprlib.repr(value)}; expected {expected}")


def _inside(path: str, key: Any) -> str:
    return f"{path}.{key}" if path else str(key)


def _described(expected: Any) -> str:
    origin, arguments = get_origin(expected), get_args(expected)
    if origin is Annotated:
        return " ".join([_described(arguments[0]), *map(str, arguments[1:])])
    if origin in (Union, types.UnionType):
        return " or ".join(_described(part) for part in arguments if _is_json_type(part))
    if origin is Literal:
        return join_names([repr(choice) for choice in arguments]).replace(" and ", " or ")
    if origin in (dict, Mapping) or expected is dict or is_typeddict(expected):
        return "an object"
    return _JSON_NAMES.get(expected, "a list")
