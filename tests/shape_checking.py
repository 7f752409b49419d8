"""The type checker behind PROPALL_CHECK_SHAPES=1: beartype, but for one annotation that it refuses.

Functions are checked one by one as modules are loaded, and `Self` has no meaning to beartype outside a class
that is checked as a whole. Where it occurs it is taken for Any; all shapes beside it are still checked.
"""

from collections.abc import Callable
from typing import Any, Self, TypeVar, get_args

from beartype import BeartypeConf, beartype

Checked = TypeVar("Checked", bound=Callable[..., Any])
#: A whole number is a float to everybody else, too.
_checked = beartype(conf=BeartypeConf(is_pep484_tower=True))


def check(function: Checked) -> Checked:
    """Check the arguments and the result of every call."""
    hints = getattr(function, "__annotations__", {})
    if any(_speaks_of_self(hint) for hint in hints.values()):
        function.__annotations__ = {k: Any if _speaks_of_self(v) else v for k, v in hints.items()}
    return _checked(function)


def _speaks_of_self(hint: Any) -> bool:
    # Modules with postponed annotations hold them as text.
    if isinstance(hint, str):
        return "Self" in hint
    return hint is Self or any(_speaks_of_self(part) for part in get_args(hint))
