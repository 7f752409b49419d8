"""Computing time: every run counted once, the estimate by steps, wall-clock time of shared devices."""

from dataclasses import replace

import pytest

from propall.paper import reproduction
from propall.paper.costs import (
    PUBLIC_SECONDS,
    PUBLIC_STEPS,
    count_steps,
    measure_costs,
    wall_clock_seconds,
)
from propall.paper.coverage import measure_coverage
from propall.paper.evidence import Evidence
from propall.paper.store import Store
from tests.made_up import fill, fill_at


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "results.sqlite") as opened:
        yield opened


def test_an_empty_store_has_no_costs(store):
    assert measure_costs(Evidence(store)) == []


def test_costs_count_every_run_once_and_estimate_by_steps(store):
    fill(store, ["noise_uniform", "uniform"], data=["mnist"])
    fill(store, ["uniform"], ["timed"], data=["mnist"])
    fill(store, ["real"], data=["lost"])
    (cost,) = measure_costs(Evidence(store))
    results = [result for result in store if not result.spec.is_timed]
    assert cost.all_runs == len(results)
    assert cost.all_seconds == pytest.approx(sum(result.seconds for result in results))
    trained = [r for r in results if r.spec.method.name not in ("clpl", "pl_svm", "pl_knn", "ipal", "plle")]
    assert cost.runs == len(trained)
    (one, *_) = reproduction.select_cells("uniform/mnist/propall")[0].specs
    assert count_steps(one) == pytest.approx(500 * 60_000 / 256)
    assert count_steps(one) / PUBLIC_STEPS * PUBLIC_SECONDS == pytest.approx(500 * 6.5)
    (few, *_) = reproduction.select_cells("candidates5/mnist/pc/2")[0].specs
    assert count_steps(few) == pytest.approx(300 * 5000 / 64)
    (fold, *_) = reproduction.select_cells("real/lost/valen")[0].specs
    assert count_steps(fold) == pytest.approx(510 * 1122 * 0.8 / 100)
    assert cost.ratio == cost.public_seconds / cost.seconds
    assert cost.wall_ratio >= cost.ratio


def test_costs_of_complete_cells_are_separate(store):
    fill(store, ["real"], data=["lost"])
    for protocol in ("q0.5", "q0.1"):
        fill_at(store, "uniform", lambda cell: 0.9, protocol, data=["mnist"], methods=["propall", "cc"])
    full = {result.spec.key for result in store if result.spec.method.name not in ("plle", "pl_svm")}
    full |= {
        spec.key
        for row in ("plle", "pl_svm")
        for spec in reproduction.select_cells(f"real/lost/{row}")[0].specs
    }
    fill(store, ["real"], ["single80"], data=["lost"])
    fill_at(store, "instance", lambda cell: 0.9, data=["mnist"], methods=["cc"], seeds=1)
    evidence = Evidence(store)
    (cost,) = measure_costs(evidence)
    assert cost.all_runs == len(list(store)) > len(full)
    assert cost.complete is not None
    assert cost.complete.all_runs == len(full)
    assert cost.cells == measure_coverage(evidence).complete == 12 + 2
    assert cost.complete.seconds < cost.seconds
    assert cost.complete.complete is None


def test_wall_clock_time_counts_shared_time_once(store):
    fill(store, ["real"], data=["lost"])
    one, two, three, *_ = store
    runs = [
        replace(one, seconds=10.0, stack=6, when="2026-01-01T00:02:00+00:00"),  # from 1:00 on
        replace(two, seconds=100.0, stack=1, when="2026-01-01T00:03:00+00:00"),  # from 1:20 on
        replace(three, seconds=5.0, stack=1, when="2026-01-01T00:04:00+00:00"),
    ]
    assert wall_clock_seconds(runs[1:]) == pytest.approx(105)
    assert wall_clock_seconds([replace(runs[0], seconds=60.0, stack=1), *runs[1:]]) == pytest.approx(120 + 5)
    assert wall_clock_seconds(
        [replace(run, when="2026-01-01T00:00:00+00:00") for run in runs]
    ) == pytest.approx(100)
    assert wall_clock_seconds([]) == 0
