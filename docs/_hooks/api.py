"""Writes the pages of the API: every public name, by module."""

import ast
import importlib
import re
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Module:
    """A module of the API: its name, and its public names if they are not those of its `__all__`."""

    name: str
    names: tuple[str, ...] = ()

    @property
    def public(self) -> tuple[str, ...]:
        """Its public names."""
        return self.names or public_names(self.name)


#: Page -> title, one sentence, modules.
PAGES: dict[str, tuple[str, str, tuple[Module, ...]]] = {
    "estimators": (
        "Estimators",
        "Classifiers with scikit-learn's interface.",
        (Module("propall.estimators"),),
    ),
    "losses": (
        "Losses",
        "Modules for your own training loop in PyTorch.",
        (
            Module("propall.losses", ("ProPaLLLoss", "PartialLabelLoss", "ConsistencyLoss")),
            Module("propall.methods.propall", ("propall_loss",)),
            Module("propall.training.image_views", ("ImageViews",)),
        ),
    ),
    "labels": (
        "Labels",
        "Candidate sets from labels, votes, annotators, hierarchies and predictions.",
        (
            Module("propall.labels"),
            Module(
                "propall.labels.annotators",
                ("combine_answers", "credible_sets", "Posterior", "CrowdAnswers", "EarlierAnswers"),
            ),
            Module("propall.labels.predictions", ("Conformal",)),
            Module("propall.labels.hierarchy", ("Tree", "read_tree")),
        ),
    ),
    "lightning": (
        "Lightning",
        "Training on any number of devices.",
        (Module("propall.lightning", ("PartialLabelModule", "PartialLabelData")),),
    ),
    "methods": (
        "Methods",
        "The registry. Every method has [a page of its own](../methods/index.md).",
        (Module("propall.methods", ("METHODS", "catalog", "prune_candidates")),),
    ),
    "training": (
        "Training",
        "Recipes, views, and the contract between methods and the engine.",
        (
            Module("propall.training.recipe", ("Recipe",)),
            Module("propall.training.named_recipes", ("RECIPES", "NamedRecipe")),
            Module("propall.training.views", ("Views",)),
            Module("propall.training.named_views", ("VIEWS", "NamedViews")),
            Module(
                "propall.training.contract",
                (
                    "Objective",
                    "RowwiseObjective",
                    "StatelessObjective",
                    "Algorithm",
                    "State",
                    "Step",
                    "Run",
                    "Classifier",
                    "TrainingSetup",
                ),
            ),
            Module("propall.training.trainer", ("Trainer",)),
        ),
    ),
    "data": (
        "Data",
        "Data sets, and label-noise models that turn true labels into candidate sets.",
        (
            Module("propall.data"),
            Module(
                "propall.data.corruption",
                (
                    "IndependentFlip",
                    "UniformProperSupersets",
                    "PRODENBinomialMin2",
                    "POPUniformSet",
                    "Pair",
                    "Exactly",
                    "Complementary",
                    "InstanceDependent",
                    "MissingTruth",
                    "Annotator",
                ),
            ),
        ),
    ),
    "nets": (
        "Networks",
        "Networks by name.",
        (
            Module(
                "propall.nets",
                (
                    "NETS",
                    "Network",
                    "Linear",
                    "MLP",
                    "SmallCNN",
                    "ResNet18",
                    "ResNet32",
                    "WideResNet",
                    "FastConvNet",
                    "DenseNetBC100",
                    "DenseNet161",
                ),
            ),
        ),
    ),
    "tables": (
        "Tables",
        "The functions behind `propall inspect`, `fit` and `resolve`.",
        (
            Module("propall.tables.label_columns", ("open_table",)),
            Module("propall.tables.fitting", ("fit_table", "FitOptions")),
            Module("propall.tables.resolution", ("resolve_file", "predict_file")),
            Module("propall.tables.model", ("TableModel",)),
            Module("propall.tables.evaluation", ("evaluate",)),
            Module("propall.tables.export", ("export_onnx",)),
        ),
    ),
    "numerics": (
        "Numerics",
        "Functions that stay accurate where the textbook formula does not.",
        (Module("propall.numerics", ("log1mexp", "restricted_softmax", "negative_log_mass")),),
    ),
}


def public_names(module: str) -> tuple[str, ...]:
    """Names in `__all__`; without it, the names that a package imports as themselves and what it defines."""
    loaded = importlib.import_module(module)
    if hasattr(loaded, "__all__"):
        return tuple(name for name in loaded.__all__ if not name.startswith("__"))
    tree = ast.parse(Path(str(loaded.__file__)).read_text(encoding="utf-8"))
    names = []
    for node in tree.body:
        if isinstance(node, ast.ImportFrom):
            names += [alias.name for alias in node.names if alias.asname == alias.name]
        elif isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
            names.append(node.name)
    return tuple(names)


def docstring_examples(path: Path) -> list[tuple[str, int, str]]:
    """Name, line and text of every docstring of a file that has an example, those of constants included."""
    found = []
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        body = getattr(node, "body", None)
        for position, statement in enumerate(body if isinstance(body, list) else []):
            if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Constant):
                continue
            text = statement.value.value
            if isinstance(text, str) and ">>>" in text:
                before = body[position - 1] if position else node
                name = getattr(before, "name", "") or getattr(getattr(before, "target", None), "id", "module")
                found.append((name, statement.lineno, text))
    return found


def api_names() -> list[tuple[str, str]]:
    """Module and name of everything in the API reference."""
    return [(m.name, name) for _, _, modules in PAGES.values() for m in modules for name in m.public]


def summary(module: str, name: str) -> str:
    """First sentence of a name's docstring; of a constant, that of its `#:` comment."""
    value = getattr(importlib.import_module(module), name)
    if isinstance(value, type) or callable(value):
        return " ".join((value.__doc__ or "").strip().partition("\n\n")[0].split())
    sources = sorted((ROOT / "src" / "propall").rglob("*.py"))
    return next((text for path in sources if (text := attribute_comment(path, name))), "")


def attribute_comment(path: Path, name: str) -> str:
    """First paragraph about a constant of a file: the `#:` comment above it, or the docstring below it."""
    source = path.read_text(encoding="utf-8")
    if comment := re.search(rf"((?:^#:.*\n)+){name}\b", source, re.MULTILINE):
        return " ".join(line.removeprefix("#:").strip() for line in comment[1].splitlines())
    if re.search(rf"^{name}\b", source, re.MULTILINE):
        for statement, following in pairwise(ast.parse(source).body):
            if getattr(getattr(statement, "target", None), "id", "") != name:
                continue
            if isinstance(following, ast.Expr) and isinstance(following.value, ast.Constant):
                return " ".join(str(following.value.value).partition("\n\n")[0].split())
    return ""


def module_page(page: str) -> str:
    """The page of some modules: a list of their names, then each name."""
    title, sentence, modules = PAGES[page]
    rows, parts = [], []
    for module in modules:
        for name in module.public:
            path = f"{module.name}.{name}"
            rows.append(f"[`{name}`][{path}]\n:   {summary(module.name, name)}")
            if not module.name.startswith("propall.methods."):  # those are on the method's own page
                parts.append(f"::: {path}")
    return "\n\n".join([f"# {title}", sentence, *rows, *parts]) + "\n"


def api_pages() -> dict[str, str]:
    """All pages of the API by path."""
    modules = [f"[{title}]({page}.md)\n:   {sentence}" for page, (title, sentence, _) in PAGES.items()]
    names = [
        f"[`{name}`][propall.{name}]\n:   {summary('propall', name)}" for name in public_names("propall")
    ]
    parts = ["# API", "The names that `import propall` promises:", *names, "By module:", *modules]
    index = "\n\n".join(parts) + "\n"
    return {"api/index.md": index, **{f"api/{page}.md": module_page(page) for page in PAGES}}
