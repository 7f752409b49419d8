"""A real browser for the pages, started once, and one small result to make pages of."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest

from propall.experiments.evidence import Evidence
from propall.experiments.store import Store
from propall.report.demo import DemoResults
from propall.report.reproduction import report_page, reproduction_text
from tests.made_up import fill

FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


VOID = {"meta", "link", "img", "br"}


class Outline(HTMLParser):
    """Checks that elements nest, and collects addresses, ids and visible text."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.addresses: list[str] = []
        self.ids: list[str] = []
        self.tags: set[str] = set()
        self.text: list[str] = []

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        named = dict(attrs)
        self.addresses += [
            named[name] for name in ("src", "href", "action", "data", "poster") if named.get(name)
        ]
        self.ids += [named["id"]] if "id" in named else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.handle_starttag(tag, attrs)
        if tag not in VOID:
            self.open.pop()

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> closes nothing"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if not {"script", "style"} & set(self.open):
            self.text.append(data)


@pytest.fixture
def outline():
    """Parses a page, fails where its elements do not nest."""

    def parse(html: str) -> Outline:
        parsed = Outline()
        parsed.feed(html)
        parsed.close()
        assert parsed.open == []
        return parsed

    return parse


@pytest.fixture(scope="session")
def browser():
    """Debian's Chromium, driven by Playwright; nothing is downloaded."""
    executable = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if executable is None:
        pytest.skip("needs a Chromium on the path")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs playwright")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=executable, args=FLAGS)
        yield chromium
        chromium.close()


@dataclass
class Visit:
    """An open page, and what it complained about or asked the network for."""

    page: object
    complaints: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)

    def assert_opened_quietly_and_fits(self, path: Path, width: int) -> None:
        """No complaint, nothing asked for but the page itself, and all of it within the window."""
        assert self.page.evaluate("document.documentElement.scrollWidth") <= width
        assert self.page.evaluate("document.body.scrollWidth") <= width
        # Every drawing that is shown lies within the window, its text included.
        for svg in self.page.query_selector_all("svg"):
            for text in svg.query_selector_all("text"):
                box = text.bounding_box()
                if box and svg.is_visible():
                    assert box["x"] >= -1
                    assert box["x"] + box["width"] <= width + 1
        assert self.complaints == []
        assert all(url.startswith(("file:", "data:")) for url in self.requests)
        assert [url for url in self.requests if url.startswith("file:")] == [path.as_uri()]


@pytest.fixture
def visit(browser):
    """`with visit(path, width=360, theme="dark") as seen:` opens a page from disk."""

    @contextmanager
    def opened(path: Path, *, width: int = 1600, height: int = 900, theme: str = "light") -> Iterator[Visit]:
        size = {"width": width, "height": height}
        with browser.new_context(viewport=size, color_scheme=theme, reduced_motion="reduce") as context:
            seen = Visit(context.new_page())
            seen.page.on("console", lambda message: seen.complaints.append(message.text))
            seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
            seen.page.on("request", lambda request: seen.requests.append(request.url))
            seen.page.goto(path.as_uri())
            yield seen

    return opened


@pytest.fixture(scope="session")
def demo_results() -> DemoResults:
    """Results with the shape of a real demo: four methods, three seeds, twelve epochs, twenty digits."""
    draw = np.random.default_rng(0)
    tops = {"ProPaLL": 0.961, "PRODEN": 0.952, "CC": 0.94, "PL-KNN": 0.81}
    curves = {
        name: (top - 0.5 * np.exp(-np.arange(12) / 3))[:, None] + draw.normal(0, 0.004, (12, 3))
        for name, top in tops.items()
    }
    truth = np.arange(20) % 10
    candidates = draw.random((20, 10)) < 0.4
    candidates[np.arange(20), truth] = True
    recovered = truth.copy()
    recovered[7] = np.flatnonzero(candidates[7] & (np.arange(10) != truth[7]))[0]
    return DemoResults(
        accuracy={name: [float(value) for value in curve[-1]] for name, curve in curves.items()},
        curves=curves,
        baseline=[0.41, 0.43, 0.4],
        ceiling=[0.971, 0.975, 0.969],
        images=draw.integers(0, 17, (20, 8, 8)).astype(np.float64),
        candidates=candidates,
        recovered=recovered,
        truth=truth,
        classes=[str(digit) for digit in range(10)],
        provenance={
            "data": "digits",
            "corruption": "uniform",
            "q": "0.4",
            "seeds": "0-2",
            "commit": "abc1234",
        },
        seconds=75.2,
        mean_candidates=4.6,
    )


@pytest.fixture(scope="session")
def full_store(tmp_path_factory) -> Path:
    """A store with everything but the data sets that are not to be had, made up."""
    path = tmp_path_factory.mktemp("full") / "results.sqlite"
    with Store(path) as store:
        fill(store)
        fill(store, ["uniform", "noise_uniform"], ["q0.1", "timed"])
        fill(store, ["real", "noise_real"], ["single80"])
    return path


@pytest.fixture(scope="session")
def full_page(full_store) -> Path:
    """The report on it."""
    with Store(full_store) as store:
        return report_page(Evidence(store)).write(full_store.with_name("report.html"))


@pytest.fixture(scope="session")
def full_text(full_store) -> str:
    """The text on it."""
    with Store(full_store) as store:
        return reproduction_text(Evidence(store))
