"""Benchmarks run, describe the machine, and compute ratios from the printed numbers. No test is timed."""

import json
import math
from statistics import median

import pytest
import torch

from propall.bench import loss, scaling, training
from propall.bench.estimators import benchmark_estimators
from propall.bench.images import benchmark_images
from propall.bench.loss import benchmark_loss
from propall.bench.resnet import benchmark_resnet
from propall.bench.results import BenchmarkResult, Spread, Target, targets_table
from propall.bench.training import benchmark_training
from propall.cli import main, terminal

#: Benchmark -> options of its quick form.
COMMANDS = {
    "loss": ["--device", "cpu"],
    "train": ["--device", "cpu"],
    "resnet": ["--device", "cpu", "--epochs", "1", "--precision", "float32", "--profile"],
    "images": ["--device", "cpu", "--epochs", "3"],
    "cpu": [],
    "scale": ["--device", "cpu", "--rows", "2000"],
}
MACHINE = {
    "hardware",
    "cpu",
    "threads",
    "load",
    "python",
    "torch",
    "numpy",
    "scikit-learn",
    "propall",
    "commit",
    "date",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_quick_form_prints_a_table_and_writes_a_file(name, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("PROPALL_DATA", str(tmp_path))
    # On a busy machine the numbers are so wide that the names beside them would be wrapped.
    monkeypatch.setattr(terminal, "PIPED_WIDTH", 300)
    file = tmp_path / "results" / f"{name}.json"
    with pytest.raises(SystemExit) as stop:
        main(["bench", name, "--quick", "--json", str(file), *COMMANDS[name]])
    output = capsys.readouterr()
    assert not stop.value.code, output.err
    assert f"{name}: " in output.err  # progress messages
    result = json.loads(file.read_text())
    assert result["name"] == name
    assert result["machine"].keys() >= MACHINE
    assert result["lines"]
    assert result["notes"]
    for line in result["lines"]:
        value = line["value"]
        assert 0 <= value["least"] <= value["low"] <= value["median"] <= value["high"] <= value["most"]
        assert value["repeats"] >= 1
        assert line["unit"] in ("ms", "s", "MB")
        assert line["what"] in output.out
        assert f"{value['median']:.4g}" in output.out
    assert any(line["beside"] for line in result["lines"]) or name == "scale"
    check_ratios(result)


def check_ratios(result):
    medians = {(line["case"], line["what"]): line["value"]["median"] for line in result["lines"]}
    for line in result["lines"]:
        if line["beside"]:
            expected = line["value"]["median"] / medians[line["case"], line["beside"]]
            assert line["ratio"] == pytest.approx(expected, rel=1e-12)
        else:
            assert line["ratio"] is None


def test_both_ways_to_train_images_learn():
    result = benchmark_images(torch.device("cpu"), quick=True, epochs=8, report=lambda _: None)
    assert [line.extra["accuracy"] > 60 for line in result.measurements] == [True, True]
    assert result.targets == []


def test_stacked_target_is_the_inverse_ratio(tmp_path, monkeypatch):
    monkeypatch.setenv("PROPALL_DATA", str(tmp_path))
    result = benchmark_estimators(torch.device("cpu"), quick=True, report=lambda _: None)
    *against, stacked = result.targets
    lines = [line for line in result.measurements if line.baseline]
    *lines, with_target, _larger_batches = lines
    assert [target.value for target in against] == [line.ratio for line in lines]
    assert stacked.value == pytest.approx(1 / with_target.ratio)
    ours = [line.extra for line in lines]
    assert all(more["ratio_least"] <= more["ratio_most"] for more in ours)
    assert all(more["accuracy"] > 0.3 for more in ours)  # both sides learn something in two epochs


def test_estimators_are_compared_on_a_cpu_only():
    with pytest.raises(ValueError, match="--device cpu"):
        benchmark_estimators(torch.device("meta"))


def test_spread_is_of_the_samples():
    samples = [3.0, 1.0, 2.0, 5.0, 4.0]
    assert Spread.of(samples) == Spread(median(samples), 2.0, 4.0, 1.0, 5.0, 5)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0, 7.0, 7.0, 1)


def test_ratio_is_of_medians_within_a_case():
    result = BenchmarkResult("x", "x", "ms", {})
    result.add("a", "peer", [2.0, 2.0, 8.0])
    result.add("b", "peer", [100.0])
    line = result.add("a", "ours", [1.0, 5.0, 1.0], baseline="peer", unit="s", extra=3.0)
    assert line.ratio == 0.5
    assert (line.unit, line.extra) == ("s", {"extra": 3.0})
    check_ratios(result.as_dict())


@pytest.mark.parametrize(
    ("limits", "value", "passes"),
    [
        ({"maximum": 1.0}, 1.0, True),
        ({"maximum": 1.0}, 1.01, False),
        ({"minimum": 3.0}, 2.9, False),
        ({"minimum": 0.9, "maximum": 1.1}, 1.0, True),
        ({"minimum": 0.9, "maximum": 1.1}, 0.8, False),
        ({"maximum": 1.0}, math.nan, False),
    ],
)
def test_targets_pass_or_fail(limits, value, passes):
    target = Target("claim", value, **limits)
    assert target.passed is passes
    assert target.verdict == ("pass" if passes else "fail")
    assert target.range


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_slope_of_a_power_is_the_power(power):
    sizes = [10, 20, 40, 80]
    assert scaling.slope(sizes, [3 * n**power for n in sizes]) == pytest.approx(power)


def test_floor_counts_the_bytes_of_inputs_and_gradient():
    result = benchmark_loss(torch.device("cpu"), quick=True, report=lambda _: None)
    n, k = loss.QUICK_SHAPES[0]
    floor = result.find(f"{n} x {k} float32", loss.FLOOR)
    seconds = floor.value.minimum / 1e3
    assert floor.extra["gigabytes_per_second"] == pytest.approx(n * k * 9 / seconds / 1e9)


def test_all_five_settings_are_stacked():
    result = benchmark_training(torch.device("cpu"), quick=True, report=lambda _: None)
    assert [line.extra["runs"] for line in result.measurements] == [1, 1, 5, training.QUICK.alike]
    assert result.measurements[0].subject == training.EAGER


@pytest.mark.parametrize("precisions", [("float32",), ("bfloat16", "float32")])
def test_resnet_in_the_precisions_asked_for(precisions):
    result = benchmark_resnet(
        torch.device("cpu"), quick=True, epochs=1, precisions=precisions, report=lambda _: None
    )
    assert [line.subject for line in result.measurements[2:]] == [
        f"propall, {precision}" for precision in precisions
    ]


def test_figures_of_a_folder_without_results_are_an_error(tmp_path):
    with pytest.raises(ValueError, match="has no JSON files"):
        targets_table(tmp_path)
