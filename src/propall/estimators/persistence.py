"""Saving and loading fitted estimators: one file of tensors and JSON, never executed."""

import copy
import dataclasses
import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NotRequired, TypedDict, TypeVar, get_type_hints

import numpy as np
import torch
from jaxtyping import jaxtyped
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from propall import __version__, counter_rng
from propall.estimators.ensemble import Ensemble, Standardization
from propall.estimators.images import PixelScale
from propall.methods import METHODS
from propall.schema import Between, check_fields, check_json
from propall.training.checkpoint import write_tensors
from propall.training.contract import Algorithm, Classifier, NetFactory, State, TrainingSetup
from propall.training.networks import NetClassifier, seeded_generator
from propall.training.views import Views

if TYPE_CHECKING:
    from propall.estimators.classifier import PartialLabelClassifier
    from propall.estimators.mixture import ClassifierMixture

    Model = TypeVar("Model", bound=PartialLabelClassifier)

#: Version of the file layout of one classifier and of a mixture; files with a higher one are rejected.
LAYOUT, MIXTURE_LAYOUT = 1, 2
#: Settings that files of version 0.1.0 list among a method's hyper-parameters.
_TRAINING_SETTINGS = {field.name for field in dataclasses.fields(TrainingSetup)}

Size = Annotated[int, Between(1, 2**31)]
Temperature = Annotated[float, Between(sys.float_info.min, 1e300)]


class _ClassNames(TypedDict):
    dtype: str
    names: list[bool | int | float | str]


class _Member(TypedDict):
    classifier: str
    plain: dict[str, Any]


class _Pixels(TypedDict):
    low: float
    high: float
    whole: bool


class _Parameters(TypedDict):
    method: str
    net: str | None


class _Header(TypedDict):
    """JSON header of a saved estimator."""

    layout: int
    version: str
    parameters: _Parameters
    method_fields: dict[str, Any]
    classes: _ClassNames
    in_shape: list[Size]
    temperature: Temperature
    feature_names: list[str]
    n_features_in: Size | None
    members: list[_Member]
    pixels: NotRequired[_Pixels]  # absent without images, and in files of earlier versions


class _MixtureHeader(TypedDict):
    """JSON header of a saved mixture."""

    layout: int
    version: str
    names: list[str]
    weights: list[Annotated[float, Between(0, 1)]]
    temperature: Temperature
    components: list[dict[str, Any]]


def save_model(model: "PartialLabelClassifier", path: str | Path) -> None:
    """Write a fitted estimator to a safetensors file whose header is JSON."""
    _write(path, *_pack(model))


def save_mixture(mixture: "ClassifierMixture", path: str | Path) -> None:
    """Write a mixture of fitted estimators to one file of the same kind."""
    tensors: dict[str, Tensor] = {}
    headers = []
    for i, component in enumerate(mixture.components):
        header, component_tensors = _pack(component)
        headers.append(header)
        tensors |= {f"component/{i}/{name}": tensor for name, tensor in component_tensors.items()}
    header = {
        "layout": MIXTURE_LAYOUT,
        "version": __version__,
        "names": list(mixture.names),
        "weights": [float(weight) for weight in mixture.weights],
        "temperature": mixture.temperature_,
        "components": headers,
    }
    _write(path, header, tensors)


def load_fitted(path: str | Path) -> "PartialLabelClassifier | ClassifierMixture":
    """Read a file written by `save_model` or `save_mixture`."""
    from propall.estimators.classifier import PartialLabelClassifier
    from propall.estimators.mixture import ClassifierMixture

    header, tensors = _read(path)
    if "components" not in header:
        return _unpack(path, PartialLabelClassifier, header, tensors)
    with _refusing(path):
        check_json(header, _MixtureHeader, "header")
        sizes = {len(header[name]) for name in ("components", "weights", "names")}
        if len(sizes) != 1 or 0 in sizes or not sum(header["weights"]) > 0:
            raise ValueError("header: components, weights and names do not fit each other")
    components = [
        _unpack(path, PartialLabelClassifier, part, _with_prefix(tensors, f"component/{i}/"))
        for i, part in enumerate(header["components"])
    ]
    return ClassifierMixture(components, header["weights"], header["names"], header["temperature"])


def _pack(model: "PartialLabelClassifier") -> tuple[dict[str, Any], dict[str, Tensor]]:
    """A fitted estimator as JSON values and tensors."""
    tensors: dict[str, Tensor] = {}
    members = []
    for i, classifier in enumerate(model.classifiers_):
        member_tensors, other_fields = _split_fields(classifier)
        # Members without a network share the training rows; the file format does not allow that.
        tensors |= {f"member/{i}/{n}": t.cpu().clone().contiguous() for n, t in member_tensors.items()}
        members.append({"classifier": classifier.name, "plain": other_fields})
    for name in ("mean_", "scale_", "floor_"):
        if getattr(model, name) is not None:
            # A copy: estimators of a mixture may share their scaling, which the file format does not allow.
            tensors[name] = torch.as_tensor(getattr(model, name)).clone()
    method = model.ensemble().method
    parameters = model.get_params(deep=False) | {"method": method.name, "random_state": None}
    if not isinstance(model.net, str):
        parameters["net"] = None
    class_weight = parameters.pop("class_weight")
    if class_weight is not None:  # absent in files of earlier versions
        # In pairs: the keys of a JSON object are always strings.
        is_name = isinstance(class_weight, str)
        parameters["class_weight"] = class_weight if is_name else [list(p) for p in class_weight.items()]
    if not parameters["views"]:
        del parameters["views"]  # as in files of earlier versions
    elif isinstance(model.views, Views):
        parameters["views"] = dataclasses.asdict(model.views)
    header = {
        "layout": LAYOUT,
        "version": __version__,
        "parameters": parameters,
        "method_fields": method.hyperparameters(),
        "classes": {"dtype": model.classes_.dtype.str, "names": model.classes_.tolist()},
        "in_shape": list(model.in_shape_),
        "temperature": model.temperature_,
        "feature_names": getattr(model, "feature_names_in_", np.array([])).tolist(),
        "n_features_in": getattr(model, "n_features_in_", None),
        "members": members,
    }
    if (pixels := getattr(model, "pixels_", None)) is not None:
        header["pixels"] = dataclasses.asdict(pixels)
    return header, tensors


def _write(path: str | Path, header: dict[str, Any], tensors: dict[str, Tensor]) -> None:
    try:
        text = json.dumps(header)
    except TypeError as error:
        raise ValueError(
            f"save: class names and parameters must be JSON values ({error}). Use strings or numbers as "
            "class names."
        ) from error
    path = Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    write_tensors(path, tensors, {"propall": text, "digest": _digest(text, tensors)})


def load_model(
    estimator: type["Model"], path: str | Path, net: NetFactory | nn.Module | None = None
) -> "Model":
    """Read a file written by `save_model`; a custom network must be passed."""
    header, tensors = _read(path)
    if "components" in header:
        raise ValueError(f"path: {path} is a mixture of classifiers. Use `ClassifierMixture.load`.")
    return _unpack(path, estimator, header, tensors, net)


def _unpack(
    path: str | Path,
    estimator: type["Model"],
    header: dict[str, Any],
    tensors: dict[str, Tensor],
    net: NetFactory | nn.Module | None = None,
) -> "Model":
    with _refusing(path):
        check_json(header, _Header, "header")
        parameters = {**header["parameters"]}
        custom = parameters["net"] is None
        # Views have a check of their own, and a custom network is not in the file.
        separate = {"views", "class_weight", *(["net"] if custom else [])}
        known = {name: value for name, value in parameters.items() if name not in separate}
        check_fields(known, estimator, "parameter")
        _check_names(header["classes"]["names"])
    if custom:
        if net is None:
            raise ValueError("net: missing; the model was fitted with a custom network. Pass it as net=.")
        parameters["net"] = net
    with _refusing(path):
        return _build_model(estimator, header, parameters, tensors)


def _build_model(
    estimator: type["Model"], header: dict[str, Any], parameters: dict[str, Any], tensors: dict[str, Tensor]
) -> "Model":
    kind = METHODS[parameters["method"]]
    fields = {name: v for name, v in header["method_fields"].items() if name not in _TRAINING_SETTINGS}
    check_fields(fields, kind, "hyper-parameter")
    if parameters.get("class_weight") is not None:
        parameters["class_weight"] = _read_class_weight(parameters["class_weight"])
    if isinstance(parameters.get("views"), dict):
        parameters["views"] = Views.from_dict(parameters["views"])
    model = estimator(**parameters | {"method": kind(**fields)})
    if header["n_features_in"] is not None:
        model.n_features_in_ = header["n_features_in"]
    if header["feature_names"]:
        model.feature_names_in_ = np.array(header["feature_names"], dtype=object)
    if "pixels" in header:
        model.pixels_ = PixelScale(**header["pixels"])
    in_shape, names = tuple(header["in_shape"]), header["classes"]["names"]
    ensemble = model.ensemble()
    if not header["members"]:
        raise ValueError("header: members is empty; expected at least one")
    classifiers = [
        _build_classifier(member, _with_prefix(tensors, f"member/{i}/"), ensemble, in_shape, len(names))
        for i, member in enumerate(header["members"])
    ]
    scaling = (_scaling(tensors, name, in_shape) for name in ("mean_", "scale_", "floor_"))
    classes = np.array(names, dtype=header["classes"]["dtype"])
    return model.adopt(classifiers, classes, in_shape, Standardization(*scaling), header["temperature"])


@contextmanager
def _refusing(path: str | Path) -> Iterator[None]:
    """Turn what building from a file's values can raise into an error that names the file."""
    try:
        yield
    # A value of the right type can still be one that a network or array cannot be built from.
    except (ValueError, TypeError, KeyError, RuntimeError, OverflowError, MemoryError) as error:
        raise ValueError(
            f"path: {path} is not a valid propall model ({_first_line(error)}). Use an unmodified copy."
        ) from error


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0].rstrip(".:")[:200] if lines else type(error).__name__


def _check_names(names: list[Any]) -> None:
    if not names or len({(type(name), name) for name in names}) < len(names):
        raise ValueError("header: class names are missing or repeated")


def _read_class_weight(value: Any) -> Any:
    if value == "balanced":
        return value
    check_json(value, list[list[bool | int | float | str]], "class_weight")
    if any(len(pair) != 2 for pair in value):
        raise ValueError("class_weight: expected pairs of a class and its weight")
    return dict(value)


def _scaling(tensors: dict[str, Tensor], name: str, in_shape: tuple[int, ...]) -> Any:
    if name not in tensors:
        return None
    per_channel = (*in_shape[:1], *(1 for _ in in_shape[1:]))
    if tuple(tensors[name].shape) not in (in_shape, per_channel):
        raise ValueError(f"{name} has shape {tuple(tensors[name].shape)}; expected {in_shape}")
    return tensors[name].numpy()


def _read(path: str | Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    try:
        if Path(path).is_dir():
            raise ValueError("it is a folder; the model is the file classifier.safetensors in it")
        with safe_open(Path(path), framework="pt") as file:
            metadata = file.metadata() or {}
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        header, digest = json.loads(metadata["propall"]), metadata["digest"]
        layout = int(header["layout"])
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise ValueError(f"path: {path} is not a complete, unmodified propall model ({error}).") from error
    if layout > MIXTURE_LAYOUT:
        raise ValueError(
            f"path: {path} was written by propall {header['version']} in layout {layout}; this version "
            f"({__version__}) reads up to {MIXTURE_LAYOUT}. Upgrade propall."
        )
    if digest != _digest(metadata["propall"], tensors):
        raise ValueError(f"path: {path} was modified after it was saved. Use an unmodified copy.")
    return header, tensors


def _digest(text: str, tensors: dict[str, Tensor]) -> str:
    return counter_rng.digest(text, *(part for name in sorted(tensors) for part in (name, tensors[name])))


def _with_prefix(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """The tensors whose names start with a prefix, under the rest of their names."""
    return {name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)}


def _split_fields(classifier: Classifier) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """A classifier's tensors, and its other fields as JSON values."""
    if isinstance(classifier, NetClassifier):
        tensors = {f"net/{name}": tensor for name, tensor in classifier.net.state_dict().items()}
        for part in ("shared", "trained"):
            tensors |= {f"{part}/{n}": t.clone() for n, t in getattr(classifier.state, part).items()}
        return tensors, {}
    fields = {f.name: getattr(classifier, f.name) for f in dataclasses.fields(classifier)}  # type: ignore[arg-type]
    tensors = {name: value for name, value in fields.items() if isinstance(value, Tensor)}
    return tensors, {name: value for name, value in fields.items() if name not in tensors}


def _build_classifier(
    member: dict[str, Any],
    tensors: dict[str, Tensor],
    ensemble: Ensemble,
    in_shape: tuple[int, ...],
    n_classes: int,
) -> Classifier:
    method = ensemble.method
    if isinstance(method, Algorithm) and not method.trains_network:
        kinds = {kind.name: kind for kind in (method.classifier, *method.other_classifiers)}
        if member["classifier"] not in kinds:
            raise ValueError(f"members hold {member['classifier']!r}; expected {method.classifier.name!r}")
        return _build_from_fields(kinds[member["classifier"]], tensors, member["plain"])
    if member["classifier"] != NetClassifier.name:
        raise ValueError(f"members hold {member['classifier']!r}; expected {NetClassifier.name!r}")
    weights = _with_prefix(tensors, "net/")
    module = _build_net(method.fitted_net(ensemble.net), weights, in_shape, n_classes)
    objective = method.scoring_objective()
    state = State(*(_with_prefix(tensors, f"{part}/") for part in State._fields))
    return NetClassifier(module.to(ensemble.device), objective, state)


def _build_from_fields(
    kind: type[Classifier], tensors: dict[str, Tensor], plain: dict[str, Any]
) -> Classifier:
    """A classifier without a network from its fields, whose types and shapes are checked."""
    hints = get_type_hints(kind)
    check_fields(plain, kind, "member")
    fields = [field.name for field in dataclasses.fields(kind)]  # type: ignore[arg-type]
    if {*tensors, *plain} != set(fields):
        raise ValueError(f"members hold {', '.join((*tensors, *plain))}; expected {', '.join(fields)}")
    with jaxtyped("context"):  # sizes of the same name must agree
        for name, tensor in tensors.items():
            if not isinstance(tensor, hints[name]):
                raise ValueError(f"tensor {name} has the wrong type or shape {tuple(tensor.shape)}")
    return kind(**tensors, **plain)


def _build_net(
    net: NetFactory | nn.Module, weights: dict[str, Tensor], in_shape: tuple[int, ...], n_classes: int
) -> nn.Module:
    if not weights:
        raise ValueError("the tensors of a network are missing")
    if isinstance(net, nn.Module):
        module = copy.deepcopy(net)
    else:
        # Sizes of a header may be anything: no memory is taken before they are known to match the tensors.
        with torch.device("meta"):
            sketch = net(in_shape, n_classes)
        shapes = {name: tensor.shape for name, tensor in sketch.state_dict().items()}
        for name in sorted({*shapes, *weights}):
            if name not in shapes or name not in weights or shapes[name] != weights[name].shape:
                raise ValueError(f"tensor {name} does not fit the network of the header")
        with seeded_generator(0):  # the initial weights are discarded
            module = net(in_shape, n_classes)
    module = module.to(next(iter(weights.values())).dtype)
    module.load_state_dict(weights)
    return module.eval()
