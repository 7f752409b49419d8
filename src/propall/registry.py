"""Names to things, so that a word on the command line finds its class."""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any, TypeVar

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
