"""The page of the command line has every command, option and setting, and examples that can be typed."""

import re
import shlex

import pytest

from tests.documentation.pages import ROOT, all_pages

#: A command in running text.
_INLINE = re.compile(r"(?<!`)`(propall [^`\n]+)`")


@pytest.fixture(scope="module")
def pages():
    """The module that writes the page."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "docs" / "_hooks"))
        import commands

        yield commands


@pytest.fixture(scope="module")
def sections(pages):
    """Text of the page by anchor."""
    parts = re.split(r"^#+ propall [\w -]+ \{ #([\w-]+) \}$", pages.commands_page(), flags=re.MULTILINE)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def test_every_command_option_and_setting_is_on_the_page(pages, sections):
    entries = pages.entries()
    assert len(entries) > 25
    for entry in entries:
        section = sections["-".join(entry.words[1:])]
        for panel in entry.parameters().values():
            for parameter in panel:
                for name in (*parameter.opts, *parameter.secondary_opts):
                    assert re.search(rf"^`[^`]*{name}\b[^`]*`\n:   ", section, re.MULTILINE), (
                        entry.words,
                        name,
                    )
        for key, (_, default) in getattr(entry.command, "settings", {}).items():
            assert re.search(rf"^`{key}`\n:   ", section, re.MULTILINE), (entry.words, key)
            assert default in section


def test_defaults_and_ranges_are_those_of_the_commands(sections):
    assert "`--seeds <int>`\n:   Runs per method. Default: `5`. At least 1.\n" in sections["demo"]
    assert re.search(r"^`file <path>`\n:   .*\. Required\.$", sections["fit"], re.MULTILINE)
    assert "Separator between the labels of a cell. Default: `|`." in sections["fit"]


def test_commands_are_listed_under_the_headings_of_the_help(sections):
    from propall.cli.app import EXPERIMENTS, FIRST_STEPS, OWN_TABLE

    headings = re.findall(r"^\*\*(.+)\*\*$", sections[""], re.MULTILINE)
    assert headings == [FIRST_STEPS, OWN_TABLE, EXPERIMENTS, "Options of propall itself"]


def test_every_command_has_an_example_that_it_accepts(pages):
    for entry in pages.entries():
        if hasattr(entry.command, "commands"):
            continue
        assert entry.examples, entry.words
        for _, line in entry.examples:
            words = tuple(shlex.split(line))
            assert words[: len(entry.words)] == entry.words
            # Parses the words, and does not run the command.
            entry.command.make_context(entry.words[-1], list(words[len(entry.words) :]))


def test_markup_in_a_help_text_is_shown(pages):
    assert pages._prose("a|b <c> d_e `f_g|h`") == r"a\|b \<c> d\_e `f_g|h`"


def test_commands_in_the_text_of_the_pages_exist(pages):
    options = {
        entry.words: {
            name
            for panel in entry.parameters().values()
            for parameter in panel
            for name in (*parameter.opts, *parameter.secondary_opts)
        }
        for entry in pages.entries()
    }
    everywhere = options[("propall",)] | {"--help", "-h"}
    texts = {path: path.read_text(encoding="utf-8") for path in [*all_pages(), ROOT / "CONTRIBUTING.md"]}
    found = [(path.name, line) for path, text in texts.items() for line in _INLINE.findall(text)]
    assert len(found) > 40
    unknown = []
    for page, line in found:
        words = tuple(line.replace("'", " ").split())
        command = next((words[:n] for n in (3, 2, 1) if words[:n] in options), None)
        is_known = command is not None and (len(command) > 1 or len(words) == 1 or words[1].startswith("-"))
        flags = {
            word.partition("=")[0].rstrip(",.") for word in words if word.startswith("-") and word != "-"
        }
        if not is_known or flags - options[command] - everywhere:
            unknown.append((page, line))
    assert not unknown
