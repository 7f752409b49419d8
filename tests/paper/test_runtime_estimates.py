"""Expected run times: from earlier results, else from shipped times."""

import io
from dataclasses import replace

import pytest

from propall.paper import reproduction, runtime_estimates, scheduler
from propall.paper.runtime_estimates import RunKind, RunRate, RuntimeEstimates
from propall.paper.store import Store
from propall.provenance import hardware
from tests.made_up import GPU, fill, made_up


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "results.sqlite") as opened:
        yield opened


def specs(cell, **chosen):
    return [spec for runs in reproduction.select_cells(cell, **chosen) for spec in runs.specs]


def ship(monkeypatch, *rates):
    monkeypatch.setattr(runtime_estimates, "shipped_rates", lambda: list(rates))


def test_what_is_shipped_covers_the_tables_on_a_gpu_and_all_vectors_on_a_cpu():
    kinds = {}
    for rate in runtime_estimates.shipped_rates():
        assert rate.seconds > 0
        assert rate.runs > 0
        kinds.setdefault("cpu" if " CPU, " in rate.hardware else "gpu", set()).add(rate.kind)
    absent = ("soccer_player", "yahoo_news")
    for spec in specs("all") + specs("all", protocol="short"):
        spec_kinds = set(runtime_estimates._kinds(spec))
        if spec.data in absent or spec.net == "valen_mlp4":
            continue
        if spec.protocol != "short":
            assert spec_kinds & kinds["gpu"], spec
        if spec.data != "cifar10":
            assert spec_kinds & kinds["cpu"], spec


def test_own_times_come_first_then_shipped_ones_of_this_hardware_then_of_another(store, monkeypatch):
    (spec, *_) = specs("uniform/mnist/cc")
    kind, epochs = runtime_estimates._kinds(spec)[0], spec.total_epochs
    here, other = hardware("cpu"), "ppc64 CPU, 96 threads"
    ship(monkeypatch, RunRate(GPU, kind, 9.0, 1))
    known = RuntimeEstimates(store, "cpu")
    assert (known.seconds(spec), known.guess(spec), known.other_hardware) == (None, None, "")
    ship(monkeypatch, RunRate(GPU, kind, 9.0, 1), RunRate(other, kind, 3.0, 1))
    known = RuntimeEstimates(store, "cpu")
    assert (known.seconds(spec), known.guess(spec), known.other_hardware) == (None, 3.0 * epochs, other)
    ship(monkeypatch, RunRate(other, kind, 3.0, 1), RunRate(here, kind, 2.0, 1))
    known = RuntimeEstimates(store, "cpu")
    assert (known.seconds(spec), known.guess(spec), known.other_hardware) == (2.0 * epochs, None, "")
    store.add(replace(made_up(spec, 0.9), seconds=5.0, hardware=here))
    assert RuntimeEstimates(store, "cpu").seconds(spec) == pytest.approx(5.0)


def test_forecasts_tell_times_from_guesses(store, monkeypatch):
    kind = runtime_estimates._kinds(specs("real/lost/pl_knn")[0])[0]
    ship(monkeypatch, RunRate("ppc64 CPU, 96 threads", kind, 3.0, 1))
    monkeypatch.setattr(scheduler, "is_data_available", lambda *_: True)
    (group,) = RuntimeEstimates(store, "cpu").forecast(
        scheduler.plan_runs(specs("real/lost/pl_knn"), store).groups
    )
    assert (group.seconds, group.guess) == (None, 15.0)


def test_runs_that_shared_a_device_have_their_share_of_the_time(store):
    one, two, three, *_ = (made_up(spec, 0.9) for spec in specs("real/lost/cc"))
    alone = replace(one, seconds=60.0, stack=1, when="2026-01-01T00:01:00+00:00")  # from 0:00 on
    overlapping = replace(two, seconds=60.0, stack=1, when="2026-01-01T00:01:30+00:00")  # from 0:30 on
    stacked = replace(three, seconds=15.0, stack=4, when="2026-01-01T00:01:30+00:00")  # from 0:30 on
    elsewhere = replace(one, seconds=60.0, stack=1, when="2026-01-01T00:01:00+00:00", hardware="another")
    assert runtime_estimates.exclusive_seconds([alone, elsewhere]) == [60.0, 60.0]
    assert runtime_estimates.exclusive_seconds([alone, overlapping]) == [45.0, 45.0]
    charged = runtime_estimates.exclusive_seconds([alone, overlapping, *[stacked] * 4])
    assert charged == pytest.approx([30 + 30 / 3, 30 / 3 + 30 / 2, *[(30 / 3 + 30 / 2) / 4] * 4])
    assert sum(charged) == 90.0
    assert runtime_estimates.exclusive_seconds([]) == []


def test_rates_survive_the_file(store):
    fill(store, ["real"], data=["lost"])
    out = io.StringIO()
    count = runtime_estimates.export_rates(store, out)
    read = list(runtime_estimates.read_rates(out.getvalue().splitlines()))
    measured = runtime_estimates.measure_rates(store)
    assert len(read) == len(measured) == count
    assert [rate.kind for rate in read] == [rate.kind for rate in measured]
    assert [rate.seconds for rate in read] == pytest.approx([rate.seconds for rate in measured], rel=1e-3)
    assert RunKind("lost", read[0].kind.split, "linear", "cc") in {rate.kind for rate in read}
