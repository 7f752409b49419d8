"""Label hierarchies, in which an inner label stands for all leaves below it."""

from collections import Counter
from collections.abc import Hashable, Mapping, Sequence, Set
from graphlib import CycleError, TopologicalSorter
from itertools import chain, pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray

from propall.labels.inputs import describe_type, is_collection, is_hashable, is_matrix, row_entries
from propall.labels.parsing import CellGrammar, ParsedLabels, read_labels, read_sets, read_strings
from propall.wording import class_hint, list_names

#: Separator of the parts of a path.
PATH = "/"
#: Largest size of the matrix of labels and leaves.
MAX_ENTRIES = 1 << 30

#: The labels directly below each label, in order.
_Children: TypeAlias = dict[Hashable, dict[Hashable, None]]


class Tree(NamedTuple):
    """A label hierarchy.

    Examples:
        >>> tree = read_tree({"bird": ["gull", "tern"], "cat": []})
        >>> tree.leaves, tree.nodes
        (('gull', 'tern', 'cat'), ('bird', 'gull', 'tern', 'cat'))
    """

    leaves: tuple[Hashable, ...]  # the classes
    nodes: tuple[Hashable, ...]  # leaves, inner labels, and whole paths if the tree has paths
    stands_for: NDArray[np.bool_]  # (nodes, leaves), True for the leaves at or below a node


def read_tree(tree: Any) -> Tree:
    """Read a nested mapping, a list of edges (parent, child) or a list of paths `a/b/c`.

    Examples:
        >>> read_tree([("bird", "gull"), ("bird", "tern")]).leaves
        ('gull', 'tern')
    """
    if isinstance(tree, Tree):
        return tree
    children: _Children = {}
    if isinstance(tree, Mapping):
        _walk(tree, children)
        return _expand(children, {})
    items = row_entries(tree, "tree")
    if not len(items):
        raise ValueError("tree: it is empty; expected at least two labels.")
    if all(isinstance(item, str) for item in items):
        return _expand(*_from_paths(list(items)))
    if not all(is_collection(type(item)) and len(item) == 2 for item in items):
        raise TypeError(
            f"tree: got {describe_type(tree)} of {describe_type(items[0])}; expected a nested mapping, a "
            "list of edges (parent, child) or a list of paths such as 'bird/gull'."
        )
    for parent, child in items:
        _add(children, parent, child)
    return _expand(children, {})


def read_nodes(
    tree: Any, labels: Any, separator: str, parameter: str, *, allow_blank: bool = False
) -> ParsedLabels:
    """Read labels that name nodes of a tree, as the leaves they stand for."""
    known = read_tree(tree)
    if is_matrix(labels):
        raise TypeError(
            f"{parameter}: got {describe_type(labels)}; expected one entry per row: a name, a string of "
            "several, or a set of names."
        )
    values = row_entries(labels, parameter)
    _reject_unknown(values, separator, known, parameter)
    if any(is_collection(type(value)) for value in values):
        parsed = read_sets(values, known.nodes, parameter, allow_scalars=True, allow_blank=allow_blank)
    elif any(isinstance(value, str) for value in values):
        parsed = read_strings(values, separator, known.nodes, parameter, allow_blank=allow_blank)
    else:
        parsed = read_labels(values, known.nodes, parameter, allow_blank=allow_blank)
    leaf_counts = parsed.mask.numpy().astype(np.float32) @ known.stands_for.astype(np.float32)
    return ParsedLabels(torch.from_numpy(leaf_counts > 0), known.leaves, parsed.negated)


def _reject_unknown(values: Any, separator: str, tree: Tree, parameter: str) -> None:
    # Checked before the general readers, whose errors would list every node as a class.
    grammar = CellGrammar(separator, known=frozenset(tree.nodes))
    for row, value in enumerate(values):
        if isinstance(value, str):
            names: Any = filter(None, grammar.parse(value).names)
        else:
            names = value if isinstance(value, Set | Sequence) else ()
        for name in names:
            if name not in grammar.known:
                hint = class_hint(name, tree.nodes)
                raise ValueError(
                    f"{parameter}: {name!r} in row {row} is not in the tree{hint}. Add it to the tree or "
                    "correct the row."
                )


def _walk(tree: Mapping[Any, Any], children: _Children) -> None:
    """Add the edges of a nested mapping in the order in which it is written, at any depth."""
    branches: list[tuple[Any, Any]] = [(tree, None)]
    while branches:
        branch, parent = branches.pop()
        below: list[tuple[Any, Any]] = []
        if isinstance(branch, _Named):
            if parent is None:
                children.setdefault(branch.name, {})
            else:
                _add(children, parent, branch.name)
            below = [(branch.below, branch.name)]
        elif isinstance(branch, Mapping):
            below = [(_Named(name, names), parent) for name, names in branch.items()]
        elif is_collection(type(branch)):
            names = sorted(branch, key=repr) if isinstance(branch, Set) else branch
            below = [(name if isinstance(name, Mapping) else _Named(name, None), parent) for name in names]
        elif branch is not None:
            _add(children, parent, branch)
        branches += reversed(below)


class _Named(NamedTuple):
    """A label and what is below it."""

    name: Any
    below: Any


def _add(children: _Children, parent: Any, child: Any) -> None:
    for name in (parent, child):
        if not is_hashable(name):
            raise ValueError(
                f"tree: {name!r:.80} below {parent!r:.80} is not a label; expected a name. Write nested "
                "labels as a mapping from a name to those below it."
            )
        if name is None or name == "":
            raise ValueError(f"tree: the edge {(parent, child)!r:.80} has an unnamed end; name both.")
        children.setdefault(name, {})
    children[parent].setdefault(child)


def _from_paths(paths: Sequence[str]) -> tuple[_Children, dict[Hashable, Hashable]]:
    """Build the edges between paths, each named by its last part if no other path ends in it."""
    children: _Children = {}
    for path in paths:
        parts = [part.strip() for part in path.strip().strip(PATH).split(PATH)]
        if not all(parts):
            raise ValueError(f"tree: the path {path!r} has an empty part.")
        whole = [PATH.join(parts[: depth + 1]) for depth in range(len(parts))]
        children.setdefault(whole[0], {})
        for parent, child in pairwise(whole):
            _add(children, parent, child)
    last_part = {path: str(path).rpartition(PATH)[2] for path in children}
    count = Counter(last_part.values())
    short = {path: last if count[last] == 1 else path for path, last in last_part.items()}
    renamed = {
        short[parent]: dict.fromkeys(short[child] for child in below) for parent, below in children.items()
    }
    return renamed, {path: name for path, name in short.items() if path != name}


def _expand(children: _Children, aliases: Mapping[Hashable, Hashable]) -> Tree:
    try:
        leaves_first = list(TopologicalSorter(children).static_order())
    except CycleError as error:
        cycle = " > ".join(map(str, reversed(error.args[1])))
        raise ValueError(f"tree: {cycle} is a cycle; a label cannot be below itself.") from None
    below: dict[Hashable, list[Hashable]] = {}
    for node in leaves_first:
        reached = chain.from_iterable(below[child] for child in children[node])
        below[node] = list(dict.fromkeys(reached)) or [node]
    lower = set(chain.from_iterable(children.values()))
    roots = [node for node in children if node not in lower]
    leaves = tuple(dict.fromkeys(chain.from_iterable(below[root] for root in roots)))
    if len(leaves) < 2:
        raise ValueError(
            f"tree: got {list_names(leaves) or 'no leaf'}; a classifier needs at least two leaves."
        )
    column = {leaf: i for i, leaf in enumerate(leaves)}
    nodes = (*children, *aliases)
    if len(nodes) * len(leaves) > MAX_ENTRIES:
        raise ValueError(
            f"tree: {len(nodes)} labels over {len(leaves)} leaves are too many; at most {MAX_ENTRIES} pairs "
            "of a label and a leaf are supported. Remove labels that are not needed."
        )
    stands_for = np.zeros((len(nodes), len(leaves)), dtype=bool)
    for row, node in enumerate(nodes):
        stands_for[row, [column[leaf] for leaf in below[aliases.get(node, node)]]] = True
    return Tree(leaves, nodes, stands_for)
