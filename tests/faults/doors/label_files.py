"""Labels in files of their own: hierarchies and Label Studio exports."""

import json
from collections.abc import Iterator
from pathlib import Path

from tests.faults.doors.text_tables import csv_text
from tests.faults.harness import Case, Door, run_command
from tests.faults.mutations import byte_mutations, json_mutations, text_mutations

TREE = {
    "bird": {
        "gull": ["herring gull", "mew gull"],
        "tern": {"common tern": None, "arctic tern": None},
        "skua": ["great skua"],
    }
}
SPECIES = ("gull/herring gull", "gull/mew gull", "tern/common tern", "tern/arctic tern", "skua/great skua")
PATHS = "".join(f"bird/{path}\n" for path in SPECIES)
PAIRS = "parent,child\nbird,gull\nbird,tern\nbird,skua\n"
PAIRS += "".join(path.replace("/", ",") + "\n" for path in SPECIES)


def _inspect_with_tree(path: Path) -> None:
    table = path.with_name("table.csv")
    table.write_text(csv_text(), encoding="utf-8")
    run_command("inspect", str(table), "--label", "species", "--hierarchy", str(path))


def _trees(count: int, seed: int) -> Iterator[Case]:
    quarter = count // 4
    yield from json_mutations("tree", TREE, ".json", quarter, seed)
    yield from byte_mutations("tree", json.dumps(TREE).encode(), ".json", quarter, seed)
    yield from text_mutations("tree", PAIRS, ".csv", quarter, seed)
    yield from text_mutations("tree", PATHS, ".txt", count - 3 * quarter - 2, seed)
    yield Case("tree: 3000 levels", ('{"a":' * 3000 + "1" + "}" * 3000).encode(), ".json")
    yield Case("tree: chain of 2000", "".join(f"n{i},n{i + 1}\n" for i in range(2000)).encode(), ".csv")


def _task(number: int, *labels: str) -> dict[str, object]:
    results = [
        {"from_name": "animal", "to_name": "text", "type": "choices", "value": {"choices": [label]}}
        for label in labels
    ]
    annotations = [{"id": 10 * number + i, "completed_by": i, "result": [r]} for i, r in enumerate(results)]
    return {"id": number, "data": {"text": f"text {number}", "size": number}, "annotations": annotations}


EXPORT = [_task(i, ("cat", "dog", "emu")[i % 3], ("cat", "dog", "emu")[(i + i // 4) % 3]) for i in range(12)]


def _inspect_export(path: Path) -> None:
    run_command("inspect", str(path))


def _exports(count: int, seed: int) -> Iterator[Case]:
    few = count // 5
    yield from byte_mutations("Label Studio", json.dumps(EXPORT).encode(), ".json", few, seed)
    yield from json_mutations("Label Studio", EXPORT, ".json", count - few, seed)


DOORS = [
    Door("tree of labels", _inspect_with_tree, _trees, names=("hierarchy", "tree")),
    Door("Label Studio", _inspect_export, _exports),
]
