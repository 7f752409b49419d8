"""Every verdict follows from the results by its rule."""

from dataclasses import replace

import pytest

from propall.paper import reproduction, verdicts
from propall.paper.evidence import Evidence
from propall.paper.store import Store
from propall.paper.tables import TABLES
from propall.paper.verdicts import Verdict, compare
from propall.paper.verdicts.class_order import late_classes
from propall.paper.verdicts.critical_differences import rank_methods, rank_published
from propall.paper.verdicts.speed import seconds_per_epoch
from tests.made_up import GPU, fill, fill_at, made_up


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "results.sqlite") as opened:
        yield opened


def test_empty_store_gives_no_verdict(store):
    claims = verdicts.judge_claims(Evidence(store))
    assert {claim.verdict for claim in claims} == {Verdict.NOT_MEASURED}
    assert not any(claim.measured or claim.results for claim in claims)


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ({"mnist": 0.95, "kmnist": 0.95}, Verdict.HOLDS),
        ({"mnist": 0.95, "kmnist": 0.85}, Verdict.PARTLY),
        ({"mnist": 0.85, "kmnist": 0.9}, Verdict.FAILS),
    ],
)
def test_uniform_superiority(store, ours, verdict):
    fill_at(
        store,
        "uniform",
        lambda cell: ours[cell.data] if cell.row == "propall" else 0.9,
        data=list(ours),
    )
    claim = verdicts.judge_superiority(Evidence(store))
    assert claim.verdict == verdict
    assert len(claim.measured) == 2


def test_superiority_needs_all_methods_and_two_runs(store):
    fill_at(store, "uniform", lambda cell: 0.9, data=["mnist"], methods=["propall", "cc"])
    assert verdicts.judge_superiority(Evidence(store)).verdict == Verdict.NOT_MEASURED
    fill_at(store, "uniform", lambda cell: 0.9 + 0.05 * (cell.row == "propall"), data=["kmnist"], seeds=1)
    claim = verdicts.judge_superiority(Evidence(store))
    assert claim.verdict == Verdict.NOT_MEASURED
    assert "one run, not tested" in claim.measured[0]


@pytest.mark.parametrize(
    ("proden", "verdict"), [(0.7, Verdict.HOLDS), (0.95, Verdict.PARTLY), (None, Verdict.FAILS)]
)
def test_robustness(store, proden, verdict):
    last = {
        "propall": 0.9,
        "proden": proden or 0.95,
        "pc": 0.6 if proden else 0.96,
        "ova": 0.5 if proden else 0.97,
    }
    fill_at(
        store, "candidates5", lambda cell: last[cell.row] if cell.candidates == 4 else 0.98, data=["mnist"]
    )
    claim = verdicts.judge_robustness(Evidence(store))
    assert claim.verdict == verdict
    assert "8.00 below n = 1" in claim.measured[0]


def test_robustness_compares_losses_not_accuracies(store):
    lower = lambda cell: 0.9 - 0.1 * (cell.row == "propall") - 0.1 * (cell.candidates == 4)  # noqa: E731
    fill_at(store, "candidates5", lower, data=["mnist"])
    claim = verdicts.judge_robustness(Evidence(store))
    assert claim.verdict == Verdict.FAILS
    assert (
        "PRODEN 80.10 (0.10), 10.00 below n = 1, not significantly different from ProPaLL"
        in claim.measured[0]
    )


@pytest.mark.parametrize(("gain", "verdict"), [(0.01, Verdict.HOLDS), (-0.01, Verdict.FAILS)])
def test_noise(store, gain, verdict):
    level = lambda cell: 0.8 + gain * (cell.row == "propall")  # noqa: E731
    fill_at(store, "noise_candidates10", level, data=["mnist"])
    claim = verdicts.judge_noise(Evidence(store))
    assert claim.verdict == verdict
    assert "in 9 of 9 cells" in claim.measured[0] or "in 0 of 9 cells" in claim.measured[0]


def test_few_cells_leave_the_noise_inconclusive(store):
    fill_at(store, "noise_complementary", lambda cell: 0.8 + 0.01 * (cell.row == "propall"))
    claim = verdicts.judge_noise(Evidence(store))
    assert claim.verdict == Verdict.INCONCLUSIVE
    assert "3 of 3 cells (sign test p = 0.25)" in claim.reason


def test_noise_ignores_single_pairs(store):
    fill_at(store, "noise_candidates10", lambda cell: 0.8 + 0.01 * (cell.row == "propall"), seeds=1)
    claim = verdicts.judge_noise(Evidence(store))
    assert (claim.verdict, claim.measured) == (Verdict.NOT_MEASURED, [])


@pytest.mark.parametrize("protocol", ["short-5epochs", "q0.5-50epochs"])
def test_verdicts_ignore_shortened_runs(store, protocol):
    fill_at(store, "uniform", lambda cell: 0.9 + 0.05 * (cell.row == "propall"), protocol, data=["mnist"])
    fill_at(store, "noise_uniform", lambda cell: 0.9, protocol, data=["mnist"])
    evidence = Evidence(store)
    assert protocol in evidence.protocols("uniform")
    assert {claim.verdict for claim in verdicts.judge_claims(evidence)} == {Verdict.NOT_MEASURED}
    assert not any(claim.measured for claim in verdicts.judge_claims(evidence))
    assert (protocol in evidence.accuracy_protocols("uniform")) == (not protocol.startswith("short"))


def test_other_protocols_are_listed_and_not_counted(store):
    """They run the same cells in another way; counting both would count a cell twice."""
    better = lambda cell: 0.8 + 0.01 * (cell.row == "propall")  # noqa: E731
    fill_at(store, "noise_candidates5", better, "classes0-4")
    falls = lambda cell: 0.9 - 0.1 * (cell.candidates == 4) * (cell.row != "propall")  # noqa: E731
    fill_at(store, "candidates5", falls, "classes0-4")
    claims = {claim.name: claim for claim in verdicts.judge_claims(Evidence(store))}
    for name in ("noise", "robustness to the number of candidates"):
        assert claims[name].verdict == Verdict.NOT_MEASURED
        assert claims[name].measured
        assert all("classes0-4 (not counted): " in line for line in claims[name].measured)
    fill_at(store, "noise_candidates5", lambda cell: 0.8 - 0.01 * (cell.row == "propall"))
    claim = verdicts.judge_noise(Evidence(store))
    assert claim.verdict == Verdict.FAILS
    assert "in 0 of 16 cells" in claim.reason
    assert TABLES["noise_uniform"].is_judged("q0.1")
    assert not TABLES["uniform"].is_judged("q0.1+same-rates")


def test_a_cell_that_two_tables_print_counts_once(store):
    fill(store, ["noise_real"], data=["lost"])
    evidence = Evidence(store)
    (only,) = verdicts.judge_noise(evidence).measured
    assert "of 1 cells" in only


def timed(store, seconds):
    for cell in reproduction.select_cells("uniform", protocol="timed", data=["mnist"]):
        for spec in cell.specs:
            result = made_up(spec, 0.9)
            factor = seconds[spec.method.name] / max(result.times.values())
            store.add(replace(result, times={e: t * factor for e, t in result.times.items()}))


@pytest.mark.parametrize(
    ("proden", "verdict"), [(45.0, Verdict.HOLDS), (41.0, Verdict.PARTLY), (None, Verdict.FAILS)]
)
def test_speed(store, proden, verdict):
    timed(store, {"propall": 40.0, "proden": proden or 40.0, "valen": 200.0 if proden else 30.0})
    claim = verdicts.judge_speed(Evidence(store))
    assert claim.verdict == verdict
    assert f"MNIST on {GPU}: ProPaLL 80.0 ms per epoch (40.0 s for 500 epochs" in claim.measured[0]


def test_speed_needs_all_three_and_leaves_compilation_out(store):
    slow_start = {"propall": 100.0, "proden": 0.0, "valen": 0.0}
    for row in ("propall", "proden", "valen"):
        (cell,) = reproduction.select_cells("uniform", protocol="timed", data=["mnist"], methods=[row])
        (spec,) = cell.specs
        assert verdicts.judge_speed(Evidence(store)).verdict == Verdict.NOT_MEASURED
        result = made_up(spec, 0.9)
        store.add(replace(result, times={e: t + slow_start[row] for e, t in result.times.items()}))
    assert verdicts.judge_speed(Evidence(store)).verdict == Verdict.HOLDS


def test_seconds_per_epoch_uses_the_second_half():
    both_phases_compile = {1: 20.0, 2: 20.1, 3: 45.0, 4: 45.2, 6: 45.6, 8: 46.0, 10: 46.4}
    assert seconds_per_epoch(both_phases_compile) == pytest.approx(0.2)
    assert seconds_per_epoch({1: 5.0, 2: 7.0}) == 2.0
    assert seconds_per_epoch({5: 5.0, 6: 7.0}) == 2.0


def test_late_classes():
    assert late_classes({1: [0.9, 0.1, 0.05, 0.2], 2: [0.9, 0.6, 0.05, 0.1]}) == 2
    assert late_classes({1: [0.9, 0.9, 0.9, 0.4]}) == 0
    assert late_classes({1: [0.1, 0.2], 9: [0.3, 0.4]}) is None


def test_class_order(store):
    fill(store, ["complementary"], data=["mnist"])
    claim = verdicts.judge_class_order(Evidence(store))
    assert claim.verdict == Verdict.HOLDS
    assert (
        "10 pairs of runs: when half of the classes are learned, 4.00 are not started with ProPaLL and 0.00"
        in (claim.measured[0])
    )
    # The other way round it does not hold.
    for result in list(store):
        if result.spec.method.name in ("propall", "proden"):
            flat = {epoch: [0.9] * 10 for epoch in result.recalls}
            store.add(replace(result, recalls=flat, when="2027-01-01T00:00:00+00:00"))
    assert verdicts.judge_class_order(Evidence(store)).verdict == Verdict.FAILS


def test_critical_differences(store):
    fill(store, ["uniform", "instance", "complementary"])
    both, real, complementary = verdicts.judge_critical_differences(Evidence(store))
    assert real.verdict == Verdict.NOT_MEASURED
    # The paper's order, one block per data set: two of four methods are significantly worse.
    assert both.verdict == Verdict.PARTLY
    assert len(both.results) == 2 * 3 * 7 * 5
    assert "significantly worse: D2CNN, GA" in both.reason
    assert "uniform/cifar10" in both.measured[0]
    assert "(8 data sets): significantly worse than ProPaLL: D2CNN, GA." in both.measured[1]
    assert complementary.verdict == Verdict.PARTLY
    assert "significantly worse: PC" in complementary.reason


@pytest.mark.parametrize(
    ("place", "verdict"),
    [(0, Verdict.HOLDS), (5, Verdict.INCONCLUSIVE), (len(TABLES["real"].rows) - 1, Verdict.FAILS)],
)
def test_verdict_is_inconclusive_if_no_method_could_be_significantly_better(store, place, verdict):
    others = [row.name for row in TABLES["real"].rows if row.name != "propall"]
    order = [*others[:place], "propall", *others[place:]]
    fill_at(
        store,
        "real",
        lambda cell: 0.9 - 0.03 * order.index(cell.row),
        data=["lost", "msrcv2", "birdsong"],
    )
    claim = verdicts.judge_critical_differences(Evidence(store))[1]
    assert claim.verdict == verdict, claim.reason


def test_incomplete_blocks_are_not_ranked(store):
    fill(store, ["real"], data=["lost", "msrcv2"])
    evidence = Evidence(store)
    assert rank_methods("real-world candidates", evidence)[0].blocks == 2
    (unfinished, *others) = reproduction.select_cells("real", data=["birdsong"])
    store.add(made_up(unfinished.specs[0], 0.5))
    store.add(*(made_up(spec, 0.5) for cell in others for spec in cell.specs))
    assert rank_methods("real-world candidates", Evidence(store))[0].blocks == 2


def test_ranks_of_published_numbers():
    expected = {
        "uniform and instance-dependent candidates": {"ProPaLL": 1.75, "VALEN": 2.0, "GA": 6.375},
        "real-world candidates": {"VALEN": 2.6, "ProPaLL": 3.6, "GA": 10.8},
        "one complementary label": {"ProPaLL": 1.0, "PRODEN": 2.0, "PC": 8.0},
    }
    for name, ranks in expected.items():
        published = rank_published(name).ranks
        assert {method: published[method] for method in ranks} == pytest.approx(ranks)


def test_entries_are_compared_over_the_seeds_both_have(store):
    (ours, theirs) = reproduction.select_cells("complementary", data=["mnist"], methods=["propall", "nn"])
    store.add(*(replace(made_up(s, 0.9), last10=0.9 + 0.01 * s.seed) for s in ours.specs[:4]))
    store.add(*(replace(made_up(s, 0.9), last10=0.8 + 0.01 * s.seed) for s in theirs.specs[2:]))
    a, b = reproduction.cell_results([ours, theirs], store)
    comparison = compare(a.values, b.values)
    assert comparison.pairs == 2
    assert comparison.gap == pytest.approx(10)
    assert comparison.outcome == "better"
    assert compare(a.values, replace(b, results=b.results[2:]).values) is None


def test_ranks_need_every_method(store):
    fill_at(store, "complementary", lambda cell: 0.9, methods=["propall", "proden", "nn", "ga"])
    assert rank_methods("one complementary label", Evidence(store)) is None
    assert verdicts.judge_critical_differences(Evidence(store))[2].verdict == Verdict.NOT_MEASURED
