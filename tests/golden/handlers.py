"""Handlers that compute the cases of each golden file with this library.

A handler yields a `Check` for every field that a case of its file may have; the runner skips fields that a
case does not have. Methods are imported inside their handlers, so a broken one fails alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any, NamedTuple

import torch
from torch import Tensor

from propall.data.dataset import PartialDataset
from propall.methods._neighbors import nearest
from propall.training.contract import Algorithm, Objective, Run, State, Step
from tests.golden.comparison import (
    COMPLEMENTARY,
    COMPLEMENTARY_32,
    DEEP,
    DEEP_32,
    EXACT,
    GUARDED_LOG,
    PROPALL,
    Case,
    Check,
    Tolerance,
    Tolerances,
    as_array,
    relative,
)

Handler = Callable[[Case, torch.dtype, Tolerances], Iterator[Check]]


class File(NamedTuple):
    """Handler of a file, and its tolerances in float64 and (if compared) in float32."""

    handler: Handler
    double: Tolerances
    single: Tolerances | None = None


def numbers(value: Any, dtype: torch.dtype) -> Tensor:
    return torch.from_numpy(as_array(value)).to(dtype)


def mask(value: Any) -> Tensor:
    return torch.as_tensor(value).bool()


class Evaluated(NamedTuple):
    loss: Tensor
    gradient: Tensor


def evaluate(
    objective: Objective,
    logits: Tensor,
    candidates: Tensor,
    state: State | None = None,
    *,
    epoch: int = 0,
    weight: Tensor | None = None,
) -> Evaluated:
    """Loss and gradient as in training; draws of 1/2 mean no noise."""
    leaf = logits.clone().requires_grad_()
    loss = objective.loss(leaf, candidates, state or State(), step_for(objective, logits, epoch, weight))
    return Evaluated(loss.detach(), torch.autograd.grad(loss, leaf)[0])


def step_for(objective: Objective, logits: Tensor, epoch: int = 0, weight: Tensor | None = None) -> Step:
    uniform = torch.full_like(logits, 0.5) if objective.needs_noise else None
    return Step(torch.zeros((), dtype=logits.dtype), torch.tensor(epoch), uniform, weight)


def loss_of(run: Callable[[], Evaluated]) -> Callable[[], Tensor]:
    return lambda: run().loss


def gradient_of(run: Callable[[], Evaluated]) -> Callable[[], Tensor]:
    return lambda: run().gradient


def loss_and_gradient(
    run: Callable[[], Evaluated], tolerances: Tolerances, prefix: str = "", suffix: str = ""
) -> Iterator[Check]:
    yield Check(f"{prefix}loss{suffix}", loss_of(run), tolerances.loss)
    yield Check(f"{prefix}grad_logits{suffix}", gradient_of(run), tolerances.gradient)


# --- deep partial-label methods -----------------------------------------------------------------------------


def propall(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods.propall import ProPaLL, propall_loss

    logits, candidates = numbers(case["inputs"]["logits"], dtype), mask(case["inputs"]["candidate_mask"])

    yield from loss_and_gradient(lambda: evaluate(ProPaLL(noise=0.0), logits, candidates), tolerances)

    def rowwise_gradient() -> Tensor:
        leaf = logits.clone().requires_grad_()
        return torch.autograd.grad(propall_loss(leaf, candidates).sum(), leaf)[0]

    yield Check("loss_per_sample", lambda: propall_loss(logits, candidates), tolerances.loss)
    yield Check("loss_per_sample_40digits", lambda: propall_loss(logits, candidates), tolerances.loss)
    yield Check("grad_logits_per_sample", rowwise_gradient, tolerances.gradient)
    # At +-1e4 a label contributes exactly zero, which isolates one of the two parts.
    yield Check("part_I", lambda: propall_loss(logits.where(candidates, -1e4), candidates), tolerances.loss)
    yield Check("part_II", lambda: propall_loss(logits.where(~candidates, 1e4), candidates), tolerances.loss)

    def branch() -> list[str]:
        exact, paper = propall_loss(logits, candidates), propall_loss(logits, candidates, mode="paper")
        outside = propall_loss(logits.where(~candidates, 1e4), candidates)
        approximate = outside - logits.masked_fill(~candidates, -torch.inf).logsumexp(-1)
        # Where both forms round to the same value, the branch is not observable and does not matter.
        seen = (exact - approximate).abs() > 1e-12 * exact.abs()
        told = case["appendixA_branch"]
        return [
            ("exact" if paper[i] == exact[i] else "logsumexp") if seen[i] else told[i]
            for i in range(len(told))
        ]

    if dtype == torch.float64:
        yield Check("appendixA_branch", branch, EXACT)
    yield Check(
        "loss_per_sample_appendixA", lambda: propall_loss(logits, candidates, mode="paper"), tolerances.loss
    )


def cc(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods.cc import CC, cc_loss

    logits, candidates = numbers(case["inputs"]["logits"], dtype), mask(case["inputs"]["candidate_mask"])
    yield from loss_and_gradient(lambda: evaluate(CC(), logits, candidates), tolerances)
    yield Check("loss_per_sample", lambda: cc_loss(logits, candidates), tolerances.loss)


def with_label_weights(
    case: Case,
    dtype: torch.dtype,
    tolerances: Tolerances,
    objective: Objective,
    *,
    new_weights: Tolerance | None = None,
) -> Iterator[Check]:
    """Objectives with one weight per label: the loss with the old weights, then the update."""
    logits, candidates = numbers(case["inputs"]["logits"], dtype), mask(case["inputs"]["candidate_mask"])
    state = State(rows={"weights": numbers(case["inputs"]["weights"], dtype)})
    yield from loss_and_gradient(lambda: evaluate(objective, logits, candidates, state), tolerances)

    def updated() -> Tensor:
        after = numbers(case["inputs"]["logits_after_step"], dtype) if objective.fresh_logits else logits
        return objective.update(after, candidates, state, step_for(objective, logits)).rows["weights"]

    yield Check("new_state/weights", updated, new_weights or tolerances.state)


def proden(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods.proden import PRODEN

    yield from with_label_weights(case, dtype, tolerances, PRODEN())
    logits, candidates = numbers(case["inputs"]["logits"], dtype), mask(case["inputs"]["candidate_mask"])
    state = State(rows={"weights": numbers(case["inputs"]["weights"], dtype)})
    floored = PRODEN(log_floor=1e-12)
    yield from loss_and_gradient(
        lambda: evaluate(floored, logits, candidates, state), tolerances, "eps_variant_1e-12/"
    )


def rc(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods.rc import RC

    yield from with_label_weights(case, dtype, tolerances, RC())


def cavl(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods.cavl import CAVL

    yield from with_label_weights(case, dtype, tolerances, CAVL(), new_weights=EXACT)


def lws(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods.lws import LWS

    yield from with_label_weights(case, dtype, tolerances, LWS(**leverage(case)))


def lwc(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods.lwc import LWC

    yield from with_label_weights(case, dtype, tolerances, LWC(**leverage(case)))


def leverage(case: Case) -> dict[str, float]:
    return {
        "beta": float(case["hyper"]["leverage_beta"]),
        "candidate_weight": float(case.at("hyper/candidate_weight") or 1.0),
    }


def d2cnn(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods.d2cnn import d2cnn_loss, d2cnn_terms

    logits, candidates = numbers(case["inputs"]["logits"], dtype), mask(case["inputs"]["candidate_mask"])
    teacher, omega = (numbers(case["inputs"][name], dtype) for name in ("teacher", "sample_weights"))
    weights = {name: float(case["hyper"][name]) for name in ("entropy_weight", "ensemble_weight")}

    def run() -> Evaluated:
        leaf = logits.clone().requires_grad_()
        loss = d2cnn_loss(leaf, candidates, teacher, omega, **weights).mean()
        return Evaluated(loss.detach(), torch.autograd.grad(loss, leaf)[0])

    yield from loss_and_gradient(run, tolerances)
    for name, term in d2cnn_terms(logits, candidates, teacher, omega)._asdict().items():
        yield Check(f"terms/{name}", term.mean, tolerances.loss)


def abs_(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods.abs import ABS

    logits, candidates = numbers(case["inputs"]["logits"], dtype), mask(case["inputs"]["candidate_mask"])
    mae, gce = ABS(bounded="mae"), ABS(bounded="gce", q=float(case.at("gce/q") or 0.7))
    for prefix, objective in (("", mae), ("mae/", mae), ("gce/", gce)):
        yield from loss_and_gradient(partial(evaluate, objective, logits, candidates), tolerances, prefix)


def mcl(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods.mcl_exp import MCLExp
    from propall.methods.mcl_gce import MCLGCE
    from propall.methods.mcl_log import MCLLog
    from propall.methods.mcl_mae import MCLMAE
    from propall.methods.mcl_mse import MCLMSE

    logits, candidates = numbers(case["inputs"]["logits"], dtype), mask(case["inputs"]["candidate_mask"])
    objectives: dict[str, Objective] = {
        "": MCLExp(),
        "exp/": MCLExp(),
        "log/": MCLLog(),
        "mae/": MCLMAE(),
        "mse/": MCLMSE(),
        "gce/": MCLGCE(q=float(case.at("gce/q") or 0.7)),
    }
    for prefix, objective in objectives.items():
        yield from loss_and_gradient(partial(evaluate, objective, logits, candidates), tolerances, prefix)


def ga(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods._risks import class_risks
    from propall.methods.free import Free
    from propall.methods.ga import GA, ga_step
    from propall.methods.nn import NN

    inputs = case["inputs"]
    logits = numbers(inputs["logits"], dtype)
    candidates = all_but(inputs["complementary_labels"], logits)
    prior = numbers(inputs["complementary_class_prior"], dtype)
    state = State(shared={"prior": prior})
    estimate = class_risks(logits, candidates, prior)
    step = ga_step(estimate)
    yield Check("class_risks", lambda: estimate.risks, tolerances.loss)
    yield Check("class_counts", lambda: estimate.counts, EXACT)
    for prefix, objective in (("free/", Free()), ("nn/", NN())):
        yield from loss_and_gradient(
            partial(evaluate, objective, logits, candidates, state), tolerances, prefix
        )
    yield Check("ga/ascent_branch", lambda: step.ascends, EXACT)
    yield Check("ga/backward_scalar", lambda: step.backward, tolerances.loss)
    for reported in ("ga/reported_loss", "loss"):
        yield Check(reported, lambda: step.risk, tolerances.loss)
    for applied in ("ga/applied_grad_logits", "grad_logits"):
        yield Check(applied, lambda: evaluate(GA(), logits, candidates, state).gradient, tolerances.gradient)


def crdpll(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods import METHODS
    from propall.training.consistency import MEMORY, ConsistentObjective
    from propall.training.named_views import VIEWS

    named, inputs, hyper = VIEWS["crdpll"], case["inputs"], case["hyper"]
    assert (hyper["lam_max"], hyper["guard"]) == (named.views.weight, "log(1.0000001 - p)")
    views, candidates = numbers(inputs["logits_views"], dtype), mask(inputs["candidate_mask"])
    base = METHODS[named.base](**named.base_settings)
    assert isinstance(base, Objective)
    objective = ConsistentObjective(base, named.views)
    state = State(rows={MEMORY: numbers(inputs["weights"], dtype)})
    # 200 epochs, the weight of the consistency rises over half of them.
    step = Step(torch.tensor(hyper["epoch"] / 200, dtype=dtype), torch.tensor(hyper["epoch"]))
    logits = views.flatten(0, 1)
    assert hyper["lam"] == min(hyper["epoch"] / 100, 1)

    def run(objective: Objective = objective) -> Evaluated:
        leaf = logits.clone().requires_grad_()
        loss = objective.loss(leaf, candidates, state, step)
        return Evaluated(loss.detach(), torch.autograd.grad(loss, leaf)[0].view_as(views))

    yield from loss_and_gradient(run, tolerances)
    yield Check("supervised", lambda: evaluate(base, views[0], candidates).loss, tolerances.loss)
    alone = ConsistentObjective(base, replace(named.views, base_weight=0.0, ramp=0.0))
    yield Check("consistency_sum", lambda: run(alone).loss, tolerances.loss)

    def updated() -> Tensor:
        return objective.update(logits, candidates, state, step).rows[MEMORY]

    yield Check("new_state/weights", updated, tolerances.state)


def pop_purify(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.training.cleaning import HISTORY, KEPT, THRESHOLD, Purification

    history, candidates = (
        numbers(case["inputs"]["weight_history"], dtype),
        mask(case["inputs"]["candidate_mask"]),
    )
    hyper, window = case["hyper"], len(history)
    rule = Purification(
        start=window,
        window=window,
        threshold=hyper["theta"],
        growth=hyper["inc"],
        change=hyper["change_fraction"],
        largest_threshold=hyper["theta_stop"],
    )
    stored = rule.init(candidates)
    stored.rows[HISTORY], stored.shared[THRESHOLD] = (
        stored.rows[HISTORY].to(dtype),
        numbers(hyper["theta"], dtype),
    )
    for epoch, weights in enumerate(history, start=1):
        stored = rule.end_epoch(weights.log(), candidates, stored, epoch)
    yield Check("new_state/candidate_mask", lambda: stored.rows[KEPT].int(), EXACT)
    yield Check("new_state/weights", lambda: stored.weights, tolerances.state)
    yield Check("new_state/theta", lambda: stored.shared[THRESHOLD], tolerances.state)
    yield Check("new_state/entries_changed", lambda: int((candidates != stored.rows[KEPT]).sum()), EXACT)


def pico(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods._label_weights import weighted_cross_entropy
    from propall.methods._prototypes import predicted_labels
    from propall.methods.pico import ContrastivePhase, instance_contrast, supervised_contrast

    inputs, hyper = case["inputs"], case["hyper"]
    logits, weights, queries, keys, queue, prototypes = (
        numbers(inputs[name], dtype)
        for name in ("logits", "weights", "query_features", "key_features", "queue_features", "prototypes")
    )
    candidates, queue_labels = mask(inputs["candidate_mask"]), torch.tensor(inputs["queue_pseudo_labels"])
    phi, temperature = float(hyper["phi"]), float(hyper["temperature"])
    phase = ContrastivePhase(
        views=2,
        epochs=10,
        dimension=queries.shape[1],
        queue=len(queue),
        start=1,
        temperature=temperature,
        prototype_momentum=float(hyper["proto_momentum"]),
        first_momentum=phi,
        last_momentum=phi,
        contrast=float(hyper["contrastive_weight"]),
    )
    shared = {
        "prototypes": prototypes,
        "queue": queue,
        "queue_labels": queue_labels.long(),
        "position": torch.tensor(0),
    }
    state = State(rows={"weights": weights}, shared=shared)
    step = Step(progress=torch.tensor(0.3, dtype=dtype), epoch=torch.tensor(3.0, dtype=dtype))
    labels = predicted_labels(logits, candidates)
    everything = torch.cat([queries, keys, queue])
    all_labels = torch.cat([labels, labels, queue_labels.long()])

    def run() -> Evaluated:
        leaf = logits.clone().requires_grad_()
        loss = phase.loss(torch.cat([leaf, queries, keys], -1), candidates, state, step)
        return Evaluated(loss.detach(), torch.autograd.grad(loss, leaf)[0])

    def contrast(features: Tensor) -> Tensor:
        return supervised_contrast(features, all_labels, len(labels), temperature).mean()

    def of_features() -> Tensor:
        leaf = everything.clone().requires_grad_()
        return torch.autograd.grad(contrast(leaf), leaf)[0]

    after = phase.update(torch.cat([logits, queries, keys], -1), candidates, state, step)
    yield from loss_and_gradient(run, tolerances)
    yield Check("pseudo_labels", lambda: labels, EXACT)
    yield Check("prototype_scores", lambda: (queries @ prototypes.mT).softmax(-1), tolerances.state)
    yield Check("supcon_loss", lambda: contrast(everything), tolerances.loss)
    yield Check("supcon_grad_features", of_features, tolerances.gradient)
    yield Check(
        "moco_loss_warmup",
        lambda: instance_contrast(queries, keys, queue, queue_labels >= 0, temperature).mean(),
        tolerances.loss,
    )
    for name, used in (("before", weights), ("after", after.rows["weights"])):
        yield Check(
            f"classification_loss_{name}_update",
            lambda used=used: weighted_cross_entropy(logits, used).mean(),
            tolerances.loss,
        )
    yield Check("new_state/weights", lambda: after.rows["weights"], tolerances.state)
    yield Check("new_state/prototypes", lambda: after.shared["prototypes"], tolerances.state)


def able(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods import able as method
    from propall.methods._label_weights import weighted_cross_entropy
    from propall.methods._prototypes import predicted_labels

    inputs, hyper = case["inputs"], case["hyper"]
    logits, features, all_weights = (
        numbers(inputs[name], dtype)
        for name in ("logits_two_views", "features_two_views", "weights_all_instances")
    )
    candidates = mask(inputs["candidate_mask"])
    weights, temperature = all_weights[torch.tensor(inputs["batch_indices"])], float(hyper["temperature"])
    assert float(hyper["base_temperature"]) == method.BASE_TEMPERATURE
    phase = method.AmbiguityPhase(
        base=None,
        views=2,
        dimension=features.shape[1],
        temperature=temperature,
        contrast=float(hyper["contrastive_weight"]),
    )
    state = State(rows={"weights": weights})
    step = Step(progress=torch.tensor(0.3, dtype=dtype), epoch=torch.tensor(3.0, dtype=dtype))
    outputs = torch.cat(torch.cat([logits, features], -1).chunk(2), -1)
    weak = logits[: len(weights)]
    labels = predicted_labels(weak, candidates)
    yield Check("loss", lambda: phase.loss(outputs, candidates, state, step), tolerances.loss)
    yield Check(
        "contrastive_loss",
        lambda: method.ambiguity_contrast(features, labels, weights, temperature).mean(),
        tolerances.loss,
    )
    yield Check("classification_loss", lambda: weighted_cross_entropy(weak, weights).mean(), tolerances.loss)
    yield Check(
        "new_state/weights",
        lambda: phase.update(outputs, candidates, state, step).rows["weights"],
        tolerances.state,
    )


def valen(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods import _autoencoder as autoencoder
    from propall.methods import _dirichlet as dirichlet
    from propall.methods import valen as method

    inputs, hyper = case["inputs"], case["hyper"]
    classified, encoded, weights, sampled, z, features = (
        numbers(inputs[name], dtype)
        for name in (
            "net_logits",
            "enc_logits",
            "o_weights",
            "d_weights",
            "dirichlet_sample",
            "graph_features",
        )
    )
    candidates = mask(inputs["candidate_mask"])
    assert float(hyper["log_eps"]) == method.LOG_FLOOR
    assert tuple(hyper["alpha_clip"]) == dirichlet.PARAMETER_RANGE
    n, k = candidates.shape
    index = torch.arange(n)
    links, _ = nearest(features, features, int(hyper["knn"]), exclude_self=True)
    state = State(rows={"weights": weights, "sampled": sampled, "index": index, "neighbours": links})
    factors = {name: float(hyper[name]) for name in ("alpha", "beta", "gamma", "theta", "correct")}

    class GivenSample(method.VariationalPhase):
        """The phase with the file's sample in place of a drawn one."""

        def _sample(self, *_: object) -> Tensor:
            return z

    def phase(**only: float) -> tuple[Tensor, Tensor]:
        """Loss and gradient with respect to all outputs, for the given factors."""
        zero = dict.fromkeys(("alpha", "beta", "gamma", "theta", "reconstruction"), 0.0)
        objective = GivenSample(width=1, neighbours=links.shape[1], **(zero | only))
        decoder = autoencoder.new_decoder(k, 1)
        full = state._replace(trained={name: tensor.to(dtype) for name, tensor in decoder.items()})
        outputs = torch.cat([classified, encoded, torch.zeros(n, 1, dtype=dtype)], -1)
        loss, gradient = evaluate(objective, outputs, candidates, full)
        return loss, gradient

    floor = float(hyper["sample_floor"])
    yield Check(
        "dirichlet_parameters_for_sampling",
        lambda: dirichlet.dirichlet_parameters(encoded, weights > 0, floor),
        tolerances.state,
    )
    yield Check("adjacency", lambda: autoencoder.adjacency_rows(index, links, index, dtype), tolerances.state)
    yield Check("terms/L_d", lambda: phase(gamma=1.0)[0], tolerances.loss)
    yield Check("terms/L_alpha", lambda: phase(beta=1.0)[0], tolerances.loss)
    yield Check("terms/L_o", lambda: phase(theta=1.0)[0], tolerances.loss)
    yield Check("terms/L_recA", lambda: autoencoder.graph_reconstruction(z, index, links), tolerances.loss)
    yield Check(
        "terms/L_recy_before_0p01",
        lambda: (
            (phase(alpha=1.0)[0] - autoencoder.graph_reconstruction(z, index, links))
            / method.CANDIDATE_RECONSTRUCTION
        ),
        tolerances.loss,
    )
    yield Check(
        "grad_enc_logits_of_gammaLd_plus_betaLalpha",
        lambda: phase(gamma=factors["gamma"], beta=factors["beta"])[1][:, k : 2 * k],
        tolerances.gradient,
    )
    for field in ("grad_net_logits_of_L_o", "grad_logits"):
        yield Check(field, lambda: phase(theta=1.0)[1][:, :k], tolerances.gradient)
    yield Check("loss", lambda: phase(theta=1.0)[0], tolerances.loss)

    def after() -> State:
        objective = GivenSample(width=1, correct=factors["correct"])
        outputs = torch.cat([classified, encoded, torch.zeros(n, 1, dtype=dtype)], -1)
        return objective.update(outputs, candidates, state, step_for(objective, outputs))

    yield Check("new_state/d_weights", lambda: after().rows["sampled"], tolerances.state)
    yield Check("new_state/o_weights", lambda: after().rows["weights"], tolerances.state)
    case.leave_out("hyper")


# --- complementary labels -----------------------------------------------------------------------------------


def all_but(labels: Any, logits: Tensor) -> Tensor:
    """The candidate sets of one complementary label per row."""
    return ~torch.nn.functional.one_hot(torch.as_tensor(labels).long(), logits.shape[-1]).bool()


def logits_and_candidates(case: Case, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    logits = numbers(case["logits"], dtype)
    if "candidate_mask" in case:
        return logits, mask(case["candidate_mask"])
    return logits, all_but(case["comp_labels"], logits)


def plain(module: str, class_name: str, **fields: Any) -> Handler:
    """A loss of logits and candidates without state."""

    def handler(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
        objective = getattr(import_module(f"propall.methods.{module}"), class_name)(**fields)
        logits, candidates = logits_and_candidates(case, dtype)
        objective.init(candidates)  # must accept these sets
        yield from loss_and_gradient(partial(evaluate, objective, logits, candidates), tolerances)

    return handler


def katsura(module: str, class_name: str) -> Handler:
    """A risk on candidate sets, with and without the unbiased scale."""

    def handler(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
        yield from plain(module, class_name, scale="none")(case, dtype, tolerances)
        logits, candidates = logits_and_candidates(case, dtype)
        unbiased = getattr(import_module(f"propall.methods.{module}"), class_name)(scale="unbiased")
        for field in ("loss_unbiased_scaled", "unbiased_risk"):
            yield Check(field, lambda: evaluate(unbiased, logits, candidates).loss, tolerances.loss)

    return handler


def rows_of(matrix: Any) -> tuple[tuple[float, ...], ...]:
    return tuple(tuple(row) for row in as_array(matrix).tolist())


def forward(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods.forward import Forward

    logits, candidates = logits_and_candidates(case, dtype)
    matrix = numbers(case["Q"], torch.float64)
    forms = [Forward(transition=rows_of(case["Q"]))]
    k = len(matrix)
    if torch.allclose(matrix, (1 - torch.eye(k, dtype=matrix.dtype)) / (k - 1)):
        forms.append(Forward(transition="uniform"))
    for form in forms:
        yield from loss_and_gradient(
            partial(evaluate, form, logits, candidates, form.init(candidates)), tolerances
        )


def cpe(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods.cpe import CPE

    logits, candidates = logits_and_candidates(case, dtype)
    # "T" starts at the given matrix, where it equals "F".
    matrix = rows_of(case["Q"])
    variants = {"_I": [CPE("I", matrix)], "_F": [CPE("F", matrix), CPE("T", matrix)]}
    for suffix, objectives in variants.items():
        for objective in objectives:
            state = objective.init(candidates)
            run = partial(evaluate, objective, logits, candidates, state)
            yield from loss_and_gradient(run, tolerances, suffix=suffix)
            yield Check(f"decoded{suffix}", partial(objective.scores(logits, state).argmax, -1), EXACT)


def op(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods.op import OP
    from propall.methods.op_w import OPW

    logits, candidates = logits_and_candidates(case, dtype)
    for prefix, objective in (("", OP()), ("op_w_", OPW())):
        yield from loss_and_gradient(partial(evaluate, objective, logits, candidates), tolerances, prefix)


def class_risk_estimator(module: str, class_name: str) -> Handler:
    """Free and NN: losses on the class risks of a batch."""

    def handler(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
        from propall.methods._risks import class_risks

        objective = getattr(import_module(f"propall.methods.{module}"), class_name)()
        logits, candidates = logits_and_candidates(case, dtype)
        prior = numbers(case["ccp"], dtype)
        state = State(shared={"prior": prior})
        yield Check("r_vector", lambda: class_risks(logits, candidates, prior).risks, tolerances.loss)
        yield from loss_and_gradient(partial(evaluate, objective, logits, candidates, state), tolerances)

    return handler


def ishida_ga(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods._risks import class_risks
    from propall.methods.ga import GA, ga_step

    logits, candidates = logits_and_candidates(case, dtype)
    prior = numbers(case["ccp"], dtype)
    state = State(shared={"prior": prior})
    estimate = class_risks(logits, candidates, prior)
    public, paper = ga_step(estimate, "public"), ga_step(estimate, "paper")
    yield Check("r_vector", lambda: estimate.risks, tolerances.loss)
    yield Check("count_weighted_r", lambda: estimate.counts * estimate.risks, tolerances.loss)
    yield Check("ascent_triggered", lambda: public.ascends, EXACT)
    # The files contain the differentiated value, before the negation of an ascent.
    yield Check("loss", lambda: public.backward, tolerances.loss)
    yield Check("paper_variant_loss", lambda: paper.backward, tolerances.loss)
    for field, objective in (
        ("update_grad_logits", GA(variant="public")),
        ("paper_variant_update_grad", GA(variant="paper")),
    ):
        run = partial(evaluate, objective, logits, candidates, state)
        yield Check(field, gradient_of(run), tolerances.gradient)


# --- classical methods --------------------------------------------------------------------------------------


def table_of(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """Training rows, their candidates, and test rows."""
    return (
        numbers(case["X_train"], torch.float64),
        mask(case["candidates"]),
        numbers(case["X_test"], torch.float64),
    )


def fitted(algorithm: Algorithm, x: Tensor, candidates: Tensor) -> Any:
    (classifier,) = algorithm.fit([Run(PartialDataset(x, candidates), seed=0)])
    return classifier


CLASSICAL = Tolerance(0.0, 1e-9)


def plknn(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods.pl_knn import PLKNN

    x, candidates, test = table_of(case)
    classifier = fitted(PLKNN(neighbours=case["k"]), x, candidates)
    yield Check("votes", lambda: classifier.scores(test), CLASSICAL)
    # Ties go to the lowest label in both, so `tie` excludes nothing.
    yield Check("pred", lambda: classifier.predict(test), EXACT)
    case.leave_out("tie")


def ipal(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods import ipal as method

    x, candidates, test = table_of(case)
    settings = {"alpha": case["alpha"], "tol": case["tol"]}
    algorithm = method.IPAL(
        neighbours=case["k"], rounds=case["T"], row_normalise=case["row_normalise"], **settings
    )
    classifier = fitted(algorithm, x, candidates)
    if case["row_normalise"]:
        x, test = method.unit_rows(x), method.unit_rows(test)
    neighbors, _ = nearest(x, x, case["k"], exclude_self=True)
    test_neighbors, _ = nearest(test, x, case["k"])
    weights = method.reconstruction_weights(x, x, neighbors)
    test_weights = method.reconstruction_weights(test, x, test_neighbors)
    yield Check("neighbours", lambda: neighbors, EXACT)
    yield Check("test_neighbours", lambda: test_neighbors, EXACT)
    yield Check("F0", lambda: method.propagate(candidates, neighbors, weights, rounds=0).confidence, EXACT)
    if not case.fields.get("weights_unique", True):
        # Several minimizers have the same residual, and all that follows depends on which one is chosen.
        def residual(rows: Tensor, near: Tensor, w: Any) -> Tensor:
            reconstructed = (numbers(w, torch.float64)[..., None] * x[near]).sum(1)
            return (rows - reconstructed).square().sum(-1)

        yield Check("weights", lambda: weights, CLASSICAL, partial(residual, x, neighbors))
        yield Check("test_weights", lambda: test_weights, CLASSICAL, partial(residual, test, test_neighbors))
        case.leave_out("F_after_1", "F_after_2", "F_final", "iterations", "calibrated", "disambiguated")
        case.leave_out("weights_unique", "test_residuals", "pred")
        return
    case.leave_out("weights_unique")
    yield Check("weights", lambda: weights, CLASSICAL)
    yield Check("test_weights", lambda: test_weights, CLASSICAL)
    for rounds in (1, 2):
        early = method.propagate(candidates, neighbors, weights, alpha=case["alpha"], rounds=rounds)
        yield Check(f"F_after_{rounds}", partial(Tensor.clone, early.confidence), CLASSICAL)
    final = method.propagate(candidates, neighbors, weights, rounds=case["T"], **settings)
    calibrated = method.calibrate(final.confidence, candidates)
    yield Check("F_final", lambda: final.confidence, CLASSICAL)
    yield Check("iterations", lambda: final.rounds, EXACT)
    yield Check("calibrated", lambda: calibrated, CLASSICAL)
    yield Check("disambiguated", lambda: classifier.labels, EXACT)
    yield Check(
        "test_residuals",
        lambda: method.class_residuals(
            test, x, test_neighbors, test_weights, calibrated.argmax(1), candidates.shape[1]
        ),
        CLASSICAL,
    )
    yield Check("pred", lambda: classifier.predict(numbers(case["X_test"], torch.float64)), EXACT)


def clpl(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods.clpl import CLPL, clpl_objective

    x, candidates, test = table_of(case)
    c = float(case["C"])
    value, gradient = clpl_objective(numbers(case["W_probe"], torch.float64), x, candidates, c)
    yield Check("objective_at_probe", lambda: value, Tolerance(1e-9, 0.0))
    yield Check("gradient_at_probe", lambda: gradient, relative(1e-9, case.at("gradient_at_probe")))
    classifier = fitted(CLPL(c=c), x, candidates)
    best, _ = clpl_objective(classifier.weight, x, candidates, c)
    yield Check("objective_opt", lambda: best, Tolerance(1e-8, 0.0))
    yield Check("W_opt", lambda: classifier.weight, Tolerance(0.0, 1e-5))
    yield Check("test_scores", lambda: classifier.scores(test), Tolerance(0.0, 1e-4))
    yield Check("pred", lambda: classifier.predict(test), EXACT)


def plsvm(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods import LinearClassifier
    from propall.methods.pl_svm import pegasos, pl_svm_objective

    x, candidates, test = table_of(case)
    lam, start = float(case["lam"]), numbers(case["W_init"], torch.float64)
    final = pegasos(start, x, candidates, lam, case["T"])
    classifier = LinearClassifier(final, final.new_zeros(len(final)))
    yield Check("objective_init", lambda: pl_svm_objective(start, x, candidates, lam), CLASSICAL)
    yield Check("objective_final", lambda: pl_svm_objective(final, x, candidates, lam), CLASSICAL)
    for rounds in case.at("W_after") or {}:
        after = partial(pegasos, start, x, candidates, lam, int(rounds))
        yield Check(f"W_after/{rounds}", after, CLASSICAL)
    yield Check("W_final", lambda: final, CLASSICAL)
    yield Check("test_scores", lambda: classifier.scores(test), CLASSICAL)
    yield Check("pred", lambda: classifier.predict(test), EXACT)


def plle(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods import plle as method
    from propall.methods._kernel_ridge import dense_ridge, rbf_kernel
    from tests.methods.plle_objectives import enhancement_objective, regression_objective

    x, candidates, test = table_of(case)
    scaled = method.fit_scaling(x, "zscore")(x)
    others = case["K"] - 1  # the file counts a row among its neighbors

    def enhanced(stage: str) -> tuple[method.Graph, Tensor]:
        graph = method.neighbor_graph(scaled, others, float(case.at(f"{stage}/sigma")))
        return graph, method.enhance(candidates, graph, float(case.at(f"{stage}/lam")))

    def weak_objective() -> Tensor:
        graph, distributions = enhanced("stage1_default")
        return enhancement_objective(distributions, candidates, graph, float(case.at("stage1_default/lam")))

    yield Check("stage1_default/D", lambda: enhanced("stage1_default")[1], CLASSICAL)
    yield Check("stage1_default/objective", weak_objective, CLASSICAL)
    yield Check("stage1_strong/D", lambda: enhanced("stage1_strong")[1], CLASSICAL)
    strong = enhanced("stage1_strong")[1]
    softened = method.regression_target(strong, candidates, "softmax")
    yield Check("softmax_D_strong", lambda: softened, CLASSICAL)

    # The second stage uses the width and target of the file, so each stage is tested on its own.
    yield Check("kernel_width", lambda: method.mean_distance(scaled), CLASSICAL)
    width, target = float(case["kernel_width"]), numbers(case["softmax_D_strong"], torch.float64)
    factors = {"c1": float(case["C1"]), "c2": float(case["C2"]), "eps": float(case["eps"])}
    signs = method.margin_signs(candidates)
    coefficients, offset = (numbers(case["probe"][name], torch.float64) for name in ("B", "b"))
    value, gradient, offset_gradient = regression_objective(
        coefficients, offset, rbf_kernel(scaled, scaled, width), target, signs, **factors
    )
    yield Check("probe/objective", lambda: value, Tolerance(1e-9, 0.0))
    yield Check("probe/grad_B", lambda: gradient, relative(1e-9, case.at("probe/grad_B")))
    yield Check("probe/grad_b", lambda: offset_gradient, relative(1e-9, case.at("probe/grad_b")))
    ridge = dense_ridge(scaled, width, factors["c1"])
    best = method.fit_regression(ridge, target, signs, c1=factors["c1"], c2=factors["c2"], eps=factors["eps"])
    yield Check("stage2_objective_opt", lambda: best.objective, Tolerance(0.0, 1e-6))

    # The whole method.
    algorithm = method.PLLE(
        neighbours=others,
        sigma=float(case.at("stage1_strong/sigma")),
        lam=float(case.at("stage1_strong/lam")),
        c1=factors["c1"],
        c2=factors["c2"],
        eps=factors["eps"],
    )
    classifier = fitted(algorithm, x, candidates)
    yield Check("stage2_train_outputs", lambda: classifier.scores(x), Tolerance(0.0, 1e-4))
    yield Check("stage2_test_outputs", lambda: classifier.scores(test), Tolerance(0.0, 1e-4))
    yield Check("pred", lambda: classifier.predict(test), EXACT)


# --- procedures ---------------------------------------------------------------------------------------------


def noise_schedule(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.methods.propall import noise_scale

    progress = numbers([point["step"] for point in case["points"]], dtype) / case["total"]
    for position, scale in enumerate(noise_scale(progress)):
        yield Check(f"points/{position}/lam", partial(Tensor.item, scale), Tolerance(1e-12, 1e-15))


def corruption_uniform(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.data.corruption import CORRUPTIONS, SizedCorruption

    # Models without a probability have no q; others get the decimal as it is written.
    corruption = CORRUPTIONS[case["law"]](**({"q": float(case["q"])} if "q" in case else {}))
    assert isinstance(corruption, SizedCorruption)
    k = case["K"]
    close = Tolerance(1e-12, 0.0)
    yield Check(
        "size_probabilities_fraction", lambda: [str(p) for p in corruption.size_probabilities(k)], EXACT
    )
    yield Check("size_probabilities", lambda: [float(p) for p in corruption.size_probabilities(k)], close)
    yield Check("mean_size", lambda: float(corruption.mean_size(k)), close)
    yield Check(
        "wrong_label_inclusion_probability",
        lambda: float(corruption.wrong_label_inclusion_probability(k)),
        close,
    )


def corruption_instance(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.data.corruption import flip_probabilities

    inputs, close = case["inputs"], Tolerance(1e-10, 1e-14)
    logits, truth = numbers(inputs["clean_model_logits"], dtype), torch.tensor(inputs["true_labels"])
    flips = flip_probabilities(logits, truth, float(inputs["rate"]))
    yield Check("flip_probabilities", lambda: flips, close)
    yield Check("expected_candidates", lambda: 1 + flips.sum(-1), close)


def generation(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.data.corruption import inclusion_probabilities, set_probabilities

    posterior, size, close = numbers(case["posterior"], dtype), case["N"], Tolerance(0.0, 1e-12)
    sets, probabilities = set_probabilities(posterior, size)
    yield Check("sets", lambda: sets, EXACT)
    yield Check("probabilities", lambda: probabilities, close)
    yield Check("inclusion_probability", lambda: inclusion_probabilities(posterior, size), close)


def folds(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.data.dataset import shuffled_folds

    n = case["n"]
    parts = shuffled_folds(n, 5, 0)
    yield Check("test_sizes", lambda: [len(part) for part in parts], EXACT)
    yield Check("train_sizes", lambda: [n - len(part) for part in parts], EXACT)
    yield Check("first10_test_indices_sorted", lambda: [part[:10].tolist() for part in parts], EXACT)
    yield Check("sum_of_test_indices", lambda: [int(part.sum()) for part in parts], EXACT)


#: Files (by stem) or fields (as stem/field) that are not compared, and why.
NOT_YET: dict[str, str] = {
    "cll_ure_libcll": "another library's estimator, not the paper's; not a method of this library",
    "cll_libcll_pc_dm_fwd": "another library's scales of PC, L-W and Forward, which have files of their own",
}


def statistics(case: Case, dtype: torch.dtype, tolerances: Tolerances) -> Iterator[Check]:
    from propall.paper import stats

    scores = case["scores"].plain()
    k, n = len(scores), len(next(iter(scores.values())))
    result, ranks = stats.friedman(scores), stats.average_ranks(scores)
    uncorrected = 12 * n / (k * (k + 1)) * (sum(r * r for r in ranks.values()) - k * (k + 1) ** 2 / 4)
    numeric = Tolerance(0.0, 1e-6)
    yield Check("average_ranks", lambda: ranks, CLASSICAL)
    yield Check("friedman_chi2_no_tie_correction", lambda: uncorrected, CLASSICAL)
    yield Check("friedman_chi2_scipy", lambda: result.chi2, CLASSICAL)
    yield Check("friedman_p_scipy", lambda: result.p, Tolerance(1e-6, 0.0))
    yield Check("iman_davenport_F", lambda: result.f, CLASSICAL)
    yield Check("F_p", lambda: result.f_p, Tolerance(1e-6, 0.0))
    for level, alpha in (("005", 0.05), ("010", 0.10)):
        yield Check(f"q_{level}", partial(stats.nemenyi_quantile, k, alpha), numeric)
        yield Check(f"CD_{level}", partial(stats.critical_difference, k, n, alpha), numeric)
    yield Check("nemenyi_p", lambda: stats.nemenyi_p(scores), numeric)
    case.leave_out("N", "k", "iman_davenport_F_no_tie_correction")


def complementary(handler: Handler) -> File:
    return File(handler, COMPLEMENTARY, COMPLEMENTARY_32)


FILES: dict[str, File] = {
    "propall": File(propall, PROPALL, DEEP_32),
    "cc": File(cc, DEEP, DEEP_32),
    "proden": File(proden, DEEP, DEEP_32),
    "crdpll": File(crdpll, GUARDED_LOG, DEEP_32),
    "pop_purify": File(pop_purify, DEEP),
    "rc": File(rc, DEEP, DEEP_32),
    "cavl": File(cavl, DEEP, DEEP_32),
    "lws": File(lws, DEEP, DEEP_32),
    "lwc": File(lwc, GUARDED_LOG, DEEP_32),
    "d2cnn": File(d2cnn, DEEP, DEEP_32),
    "abs": File(abs_, DEEP, DEEP_32),
    "mcl": File(mcl, DEEP, DEEP_32),
    "ga": File(ga, DEEP, DEEP_32),
    "cll_katsura_pc": complementary(katsura("pc", "PC")),
    "cll_katsura_ova": complementary(katsura("ova", "OVA")),
    "cll_katsura_ce": complementary(katsura("katsura_ce", "KatsuraCE")),
    "cll_ishida_pc": complementary(plain("pc_ishida", "PCIshida")),
    "cll_ishida_free": complementary(class_risk_estimator("free", "Free")),
    "cll_ishida_nn": complementary(class_risk_estimator("nn", "NN")),
    "cll_ishida_ga": complementary(ishida_ga),
    "cll_forward": complementary(forward),
    "cll_gao_luw": complementary(plain("l_uw", "LUW")),
    "cll_gao_lw": complementary(plain("l_w", "LW")),
    "cll_scl_nl": complementary(plain("scl_nl", "SCLNL")),
    "cll_scl_exp": complementary(plain("scl_exp", "SCLEXP")),
    "cll_mcl_log": complementary(plain("mcl_log", "MCLLog")),
    "cll_mcl_exp": complementary(plain("mcl_exp", "MCLExp")),
    "cll_mcl_mae": complementary(plain("mcl_mae", "MCLMAE")),
    "cll_op": complementary(op),
    "cll_scarce": complementary(plain("scarce", "SCARCE")),
    "cll_cpe": complementary(cpe),
    "valen": File(valen, DEEP, DEEP_32),
    "pico": File(pico, DEEP, DEEP_32),
    "able": File(able, DEEP, DEEP_32),
    "statistics_friedman_nemenyi": File(statistics, DEEP),
    "classical_plknn": File(plknn, DEEP),
    "classical_ipal": File(ipal, DEEP),
    "classical_clpl": File(clpl, DEEP),
    "classical_plsvm": File(plsvm, DEEP),
    "classical_plle": File(plle, DEEP),
    "folds": File(folds, DEEP),
    "noise_schedule": File(noise_schedule, DEEP),
    "corruption_uniform": File(corruption_uniform, DEEP),
    "corruption_instance": File(corruption_instance, DEEP),
    "cll_generation": File(generation, DEEP),
}
