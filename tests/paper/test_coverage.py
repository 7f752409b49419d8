"""How much of the paper is measured: each published cell counts once."""

import pytest

from propall.paper.coverage import measure_coverage
from propall.paper.evidence import Evidence
from propall.paper.store import Store
from propall.paper.tables import TABLES
from tests.made_up import fill, fill_at


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "results.sqlite") as opened:
        yield opened


def test_an_empty_store_covers_nothing(store):
    assert measure_coverage(Evidence(store))[:2] == (0, 0)
    assert measure_coverage(Evidence(store)).total == 416


def test_a_cell_that_two_tables_print_counts_once(store):
    fill(store, ["noise_real"], data=["lost"])
    # ProPaLL's runs fill its cell in two tables, which is one cell of the paper.
    assert measure_coverage(Evidence(store)).complete == 2


def test_coverage_counts_cells_started_under_another_protocol(store):
    fill_at(store, "uniform", lambda cell: 0.9, "q0.1", data=["mnist"], methods=["cc"])
    fill_at(store, "complementary", lambda cell: 0.9, data=["mnist"], methods=["nn"], seeds=2)
    coverage = measure_coverage(Evidence(store))
    assert (coverage.complete, coverage.started) == (0, 2)
    assert coverage.total == 416
    assert set(TABLES)
