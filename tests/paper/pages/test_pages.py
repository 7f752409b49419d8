"""The report shows all stored numbers, and a reason where there is none."""

import csv
import io
import re
from dataclasses import replace

import pytest

from propall.cli import main
from propall.paper import reproduction, results_io
from propall.paper.evidence import Evidence
from propall.paper.pages import report_page, reproduction_markdown
from propall.paper.store import Store
from propall.paper.tables import TABLES
from propall.paper.verdicts import judge_claims
from propall.report.exhibits import exhibits, export_exhibits
from propall.report.numbers import format_mean
from tests.made_up import fill, made_up


def text_of(html, outline):
    return " ".join(" ".join(outline(html).text).split()).replace("\N{NO-BREAK SPACE}", " ")


@pytest.fixture
def store(tmp_path):
    with Store(tmp_path / "results.sqlite") as opened:
        yield opened


def small(store):
    """Two tables on two data sets each, and times."""
    fill(store, ["real", "noise_real"], data=["lost", "msrcv2"])
    fill(store, ["uniform"], ["timed"], data=["mnist"])
    return Evidence(store)


def test_page_shows_all_stored_numbers_and_stays_small(full_page, full_store, outline):
    html = full_page.read_text(encoding="utf-8")
    assert full_page.stat().st_size < 2_000_000
    text = text_of(html, outline)
    parsed = outline(html)
    assert len(parsed.ids) == len(set(parsed.ids))
    assert all(address.startswith(("#", "data:")) for address in parsed.addresses)
    with Store(full_store) as store:
        shown = 0
        for table in TABLES:
            for entry in Evidence(store).entries(table):
                if entry.mean is not None:
                    assert format_mean(entry.mean, entry.std) in text, entry.cell.name
                    shown += 1
                if entry.published is not None:
                    assert format_mean(*entry.published) in text, entry.cell.name
    assert shown > 309
    for claim in ("Uniform superiority", "Speed", "Noise", "Consecutive learning of classes"):
        assert claim in text
    assert "Soccer Player: not run, its data has no download. To run it: put soccer_player.mat at" in text
    assert "propall reproduce real --data soccer_player --protocol folds5" in text
    assert "309 of the paper's 416 numbers are fully measured" in text


def test_empty_store(store, outline):
    text = text_of(report_page(Evidence(store)).to_html(), outline)
    assert "Nothing has been measured yet" in text
    assert "propall reproduce real" in text
    whole = reproduction_markdown(Evidence(store))
    assert whole.count("**not measured**") == 2 * len(judge_claims(Evidence(store)))
    assert "holds" not in re.sub(r"Rule: .*", "", whole).replace("does not hold", "")
    assert "Nothing was run." in whole


def test_missing_runs_are_named(store, outline):
    page = report_page(small(store))
    text = text_of(page.to_html(), outline)
    assert "Table 7: one complementary label: not run. Run propall reproduce complementary" in text
    assert "not run" in text
    assert "Table 4: real-world candidate sets" in text
    assert "BirdSong: not run, its data has no download. To run it: put" in text
    names = {item.name for item in exhibits(page)}
    assert {"real-folds5", "noise_real-folds5", "time", "time-mnist"} <= names
    assert not any(name.startswith(("candidates", "complementary")) for name in names)


def test_markdown_does_not_depend_on_local_data(store, tmp_path, monkeypatch):
    evidence, folder = small(store), tmp_path / "data"
    monkeypatch.setenv("PROPALL_DATA", str(folder))
    empty = reproduction_markdown(evidence)
    (folder / "realworld").mkdir(parents=True)
    (folder / "realworld" / "soccer_player.mat").touch()
    assert reproduction_markdown(Evidence(store)) == empty
    assert "put soccer_player.mat at $PROPALL_DATA/realworld/soccer_player.mat" in empty


def test_incomparable_cells_are_hatched_with_the_reason(store):
    fill(store, ["real"], ["folds5", "single80"], data=["lost"])
    by_name = {item.name: item.block for item in exhibits(report_page(Evidence(store)))}
    for name, hatched in (("real-folds5", {"ProPaLL"}), ("real-single80", None)):
        rows = {row.title: row.cells[1].hatched for row in by_name[name].rows}
        marked = {title for title, reason in rows.items() if reason}
        assert marked == (hatched or set(rows) - {"ProPaLL"})
        for row in by_name[name].rows:
            assert (row.cells[2].text == "–") == bool(row.cells[1].hatched)


def test_headings_use_complete_settings_of_judged_protocols(store):
    def heading(of):
        (text,) = [s.heading for s in report_page(Evidence(store)).sections if s.label == TABLES[of].title]
        return text.removeprefix(f"{TABLES[of].title}. ")

    fill(store, ["real"], ["single80"], data=["lost"])
    assert heading("real") == "Only run under other protocols than its first"
    some = reproduction.select_cells("real", data=["msrcv2"], methods=["propall", "cc"])
    store.add(*(made_up(spec, 0.5) for cell in some for spec in cell.specs))
    assert heading("real") == "No setting has results for all methods yet"
    fill(store, ["real"], data=["lost"], lead=20)
    assert heading("real") == "ProPaLL has the highest mean in 1 of 1 settings"
    fill(store, ["noise_uniform"], ["q0.5", "q0.1"], data=["mnist"], lead=-2)
    assert heading("noise_uniform") == "With noise, the mean is higher in 0 of 2 cells"


def test_smoke_runs_and_shortened_runs_are_shown_but_not_compared(store):
    fill(store, ["real"], ["short"], data=["lost"])
    cells = reproduction.select_cells(
        "real", protocol="folds5-50epochs", data=["lost"], methods=["propall", "cc"]
    )
    store.add(*(made_up(spec, 0.5) for cell in cells for spec in cell.specs))
    by_name = {item.name: item.block for item in exhibits(report_page(Evidence(store)))}
    assert set(by_name) == {"real-short", "real-folds5-50epochs"}
    for name, table in by_name.items():
        assert f"Protocol {name.removeprefix('real-')}:" in table.caption
        for row in table.rows:
            if row.cells[0].mean is not None:
                assert row.cells[1].hatched
                assert row.cells[2].text == "–"
    assert all(claim.verdict == "not measured" for claim in judge_claims(Evidence(store)))


def test_nothing_is_concluded_from_smoke_runs(store):
    fill(store, ["real", "complementary"], ["short"])
    page = report_page(Evidence(store))
    assert page.finding.endswith("no claim can be judged yet.")
    headings = [section.heading for section in page.sections]
    assert headings[0] == "No claim can be judged yet"
    assert "Table 4: real-world candidate sets. Only smoke runs and timings" in headings
    assert "<code>propall reproduce uniform --protocol timed</code>" in page.to_html()


def test_incomplete_cells_state_their_number_of_runs(store):
    (cell,) = reproduction.select_cells("complementary", data=["mnist"], methods=["nn"])
    store.add(*(made_up(spec, 0.6) for spec in cell.specs[:3]))
    (item,) = exhibits(report_page(Evidence(store)))
    (row,) = [row for row in item.block.rows if row.title == "NN"]
    assert row.cells[0].remark == "3 of 10 runs"
    assert "3 of 10 runs" in item.block.footnotes
    assert item.provenance["runs"] == "3"
    assert item.provenance["hardware"] == "NVIDIA H200"


def test_ranks_over_runs_carry_a_warning(store):
    fill(store, ["complementary"])
    default = report_page(Evidence(store))
    captions = [item.block.caption for item in exhibits(default) if item.name.startswith("cd-")]
    assert len(captions) == 2
    assert all("over 3 data sets" in caption and "Iman-Davenport p = " in caption for caption in captions)
    assert "overstated" not in default.to_html()
    by_runs = report_page(Evidence(store), blocks="runs")
    measured, published = (i.block.caption for i in exhibits(by_runs) if i.name.startswith("cd-"))
    assert "over 30 single runs" in measured
    assert "not independent blocks, so significance is overstated" in measured
    assert "over 3 data sets" in published
    assert "Warning: every run counts as a block" in by_runs.to_html()


def test_every_exhibit_is_exported(store, tmp_path):
    page = report_page(small(store))
    files = export_exhibits(page, tmp_path / "files")
    names = [item.name for item in exhibits(page)]
    assert len(names) == len(set(names))
    assert {file.name for file in files} == {
        f"{name}{ending}" for name in names for ending in (".csv", ".tex", ".txt", ".svg", ".png")
    }
    for file in files:
        head = file.read_bytes()[:200]
        if file.suffix == ".png":
            assert head.startswith(b"\x89PNG")
        elif file.suffix == ".svg":
            assert b"<?xml" in head
    text = (tmp_path / "files" / "real-folds5.csv").read_text(encoding="utf-8")
    (row,) = [row for row in csv.DictReader(io.StringIO(text)) if row["method"] == "IPAL"]
    (entry,) = [e for e in Evidence(store).entries("real") if e.cell[1:3] == ("lost", "ipal")]
    assert row["Lost ours"] == str(round(entry.mean, 6))
    assert float(row["Lost paper"]) == 72.10
    latex = (tmp_path / "files" / "real-folds5.tex").read_text(encoding="utf-8")
    assert latex.startswith("% needs \\usepackage{booktabs,amssymb}\n\\begin{table}")
    latex = (tmp_path / "files" / "time.tex").read_text(encoding="utf-8")
    assert latex.startswith("% needs \\usepackage{booktabs}\n\\begin{table}")
    assert "commit 0123456789ab" in (tmp_path / "files" / "time-mnist.txt").read_text(encoding="utf-8")


def test_markdown_has_every_claim_and_the_cost(full_text):
    assert full_text.count("Verdict: **") == 8
    assert (
        "Verdict: **holds**; ProPaLL is significantly better than the best other method in 6 of 6"
        in full_text
    )
    assert re.search(r"NVIDIA H200: \d+ runs took \d+ min .* times as long \(an estimate\)", full_text)
    assert "/root" not in full_text
    assert "<sub></sub>" not in full_text
    assert "corruption instance_dependent · rate 0.4 · protocol full" in full_text
    assert (
        "over two or more (paired t-test, level 0.05); times come from one long run per method" in full_text
    )
    assert "| ProPaLL | **78.8" in full_text


def test_report_command_writes_page_markdown_and_files(store, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small(store)
    results_io.write_folder(store, tmp_path / "results")
    main_ends("report", "--store", str(store.path), "--out", "a/page.html", "--markdown", "docs/r.md")
    first = capsys.readouterr().out
    assert "a/page.html" in first
    assert "of the paper's 416 numbers" in first
    main_ends("report", "--results", "results", "--out", "b.html", "--export", "files", "--blocks", "runs")
    assert "files in files" in capsys.readouterr().out
    one, other = ((tmp_path / name).read_text(encoding="utf-8") for name in ("a/page.html", "b.html"))
    headings = [re.findall(r"<h2.*?</h2>", page) for page in (one, other)]
    # Ranks over runs say something else; all other numbers survived the files.
    assert [h for h in headings[0] if "Ranks" not in h] == [h for h in headings[1] if "Ranks" not in h]
    assert len(headings[0]) == len(headings[1]) > 4
    assert "## Claims" in (tmp_path / "docs/r.md").read_text(encoding="utf-8")
    with pytest.raises(SystemExit):
        main(["report", "--store", "none.sqlite"])
    assert "none.sqlite does not exist" in capsys.readouterr().err


def main_ends(*words):
    with pytest.raises(SystemExit) as stop:
        main(list(words))
    assert not stop.value.code


def test_single_seed_has_no_std_and_no_test(store):
    for cell in reproduction.select_cells("complementary", data=["mnist"], seeds=1):
        store.add(*(made_up(replace(spec), 0.5) for spec in cell.specs))
    (item,) = exhibits(report_page(Evidence(store)))
    assert all(row.cells[0].std is None for row in item.block.rows)
    assert not any(row.cells[0].close for row in item.block.rows)
