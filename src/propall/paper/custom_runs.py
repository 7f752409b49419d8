"""Runs of any method on any data set, for `propall train`, in a folder that a second call resumes from."""

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch

from propall import counter_rng
from propall.data import CORRUPTIONS, DATASETS, load
from propall.data.augmentation import Augmentation
from propall.data.corruption import Complementary, Corruption, IndependentFlip, InstanceDependent
from propall.methods import METHODS
from propall.methods.propall import PROPALL_WITH_VIEWS, ProPaLL
from propall.nets import NETS
from propall.nets.cnn import SmallCNN
from propall.nets.network import ImageNetwork
from propall.paper.results import RunResult
from propall.paper.runner import RunTask, run_specs, square_images
from propall.paper.specs import Spec, Split
from propall.registry import Registry
from propall.report.charts.views import ViewSheet
from propall.report.numbers import mean_and_std
from propall.training.contract import Algorithm, Monitor, Objective
from propall.training.image_views import ImageViews, pixel_range
from propall.training.named_recipes import RECIPES, NamedRecipe, adapt_views
from propall.training.named_views import VIEWS
from propall.training.recipe import Recipe
from propall.training.views import Views
from propall.wording import join_names

#: Data sets whose images change their meaning in a mirror.
NOT_MIRRORED = ("digits", "mnist", "kmnist")
#: Built-in data sets whose rows are points, not images.
WITHOUT_IMAGES = ("blobs",)
#: Factor of the balance term for complementary labels: one excluded label leaves the class shares open.
COMPLEMENTARY_BALANCE = 0.5
#: Images, and epochs whose views are shown, on the page of a run.
SHOWN_IMAGES, SHOWN_EPOCHS = 6, 2


class MethodSummary(NamedTuple):
    """Accuracy of a method over its runs in percent, with the sample standard deviation."""

    method: str
    mean: float
    std: float | None
    runs: int
    seconds: float


def default_setting(data: str) -> tuple[str, Recipe]:
    """Return the default network and recipe of a data set."""
    loader = DATASETS[data]
    if loader.kind == "real-world":
        return "linear", Recipe(epochs=200, batch_size=100, learning_rate=0.05, weight_decay=1e-4)
    if len(loader.shape) == 3:
        return "resnet32", Recipe(epochs=200, batch_size=256, learning_rate=0.05)
    if loader.kind == "images":
        return "mlp5", Recipe(epochs=50, batch_size=256, learning_rate=0.05, weight_decay=1e-6)
    return "mlp", Recipe(epochs=60, batch_size=64, learning_rate=0.05, weight_decay=1e-4)


def choose_setting(
    data: str,
    name: str | None = None,
    *,
    net: str | None = None,
    views: str | None = None,
    strong_views: int | None = None,
    balance: float | None = None,
    corruption: str | None = None,
    on_gpu: bool = True,
    changes: Mapping[str, Any] | None = None,
) -> NamedRecipe:
    """Choose a network and a recipe for a data set.

    Args:
        data: name of the data set.
        name: a name in `RECIPES`; None for the default of the data set.
        net: name of another network.
        views: a name in `VIEWS`; None for the views of the recipe.
        strong_views: number of strong views of an image, instead of the recipe's or the named views' own.
        balance: weight of the balance term, likewise.
        corruption: how candidate sets are drawn; all views get a balance term for complementary labels.
        on_gpu: whether to train on a GPU; without one, in float32, since bfloat16 is slower on most CPUs.
        changes: fields of the recipe that differ.
    """
    default_net, recipe = default_setting(data) if name is None else RECIPES[name]
    if views is not None:
        recipe = dataclasses.replace(recipe, views=VIEWS[views].views)
    size = math.isqrt(math.prod(DATASETS[data].shape[-2:]))
    recipe = adapt_views(recipe, size, mirrored=data not in NOT_MIRRORED)
    if recipe.views is None:
        for option, value in (("strong_views", strong_views), ("balance", balance)):
            if value is not None:
                raise ValueError(
                    f"{option}: {value}, but the default recipe of {data} has no views. "
                    f"Choose a recipe with views as well: {', '.join(RECIPES)}."
                )
    else:
        if strong_views == 0 and views is not None:
            _check_without_strong(views, balance)
        # With complementary labels as in the table of images, whatever balance term the named views have.
        usual = COMPLEMENTARY_BALANCE if corruption == "complementary" else recipe.views.balance
        changed = dataclasses.replace(
            recipe.views,
            n_strong=recipe.views.n_strong if strong_views is None else strong_views,
            balance=usual if balance is None else balance,
        )
        recipe = dataclasses.replace(recipe, views=changed)
    chosen = net or default_net
    _check_images(chosen, recipe, data, size)
    if name is not None and chosen != default_net:
        # The rates of a named recipe are tuned for its network; these suit any other.
        recipe = dataclasses.replace(recipe, batch_size=64, learning_rate=0.05, momentum=0.9, norm_rate=1.0)
    elif chosen == "linear" != default_net:
        # At the rates of deeper networks, the first steps on pixels are so large that ProPaLL may never learn
        # one of two similar classes.
        recipe = dataclasses.replace(recipe, learning_rate=0.01)
    if not on_gpu:
        recipe = dataclasses.replace(recipe, precision="float32")
    return NamedRecipe(chosen, dataclasses.replace(recipe, **(changes or {})))


def _check_without_strong(name: str, balance: float | None) -> None:
    """Raise ValueError if named views without a strong view are no more than their base loss."""
    named = VIEWS[name]
    if not named.views.base_weight:
        reason = "learns from the agreement of views alone"
    elif balance is None and named.views.balance:
        return  # the balance term needs no strong view, see `describe_ignored`
    else:
        reason = "only says what is learned from strong views"
    raise ValueError(
        f"strong_views: got 0; expected 1 or more, as {name} {reason}. To train a base loss alone, leave out "
        f"--views and use --method {named.base}."
    )


def _check_images(name: str, recipe: Recipe, data: str, size: int) -> None:
    """Raise an error that says what to type if a network or views cannot take the rows of a data set."""
    net = NETS[name]
    has_images = DATASETS[data].kind != "real-world" and data not in WITHOUT_IMAGES
    if issubclass(net, ImageNetwork) and not has_images:
        raise ValueError(f"net: {name} takes images; {data} has none. Use --net mlp, without --recipe.")
    if recipe.views is not None and not has_images:
        raise ValueError(f"views: {data} has no images. Leave out --recipe and --views.")
    if issubclass(net, ImageNetwork) and size < net.min_pixels:
        raise ValueError(
            f"net: {name} needs images of at least {net.min_pixels} x {net.min_pixels} pixels; those of "
            f"{data} have {size} x {size}. Use --net {SmallCNN.name}."
        )


def use_views(
    name: str | None, setting: NamedRecipe, methods: Sequence[str]
) -> tuple[NamedRecipe, Sequence[str | Objective | Algorithm]]:
    """Return setting and methods for named views: with their own base loss unless methods are given.

    Args:
        name: a name in `VIEWS`, or None.
        setting: what `choose_setting` returned for these views.
        methods: names of methods; none means the views' own base loss, otherwise ProPaLL. With strong views,
            ProPaLL has no noise on the logits.
    """
    views = setting.recipe.views
    ours = ProPaLL.name if views is None or not views.n_strong else PROPALL_WITH_VIEWS
    chosen = [ours if method == ProPaLL.name else method for method in methods]
    if name is None:
        return setting, chosen or [ours]
    named = VIEWS[name]
    if not methods:
        return setting, [METHODS[named.base](**named.base_settings)]
    assert views is not None
    views = dataclasses.replace(views, base_weight=named.with_base().base_weight)
    return setting._replace(recipe=dataclasses.replace(setting.recipe, views=views)), chosen


def build_specs(
    data: str,
    *,
    methods: Sequence[str | Objective | Algorithm],
    corruption: str | None = None,
    corruption_fields: Mapping[str, Any] | None = None,
    seeds: int = 3,
    folds: int | None = None,
    setting: NamedRecipe | None = None,
) -> list[Spec]:
    """Return the runs of several methods on one data set.

    Args:
        data: name of the data set.
        methods: methods, or their names.
        corruption: how candidate sets are drawn; None for those the data set comes with.
        corruption_fields: settings of the corruption; None values keep its defaults.
        seeds: runs per method and fold.
        folds: number of folds; None uses the official test set, or 5 folds without one.
        setting: network and recipe, see `choose_setting`; None for the default of the data set.
    """
    loader = DATASETS[data]
    net, recipe = setting or choose_setting(data)
    chosen = [METHODS[name]() if isinstance(name, str) else name for name in methods]
    for method in chosen:
        own_loop = isinstance(method, Algorithm) and method.trains_network and not method.uses_views
        if recipe.views is not None and own_loop:
            raise ValueError(
                f"method: {method.title} has its own training loop, without views. Leave out --recipe and "
                "--views, or use another method."
            )
    has_candidates = loader.kind in ("real-world", "human annotations")
    drawn_by = _corruption(has_candidates, corruption, corruption_fields or {})
    if folds is None and not loader.n_test:
        folds = 5
    splits = [Split()] if folds is None else [Split(fold=i, folds=folds) for i in range(folds)]
    return [
        Spec(data, method, net, recipe, drawn_by, split, seed=seed)
        for method in chosen
        for split in splits
        for seed in range(seeds)
    ]


#: What people call a corruption where the catalog has a more exact name.
_SHORT_NAMES = {"uniform": IndependentFlip, "instance": InstanceDependent}
_CORRUPTIONS_BY_ANY_NAME: Registry[Any] = Registry(
    "corruption", [*_SHORT_NAMES.items(), *CORRUPTIONS.items()]
)


def _corruption(has_candidates: bool, name: str | None, fields: Mapping[str, Any]) -> Corruption | None:
    settings = {key: value for key, value in fields.items() if value is not None}
    kind = f"--corruption {name}"
    if name is None:  # the user never types the name of a default
        if has_candidates and not settings:
            return None
        name, kind = "proden_binomial_min2", "the default candidate sets, proden_binomial_min2"
        if "n" in settings:
            name, kind = "exactly", f"the candidate sets of {_flag('n')}, exactly"
    corruption = _CORRUPTIONS_BY_ANY_NAME[name]
    known = [_flag(f.name) for f in dataclasses.fields(corruption)]
    for key, value in settings.items():
        if _flag(key) not in known:
            expected = join_names(sorted(known) or ["no setting"], "or")
            raise ValueError(
                f"{_flag(key)}: got {value} for {kind}; expected {expected}. "
                f"For {_flag(key)}, use --corruption {join_names(_corruptions_with(key), 'or')}."
            )
    drawn_by: Corruption = corruption(**settings)
    return drawn_by


def _flag(field: str) -> str:
    """The flag of `propall train` for a setting of a corruption."""
    return "--n-candidates" if field == "n" else f"--{field}"


def _corruptions_with(field: str) -> list[str]:
    """Names of the corruptions that have a setting, everyday names in place of exact ones."""
    names: dict[Any, str] = {}
    for name, corruption in _CORRUPTIONS_BY_ANY_NAME.items():
        if field in {f.name for f in dataclasses.fields(corruption)}:
            names.setdefault(corruption, name)
    return list(names.values())


def trains_on_views(spec: Spec) -> bool:
    """Return whether a run sees augmented views: its recipe has some, and its method uses them."""
    takes_views = isinstance(spec.method, Objective) or uses_views_in_its_own_way(spec)
    return spec.recipe.views is not None and takes_views


def uses_views_in_its_own_way(spec: Spec) -> bool:
    """Return whether a run trains on one weak and one strong view, whatever the recipe's views are."""
    return isinstance(spec.method, Algorithm) and spec.method.trains_network and spec.method.uses_views


def describe_ignored(
    specs: Sequence[Spec],
    *,
    training: Sequence[str] = (),
    views: Sequence[str] = (),
    named_views: str | None = None,
) -> list[str]:
    """Say which of the given options mean nothing to which methods, a sentence per kind of method.

    Args:
        specs: the runs.
        training: given options of the network and its training.
        views: given options that say which views there are and how they are used, among those of training.
        named_views: the given name in `VIEWS`, if any.
    """
    by_title = {spec.title: spec for spec in specs}
    without_net = [title for title, spec in by_title.items() if not spec.trains_network]
    own_views = [title for title, spec in by_title.items() if uses_views_in_its_own_way(spec)]
    sentences = []
    for options, titles, reason, reason_for_several in (
        (training, without_net, "which has no network", "which have no network"),
        (
            views,
            own_views,
            "which uses one weak and one strong view in its own way",
            "which use one weak and one strong view in their own way",
        ),
    ):
        if options and titles:
            verb = "has" if len(options) == 1 else "have"
            why = reason if len(titles) == 1 else reason_for_several
            sentences.append(f"{join_names(options)} {verb} no effect on {join_names(titles)}, {why}.")
    weak_alone = [
        spec.recipe.views
        for spec in specs
        if spec.recipe.views is not None and not spec.recipe.views.n_strong
        if isinstance(spec.method, Objective)
    ]
    if named_views is not None and weak_alone:
        sentences.append(
            f"Without strong views, --views {named_views} adds only a balance term of "
            f"{weak_alone[0].balance:g}."
        )
    return sentences


def balance_of_labels(specs: Sequence[Spec], *, given: float | None = None) -> float:
    """Return the weight of the balance term that the runs have because of complementary labels, or 0.

    Args:
        specs: the runs.
        given: weight that was asked for, which has another reason.
    """
    weights = [
        spec.recipe.views.balance
        for spec in specs
        if spec.recipe.views is not None
        and trains_on_views(spec)
        and isinstance(spec.corruption, Complementary)
    ]
    return weights[0] if weights and given is None else 0.0


def train_runs(
    specs: Sequence[Spec], out: Path, *, device: str = "auto", monitor: Monitor | None = None
) -> tuple[Path, list[RunResult]]:
    """Run what the folder lacks; returns the folder and all results in the order of the specs."""
    folder = _folder(specs, out)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "results.jsonl"
    results = _read(file)
    missing = [spec for spec in specs if spec.key not in results]
    for result in run_specs(RunTask(missing, device, checkpoint=folder / "progress"), monitor):
        with file.open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(result.to_dict()) + "\n")
        results[result.spec.key] = result
    return folder, [results[spec.key] for spec in specs]


def count_stored(specs: Sequence[Spec], out: Path) -> int:
    """Count the runs that an earlier call of `train_runs` finished."""
    results = _read(_folder(specs, out) / "results.jsonl")
    return sum(spec.key in results for spec in specs)


def _folder(specs: Sequence[Spec], out: Path) -> Path:
    return out / f"{specs[0].data}-{counter_rng.digest(*sorted(spec.key for spec in specs))[:12]}"


def view_sheet(spec: Spec) -> ViewSheet | None:
    """Return some training images of a run beside their views in the first epochs.

    Methods that use views in their own way see one weak and one strong view. None if the run sees no views,
    or the images as they are: small ones have no weak augmentation.
    """
    views = spec.recipe.views
    if views is None or not trains_on_views(spec):
        return None
    if uses_views_in_its_own_way(spec):
        views = Views(weak=views.weak, strong=views.strong)
    if not views.n_strong and _changes_nothing(views.weak):
        return None
    source = spec.source(load(spec.data))
    x = square_images(source.x)
    # One image per class, as far as there are.
    first = torch.stack([(source.truth == label).int().argmax() for label in source.truth.unique()])
    index = first[:SHOWN_IMAGES]
    augment = ImageViews(x, views, seed=spec.seed)
    columns, shown = ["original"], [x[index]]
    for epoch in range(SHOWN_EPOCHS):
        names = [
            "weak",
            *(f"strong {i}" if views.n_strong > 1 else "strong" for i in range(1, views.n_strong + 1)),
        ]
        columns += [f"{name}, epoch {epoch + 1}" for name in names]
        shown += augment(x[index], index, epoch=epoch)
    low, high = pixel_range(x)
    unit = ((torch.stack(shown, 1) - low) / (high - low)).clamp(0, 1)
    pixels = (255 * unit).round().byte().movedim(2, -1).numpy()
    return ViewSheet(
        f"Training images of {DATASETS[spec.data].title} and their views, seed {spec.seed}.",
        pixels[..., 0] if pixels.shape[-1] == 1 else pixels,
        columns,
        [source.classes[int(label)] for label in source.truth[index]],
    )


def _changes_nothing(augmentation: Augmentation) -> bool:
    return not (augmentation.flip or augmentation.crop or augmentation.operations or augmentation.cutout)


def _read(file: Path) -> dict[str, RunResult]:
    results = {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        try:
            values = json.loads(line)
        except json.JSONDecodeError:
            continue  # a line cut short by a kill; the run is repeated
        result = RunResult.from_dict(values)
        results[result.spec.key] = result
    return results


def summarize(results: Sequence[RunResult]) -> list[MethodSummary]:
    """Return mean and deviation by method, best first."""
    by_method: dict[str, list[RunResult]] = {}
    for result in results:
        by_method.setdefault(result.spec.title, []).append(result)
    rows = []
    for title, runs in by_method.items():
        mean, std = mean_and_std([100 * result.accuracy for result in runs])
        rows.append(MethodSummary(title, mean, std, len(runs), sum(result.seconds for result in runs)))
    return sorted(rows, key=lambda row: -row.mean)
