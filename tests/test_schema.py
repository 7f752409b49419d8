"""Checking JSON values against types."""

import json
from typing import Annotated, Any, Literal, NotRequired, TypedDict

import pytest
from hypothesis import given
from hypothesis import strategies as st

from propall.schema import Between, check_fields, check_json


class Member(TypedDict):
    kind: Literal["net", "linear"]
    sizes: list[Annotated[int, Between(1, 10)]]
    note: NotRequired[str | None]


ACCEPTED: list[tuple[Any, Any]] = [
    (1, int),
    (1, float),
    (1.5, float),
    (None, str | None),
    ("a", str | None),
    ([1, 2], tuple[int, ...]),
    ([1, "a"], tuple[int, str]),
    ({"a": [1]}, dict[str, list[int]]),
    ({"kind": "net", "sizes": [3]}, Member),
    ({"kind": "net", "sizes": [], "note": None, "other": object}, Member),
    ({"anything": object}, Any),
]
REFUSED: list[tuple[Any, Any, str]] = [
    (True, int, "the value is True; expected an integer"),
    (True, float, "expected a number"),
    (float("nan"), float, "expected a number"),
    (float("inf"), float, "expected a number"),
    (10**400, float, "expected a number"),
    (10**30, int, "expected an integer"),
    ("\ud800", str, "expected text"),
    ("a", Literal["b"], "expected 'b'"),
    (1, Literal[True], "expected True"),
    ([1, 2, 3], tuple[int, str], "expected a list of length 2"),
    ({"a": [1, None]}, dict[str, list[int]], r"a\[1\] is None; expected an integer"),
    ({"kind": "net"}, Member, "sizes is missing"),
    ({"kind": "net", "sizes": [0]}, Member, r"sizes\[0\] is 0; expected an integer from 1 to 10"),
    ({"kind": "x", "sizes": []}, Member, "kind is 'x'; expected 'net' or 'linear'"),
    ({"kind": "net", "sizes": [], "note": 3}, Member, "note is 3; expected text or null"),
    ([], Member, "expected an object"),
]


@pytest.mark.parametrize(("value", "expected"), ACCEPTED)
def test_values_of_the_type_are_accepted(value: Any, expected: Any) -> None:
    check_json(value, expected, "file")


@pytest.mark.parametrize(("value", "expected", "message"), REFUSED)
def test_others_are_refused_by_place_and_type(value: Any, expected: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        check_json(value, expected, "file")
    assert str(caught.value).startswith("file: ")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(json_values)
def test_any_value_is_accepted_or_refused_with_a_message(value: Any) -> None:
    for expected in (int, float, str, bool, None, list[int], dict[str, float], Member, int | list[str]):
        try:
            check_json(value, expected, "file")
        except ValueError as error:
            assert str(error).startswith("file: ")  # noqa: PT017  (most values are refused)
        else:
            json.dumps(value)


def test_fields_of_a_class() -> None:
    class Settings:
        rate: float
        widths: tuple[int, ...] | None

    check_fields({"rate": 1, "widths": [2]}, Settings, "method")
    with pytest.raises(ValueError, match="method rate: the value is 'x'; expected a number"):
        check_fields({"rate": "x"}, Settings, "method")
    with pytest.raises(ValueError, match="method: unknown entry 'speed'; expected 'rate'"):
        check_fields({"speed": 1}, Settings, "method")
