"""Tables: every published number has its runs, and protocols are never mixed."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from propall.data import DATASETS
from propall.data.corruption import Complementary, Exactly, InstanceDependent, PRODENBinomialMin2
from propall.methods.valen import VALEN
from propall.nets import NETS
from propall.paper.specs import TEACHER, Spec
from propall.paper.tables import TABLES, find_cell, published_accuracies
from propall.paper.tables.paper_table import SAME_RATES, SHORT, SHORT_EPOCHS, SHORT_PER_CLASS, PaperCell
from propall.training.contract import Objective

EVERYWHERE = [(table, protocol) for table in TABLES.values() for protocol in table.protocols]


def keys(table, cell, protocol=None):
    return frozenset(spec.key for spec in table.specs(cell, protocol))


def test_416_different_cells_of_484_can_be_asked_for_by_name():
    different = set()
    numbers = published_accuracies()
    assert len(numbers) == 484
    for of in numbers:
        table = TABLES[of.table]
        row = next(row.name for row in table.rows if row.published == of.row)
        named = find_cell(of._replace(row=row).name)
        assert table.published(named) == numbers[of]
        different.add(keys(table, named))
    assert len(different) == 416
    assert frozenset() not in different


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("uniform/kmnist/propall", (93.50, 0.17)),
        ("instance/cifar10/valen", (80.38, 0.52)),
        ("real/soccer_player/ipal", (54.41, 0.68)),
        ("real/lost/pl_svm-auto", (71.56, 2.71)),
        ("candidates10/mnist/pc/9", None),
        ("complementary/mnist/pc_ishida", (84.04, 0.55)),
        ("noise_real/lost/propall-no-noise", (79.00, None)),
    ],
)
def test_published_numbers(name, expected):
    of = find_cell(name)
    published = TABLES[of.table].published(of)
    assert published is not None
    if expected is not None:
        assert published.mean == expected[0]
        assert expected[1] is None or published.std == expected[1]


@pytest.mark.parametrize(("table", "protocol"), EVERYWHERE, ids=lambda x: getattr(x, "name", x))
def test_every_cell_of_every_protocol_has_runs_that_survive_json_or_a_reason(table, protocol):
    for cell in table.cells():
        assert table.published(cell) is not None
        specs = table.specs(cell, protocol)
        assert bool(specs) != bool(table.left_out(cell, protocol))
        assert len({spec.key for spec in specs}) == len(specs)
        for spec in specs[:1]:
            assert Spec.from_json(spec.to_json()) == spec
            assert spec.data == cell.data
            NETS[spec.net]
            changed = protocol.endswith(SAME_RATES)
            assert spec.protocol in ({protocol, protocol.removesuffix(SAME_RATES)} if changed else {protocol})


@pytest.mark.parametrize("name", TABLES)
def test_no_run_belongs_to_two_protocols_except_where_it_is_the_same_run(name):
    table = TABLES[name]
    for cell in table.cells():
        by_protocol = {protocol: keys(table, cell, protocol) for protocol in table.protocols}
        for one, its in by_protocol.items():
            for other, others in by_protocol.items():
                if one != other and its & others:
                    # ProPaLL and methods without a learning rate do not change.
                    assert one.removesuffix(SAME_RATES) == other.removesuffix(SAME_RATES)
                    assert its == others


def test_same_rates_changes_the_others_to_propalls():
    real = TABLES["real"]
    ours = real.settings("msrcv2", "propall").recipe
    for row in ("proden", "rc", "cc", "d2cnn", "ga"):
        cell = PaperCell("real", "msrcv2", row)
        for spec in real.specs(cell, "same-rates"):
            assert spec.recipe == ours
            assert spec.protocol == "folds5" + SAME_RATES
        assert keys(real, cell, "same-rates").isdisjoint(keys(real, cell))
    (valen, *_) = real.specs(PaperCell("real", "msrcv2", "valen"), "same-rates")
    assert (valen.recipe.learning_rate, valen.recipe.last_batch) == (ours.learning_rate, "keep")
    for row in ("propall", "ipal", "pl_svm-auto"):
        cell = PaperCell("real", "msrcv2", row)
        assert keys(real, cell, "same-rates") == keys(real, cell, "folds5")


def test_protocols_by_name():
    assert TABLES["uniform"].protocol() == "q0.5"
    assert TABLES["uniform"].protocol("full") == "q0.5"
    assert TABLES["instance"].protocol("full") == "full"
    assert TABLES["real"].protocol("single80") == "single80"
    assert TABLES["uniform"].protocol("same-rates") == "q0.5+same-rates"
    with pytest.raises(ValueError, match="expected one of full, augmented, short"):
        TABLES["candidates10"].protocol("folds5")
    with pytest.raises(ValueError, match="expected one of full, short"):
        TABLES["complementary"].protocol("same-rates")


def specs(name, protocol=None, **more):
    of = find_cell(name)
    return TABLES[of.table].specs(of, protocol, **more)


def test_laws_splits_and_seeds():
    assert {s.corruption for s in specs("uniform/mnist/cc", "q0.1")} == {PRODENBinomialMin2(0.1)}
    assert [s.seed for s in specs("uniform/mnist/cc")] == [0, 1, 2, 3, 4]
    assert {(s.corruption, s.teacher) for s in specs("instance/mnist/cc")} == {
        (InstanceDependent(0.4), replace(TEACHER, precision="tf32"))
    }
    assert [s.split.fold for s in specs("real/lost/ipal")] == [0, 1, 2, 3, 4]
    assert [(s.split.fold, s.seed) for s in specs("real/lost/ipal", "single80")] == [(2, i) for i in range(5)]
    assert len(specs("real/lost/ipal", seeds=3)) == 15
    five = specs("candidates5/mnist/ova/3")
    assert {(s.corruption, s.split.classes, s.split.per_class) for s in five} == {
        (Exactly(3), (5, 6, 7, 8, 9), 1000)
    }
    augmented = specs("candidates10/mnist/ova/3", "augmented")
    assert {(s.recipe.augmentation, s.scaling) for s in augmented} == {("rotate_flip", "half")}
    one = specs("complementary/mnist/l_w")
    assert {(s.corruption, s.scaling) for s in one} == {(Complementary(), "unit")}
    assert len(one) == 10
    assert {s.net for s in specs("uniform/cifar10/valen-own-net")} == {"resnet32"}
    assert {s.net for s in specs("uniform/mnist/valen-own-net")} == {"valen_mlp4"}


def test_values_of_the_papers_appendix():
    def rates(name):
        of = find_cell(name)
        recipe = TABLES[of.table].settings(of.data, of.row).recipe
        return recipe.epochs, recipe.batch_size, recipe.learning_rate, recipe.weight_decay

    assert rates("uniform/mnist/propall") == (500, 256, 0.05, 1e-6)
    assert rates("uniform/cifar10/propall") == (500, 256, 0.05, 0.0)
    assert rates("real/lost/propall") == (500, 100, 0.01, 1e-4)
    assert rates("real/birdsong/propall") == (500, 100, 0.1, 0.0)
    assert rates("real/yahoo_news/propall") == (500, 256, 0.5, 0.0)
    assert rates("real/msrcv2/proden") == (500, 100, 0.1, 1e-3)
    assert rates("candidates10/mnist/pc/2") == (300, 64, 5e-4, 1e-4)
    assert rates("complementary/fashion_mnist/nn") == (300, 256, 1e-3, 0.0)


def test_short_runs_are_short_and_labeled():
    for table in TABLES.values():
        for cell in table.cells():
            specs = table.specs(cell, SHORT)
            if len(DATASETS[cell.data].shape) > 1:
                assert specs == []
                continue
            (spec,) = specs
            assert spec.protocol == SHORT
            assert spec.recipe.epochs == SHORT_EPOCHS
            assert spec.split.fold is not None or spec.split.per_class == SHORT_PER_CLASS
            assert spec.teacher is None or spec.teacher.epochs == SHORT_EPOCHS
            if isinstance(spec.method, VALEN):
                assert spec.method.warm_up == 1


def test_names_that_are_not_there():
    with pytest.raises(KeyError, match="did you mean"):
        find_cell("reel/lost/propall")
    with pytest.raises(KeyError, match="real/lost/propall"):
        find_cell("real/lost/nothing")
    with pytest.raises(ValueError, match="table real has no row 'pc'"):
        TABLES["real"].row("pc")


def test_noise_is_what_the_noise_tables_change():
    for name in TABLES:
        if name.startswith("noise_"):
            table = TABLES[name]
            quiet, noisy = (table.settings(table.data[0], row.name) for row in table.rows)
            assert isinstance(quiet.method, Objective)
            assert quiet == replace(noisy, method=replace(noisy.method, noise=0.0))


def test_timed_runs_are_three_methods_by_themselves():
    table = TABLES["uniform"]
    for row in ("propall", "proden", "valen"):
        (spec,) = table.specs(PaperCell("uniform", "kmnist", row), "timed")
        assert (spec.is_timed, spec.seed) == (True, 0)
        (same, *_) = table.specs(PaperCell("uniform", "kmnist", row), "q0.5")
        assert replace(spec, protocol="q0.5") == same
    assert not table.specs(PaperCell("uniform", "kmnist", "cc"), "timed")
    assert not table.specs(PaperCell("uniform", "cifar10", "propall"), "timed-5epochs")
    assert "timed" not in TABLES["noise_uniform"].protocols


def test_any_protocol_can_be_shorter_under_a_name_of_its_own():
    table = TABLES["uniform"]
    cell = PaperCell("uniform", "cifar10", "rc")
    assert table.protocol("full-50epochs") == "q0.5-50epochs"
    shorter, longer = table.specs(cell, "q0.5-50epochs"), table.specs(cell, "q0.5")
    assert [spec.recipe.epochs for spec in shorter] == [50] * 5
    assert {spec.protocol for spec in shorter} == {"q0.5-50epochs"}
    assert not keys(table, cell, "q0.5-50epochs") & keys(table, cell)
    assert [
        replace(ours, recipe=full.recipe, protocol="q0.5") for ours, full in zip(shorter, longer, strict=True)
    ] == longer
    # A method without epochs, or with the same number, is the same run.
    knn = PaperCell("real", "lost", "pl_knn")
    assert keys(TABLES["real"], knn, "folds5-50epochs") == keys(TABLES["real"], knn)
    assert keys(table, cell, "q0.5-250epochs") == keys(table, cell)
    assert table.describe("q0.5-50epochs").endswith("networks trained for 50 epochs")
    assert len(table.specs(cell, "q0.1+same-rates-50epochs", seeds=2)) == 2
    with pytest.raises(ValueError, match="such as -50epochs"):
        table.protocol("q0.7-50epochs")
    with pytest.raises(KeyError, match="table uniform has no protocol"):
        table.protocol("q0.5-50epochs-5epochs")


@pytest.mark.parametrize("name", ["candidates5", "noise_candidates5"])
def test_the_first_five_classes_are_a_protocol_of_their_own(name):
    table, cell = TABLES[name], PaperCell(name, "mnist", "propall", 1)
    assert table.protocol() == "full"
    assert {spec.split.classes for spec in table.specs(cell)} == {(5, 6, 7, 8, 9)}
    first = table.specs(cell, "classes0-4")
    assert {(spec.split.classes, spec.protocol) for spec in first} == {((0, 1, 2, 3, 4), "classes0-4")}
    assert {spec.protocol for spec in table.specs(cell, "classes0-4-5epochs")} == {"classes0-4-5epochs"}
    assert "classes0-4" in table.remark


def test_remarks_are_about_lines_that_a_table_has():
    for name in ("noise_real", "noise_complementary"):
        assert not any(word in TABLES[name].remark for word in ("GA", "L-W"))


def test_what_is_said_of_falling_methods_is_in_the_results():
    folder = Path(__file__).parents[3] / "results"
    table = TABLES["complementary"]
    rows = ("pc_ishida", "nn", "l_w", "l_uw")
    keys = {table.specs(PaperCell("complementary", "mnist", row))[0].key: row for row in rows}
    for line in (folder / "details.jsonl").read_text(encoding="utf-8").splitlines():
        run = json.loads(line)
        if row := keys.pop(run["key"], None):
            curve = {int(epoch): 100 * share for epoch, share in run["curve"].items()}
            best, last = max(curve.values()), curve[max(curve)]
            assert f"{table.row(row).title} {best:.1f} and {last:.1f}" in table.remark
    assert not keys


def test_a_smoke_run_stays_one_however_long():
    cell = PaperCell("uniform", "mnist", "cc")
    assert TABLES["uniform"].caveat_for(cell, "short-5epochs").startswith("a smoke run")
    assert TABLES["uniform"].caveat_for(cell, "q0.5-50epochs") == "ours was trained for only 50 epochs"
    assert "more than" in TABLES["uniform"].caveat_for(cell, "q0.5-900epochs")


@pytest.mark.parametrize(
    ("name", "precision"),
    [
        ("uniform/mnist/propall", "tf32"),
        ("uniform/mnist/valen", "tf32"),
        ("candidates10/mnist/pc/8", "tf32"),
        ("instance/cifar10/cc", "bfloat16"),
        ("candidates5/cifar10/ova/2", "bfloat16"),
        ("real/lost/propall", "float32"),
    ],
)
def test_networks_compute_in_one_precision(name, precision):
    for spec in specs(name):
        assert spec.recipe.precision == precision
        assert spec.teacher is None or spec.teacher.precision == precision
