"""Cells of tables: their runs, their results, and the reason if a cell is empty."""

import statistics
from dataclasses import replace

import pytest

from propall.data import DATASETS
from propall.paper import reproduction
from propall.paper.results import RunResult
from propall.paper.store import Store
from propall.paper.tables import TABLES
from propall.registry import UnknownNameError
from tests.fixtures.runs import write_mat


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "results.sqlite") as opened:
        yield opened


def fake(spec, accuracy, last10=0.0):
    return RunResult(spec, accuracy, last10, 0.5, 0.5, 2.0 + spec.seed, 1.0)


def test_data_that_is_not_there_is_named_with_the_way_to_run_it(root, store):
    cells = reproduction.select_cells(
        "real", protocol="short", data=["lost", "yahoo_news"], methods=["pl_knn", "ga"]
    )
    plan = reproduction.run_cells(cells, store, device="cpu")
    assert len(plan.absent) == 2
    results = reproduction.cell_results(cells, store)
    assert [result.runs for result in results] == [1, 1, 0, 0]
    note = results[2].note
    assert note.startswith("data not available here; put yahoo_news.mat at ")
    assert str(root / "realworld" / "yahoo_news.mat") in note
    assert note.endswith("then propall reproduce real --data yahoo_news --protocol short")
    assert reproduction.summarize_cells(results) == "2 of 4 cells done; data not available here: 2."


def test_soccer_player_and_yahoo_news_run_once_their_files_are_there(root, store):
    for name in ("soccer_player", "yahoo_news"):
        write_mat(root, name, n=70, d=9, k=7)
    cells = reproduction.select_cells("real", protocol="short", data=["soccer_player", "yahoo_news"])
    cells += reproduction.select_cells("noise_real", protocol="short", data=["soccer_player", "yahoo_news"])
    # 26 cells of the paper; PL-SVM and PLLE have two rows each.
    assert len({(w.cell.data, w.specs[0].key) for w in cells}) == 30
    reproduction.run_cells(cells, store, device="cpu")
    results = reproduction.cell_results(cells, store)
    assert all(result.runs == 1 and result.mean is not None and not result.note for result in results)
    assert {result.protocol for result in results} == {"short"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "size"),
    [("soccer_player", (17472, 279, 171)), ("yahoo_news", (22991, 163, 219))],
)
def test_files_of_the_published_size_go_through(name, size, root, store):
    n, d, k = size
    write_mat(root, name, n=n, d=d, k=k, sparse=True)
    assert (DATASETS[name].n, DATASETS[name].shape, DATASETS[name].n_classes) == (n, (d,), k)
    cells = reproduction.select_cells(
        "real", protocol="short", data=[name], methods=["propall", "valen", "pl_knn"]
    )
    reproduction.run_cells(cells, store, device="cpu")
    for result in reproduction.cell_results(cells, store):
        assert not result.note
        assert result.mean > 100 * 5 / k  # far above chance: the generated classes lie apart


def test_a_noise_table_shares_the_runs_of_its_table(store):
    both = reproduction.select_cells("real", methods=["propall"]) + reproduction.select_cells("noise_real")
    assert len(reproduction.unique_specs(both)) == 2 * 5 * 5


def test_entries_take_the_tables_statistic_over_seeds_or_folds(store):
    table = TABLES["complementary"]
    (cell,) = reproduction.select_cells("complementary", data=["mnist"], methods=["nn"], seeds=3)
    store.add(*(fake(spec, 0.1, 0.5 + 0.01 * spec.seed) for spec in cell.specs))
    (result,) = reproduction.cell_results([cell], store)
    assert table.reports == "last10"
    assert result.mean == pytest.approx(51)
    assert result.std == pytest.approx(1)
    assert result.candidates == pytest.approx(3.0)
    (cell,) = reproduction.select_cells("real", data=["lost"], methods=["ipal"], seeds=2)
    values = {
        (spec.split.fold, spec.seed): 0.5 + 0.02 * spec.split.fold + 0.001 * spec.seed for spec in cell.specs
    }
    store.add(*(fake(spec, values[spec.split.fold, spec.seed]) for spec in cell.specs))
    (result,) = reproduction.cell_results([cell], store)
    by_fold = [100 * statistics.fmean(values[fold, seed] for seed in (0, 1)) for fold in range(5)]
    assert result.mean == pytest.approx(statistics.fmean(by_fold))
    assert result.std == pytest.approx(statistics.stdev(by_fold))
    assert result.published == (72.10, 2.75)


def test_a_result_of_one_protocol_is_never_shown_as_another(store):
    (cell,) = reproduction.select_cells("uniform", protocol="q0.1", data=["mnist"], methods=["cc"])
    store.add(*(fake(spec, 0.9) for spec in cell.specs))
    for protocol in ("q0.5", "short", "q0.1+same-rates", "q0.5+same-rates"):
        other = reproduction.select_cells("uniform", protocol=protocol, data=["mnist"], methods=["cc"])
        (result,) = reproduction.cell_results(other, store)
        assert result.mean is None
        assert result.runs == 0
    (result,) = reproduction.cell_results([cell], store)
    assert (result.mean, result.std, result.protocol) == (pytest.approx(90), 0, "q0.1")


def test_unfinished_cells_say_so(root, store):
    (cell,) = reproduction.select_cells("real", data=["lost"], methods=["ipal"])
    store.add(fake(cell.specs[0], 0.5), fake(cell.specs[3], 0.6))
    (result,) = reproduction.cell_results([cell], store)
    assert (result.runs, result.expected, result.note) == (2, 5, "2 of 5 runs")
    (left_out,) = reproduction.cell_results(
        reproduction.select_cells("uniform", protocol="short", data=["cifar10"], methods=["cc"]), store
    )
    assert left_out.note == "not part of smoke runs: images with channels"
    assert reproduction.summarize_cells([result, left_out]) == (
        "0 of 2 cells done; incomplete: 1; not part of smoke runs: images with channels: 1."
    )
    (row, _) = reproduction.as_dicts([result, left_out])
    assert row["cell"] == "real/lost/ipal"
    assert row["keys"] == [spec.key for spec in cell.specs]


def test_all_means_every_table_that_has_what_is_asked_for():
    assert {w.cell.table for w in reproduction.select_cells("all")} == set(TABLES)
    assert {w.cell.table for w in reproduction.select_cells("all", methods=["pc"])} == {
        "candidates10",
        "candidates5",
    }
    assert {w.protocol for w in reproduction.select_cells("all", protocol="single80")} == {"single80"}
    with pytest.raises(ValueError, match="protocol"):
        reproduction.select_cells("all", protocol="tomorrow")
    with pytest.raises(ValueError, match="no table has pc on lost"):
        reproduction.select_cells("all", methods=["pc"], data=["lost"])
    with pytest.raises(ValueError, match="methods: 'pc' is not in the selected tables"):
        reproduction.select_cells("real", methods=["pc"])
    with pytest.raises(ValueError, match="data: 'mnist' is not in the selected tables"):
        reproduction.select_cells("real", data=["mnist"])


def test_a_name_that_no_table_has_is_refused_with_the_near_ones():
    with pytest.raises(
        UnknownNameError, match="methods: 'prodn' is not in the selected tables; did you mean 'proden'"
    ):
        reproduction.select_cells("all", methods=["propall", "prodn"])
    with pytest.raises(
        UnknownNameError, match="data: 'mnits' is not in the selected tables; did you mean 'mnist'"
    ):
        reproduction.select_cells("uniform,instance", data=["mnits"])
    with pytest.raises(UnknownNameError, match="no table has pl_knn on mnist"):
        reproduction.select_cells("all", methods=["pl_knn"], data=["mnist"])
    with pytest.raises(UnknownNameError, match=r"^cell: table real has no cell 'real/lost/nothing'"):
        reproduction.select_cells("real/lost/nothing")


def test_a_single_cell_by_its_name():
    (cell,) = reproduction.select_cells("candidates10/mnist/pc/8", seeds=2)
    assert [(spec.corruption.n, spec.seed) for spec in cell.specs] == [(8, 0), (8, 1)]
    with pytest.raises(ValueError, match="single cell"):
        reproduction.select_cells("real/lost/cc", data=["lost"])


def test_several_tables_and_protocols_at_once():
    both = reproduction.select_cells("uniform,noise_uniform", protocol="q0.1, q0.5", data=["mnist"])
    assert {(w.cell.table, w.protocol) for w in both} == {
        (table, protocol) for table in ("uniform", "noise_uniform") for protocol in ("q0.1", "q0.5")
    }
    one_by_one = [
        spec.key
        for table in ("uniform", "noise_uniform")
        for protocol in ("q0.1", "q0.5")
        for spec in reproduction.unique_specs(
            reproduction.select_cells(table, protocol=protocol, data=["mnist"])
        )
    ]
    assert {spec.key for spec in reproduction.unique_specs(both)} == set(one_by_one)
    assert len(reproduction.select_cells("real/lost/cc,real/lost/rc,real/lost/cc")) == 2
    # Each table contributes the rows and protocols it has, as with "all".
    some = reproduction.select_cells(
        "real,noise_real", methods=["propall", "propall-no-noise", "cc"], data=["lost"]
    )
    assert [w.cell.name for w in some] == [
        "real/lost/propall",
        "real/lost/cc",
        "noise_real/lost/propall",
        "noise_real/lost/propall-no-noise",
    ]
    mixed = reproduction.select_cells("uniform,real", protocol="q0.1,single80")
    assert {(w.cell.table, w.protocol) for w in mixed} == {("uniform", "q0.1"), ("real", "single80")}
    with pytest.raises(ValueError, match=r"table uniform has no protocol 'q0\.7'"):
        reproduction.select_cells("uniform,real", protocol="q0.1,q0.7")
    with pytest.raises(ValueError, match="did you mean"):
        reproduction.select_cells("uniform,reel")


def test_confusions_are_kept_for_the_figures_that_need_them():
    (propall, pc) = reproduction.select_cells("candidates10", data=["mnist"], methods=["propall", "pc"])[:2]
    assert [reproduction.needs_confusions(spec) for spec in propall.specs] == [True, False, False]
    assert [reproduction.needs_recalls(spec) for spec in propall.specs] == [True, True, True]
    assert not any(reproduction.needs_confusions(spec) for spec in pc.specs)
    (real,) = reproduction.select_cells("real", data=["lost"], methods=["propall"])
    assert not any(reproduction.needs_confusions(spec) for spec in real.specs)
    assert reproduction.needs_confusions(replace(propall.specs[0], seed=0))
