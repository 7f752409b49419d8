"""Benchmarks run, say where, and compute their ratios from the numbers they show. No test here is timed."""

import json
import math
from statistics import median

import pytest
import torch

from propall.bench import Sheet, Spread, Target, cpu, loss, resnet, scale, train
from propall.bench.peers import appendix_a_loss
from propall.cli import main
from propall.methods.propall import propall_loss

#: Benchmark -> words that its quick form runs with.
COMMANDS = {
    "loss": ["--device", "cpu"],
    "train": ["--device", "cpu"],
    "resnet": ["--device", "cpu", "--epochs", "1", "--precision", "float32", "--profile"],
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
    file = tmp_path / "sheets" / f"{name}.json"
    with pytest.raises(SystemExit) as stop:
        main(["bench", name, "--quick", "--json", str(file), *COMMANDS[name]])
    output = capsys.readouterr()
    assert not stop.value.code, output.err
    assert f"{name}: " in output.err  # what is going on
    sheet = json.loads(file.read_text())
    assert sheet["name"] == name
    assert sheet["machine"].keys() >= MACHINE
    assert sheet["lines"]
    assert sheet["notes"]
    for line in sheet["lines"]:
        value = line["value"]
        assert 0 <= value["least"] <= value["low"] <= value["median"] <= value["high"] <= value["most"]
        assert value["repeats"] >= 1
        assert line["unit"] in ("ms", "s", "MB")
        assert line["what"] in output.out
        assert f"{value['median']:.4g}" in output.out
    assert any(line["beside"] for line in sheet["lines"]) or name == "scale"
    check_ratios(sheet)


def check_ratios(sheet):
    medians = {(line["case"], line["what"]): line["value"]["median"] for line in sheet["lines"]}
    for line in sheet["lines"]:
        if line["beside"]:
            expected = line["value"]["median"] / medians[line["case"], line["beside"]]
            assert line["ratio"] == pytest.approx(expected, rel=1e-12)
        else:
            assert line["ratio"] is None


def test_stacked_target_is_the_inverse_ratio(tmp_path, monkeypatch):
    monkeypatch.setenv("PROPALL_DATA", str(tmp_path))
    sheet = cpu.run(torch.device("cpu"), quick=True, note=lambda _: None)
    *against, stacked = sheet.targets
    lines = [line for line in sheet.lines if line.beside]
    *lines, aimed_at, _larger_batches = lines
    assert [target.value for target in against] == [line.ratio for line in lines]
    assert stacked.value == pytest.approx(1 / aimed_at.ratio)
    ours = [line.more for line in lines]
    assert all(more["ratio_least"] <= more["ratio_most"] for more in ours)
    assert all(more["accuracy"] > 0.3 for more in ours)  # both sides learn something in two epochs


def test_estimators_are_compared_on_a_cpu_only():
    with pytest.raises(ValueError, match="--device cpu"):
        cpu.run(torch.device("meta"))


def test_spread_is_of_the_samples():
    samples = [3.0, 1.0, 2.0, 5.0, 4.0]
    assert Spread.of(samples) == Spread(median(samples), 2.0, 4.0, 1.0, 5.0, 5)
    assert Spread.of([7.0]) == Spread(7.0, 7.0, 7.0, 7.0, 7.0, 1)


def test_ratio_is_of_medians_within_a_case():
    sheet = Sheet("x", "x", "ms", {})
    sheet.add("a", "peer", [2.0, 2.0, 8.0])
    sheet.add("b", "peer", [100.0])
    line = sheet.add("a", "ours", [1.0, 5.0, 1.0], beside="peer", unit="s", extra=3.0)
    assert line.ratio == 0.5
    assert (line.unit, line.more) == ("s", {"extra": 3.0})
    check_ratios(sheet.as_dict())


@pytest.mark.parametrize(
    ("limits", "value", "met"),
    [
        ({"most": 1.0}, 1.0, True),
        ({"most": 1.0}, 1.01, False),
        ({"least": 3.0}, 2.9, False),
        ({"least": 0.9, "most": 1.1}, 1.0, True),
        ({"least": 0.9, "most": 1.1}, 0.8, False),
        ({"most": 1.0}, math.nan, False),
    ],
)
def test_targets_are_met_or_missed(limits, value, met):
    target = Target("claim", value, **limits)
    assert target.met is met
    assert target.wanted


@pytest.mark.parametrize("power", [0.5, 1.0, 2.0])
def test_slope_of_a_power_is_the_power(power):
    sizes = [10, 20, 40, 80]
    assert scale.slope(sizes, [3 * n**power for n in sizes]) == pytest.approx(power)


def test_the_peer_computes_the_paper_s_form():
    logits = 8 * torch.randn(200, 6, dtype=torch.float64) - 8
    candidates = torch.rand(200, 6) < 0.4
    candidates[:, 0] = True
    torch.testing.assert_close(
        appendix_a_loss(logits, candidates),
        propall_loss(logits, candidates, mode="paper"),
        rtol=1e-12,
        atol=0,
    )


def test_floor_counts_the_bytes_of_inputs_and_gradient():
    sheet = loss.run(torch.device("cpu"), quick=True, note=lambda _: None)
    n, k = loss.QUICK_SHAPES[0]
    floor = sheet.line(f"{n} x {k} float32", loss.FLOOR)
    seconds = floor.value.least / 1e3
    assert floor.more["gigabytes_per_second"] == pytest.approx(n * k * 9 / seconds / 1e9)


def test_all_five_settings_are_stacked():
    sheet = train.run(torch.device("cpu"), quick=True, note=lambda _: None)
    assert [line.more["runs"] for line in sheet.lines] == [1, 1, 5, train.QUICK.alike]
    assert sheet.lines[0].what == train.EAGER


@pytest.mark.parametrize("precisions", [("float32",), ("bfloat16", "float32")])
def test_resnet_in_the_precisions_asked_for(precisions):
    sheet = resnet.run(torch.device("cpu"), quick=True, epochs=1, precisions=precisions, note=lambda _: None)
    assert [line.what for line in sheet.lines[2:]] == [f"propall, {precision}" for precision in precisions]
