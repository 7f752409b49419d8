"""Hierarchies of labels: a label that has others below it stands for all the leaves there."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from propall.labels.parsing import (
    NEGATION,
    Marks,
    described,
    entries,
    is_collection,
    is_matrix,
    read_labels,
    read_sets,
    read_strings,
)
from propall.wording import class_hint, listed

#: What stands between the parts of a path.
PATH = "/"


class Tree(NamedTuple):
    """A hierarchy as what each label stands for.

    Attributes:
        leaves: the classes.
        nodes: every name a label may have: leaves, inner labels, and whole paths where the tree has paths.
        stands_for: (nodes, leaves), True on the leaves at or below a node.
    """

    leaves: tuple[Hashable, ...]
    nodes: tuple[Hashable, ...]
    stands_for: NDArray[np.bool_]


def read_tree(tree: Any) -> Tree:
    """A nested mapping, a list of edges (parent, child) or a list of paths `a/b/c`."""
    if isinstance(tree, Tree):
        return tree
    aliases: dict[Hashable, Hashable] = {}
    if isinstance(tree, Mapping):
        children: dict[Hashable, list[Hashable]] = {}
        _walk(tree, children)
    else:
        items = entries(tree, "tree")
        if not len(items):
            raise ValueError("tree: it is empty; give at least two labels.")
        if all(isinstance(item, str) for item in items):
            children, aliases = _from_paths([str(item) for item in items])
        elif all(is_collection(type(item)) and len(item) == 2 for item in items):
            children = {}
            for parent, child in items:
                _add(children, parent, child)
        else:
            raise TypeError(
                f"tree: {described(tree)} of {described(items[0])}; expected a nested mapping, a list of "
                "edges (parent, child) or a list of paths such as 'bird/gull'."
            )
    return _expanded(children, aliases)


def read_nodes(tree: Any, labels: Any, separator: str, parameter: str, *, blanks: bool = False) -> Marks:
    """What each row's names stand for among the leaves."""
    known = read_tree(tree)
    if is_matrix(labels):
        raise TypeError(
            f"{parameter}: {described(labels)}; expected one entry per row: a name, several in a string, or "
            "a set of names."
        )
    values = entries(labels, parameter)
    _refuse_unknown(values, separator, known, parameter)
    if any(is_collection(type(value)) for value in values):
        marks = read_sets(values, known.nodes, parameter, scalars_allowed=True, blanks=blanks)
    elif any(isinstance(value, str) for value in values):
        marks = read_strings(values, separator, known.nodes, parameter, blanks=blanks)
    else:
        marks = read_labels(values, known.nodes, parameter, blanks=blanks)
    named = marks.mask.numpy().astype(np.float32) @ known.stands_for.astype(np.float32)
    return Marks(torch.from_numpy(named > 0), known.leaves, marks.negated)


def _refuse_unknown(values: Any, separator: str, tree: Tree, parameter: str) -> None:
    # Before the general reader, whose answer would list every node as a class.
    known = set(tree.nodes)
    for row, value in enumerate(values):
        if isinstance(value, str):
            names: Iterable[Any] = (n.strip().removeprefix(NEGATION).strip() for n in value.split(separator))
            names = () if value in known else [name for name in names if name]
        else:
            names = value if isinstance(value, Set | Sequence) else ()
        for name in names:
            if name not in known:
                hint = class_hint(name, tuple(tree.nodes))
                raise ValueError(
                    f"{parameter}: row {row} names {name!r}, which is not in the tree{hint}. Add it to the "
                    "tree or correct the row."
                )


def _walk(branch: Any, children: dict[Hashable, list[Hashable]], parent: Hashable = None) -> None:
    if isinstance(branch, Mapping):
        for name, below in branch.items():
            if parent is not None:
                _add(children, parent, name)
            else:
                children.setdefault(name, [])
            _walk(below, children, name)
    elif isinstance(branch, Sequence | Set) and not isinstance(branch, str | bytes):
        for name in sorted(branch, key=repr) if isinstance(branch, Set) else branch:
            if isinstance(name, Mapping):
                _walk(name, children, parent)
            else:
                _add(children, parent, name)
    elif branch is not None:
        _add(children, parent, branch)


def _add(children: dict[Hashable, list[Hashable]], parent: Hashable, child: Hashable) -> None:
    for name in (parent, child):
        if name is None or name == "":
            raise ValueError(f"tree: {(parent, child)!r} has a nameless end; name both.")
        children.setdefault(name, [])
    if child not in children[parent]:
        children[parent].append(child)


def _from_paths(
    paths: Sequence[str],
) -> tuple[dict[Hashable, list[Hashable]], dict[Hashable, Hashable]]:
    """Edges between whole paths, then under the last part of each where no other path ends in it."""
    children: dict[Hashable, list[Hashable]] = {}
    for path in paths:
        parts = [part.strip() for part in path.strip().strip(PATH).split(PATH)]
        if not all(parts):
            raise ValueError(f"tree: the path {path!r} has a part without a name.")
        whole = [PATH.join(parts[: depth + 1]) for depth in range(len(parts))]
        children.setdefault(whole[0], [])
        for parent, child in pairwise(whole):
            _add(children, parent, child)
    ends = Counter(str(path).rpartition(PATH)[2] for path in children)
    short: dict[Hashable, Hashable] = {}
    for whole_path in children:
        last = str(whole_path).rpartition(PATH)[2]
        short[whole_path] = last if ends[last] == 1 else whole_path
    renamed = {short[parent]: [short[child] for child in below] for parent, below in children.items()}
    return renamed, {path: name for path, name in short.items() if path != name}


def _expanded(children: dict[Hashable, list[Hashable]], aliases: Mapping[Hashable, Hashable]) -> Tree:
    leaves = tuple(_in_order(children))
    if len(leaves) < 2:
        raise ValueError(f"tree: {listed(leaves) or 'no leaf'}; a classifier needs two or more leaves.")
    column = {leaf: i for i, leaf in enumerate(leaves)}
    below: dict[Hashable, NDArray[np.bool_]] = {}

    def reach(node: Hashable, above: tuple[Hashable, ...]) -> NDArray[np.bool_]:
        if node in above:
            circle = " > ".join(map(str, (*above[above.index(node) :], node)))
            raise ValueError(f"tree: {circle} goes in a circle; a label cannot stand below itself.")
        if node not in below:
            row = np.zeros(len(leaves), dtype=bool)
            if node in column:
                row[column[node]] = True
            for child in children[node]:
                row |= reach(child, (*above, node))
            below[node] = row
        return below[node]

    nodes = [*children, *aliases]
    rows = [reach(aliases.get(node, node), ()) for node in nodes]
    return Tree(leaves, tuple(nodes), np.stack(rows))


def _in_order(children: dict[Hashable, list[Hashable]]) -> list[Hashable]:
    """The leaves as a reader of the tree meets them."""
    under = {child for below in children.values() for child in below}
    roots = [node for node in children if node not in under]
    if not roots:
        some = next(iter(children), None)
        raise ValueError(f"tree: every label stands below another, {some!r} for one; it goes in a circle.")
    found: dict[Hashable, None] = {}
    seen: set[Hashable] = set()
    waiting = roots[::-1]
    while waiting:
        node = waiting.pop()
        if node not in seen:
            seen.add(node)
            if not children[node]:
                found[node] = None
            waiting += children[node][::-1]
    return list(found)
