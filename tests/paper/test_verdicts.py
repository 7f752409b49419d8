"""Verdicts: each follows from the numbers by its rule, and none is given without them."""

from dataclasses import replace

import pytest

from propall.paper import reproduction, verdicts
from propall.paper.evidence import Evidence
from propall.paper.store import Store
from propall.paper.tables import TABLES
from propall.paper.verdicts import Verdict
from tests.made_up import GPU, fill, made_up


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "results.sqlite") as opened:
        yield opened


def put(store, table, level, protocol=None, **chosen):
    """Fill cells of a table; `level(cell)` is the share that is right, `seeds` differ by thousandths."""
    for wanted in reproduction.select_cells(table, protocol=protocol, **chosen):
        for spec in wanted.specs:
            value = level(wanted.cell) + 0.001 * (spec.seed % 5)
            result = made_up(spec, value)
            store.add(replace(result, accuracy=value, last10=value))


def test_nothing_is_concluded_from_nothing(store):
    claims = verdicts.judged(Evidence(store))
    assert {claim.verdict for claim in claims} == {Verdict.UNKNOWN}
    assert not any(claim.measured or claim.results for claim in claims)
    assert verdicts.costs(Evidence(store)) == []
    assert verdicts.coverage(Evidence(store))[:2] == (0, 0)
    assert verdicts.coverage(Evidence(store)).total == 416


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [
        ({"mnist": 0.95, "kmnist": 0.95}, Verdict.HOLDS),
        ({"mnist": 0.95, "kmnist": 0.85}, Verdict.PART),
        ({"mnist": 0.85, "kmnist": 0.9}, Verdict.FAILS),
    ],
)
def test_uniform_superiority(store, ours, verdict):
    put(
        store,
        "uniform",
        lambda cell: ours[cell.data] if cell.row == "propall" else 0.9,
        data=list(ours),
    )
    claim = verdicts.uniform_superiority(Evidence(store))
    assert claim.verdict == verdict
    assert len(claim.measured) == 2


def test_highest_of_all_needs_all_and_two_runs(store):
    put(store, "uniform", lambda cell: 0.9, data=["mnist"], methods=["propall", "cc"])
    assert verdicts.uniform_superiority(Evidence(store)).verdict == Verdict.UNKNOWN
    put(store, "uniform", lambda cell: 0.9 + 0.05 * (cell.row == "propall"), data=["kmnist"], seeds=1)
    claim = verdicts.uniform_superiority(Evidence(store))
    assert claim.verdict == Verdict.UNKNOWN
    assert "one run, no test" in claim.measured[0]


@pytest.mark.parametrize(
    ("proden", "verdict"), [(0.7, Verdict.HOLDS), (0.95, Verdict.PART), (None, Verdict.FAILS)]
)
def test_robustness(store, proden, verdict):
    last = {
        "propall": 0.9,
        "proden": proden or 0.95,
        "pc": 0.6 if proden else 0.96,
        "ova": 0.5 if proden else 0.97,
    }
    put(store, "candidates5", lambda cell: last[cell.row] if cell.candidates == 4 else 0.98, data=["mnist"])
    claim = verdicts.robustness(Evidence(store))
    assert claim.verdict == verdict
    assert "8.00 below n = 1" in claim.measured[0]


def test_robustness_is_about_what_is_lost(store):
    lower = lambda cell: 0.9 - 0.1 * (cell.row == "propall") - 0.1 * (cell.candidates == 4)  # noqa: E731
    put(store, "candidates5", lower, data=["mnist"])
    claim = verdicts.robustness(Evidence(store))
    assert claim.verdict == Verdict.FAILS
    assert (
        "PRODEN 80.10 (0.10), 10.00 below n = 1, not significantly different from ProPaLL"
        in claim.measured[0]
    )


@pytest.mark.parametrize(("gain", "verdict"), [(0.01, Verdict.HOLDS), (-0.01, Verdict.FAILS)])
def test_noise(store, gain, verdict):
    level = lambda cell: 0.8 + gain * (cell.row == "propall")  # noqa: E731
    put(store, "noise_candidates10", level, data=["mnist"])
    claim = verdicts.noise(Evidence(store))
    assert claim.verdict == verdict
    assert "in 9 of 9 cells" in claim.measured[0] or "in 0 of 9 cells" in claim.measured[0]


def test_few_cells_leave_the_noise_undecided(store):
    put(store, "noise_complementary", lambda cell: 0.8 + 0.01 * (cell.row == "propall"))
    claim = verdicts.noise(Evidence(store))
    assert claim.verdict == Verdict.OPEN
    assert "3 of 3 cells (sign test p = 0.25)" in claim.why


def test_single_pairs_say_nothing_about_noise(store):
    put(store, "noise_candidates10", lambda cell: 0.8 + 0.01 * (cell.row == "propall"), seeds=1)
    claim = verdicts.noise(Evidence(store))
    assert (claim.verdict, claim.measured) == (Verdict.UNKNOWN, [])


@pytest.mark.parametrize("protocol", ["short-5epochs", "q0.5-50epochs"])
def test_no_verdict_rests_on_cut_runs(store, protocol):
    put(store, "uniform", lambda cell: 0.9 + 0.05 * (cell.row == "propall"), protocol, data=["mnist"])
    put(store, "noise_uniform", lambda cell: 0.9, protocol, data=["mnist"])
    evidence = Evidence(store)
    assert protocol in evidence.protocols("uniform")
    assert {claim.verdict for claim in verdicts.judged(evidence)} == {Verdict.UNKNOWN}
    assert not any(claim.measured for claim in verdicts.judged(evidence))
    assert (protocol in evidence.serious_protocols("uniform")) == (not protocol.startswith("short"))


def test_other_protocols_are_listed_and_not_counted(store):
    """They run the same cells in another way: to count both would count a cell twice."""
    better = lambda cell: 0.8 + 0.01 * (cell.row == "propall")  # noqa: E731
    put(store, "noise_candidates5", better, "classes0-4")
    falls = lambda cell: 0.9 - 0.1 * (cell.candidates == 4) * (cell.row != "propall")  # noqa: E731
    put(store, "candidates5", falls, "classes0-4")
    claims = {claim.name: claim for claim in verdicts.judged(Evidence(store))}
    for name in ("noise", "robustness to the number of candidates"):
        assert claims[name].verdict == Verdict.UNKNOWN
        assert claims[name].measured
        assert all("classes0-4 (not counted): " in line for line in claims[name].measured)
    put(store, "noise_candidates5", lambda cell: 0.8 - 0.01 * (cell.row == "propall"))
    claim = verdicts.noise(Evidence(store))
    assert claim.verdict == Verdict.FAILS
    assert "in 0 of 16 cells" in claim.why
    assert TABLES["noise_uniform"].is_judged("q0.1")
    assert not TABLES["uniform"].is_judged("q0.1+same-rates")


def test_a_cell_that_two_tables_print_counts_once(store):
    fill(store, ["noise_real"], data=["lost"])
    evidence = Evidence(store)
    (only,) = verdicts.noise(evidence).measured
    assert "of 1 cells" in only
    # ProPaLL's runs fill its cell in two tables, which is one cell of the paper.
    assert verdicts.coverage(evidence).measured == 2


def timed(store, seconds):
    for wanted in reproduction.select_cells("uniform", protocol="timed", data=["mnist"]):
        for spec in wanted.specs:
            result = made_up(spec, 0.9)
            factor = seconds[spec.method.name] / max(result.times.values())
            store.add(replace(result, times={e: t * factor for e, t in result.times.items()}))


@pytest.mark.parametrize(
    ("proden", "verdict"), [(45.0, Verdict.HOLDS), (41.0, Verdict.PART), (None, Verdict.FAILS)]
)
def test_speed(store, proden, verdict):
    timed(store, {"propall": 40.0, "proden": proden or 40.0, "valen": 200.0 if proden else 30.0})
    claim = verdicts.speed(Evidence(store))
    assert claim.verdict == verdict
    assert f"MNIST on {GPU}: ProPaLL 80.0 ms an epoch (40.0 s for 500 epochs" in claim.measured[0]


def test_speed_needs_all_three_and_leaves_compilation_out(store):
    slow_start = {"propall": 100.0, "proden": 0.0, "valen": 0.0}
    for row in ("propall", "proden", "valen"):
        (wanted,) = reproduction.select_cells("uniform", protocol="timed", data=["mnist"], methods=[row])
        (spec,) = wanted.specs
        assert verdicts.speed(Evidence(store)).verdict == Verdict.UNKNOWN
        result = made_up(spec, 0.9)
        store.add(replace(result, times={e: t + slow_start[row] for e, t in result.times.items()}))
    assert verdicts.speed(Evidence(store)).verdict == Verdict.HOLDS


def test_an_epoch_s_time_is_that_of_the_second_half():
    both_phases_compile = {1: 20.0, 2: 20.1, 3: 45.0, 4: 45.2, 6: 45.6, 8: 46.0, 10: 46.4}
    assert verdicts.seconds_an_epoch(both_phases_compile) == pytest.approx(0.2)
    assert verdicts.seconds_an_epoch({1: 5.0, 2: 7.0}) == 2.0
    assert verdicts.seconds_an_epoch({5: 5.0, 6: 7.0}) == 2.0


def test_late_classes():
    assert verdicts.late_classes({1: [0.9, 0.1, 0.05, 0.2], 2: [0.9, 0.6, 0.05, 0.1]}) == 2
    assert verdicts.late_classes({1: [0.9, 0.9, 0.9, 0.4]}) == 0
    assert verdicts.late_classes({1: [0.1, 0.2], 9: [0.3, 0.4]}) is None


def test_consecutive_classes(store):
    fill(store, ["complementary"], data=["mnist"])
    claim = verdicts.consecutive_classes(Evidence(store))
    assert claim.verdict == Verdict.HOLDS
    assert (
        "10 pairs of runs: when half are learnt, 4.00 classes are not begun with ProPaLL and 0.00"
        in (claim.measured[0])
    )
    # The other way round it does not hold.
    for result in list(store):
        if result.spec.method.name in ("propall", "proden"):
            flat = {epoch: [0.9] * 10 for epoch in result.recalls}
            store.add(replace(result, recalls=flat, when="2027-01-01T00:00:00+00:00"))
    assert verdicts.consecutive_classes(Evidence(store)).verdict == Verdict.FAILS


def test_critical_differences(store):
    fill(store, ["uniform", "instance", "complementary"])
    both, real, complementary = verdicts.critical_differences(Evidence(store))
    assert real.verdict == Verdict.UNKNOWN
    # The paper's order, one block per data set: two of four methods are significantly worse.
    assert both.verdict == Verdict.PART
    assert len(both.results) == 2 * 3 * 7 * 5
    assert "significantly worse than it: D2CNN, GA" in both.why
    assert "uniform/cifar10" in both.measured[0]
    assert "(8 data sets): significantly worse than ProPaLL D2CNN, GA." in both.measured[1]
    assert complementary.verdict == Verdict.PART
    assert "significantly worse than it: PC" in complementary.why


@pytest.mark.parametrize(
    ("place", "verdict"),
    [(0, Verdict.HOLDS), (5, Verdict.OPEN), (len(TABLES["real"].rows) - 1, Verdict.FAILS)],
)
def test_no_better_method_is_no_verdict_where_none_could_be_found(store, place, verdict):
    others = [row.name for row in TABLES["real"].rows if row.name != "propall"]
    order = [*others[:place], "propall", *others[place:]]
    put(
        store,
        "real",
        lambda cell: 0.9 - 0.03 * order.index(cell.row),
        data=["lost", "msrcv2", "birdsong"],
    )
    claim = verdicts.critical_differences(Evidence(store))[1]
    assert claim.verdict == verdict, claim.why


def test_blocks_with_an_unfinished_cell_are_not_ranked(store):
    fill(store, ["real"], data=["lost", "msrcv2"])
    evidence = Evidence(store)
    assert verdicts.ranked("real-world candidates", evidence)[0].blocks == 2
    (unfinished, *others) = reproduction.select_cells("real", data=["birdsong"])
    store.add(made_up(unfinished.specs[0], 0.5))
    store.add(*(made_up(spec, 0.5) for wanted in others for spec in wanted.specs))
    assert verdicts.ranked("real-world candidates", Evidence(store))[0].blocks == 2


def test_published_ranks_are_those_of_the_paper():
    expected = {
        "uniform and instance-dependent candidates": {"ProPaLL": 1.75, "VALEN": 2.0, "GA": 6.375},
        "real-world candidates": {"VALEN": 2.6, "ProPaLL": 3.6, "GA": 10.8},
        "one complementary label": {"ProPaLL": 1.0, "PRODEN": 2.0, "PC": 8.0},
    }
    for name, ranks in expected.items():
        found = verdicts.ranked_as_published(name).ranks
        assert {method: found[method] for method in ranks} == pytest.approx(ranks)


def test_costs_count_every_run_once_and_estimate_by_steps(store):
    fill(store, ["noise_uniform", "uniform"], data=["mnist"])
    fill(store, ["uniform"], ["timed"], data=["mnist"])
    fill(store, ["real"], data=["lost"])
    (cost,) = verdicts.costs(Evidence(store))
    results = [result for result in store if not result.spec.is_timed]
    assert cost.all_runs == len(results)
    assert cost.all_seconds == pytest.approx(sum(result.seconds for result in results))
    trained = [r for r in results if r.spec.method.name not in ("clpl", "pl_svm", "pl_knn", "ipal", "plle")]
    assert cost.runs == len(trained)
    (one, *_) = reproduction.select_cells("uniform/mnist/propall")[0].specs
    assert verdicts.steps(one) == pytest.approx(500 * 60_000 / 256)
    assert verdicts.steps(one) / verdicts.PUBLIC_STEPS * verdicts.PUBLIC_SECONDS == pytest.approx(500 * 6.5)
    (few, *_) = reproduction.select_cells("candidates5/mnist/pc/2")[0].specs
    assert verdicts.steps(few) == pytest.approx(300 * 5000 / 64)
    (fold, *_) = reproduction.select_cells("real/lost/valen")[0].specs
    assert verdicts.steps(fold) == pytest.approx(510 * 1122 * 0.8 / 100)
    assert cost.ratio == cost.public_seconds / cost.seconds
    assert cost.elapsed_ratio >= cost.ratio


def test_costs_of_cells_measured_in_full_stand_apart(store):
    fill(store, ["real"], data=["lost"])
    for protocol in ("q0.5", "q0.1"):
        put(store, "uniform", lambda cell: 0.9, protocol, data=["mnist"], methods=["propall", "cc"])
    full = {result.spec.key for result in store if result.spec.method.name not in ("plle", "pl_svm")}
    full |= {
        spec.key
        for row in ("plle", "pl_svm")
        for spec in reproduction.select_cells(f"real/lost/{row}")[0].specs
    }
    fill(store, ["real"], ["single80"], data=["lost"])
    put(store, "instance", lambda cell: 0.9, data=["mnist"], methods=["cc"], seeds=1)
    evidence = Evidence(store)
    (cost,) = verdicts.costs(evidence)
    assert cost.all_runs == len(list(store)) > len(full)
    assert cost.finished is not None
    assert cost.finished.all_runs == len(full)
    assert cost.cells == verdicts.coverage(evidence).measured == 12 + 2
    assert cost.finished.seconds < cost.seconds
    assert cost.finished.finished is None


def test_time_that_processes_share_elapses_once(store):
    fill(store, ["real"], data=["lost"])
    one, two, three, *_ = store
    runs = [
        replace(one, seconds=10.0, stack=6, when="2026-01-01T00:02:00+00:00"),  # from 1:00 on
        replace(two, seconds=100.0, stack=1, when="2026-01-01T00:03:00+00:00"),  # from 1:20 on
        replace(three, seconds=5.0, stack=1, when="2026-01-01T00:04:00+00:00"),
    ]
    assert verdicts.elapsed(runs[1:]) == pytest.approx(105)
    assert verdicts.elapsed([replace(runs[0], seconds=60.0, stack=1), *runs[1:]]) == pytest.approx(120 + 5)
    assert verdicts.elapsed(
        [replace(run, when="2026-01-01T00:00:00+00:00") for run in runs]
    ) == pytest.approx(100)
    assert verdicts.elapsed([]) == 0


def test_coverage_counts_what_is_begun_under_another_protocol(store):
    put(store, "uniform", lambda cell: 0.9, "q0.1", data=["mnist"], methods=["cc"])
    put(store, "complementary", lambda cell: 0.9, data=["mnist"], methods=["nn"], seeds=2)
    found = verdicts.coverage(Evidence(store))
    assert (found.measured, found.begun) == (0, 2)
    assert found.total == 416
    assert set(TABLES)


def test_entries_are_compared_over_the_seeds_both_have(store):
    (ours, theirs) = reproduction.select_cells("complementary", data=["mnist"], methods=["propall", "nn"])
    store.add(*(replace(made_up(s, 0.9), last10=0.9 + 0.01 * s.seed) for s in ours.specs[:4]))
    store.add(*(replace(made_up(s, 0.9), last10=0.8 + 0.01 * s.seed) for s in theirs.specs[2:]))
    a, b = reproduction.cell_results([ours, theirs], store)
    found = verdicts.compared(a, b)
    assert found.pairs == 2
    assert found.gap == pytest.approx(10)
    assert found.outcome == "ahead"
    assert verdicts.compared(a, replace(b, results=b.results[2:])) is None


def test_ranks_need_every_method_of_the_paper(store):
    put(store, "complementary", lambda cell: 0.9, methods=["propall", "proden", "nn", "ga"])
    assert verdicts.ranked("one complementary label", Evidence(store)) is None
    assert verdicts.critical_differences(Evidence(store))[2].verdict == Verdict.UNKNOWN
