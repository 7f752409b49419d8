"""Images trained with views: the settings of `propall reproduce modern`, and published numbers beside them.

A row is one way to draw candidate sets, one method, one network and one number of epochs. Numbers of other
authors are listed with their network and epochs. Their candidate sets follow the same law unless the entry
says otherwise, but no two of them share a recipe, so they are never mixed with ours.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from propall.data import DATASETS
from propall.data.augmentation import ALTERNATING
from propall.data.corruption import (
    Complementary,
    Corruption,
    IndependentFlip,
    InstanceDependent,
    MissingTruth,
    PRODENBinomialMin2,
)
from propall.methods import METHODS
from propall.methods.propall import PROPALL_WITH_VIEWS
from propall.nets import NETS
from propall.nets.cnn import SmallCNN
from propall.paper.custom_runs import COMPLEMENTARY_BALANCE, choose_setting
from propall.paper.specs import Spec, Split, Teacher, change_teacher
from propall.paper.tables.paper_table import (
    SHORT,
    SHORT_EPOCHS,
    SHORT_PER_CLASS,
    PaperCell,
    parse_protocol,
    published_accuracies,
)
from propall.registry import UnknownNameError
from propall.training.contract import Algorithm, Objective
from propall.training.image_views import BALANCE_FADE
from propall.training.named_recipes import NamedRecipe
from propall.training.named_views import VIEWS
from propall.training.views import Views

#: Name on the command line, and protocol of its runs.
MODERN = "modern"
TITLE = "Images trained with views"
#: Data sets, apart from CIFAR-10N and the digits.
_DATA = ("cifar10", "fashion_mnist", "kmnist")
#: Images that a CPU trains on in seconds.
SMALL_DATA = "digits"
#: Numbers of epochs of the rows with the fast network, and seeds of the shorter ones.
EPOCHS, LONG_EPOCHS, SEEDS = 45, 120, 3
#: Seeds of the comparison of methods on digits, which two cores repeat in less than two hours.
DIGITS_SEEDS = 10
#: Epochs of the longest rows, with two strong views: the fast network, and WRN-28-10 (a quarter of an hour).
LONGEST_EPOCHS, WRN_EPOCHS = 200, 80
#: Other settings that were measured: a quarter of the learning rate of the recipes `resnet18` and `wrn`, and
#: twice their weight decay.
LOW_RATE, STRONG_DECAY = 0.1, 1e-3
#: Epochs of our own teacher, and of the network that stands for the published annotator.
TEACHER_EPOCHS, PUBLIC_TEACHER_EPOCHS = 20, 30
#: Of the published annotator, whose training mode draws it anew for every image.
PUBLIC_DROPOUT = 0.3


class PublishedResult(NamedTuple):
    """A test accuracy in percent from the literature."""

    method: str
    accuracy: float
    training: str  # network and epochs
    source: str  # reference, or where the number was read

    def __str__(self) -> str:
        return f"{self.method} {self.accuracy:.2f} ({self.training}; {self.source})"


@dataclass(frozen=True)
class CandidateLaw:
    """A way to draw candidate sets, in words and as a corruption.

    Attributes:
        name: on the command line.
        title: in tables.
        corruption: None for the sets that the data set comes with.
        teacher: for instance-dependent sets.
        balance: weight of the balance term that the law needs.
    """

    name: str
    title: str
    corruption: Corruption | None
    teacher: Teacher | None = None
    balance: float = 0.0


@dataclass(frozen=True)
class Contender:
    """A method with views, in the comparison of methods."""

    name: str
    title: str
    method: Objective | Algorithm
    views: Views  # apart from the augmentations, which are those of the recipe


@dataclass(frozen=True)
class Comparison:
    """Methods side by side on one data set.

    Attributes:
        data: name of the data set.
        title: in tables.
        settings: names of the rows' settings by the law that they have.
    """

    data: str
    title: str
    settings: Mapping[str, str]


@dataclass(frozen=True)
class ModernRow:
    """A row of the table."""

    name: str  # on the command line, such as `uniform-0.5` or `uniform-0.5/cc`
    law: CandidateLaw
    title: str  # of the method
    spec: Spec  # of seed 0
    seeds: int = SEEDS
    published: tuple[PublishedResult, ...] = ()

    @property
    def setting(self) -> str:
        """Name without the method."""
        return self.name.partition("/")[0]

    @property
    def method(self) -> str:
        """Name of the method in the comparison; "propall" for rows without one."""
        return self.name.partition("/")[2] or "propall"

    def part(self, epochs: int) -> str:
        """Return the heading of the rows that belong together, for a number of epochs."""
        what = "Comparison of methods, " if "/" in self.name else ""
        return f"{what}{DATASETS[self.spec.data].title}, {NETS[self.spec.net].title}, {epochs} epochs"

    def specs(self, protocol: str | None = None, seeds: int | None = None) -> list[Spec]:
        """Return the runs behind the row, see `resolve_protocol`."""
        protocol = resolve_protocol(protocol)
        parts = parse_protocol(protocol)
        spec, count = replace(self.spec, protocol=protocol), self.seeds if seeds is None else seeds
        if parts.base == f"{MODERN}-{SHORT}":
            spec, count = _shorten(spec), min(1, count)
        if parts.epochs is not None:
            spec = replace(spec, recipe=replace(spec.recipe, epochs=parts.epochs))
        return [replace(spec, seed=seed) for seed in range(count)]


def resolve_protocol(name: str | None) -> str:
    """Return the full name of a protocol: "modern" (None, "full") or "modern-short", with any epochs."""
    names = {None: MODERN, "full": MODERN, MODERN: MODERN, SHORT: f"{MODERN}-{SHORT}"}
    names[f"{MODERN}-{SHORT}"] = names[SHORT]
    parts = None if name is None else parse_protocol(name)
    base = names.get(None if parts is None else parts.default_epochs)
    if base is None:
        raise UnknownNameError(
            f"protocol: table {MODERN} has no protocol {name!r}; expected full or short, optionally followed "
            "by a number of epochs such as full-10epochs."
        )
    return base if parts is None or parts.epochs is None else f"{base}-{parts.epochs}epochs"


def _shorten(spec: Spec) -> Spec:
    """Shorten a run to seconds, to test that everything works."""
    teacher = None if spec.teacher is None else change_teacher(spec.teacher, epochs=SHORT_EPOCHS)
    recipe = replace(spec.recipe, epochs=SHORT_EPOCHS, batch_size=64)
    method, split = spec.method.shortened(), Split(per_class=SHORT_PER_CLASS)
    return replace(spec, method=method, recipe=recipe, split=split, teacher=teacher)


def _named_recipe(data: str, name: str, epochs: int) -> NamedRecipe:
    if data == SMALL_DATA and name == "fast":  # its network needs larger images
        return choose_setting(data, name, net=SmallCNN.name, on_gpu=False, changes={"epochs": epochs})
    return choose_setting(data, name, changes={"epochs": epochs})


def _teacher(data: str, name: str, epochs: int) -> Teacher:
    """Return the network of a named recipe, trained on clean labels with weak augmentation only."""
    net, recipe = _named_recipe(data, name, epochs)
    assert recipe.views is not None
    return Teacher(net, replace(recipe, views=replace(recipe.views, n_strong=0)))


def own_teacher(data: str, epochs: int = TEACHER_EPOCHS) -> Teacher:
    """Return the teacher of our instance-dependent sets: the fast network, for digits a small one."""
    return _teacher(data, "fast", epochs)


@functools.cache
def candidate_laws(data: str) -> Mapping[str, CandidateLaw]:
    """Return the ways to draw candidate sets for a data set, by name."""
    flips = [
        CandidateLaw(f"uniform-{q}", f"uniform, q = {q}, singletons allowed", IndependentFlip(q))
        for q in (0.1, 0.3, 0.5, 0.7)
    ]
    missing = [
        CandidateLaw(
            f"missing-{share}",
            f"uniform, q = 0.3, {100 * share:.0f} % of the sets without the truth",
            MissingTruth(0.3, share),
        )
        for share in (0.1, 0.2, 0.3)
    ]
    public = replace(_teacher(data, "wrn", PUBLIC_TEACHER_EPOCHS), scoring="public", dropout=PUBLIC_DROPOUT)
    # The rate with which sets of this law were first drawn.
    public = replace(public, recipe=replace(public.recipe, learning_rate=LOW_RATE))
    laws = [
        *flips,
        CandidateLaw("proden-0.5", "uniform, q = 0.5, two candidates or more", PRODENBinomialMin2(0.5)),
        CandidateLaw(
            "instance",
            f"instance-dependent, rate 0.4, own teacher ({TEACHER_EPOCHS} epochs)",
            InstanceDependent(0.4),
            own_teacher(data),
        ),
        CandidateLaw(
            "instance-public",
            "instance-dependent, rate 1.0, WRN-28-10 with dropout, in training mode",
            InstanceDependent(1.0),
            public,
        ),
        CandidateLaw(
            "instance-sure",
            "instance-dependent, rate 1.0, WRN-28-10 without dropout, in training mode",
            InstanceDependent(1.0),
            replace(public, dropout=0.0),
        ),
        CandidateLaw(
            "complementary", "one complementary label", Complementary(), balance=COMPLEMENTARY_BALANCE
        ),
        *missing,
        CandidateLaw("clean", "true labels", IndependentFlip(0.0)),
    ]
    return {law.name: law for law in laws}


#: The union of three annotators' labels in CIFAR-10N.
ANNOTATORS = CandidateLaw("cifar10n", "CIFAR-10N, union of three annotators", None)

#: Views whose targets may leave the candidate set, by a tolerance that is estimated without true labels.
TOLERANT = Views(mask="widened", tolerance="auto")

_PICO = ("ResNet-18, 800 epochs", "[wang2022pico]")
_THIRD_PARTY = "third party's notes on the article; another annotator"
_PUBLISHED: Mapping[str, tuple[PublishedResult, ...]] = {
    "uniform-0.1": (PublishedResult("PiCO", 94.39, *_PICO),),
    "uniform-0.3": (PublishedResult("PiCO", 94.18, *_PICO),),
    "uniform-0.5": (
        PublishedResult("PiCO", 93.58, *_PICO),
        PublishedResult(
            "DMIS", 94.70, "diffusion classifier", "text of the article; candidate sets not checked"
        ),
    ),
    "instance-public": (
        PublishedResult("CAD-CAM", 92.69, "ResNet-34, 500 epochs", _THIRD_PARTY),
        PublishedResult("DIRK", 90.87, "ResNet-34, 500 epochs", _THIRD_PARTY),
    ),
    "complementary": (
        PublishedResult("SCL-NL", 47.13, "ResNet-34, one view", "[chou2020unbiased]"),
        PublishedResult(
            "ComCo", 96.70, "ResNet-18, 1000 epochs", "quoted by a third party; no reproduction known"
        ),
    ),
}
#: Cells of the paper in which ProPaLL has the same kind of candidate sets, with one view.
_PAPER_CELLS = {
    **{("uniform-0.5", data): PaperCell("uniform", data, "propall") for data in _DATA},
    **{("instance", data): PaperCell("instance", data, "propall") for data in _DATA},
    **{("complementary", data): PaperCell("complementary", data, "propall") for data in _DATA[1:]},
    ("complementary", "cifar10"): PaperCell("candidates10", "cifar10", "propall", 9),
}


def published_results(law: str, data: str) -> tuple[PublishedResult, ...]:
    """Return the numbers of other authors, and ProPaLL's own without views, for a kind of candidate sets."""
    results = _PUBLISHED.get(law, ()) if data == "cifar10" else ()
    if (cell := _PAPER_CELLS.get((law, data))) is None:
        return results
    net = "MLP" if data != "cifar10" else "DenseNet" if cell.candidates else "ResNet-32"
    accuracy = published_accuracies()[cell].mean
    return (*results, PublishedResult("ProPaLL", accuracy, f"{net}, one view", "[struski2022propall]"))


def _spec(
    data: str, law: CandidateLaw, contender: Contender, recipe_name: str = "fast", epochs: int = EPOCHS
) -> Spec:
    net, recipe = _named_recipe(data, recipe_name, epochs)
    assert recipe.views is not None
    views = replace(contender.views, weak=recipe.views.weak, strong=recipe.views.strong)
    if views.n_strong:  # it belongs to the law; methods that train in their own way leave it out
        views = replace(views, balance=law.balance or views.balance)
    recipe = replace(recipe, views=views)
    return Spec(data, contender.method, net, recipe, law.corruption, teacher=law.teacher, protocol=MODERN)


def _fading(spec: Spec) -> Spec:
    """Let the balance term fade, as it does in the default views of a classifier."""
    assert spec.recipe.views is not None
    views = replace(spec.recipe.views, balance_fade=BALANCE_FADE)
    return replace(spec, recipe=replace(spec.recipe, views=views))


def _with_rate(spec: Spec, rate: float) -> Spec:
    return replace(spec, recipe=replace(spec.recipe, learning_rate=rate))


def _alternating(spec: Spec) -> Spec:
    views = spec.recipe.views
    assert views is not None
    weak, strong = (replace(augmentation, flip=ALTERNATING) for augmentation in (views.weak, views.strong))
    return replace(spec, recipe=replace(spec.recipe, views=replace(views, weak=weak, strong=strong)))


#: Methods of the comparison that are base losses with the default views.
_WITH_VIEWS = ("cc", "proden")
#: Methods of the comparison that are trained in their own way.
_OWN_TRAINING = ("papi", "pico", "crosel", "able")
#: Why a published method of this kind has no rows.
NOT_COMPARED = "CLSP is not compared: it prunes the candidates by the features of a pretrained network."
#: Laws of the comparison of methods, and its settings on CIFAR-10.
COMPARED = ("uniform-0.5", "instance", "complementary")
#: The comparisons of methods; that on digits needs no GPU and has more seeds.
COMPARISONS: Mapping[str, Comparison] = {
    "cifar10": Comparison("cifar10", "CIFAR-10", {law: law for law in COMPARED}),
    SMALL_DATA: Comparison(SMALL_DATA, "Digits", {law: f"{SMALL_DATA}-{law}" for law in COMPARED}),
}


@functools.cache
def contenders() -> Mapping[str, Contender]:
    """Return the methods of the comparison, by name: base losses, named views and methods of their own."""
    ours = PROPALL_WITH_VIEWS
    chosen = [Contender("propall", ours.title, ours, Views())]
    chosen += [Contender(name, METHODS[name].title, METHODS[name](), Views()) for name in _WITH_VIEWS]
    chosen.append(Contender("propall-one-view", "ProPaLL, one view", METHODS["propall"](), Views(n_strong=0)))
    # As many views as CR-DPLL, GLWS, POCR and POP have.
    chosen.append(Contender("propall-two-strong", "ProPaLL, two strong views", ours, Views(n_strong=2)))
    chosen += [
        Contender(name, named.title, METHODS[named.base](**named.base_settings), named.views)
        for name, named in VIEWS.items()
    ]
    chosen += [Contender(name, METHODS[name].title, METHODS[name](), Views()) for name in _OWN_TRAINING]
    return {contender.name: contender for contender in chosen}


@functools.cache
def modern_rows() -> Mapping[str, ModernRow]:
    """Return all rows by name."""
    laws, ours = candidate_laws("cifar10"), contenders()["propall"]
    rows: list[ModernRow] = []

    def add(name: str, law: CandidateLaw, spec: Spec, *, title: str = ours.title, seeds: int = SEEDS) -> None:
        published = published_results(law.name, spec.data) if "/" not in name else ()
        rows.append(ModernRow(name, law, title, spec, seeds, published))

    for law in laws.values():
        # Without dropout the public law confuses whole classes; measured once, see docs/state_of_the_art.md.
        add(law.name, law, _spec("cifar10", law, ours), seeds=1 if law.name == "instance-sure" else SEEDS)
        if isinstance(law.corruption, MissingTruth):
            spec = _spec("cifar10", law, replace(ours, views=TOLERANT))
            add(f"{law.name}-tolerant", law, spec, title=f"{ours.title}, tolerant")
    add(ANNOTATORS.name, ANNOTATORS, _spec("cifar10n", ANNOTATORS, ours))
    two = contenders()["propall-two-strong"]
    add(f"{ANNOTATORS.name}-two-strong", ANNOTATORS, _spec("cifar10n", ANNOTATORS, two), title=two.title)
    # Sets of the public law hardly tell some classes apart; with the balance term no class is lost.
    public = replace(laws["instance-public"], balance=COMPLEMENTARY_BALANCE)
    balanced = f"{ours.title}, balanced"
    add(f"{public.name}-balanced", public, _spec("cifar10", public, ours), title=balanced)
    for data, comparison in COMPARISONS.items():
        for name in ("uniform-0.5", "instance"):
            law = replace(candidate_laws(data)[name], balance=COMPLEMENTARY_BALANCE)
            seeds = DIGITS_SEEDS if data == SMALL_DATA else SEEDS
            spec, row = _spec(data, law, ours), comparison.settings[name]
            add(f"{row}-balanced", law, spec, title=balanced, seeds=seeds)
            title = f"{ours.title}, balanced at first"
            add(f"{row}-balanced-at-first", law, _fading(spec), title=title, seeds=seeds)
    for name in COMPARED:
        title = f"{ours.title}, alternating flips"
        add(
            f"{name}-{ALTERNATING}", laws[name], _alternating(_spec("cifar10", laws[name], ours)), title=title
        )
    for name in (*COMPARED, "proden-0.5"):
        spec = _spec("cifar10", laws[name], ours, epochs=LONG_EPOCHS)
        add(f"{name}-{LONG_EPOCHS}", laws[name], spec, seeds=1)
    spec = _spec("cifar10n", ANNOTATORS, ours, epochs=LONG_EPOCHS)
    add(f"{ANNOTATORS.name}-{LONG_EPOCHS}", ANNOTATORS, spec, seeds=1)
    spec = _spec("cifar10", public, ours, epochs=LONG_EPOCHS)
    add(f"{public.name}-{LONG_EPOCHS}", public, spec, title=balanced, seeds=1)
    for law in (laws["uniform-0.5"], laws["instance"], public, laws["complementary"]):
        title = f"{two.title}, balanced" if law is public else two.title
        spec = _spec("cifar10", law, two, epochs=LONGEST_EPOCHS)
        add(f"{law.name}-{LONGEST_EPOCHS}", law, spec, title=title, seeds=1)
        spec = _spec("cifar10", law, two, "wrn", WRN_EPOCHS)
        add(f"{law.name}-wrn", law, spec, title=title, seeds=1)
        if law.name == "uniform-0.5":
            title = f"{title}, rate {LOW_RATE}"
            add(f"{law.name}-wrn-low-rate", law, _with_rate(spec, LOW_RATE), title=title, seeds=1)
    for recipe in ("resnet18", "wrn"):  # what each network reaches without ambiguity
        epochs = choose_setting("cifar10", recipe).recipe.epochs
        spec = _spec("cifar10", laws["clean"], ours, recipe, epochs)
        add(f"clean-{recipe}", laws["clean"], spec, seeds=1)
        title = f"{ours.title}, decay {STRONG_DECAY}"
        spec = replace(spec, recipe=replace(spec.recipe, weight_decay=STRONG_DECAY))
        add(f"clean-{recipe}-strong-decay", laws["clean"], spec, title=title, seeds=1)
    for data in _DATA[1:]:
        for name in COMPARED:
            law = candidate_laws(data)[name]
            add(f"{data}-{name}", law, _spec(data, law, ours))
    for name in COMPARED:
        for contender in list(contenders().values())[1:]:
            spec = _spec("cifar10", laws[name], contender)
            add(f"{name}/{contender.name}", laws[name], spec, title=contender.title)
    for name, setting in COMPARISONS[SMALL_DATA].settings.items():
        law = candidate_laws(SMALL_DATA)[name]
        for contender in contenders().values():
            spec = _spec(SMALL_DATA, law, contender)
            add(f"{setting}/{contender.name}", law, spec, title=contender.title, seeds=DIGITS_SEEDS)
    return {row.name: row for row in rows}
