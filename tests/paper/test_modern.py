"""The table of images with views: rows, runs that resume, results, ranks."""

from dataclasses import replace

import pytest
import torch

from propall.data.corruption import IndependentFlip, InstanceDependent
from propall.methods.cc import CC
from propall.methods.propall import ProPaLL
from propall.paper import modern
from propall.paper.evidence import Evidence
from propall.paper.monitors import CurveRecorder
from propall.paper.pages import report_page, reproduction_markdown
from propall.paper.pages.modern import methods_table, modern_exhibits, modern_results, modern_sections
from propall.paper.results import RunResult
from propall.paper.results_io import open_folder, write_folder
from propall.paper.specs import Spec, Split, Teacher
from propall.paper.store import Store
from propall.paper.tables.modern import (
    COMPARED,
    COMPARISONS,
    CandidateLaw,
    ModernRow,
    contenders,
    modern_rows,
)
from propall.registry import UnknownNameError
from propall.training.named_recipes import adapt_views
from propall.training.recipe import Recipe
from propall.training.views import Views
from tests.made_up import made_up

CIFAR10, DIGITS = COMPARISONS["cifar10"], COMPARISONS["digits"]
RECIPE = adapt_views(
    Recipe(epochs=2, batch_size=16, learning_rate=0.1, views=Views()), size=8, mirrored=False
)


@pytest.fixture
def tiny(monkeypatch):
    """Three rows on 8 x 8 digits, one of them with a teacher."""
    teacher = Teacher("small_cnn", replace(RECIPE, views=None, epochs=1), "public")
    flips = CandidateLaw("uniform-0.5", "uniform", IndependentFlip(0.5))
    by_teacher = CandidateLaw("instance", "instance-dependent", InstanceDependent(0.3), teacher)
    rows = []
    for name, law, method in (
        ("uniform-0.5", flips, ProPaLL()),
        ("uniform-0.5/cc", flips, CC()),
        ("instance", by_teacher, ProPaLL()),
    ):
        split = Split(per_class=4)
        spec = Spec("digits", method, "small_cnn", RECIPE, law.corruption, split, teacher=law.teacher)
        rows.append(ModernRow(name, law, method.title, spec, seeds=2))
    chosen = {row.name: row for row in rows}
    monkeypatch.setattr(modern, "modern_rows", lambda: chosen)
    return chosen


def test_rows_survive_json_and_have_distinct_runs():
    rows = modern_rows()
    assert {"uniform-0.1", "uniform-0.7", "proden-0.5", "instance-public-wrn", "kmnist-instance"} <= set(rows)
    specs = [spec for row in rows.values() for spec in row.specs()]
    assert len({spec.key for spec in specs}) == len(specs)
    assert all(Spec.from_json(spec.to_json()) == spec for spec in specs)
    assert all(len(rows[name].specs()) == 3 for name in COMPARED)
    by_setting = {
        setting: set() for comparison in (CIFAR10, DIGITS) for setting in comparison.settings.values()
    }
    for row in rows.values():
        if row.setting in by_setting:
            by_setting[row.setting].add(row.method)
    assert all(methods == set(contenders()) for methods in by_setting.values())
    assert rows["instance/propall-one-view"].spec.title == "ProPaLL"
    assert rows["instance/dirk"].spec.title == "DIRK"
    assert all(spec.title for spec in specs)


def test_each_law_has_its_views():
    rows = modern_rows()
    balances = {name: rows[name].spec.recipe.views.balance for name in ("uniform-0.5", "complementary")}
    assert balances == {"uniform-0.5": 0.0, "complementary": 0.5}
    assert rows["missing-0.1-tolerant"].spec.recipe.views.tolerance == "auto"
    assert rows["instance/dirk"].spec.recipe.views.targets == "teacher"
    assert rows["complementary/crdpll"].spec.recipe.views.balance == 0.5
    assert rows["uniform-0.5/crdpll"].spec.method.name == "non_candidates"
    assert not rows["kmnist-uniform-0.5"].spec.recipe.views.strong.flip
    assert rows["instance"].spec.teacher.scoring == "eval"
    public, sure = (rows[name].spec.teacher for name in ("instance-public", "instance-sure"))
    assert (public.scoring, public.dropout) == ("public", 0.3)
    assert sure == replace(public, dropout=0.0)
    assert len(rows["instance-sure"].specs()) == 1
    assert "dropout" not in sure.to_dict()  # its key is that of 0.2.0
    assert rows["instance-sure"].spec.key == "09e0f303d364eef9b3cb6fc4"
    # The headline rows have the candidate sets of the short ones.
    for name in ("instance", "instance-public"):
        for ending in ("200", "wrn"):
            assert rows[f"{name}-{ending}"].spec.teacher == rows[name].spec.teacher
    long = rows["complementary-200"].spec.recipe
    assert (long.epochs, long.views.n_strong, long.views.balance) == (200, 2, 0.5)
    assert rows["uniform-0.5/propall-one-view"].spec.recipe.views.n_strong == 0
    assert [rows[f"clean{net}"].spec.net for net in ("", "-resnet18", "-wrn")] == [
        "fast_convnet",
        "resnet18",
        "wrn28_10",
    ]
    assert rows["clean-wrn"].spec.corruption == IndependentFlip(0.0)
    flips = rows["instance-alternating"].spec.recipe.views
    assert (flips.weak.flip, flips.strong.flip) == ("alternating", "alternating")
    assert replace(flips, weak=Views().weak, strong=Views().strong) == rows["instance"].spec.recipe.views
    balanced = rows["digits-instance-balanced"]
    assert balanced.spec.recipe.views.balance == 0.5
    assert balanced.spec.corruption == rows["digits-instance/propall"].spec.corruption
    assert len(balanced.specs()) == len(rows["digits-instance/propall"].specs())
    at_first = rows["digits-instance-balanced-at-first"].spec.recipe.views
    assert at_first == replace(balanced.spec.recipe.views, balance_fade=0.5)
    low, usual = rows["uniform-0.5-wrn-low-rate"].spec.recipe, rows["uniform-0.5-wrn"].spec.recipe
    assert low == replace(usual, learning_rate=usual.learning_rate / 4)
    strong = rows["clean-resnet18-strong-decay"].spec.recipe
    assert strong == replace(rows["clean-resnet18"].spec.recipe, weight_decay=2 * usual.weight_decay)
    two, others = rows["instance/propall-two-strong"].spec, rows["instance/glws"].spec
    assert two.recipe.views.n_strong == others.recipe.views.n_strong == 2
    assert two.method == rows["instance"].spec.method


def test_published_numbers_stand_beside_rows_of_the_same_law():
    rows = modern_rows()
    assert "PiCO 93.58 (ResNet-18, 800 epochs" in str(rows["uniform-0.5"].published[0])
    paper = rows["fashion_mnist-uniform-0.5"].published
    assert [(entry.method, entry.accuracy) for entry in paper] == [("ProPaLL", 90.4)]
    assert rows["uniform-0.5/cc"].published == ()
    assert rows["proden-0.5"].published == ()


def test_rows_are_selected_by_name_pattern_method_and_protocol():
    assert [row.row.name for row in modern.select_rows(["uniform-0.?"])] == [
        f"uniform-{q}" for q in (0.1, 0.3, 0.5, 0.7)
    ]
    assert [row.row.name for row in modern.select_rows(methods=["cc"])] == [
        f"{data}{law}/cc" for data in ("", "digits-") for law in COMPARED
    ]
    (row,) = modern.select_rows(["instance"], protocol="short-1epochs", seeds=4)
    assert row.protocol == "modern-short-1epochs"
    assert [spec.recipe.epochs for spec in row.specs] == [1]
    assert row.specs[0].teacher.recipe.epochs == 2
    for options in ({"only": ["unifrom-0.5"]}, {"methods": ["ccc"]}, {"data": ["cifar"]}, {"protocol": "q"}):
        with pytest.raises(UnknownNameError, match=next(iter(options))):
            modern.select_rows(**options)


def test_runs_resume_and_the_report_shows_them(tiny, tmp_path):
    rows = modern.select_rows()
    path = tmp_path / "results.sqlite"
    with Store(path) as store:
        modern.run_rows(modern.select_rows(["instance"]), store, device="cpu")
        assert len(list((tmp_path / "teachers").glob("*.safetensors"))) == 1
        plan = modern.run_rows(rows, store, device="cpu")
        assert (plan.stored, len(plan.missing), plan.failures) == (2, 4, [])
        results = modern.row_results(rows, store.find(modern.unique_specs(rows)))
        assert [result.note for result in results] == ["", "", ""]
        by_setting = {result.row.setting: result.candidates for result in results}
        assert by_setting["uniform-0.5"] == pytest.approx(5.5, abs=0.7)
        write_folder(store, tmp_path / "published")
    folder = open_folder(tmp_path / "published")
    again = modern.row_results(rows, {result.spec.key: result for result in folder.newest()})
    assert [r.mean for r in again] == pytest.approx([r.mean for r in results], abs=1e-3)


def test_headings_have_the_epochs_of_the_protocol():
    for protocol, epochs in ((None, 45), ("short", 2), ("full-10epochs", 10)):
        (result,) = modern.row_results(modern.select_rows(["uniform-0.5"], protocol=protocol), {})
        assert result.part == f"CIFAR-10, fast convnet, {epochs} epochs"
        assert modern.as_dicts([result])[0]["part"] == result.part
    (result,) = modern.row_results(modern.select_rows(["digits-instance/cc"], protocol="full-9epochs"), {})
    assert result.part == "Comparison of methods, Digits, small CNN, 9 epochs"


def test_training_time_leaves_compiling_out(result):
    timed = replace(result(), times={1: 60.0, 2: 61.0, 3: 62.0, 4: 63.0, 14: 73.0})
    assert modern.training_time(timed) == modern.TrainingTime(14.0, 59.0)
    assert modern.training_time(replace(timed, times={})) is None
    # The same if fewer epochs are stored, also if their pace changes.
    slower = {1: 60.0, 2: 61.0, 3: 62.0, 4: 63.0, 14: 90.0}
    fewer = {epoch: slower[epoch] for epoch in (1, 4, 14)}
    assert modern.training_time(replace(timed, times=slower)) == modern.training_time(
        replace(timed, times=fewer)
    )


def test_the_start_of_a_process_that_resumes_is_not_training_time():
    recorder = CurveRecorder([None], every=1)
    recorder.begin(20, [0], 0)
    # One second per epoch; compiling takes 60 s in each of three processes.
    starts = {0: 60.0, 7: 60.0, 8: 60.0}
    clock = 0.0
    for epoch in range(1, 21):
        clock += 1.0 + starts.get(epoch - 1, 0.0)
        recorder._measured[f"time/{epoch}"] = torch.tensor(clock, dtype=torch.float64)
        if epoch in starts:
            saved = recorder.state()
            recorder = CurveRecorder([None], every=1)
            recorder.restore(saved)
            recorder.begin(20, [0], epoch)
    times = recorder.times()
    assert times == {epoch: 60.0 + epoch for epoch in range(1, 21)}


def test_the_time_of_an_epoch_is_unknown_if_every_process_trained_one(result):
    recorder = CurveRecorder([None], every=1)
    for epoch in range(1, 4):
        recorder.begin(3, [0], epoch - 1)
        recorder._measured[f"time/{epoch}"] = torch.tensor(10.0 * epoch, dtype=torch.float64)
        saved = recorder.state()
        recorder = CurveRecorder([None], every=1)
        recorder.restore(saved)
    assert recorder.times() == {1: 10.0}
    assert modern.training_time(replace(result(), times=recorder.times())) is None


def fill(store, levels):
    for name, level in levels.items():
        for spec in modern_rows()[name].specs():
            found: RunResult = made_up(spec, level)
            store.add(replace(found, times={epoch: 50 + 0.8 * epoch for epoch in found.curve}))


def add_runs(store, name, accuracies, **fields):
    for spec, accuracy in zip(modern_rows()[name].specs(seeds=len(accuracies)), accuracies, strict=True):
        store.add(replace(made_up(spec, accuracy), accuracy=accuracy, **fields))


def test_chance_leaves_ranks_open(tmp_path):
    levels = {"uniform-0.5": 0.96, "uniform-0.5/cc": 0.9599, "uniform-0.5/proden": 0.95}
    levels["uniform-0.5/dirk"] = 0.93  # less accurate than any row with several seeds
    with Store(tmp_path / "results.sqlite") as store:
        for name, level in levels.items():
            add_runs(store, name, [level])
        results = modern_results(Evidence(store))
        assert modern.run_spread(results, CIFAR10) is None  # one run each
        assert modern.open_ranks(results, CIFAR10) == {}
        assert "Ranges" not in methods_table(results).caption
        add_runs(store, "instance", [0.949, 0.95, 0.951])
        results = modern_results(Evidence(store))
        known = modern.run_spread(results, CIFAR10)
        assert (known.spread.deviation, known.spread.degrees) == (pytest.approx(0.1), 2)
        assert known.lowest == 95
        add_runs(store, "complementary/pop", [0.9675, 0.9685, 0.9695])  # the lowest of several rows
        # Other candidate sets, images and numbers of epochs say nothing about these.
        add_runs(store, "missing-0.3", [0.5, 0.7, 0.9])
        add_runs(store, "kmnist-uniform-0.5", [0.5, 0.9])
        add_runs(store, "digits-uniform-0.5/cc", [0.5, 0.9])
        add_runs(store, "uniform-0.5-alternating", [0.5, 0.9])
        results = modern_results(Evidence(store))
        known = modern.run_spread(results, CIFAR10)
        assert (known.spread.deviation, known.spread.degrees, known.lowest) == (pytest.approx(0.1), 4, 95)
        # A setting with one method, and methods whose spread is not known, have no ranges.
        ranges = {"propall": (1, 2), "cc": (1, 2), "proden": (3, 3)}
        assert modern.open_ranks(results, CIFAR10) == {"uniform-0.5": modern.OpenRanks(ranges, known)}
        table = methods_table(results)
        assert "pooled standard deviation 0.10 points, 4 degrees of freedom)" in table.caption
        assert "Methods below 95 %" in table.caption
        shown = {row.title: [cell.text for cell in row.cells] for row in table.rows}
        assert "1–2" in shown["CC"]
        assert "3" in shown["PRODEN"]
        assert not any("–" in text and len(text) > 1 for text in shown["DIRK"])


def test_ranges_of_ranks_narrow_with_the_number_of_runs(tmp_path):
    with Store(tmp_path / "results.sqlite") as store:
        add_runs(store, "uniform-0.5", [0.9590, 0.9600, 0.9610])
        add_runs(store, "uniform-0.5/cc", [0.9635])
        (one,) = modern.open_ranks(modern_results(Evidence(store)), CIFAR10).values()
        assert one.ranges == {"propall": (1, 2), "cc": (1, 2)}
        add_runs(store, "uniform-0.5/cc", [0.9625, 0.9635, 0.9645])
        (three,) = modern.open_ranks(modern_results(Evidence(store)), CIFAR10).values()
        assert three.ranges == {"propall": (2, 2), "cc": (1, 1)}


def test_rows_with_other_candidate_sets_say_so(tmp_path):
    with Store(tmp_path / "results.sqlite") as store:
        for method in ("/cc", "/proden", "/pop"):
            add_runs(store, f"instance{method}", [0.95], candidates=3.86)
        add_runs(store, "instance", [0.95, 0.95], candidates=3.87)  # nobody else has the second seed
        add_runs(store, "uniform-0.5", [0.95], candidates=5.5)
        add_runs(store, "uniform-0.5/cc", [0.95], candidates=5.5)
        results = modern_results(Evidence(store))
        assert modern.with_other_sets(results, CIFAR10, "instance") == {"propall"}
        assert modern.with_other_sets(results, CIFAR10, "uniform-0.5") == set()
        remarks = {row.title: row.cells[3].remark for row in methods_table(results).rows}
        assert remarks["ProPaLL"] == "2 of 3 runs; other candidate sets by the same law"
        assert remarks["CC"] == "1 of 3 runs"


def test_methods_on_digits_need_no_gpu():
    rows = modern_rows()
    specs = [rows[f"digits-{law}/{name}"].spec for law in COMPARED for name in contenders()]
    assert {(s.data, s.net, s.recipe.epochs, s.recipe.precision) for s in specs} == {
        ("digits", "small_cnn", 45, "float32")
    }
    assert len(rows["digits-instance/cc"].specs()) >= modern.FEWEST_REPEATS == 5
    one, teacher = rows["digits-instance/cc"].spec, rows["digits-instance/cc"].spec.teacher
    assert teacher.net == "small_cnn"
    assert not one.recipe.views.strong.flip
    assert not teacher.recipe.views.n_strong
    balances = [rows[f"digits-{law}/crdpll"].spec.recipe.views.balance for law in COMPARED]
    assert balances == [0, 0, 0.5]


def test_methods_with_enough_seeds_are_ranked_by_their_own_spread(tmp_path):
    runs = {
        "propall": [0.98, 0.981, 0.979, 0.98, 0.98],
        "cc": [0.90, 0.99, 0.95, 1.0, 0.96],  # not told apart from ProPaLL, in spite of its lower mean
        "dirk": [0.5, 0.51, 0.49, 0.5, 0.5],
    }
    with Store(tmp_path / "results.sqlite") as store:
        for method, accuracies in runs.items():
            row = modern_rows()[f"digits-instance/{method}"]
            for spec, accuracy in zip(row.specs(seeds=5), accuracies, strict=True):
                store.add(replace(made_up(spec, accuracy), accuracy=accuracy))
        results = modern_results(Evidence(store))
        ranges = {"propall": (1, 2), "cc": (1, 2), "dirk": (3, 3)}
        assert modern.open_ranks(results, DIGITS) == {"instance": modern.OpenRanks(ranges, None)}
        table = methods_table(results, DIGITS)
        assert "each method's own runs (Tamhane's T2)" in table.caption
        shown = {row.title: row.cells[3].mean for row in table.rows}  # after three columns of another law
        assert (shown["ProPaLL"], shown["CC"], shown["DIRK"]) == pytest.approx((98.0, 96.0, 50.0))
        assert table.caption.startswith("Digits, small CNN, 45 epochs")
        exhibits = {exhibit.name: exhibit for exhibit in modern_exhibits(results)}
        assert list(exhibits) == ["modern", "modern-methods-digits"]
        assert exhibits["modern-methods-digits"].provenance["runs"] == "15"
        # The spread is pooled under a law in which a method has fewer runs, and under no other.
        for method in ("able", "cc"):
            store.add(made_up(modern_rows()[f"digits-uniform-0.5/{method}"].spec, 0.97))
        results = modern_results(Evidence(store))
        found = modern.open_ranks(results, DIGITS)
        assert (found["instance"].pooled, found["uniform-0.5"].pooled is None) == (None, False)
        caption = methods_table(results, DIGITS).caption
        assert "own runs under instance-dependent" in caption
        assert "Under uniform, q = 0.5, singletons allowed, ranges take single runs" in caption


def test_a_method_whose_spread_is_not_known_still_counts_as_a_competitor(tmp_path):
    levels = {"uniform-0.5": 0.9202, "uniform-0.5/cc": 0.9201, "uniform-0.5/proden": 0.9199}
    with Store(tmp_path / "results.sqlite") as store:
        for name, level in levels.items():
            (spec,) = modern_rows()[name].specs(seeds=1)
            store.add(replace(made_up(spec, level), accuracy=level))
        add_runs(store, "instance", [0.914, 0.92, 0.926])
        results = modern_results(Evidence(store))
        assert modern.open_ranks(results, CIFAR10)["uniform-0.5"].ranges == {"propall": (1, 3), "cc": (1, 3)}


def test_the_heading_names_place_and_open_ranks_if_all_are_known(tmp_path):
    rows = {name: 0.95 for law in COMPARED for name in (law, f"{law}/cc")}
    with Store(tmp_path / "results.sqlite") as store:

        def heading(levels):
            for name, level in levels.items():
                add_runs(store, name, [level])
            (section,) = modern_sections(Evidence(store))
            return section.heading

        assert "chance" not in heading(rows)
        # The other method of each law is equally accurate, so both share the first place.
        assert "mean rank is 1.5, place 1 of 2 methods" in heading({})
        fill(store, {"uniform-0.5/pop": 0.9})
        assert heading({}).endswith("; chance leaves ranks 1–2, 1–2 and 1–2 open")
        assert "place 2 of 2" in heading({f"{law}/cc": 0.96 for law in COMPARED})


def test_ranks_need_all_methods_and_settings(tmp_path):
    with Store(tmp_path / "results.sqlite") as store:
        fill(store, {"uniform-0.5": 0.9, "uniform-0.5/cc": 0.95, "instance": 0.9})
        results = modern_results(Evidence(store))
        assert modern.method_ranks(results, CIFAR10) == {
            "propall": {"uniform-0.5": 2.0},
            "cc": {"uniform-0.5": 1.0},
        }
        fill(store, {"instance/cc": 0.8, "complementary": 0.9, "complementary/cc": 0.8})
        ranks = modern.method_ranks(modern_results(Evidence(store)), CIFAR10)
        assert ranks["propall"]["mean"] == pytest.approx(4 / 3)
        assert ranks["cc"]["mean"] == pytest.approx(5 / 3)
        # Methods that were run under one law only change its ranks, not the mean ranks of the others.
        fill(store, {f"uniform-0.5/{name}": 0.92 for name in ("proden", "pop", "dirk")})
        ranks = modern.method_ranks(modern_results(Evidence(store)), CIFAR10)
        assert ranks["propall"] == {"uniform-0.5": 5, "instance": 1, "complementary": 1, "mean": 4 / 3}
        assert ranks["cc"]["mean"] == pytest.approx(5 / 3)
        assert "mean" not in ranks["pop"]


def test_of_other_protocols_the_rows_that_were_run_are_shown(tmp_path):
    row = modern_rows()["uniform-0.5-wrn"]
    with Store(tmp_path / "results.sqlite") as store:
        store.add(*(made_up(spec, 0.9) for spec in row.specs("full-70epochs")))
        (section,) = modern_sections(Evidence(store))
        store.add(*(made_up(spec, 0.9) for spec in row.specs()))
        full = modern_sections(Evidence(store))[0]
    assert section.heading == "Images trained with views. 1 of 1 rows done."
    assert section.text.endswith(" Protocol modern-70epochs: 70 epochs instead of the table's number.")
    (table,) = section.blocks
    assert [[cell.text for cell in row.cells[3:5]] for row in table.block.rows] == [["WRN-28-10", "70"]]
    # The protocol of the table itself also shows what is missing.
    assert "instead of the table's number" not in full.text
    assert len(full.blocks[0].block.rows) > 50


def test_the_page_and_the_markdown_show_the_table(tmp_path):
    levels = dict.fromkeys([*COMPARED, *(f"{name}/cc" for name in COMPARED)], 0.95)
    with Store(tmp_path / "results.sqlite") as store:
        fill(store, levels | {"instance/cc": 0.85})
        evidence = Evidence(store)
        page, text = report_page(evidence), reproduction_markdown(evidence)
        table = methods_table(modern_results(evidence))
    section = next(section for section in page.sections if section.label == "Images trained with views")
    assert "ProPaLL's mean rank" in section.heading
    html = page.to_html()
    assert "PiCO 93.58" in html
    assert "36.0" in html  # training seconds
    assert "50.0" in html  # compiling
    assert "### Images trained with views" in text
    assert table.rows[0].title in ("ProPaLL", "CC")
    assert "CLSP is not compared" in table.caption
    assert {"crdpll", "dirk", "alim_scale"} <= set(contenders())
