"""Properties of every registered objective that training relies on; new ones need no code here."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.func import grad_and_value, vmap
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy

from propall.training.contract import Objective, RowwiseObjective, State, StatelessObjective, Step
from tests.contract.subjects import (
    OBJECTIVES,
    Outcome,
    Visit,
    accepts,
    cast,
    each_objective,
    full_sets,
    outcome,
    sets_for,
    singletons,
    skip_known,
    step_for,
    visit,
    with_fields,
    with_tensor_fields,
)


def assert_equal_outcomes(ours: Outcome, theirs: Outcome, *, rtol: float = 1e-9, atol: float = 1e-11) -> None:
    torch.testing.assert_close(ours.loss, theirs.loss, rtol=rtol, atol=atol)
    torch.testing.assert_close(ours.gradient, theirs.gradient, rtol=rtol, atol=atol)
    torch.testing.assert_close(ours.trained, theirs.trained, rtol=rtol, atol=atol)
    torch.testing.assert_close(ours.after.rows, theirs.after.rows, rtol=rtol, atol=atol)
    torch.testing.assert_close(ours.after.shared, theirs.after.shared, rtol=rtol, atol=atol)


def assert_finite(seen: Outcome) -> None:
    assert seen.loss.isfinite(), f"loss is {seen.loss}"
    assert seen.gradient.isfinite().all(), f"gradient has {(~seen.gradient.isfinite()).sum()} bad entries"
    for part in (seen.trained, seen.after.rows, seen.after.shared, seen.after.trained):
        for name, tensor in part.items():
            assert tensor.isfinite().all(), f"{name} is not finite"


# --- shape and purity ---------------------------------------------------------------------------------------


@each_objective
def test_is_a_frozen_dataclass_without_tensors(objective: Objective) -> None:
    assert objective == type(objective)()
    assert hash(objective) == hash(type(objective)())
    for field in dataclasses.fields(objective):  # type: ignore[arg-type]
        assert not isinstance(getattr(objective, field.name), Tensor)
    with pytest.raises(dataclasses.FrozenInstanceError):
        objective.anything = 1  # type: ignore[attr-defined]


@pytest.mark.parametrize("name", [n for n, m in OBJECTIVES.items() if issubclass(m, StatelessObjective)])
def test_a_formula_takes_the_fields_with_the_same_defaults(name: str) -> None:
    objective = OBJECTIVES[name]()
    assert isinstance(objective, StatelessObjective)
    _, _, *options = inspect.signature(objective.formula).parameters.values()
    assert {option.name: option.default for option in options} == objective.hyperparameters()


@each_objective
def test_loss_is_one_number_and_rows_keep_their_shape(objective: Objective) -> None:
    seen = visit(objective, earlier=0, dtype=torch.float32)
    result = outcome(objective, seen)
    assert result.loss.shape == ()
    assert result.gradient.shape == seen.logits.shape
    for before, after in zip(seen.state, result.after, strict=True):
        assert {k: (v.shape, v.dtype) for k, v in before.items()} == {
            k: (v.shape, v.dtype) for k, v in after.items()
        }
    assert all(len(rows) == len(seen.logits) for rows in result.after.rows.values())


@each_objective
def test_inputs_are_not_modified(objective: Objective) -> None:
    seen = visit(objective)
    copies = torch.utils._pytree.tree_map(
        lambda leaf: leaf.clone() if isinstance(leaf, Tensor) else leaf, tuple(seen)
    )
    outcome(objective, seen)
    torch.testing.assert_close(tuple(seen), copies, rtol=0, atol=0)


@each_objective
def test_update_needs_no_gradient(objective: Objective) -> None:
    seen = visit(objective)
    after = objective.update(seen.logits.requires_grad_(), seen.candidates, seen.state, seen.step)
    detached = objective.update(seen.logits.detach(), seen.candidates, seen.state, seen.step)
    torch.testing.assert_close(after.rows, detached.rows, rtol=0, atol=0)
    assert not any(tensor.requires_grad for tensor in detached.rows.values())


#: Objectives with weights on all labels, normalized separately inside and outside the candidate set.
WEIGHTS_BEYOND_THE_CANDIDATES = {
    "lws": "weights candidates and non-candidates, normalized separately",
    "lwc": "weights candidates and non-candidates, normalized separately",
}


@pytest.mark.parametrize("name", [n for n, m in OBJECTIVES.items() if "weights" in visit(m()).state.rows])
@pytest.mark.parametrize("earlier", [0, 1, 3])
def test_weights_are_a_distribution_on_the_candidates(name: str, earlier: int) -> None:
    skip_known(name, WEIGHTS_BEYOND_THE_CANDIDATES)
    seen = visit(OBJECTIVES[name](), earlier=earlier)
    weights = seen.state.rows["weights"]
    assert (weights >= 0).all()
    assert (weights[~seen.candidates] == 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(len(weights), dtype=weights.dtype))


# --- numerics -----------------------------------------------------------------------------------------------


def extreme_logits(k: int) -> Tensor:
    """Rows of +-1e4 in every pattern of signs, the same with some zeros, and ordinary rows."""
    signs = 2.0 * (torch.arange(2**k)[:, None] >> torch.arange(k) & 1) - 1
    sparse = signs * (torch.arange(2**k)[:, None] % 3 == torch.arange(k) % 3)
    return torch.cat([1e4 * signs, 1e4 * sparse, signs + torch.arange(k) / k])


#: Objectives with values or gradients that are rightly not finite, and why.
NOT_FINITE_AT_EXTREMES: dict[str, str] = {}


@each_objective
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("earlier", [0, 1], ids=["fresh", "visited"])
def test_finite_at_extreme_logits(objective: Objective, dtype: torch.dtype, earlier: int) -> None:
    skip_known(objective, NOT_FINITE_AT_EXTREMES)
    logits = extreme_logits(4)
    candidates = sets_for(objective, len(logits), 4)
    step = step_for(objective, logits.shape, torch.float32)
    state = cast(objective.init(candidates), torch.float32)
    for _ in range(earlier):
        state = objective.update(logits.flip(0).to(dtype), candidates, state, step)
    result = outcome(objective, Visit(logits.to(dtype), candidates, state, step))
    assert_finite(result)
    assert result.loss.dtype == torch.float32
    assert result.gradient.dtype == dtype


@each_objective
def test_finite_at_extreme_logits_one_row_at_a_time(objective: Objective) -> None:
    """In a batch, averaging may hide an infinite row."""
    logits = extreme_logits(3)
    candidates = sets_for(objective, len(logits), 3)
    whole = cast(objective.init(candidates), torch.float32)
    for i in range(len(logits)):
        state = whole._replace(rows={name: rows[i : i + 1] for name, rows in whole.rows.items()})
        step = step_for(objective, logits[:1].shape, torch.float32, seed=i)
        assert_finite(outcome(objective, Visit(logits[i : i + 1], candidates[i : i + 1], state, step)))


#: Objectives whose gradient is deliberately not that of their value.
GRADIENT_DIFFERS: dict[str, str] = {}


@each_objective
@pytest.mark.parametrize("seed", [0, 1])
def test_gradcheck(objective: Objective, seed: int) -> None:
    skip_known(objective, GRADIENT_DIFFERS)
    seen = visit(objective, n=6, k=4, seed=seed)
    names = list(seen.state.trained)

    def loss(logits: Tensor, *trained: Tensor) -> Tensor:
        state = seen.state._replace(trained=dict(zip(names, trained, strict=True)))
        return objective.loss(logits, seen.candidates, state, seen.step)

    trained = [tensor.clone().requires_grad_() for tensor in seen.state.trained.values()]
    torch.autograd.gradcheck(loss, (seen.logits.requires_grad_(), *trained), atol=1e-7, rtol=1e-5)


@each_objective
def test_float32_agrees_with_float64(objective: Objective) -> None:
    seen = visit(objective)
    step = step_for(objective, seen.logits.shape, torch.float32)
    if seen.step.uniform is not None:
        step = step._replace(uniform=seen.step.uniform.float())
    single = Visit(seen.logits.float(), seen.candidates, cast(seen.state, torch.float32), step)
    ours, exact = outcome(objective, single), outcome(objective, seen)
    assert ours.loss.dtype == torch.float32
    torch.testing.assert_close(ours.loss.double(), exact.loss, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(ours.gradient.double(), exact.gradient, rtol=1e-3, atol=1e-5)


@each_objective
def test_float_fields_may_be_tensors(objective: Objective) -> None:
    seen = visit(objective)
    assert_equal_outcomes(outcome(with_tensor_fields(objective), seen), outcome(objective, seen), rtol=1e-12)


# --- symmetries ---------------------------------------------------------------------------------------------


@each_objective
@pytest.mark.parametrize("moved", ["instances", "classes", "both"])
def test_same_under_permutations(objective: Objective, moved: str) -> None:
    n, k = 12, 5
    rows = torch.randperm(n) if moved != "classes" else torch.arange(n)
    classes = torch.randperm(k) if moved != "instances" else torch.arange(k)
    plain, shuffled = visit(objective, n=n, k=k), visit(objective, n=n, k=k, rows=rows, classes=classes)
    ours, theirs = outcome(objective, plain), outcome(objective, shuffled)
    torch.testing.assert_close(theirs.loss, ours.loss, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(theirs.gradient, ours.gradient[rows][:, classes], rtol=1e-9, atol=1e-11)
    for name, before in ours.after.rows.items():
        expected = before[rows][:, classes] if before.dim() == 2 else before[rows]
        torch.testing.assert_close(theirs.after.rows[name], expected, rtol=1e-9, atol=1e-11)
    scores = objective.scores(plain.logits, ours.after)
    torch.testing.assert_close(
        objective.scores(shuffled.logits, theirs.after), scores[rows][:, classes], rtol=1e-9, atol=1e-11
    )


#: Objectives for which a weight is not equivalent to repetitions.
WEIGHTS_ARE_NOT_REPETITIONS: dict[str, str] = {}


@each_objective
def test_weight_two_is_a_row_twice(objective: Objective) -> None:
    skip_known(objective, WEIGHTS_ARE_NOT_REPETITIONS)
    n, k = 10, 4
    candidates = sets_for(objective, n, k)
    counts = 1 + torch.arange(n) % 3
    weighted = visit(objective, candidates=candidates, weight=counts.double(), earlier=0)
    again = torch.repeat_interleave(torch.arange(n), counts)
    repeated = Visit(
        weighted.logits[again],
        candidates[again],
        cast(objective.init(candidates[again]), torch.float64),
        weighted.step._replace(
            uniform=None if weighted.step.uniform is None else weighted.step.uniform[again], weight=None
        ),
    )
    ours, theirs = outcome(objective, weighted), outcome(objective, repeated)
    torch.testing.assert_close(ours.loss, theirs.loss, rtol=1e-9, atol=1e-11)
    gathered = torch.zeros_like(ours.gradient).index_add(0, again, theirs.gradient)
    torch.testing.assert_close(ours.gradient, gathered, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(weighted.state.shared, repeated.state.shared, rtol=1e-6, atol=1e-7)


#: Objectives for which the scale of equal weights matters.
WEIGHTS_HAVE_A_SCALE = {
    "ga": "ascent steps scale with the weighted counts of a batch; weights should have mean 1"
}


@each_objective
def test_equal_weights_are_no_weights(objective: Objective) -> None:
    skip_known(objective, WEIGHTS_HAVE_A_SCALE)
    candidates = sets_for(objective, 9, 4)
    plain = visit(objective, candidates=candidates)
    weighted = visit(objective, candidates=candidates, weight=torch.full((9,), 2.5, dtype=torch.float64))
    ours, theirs = outcome(objective, weighted), outcome(objective, plain)
    torch.testing.assert_close(ours.loss, theirs.loss, rtol=1e-6, atol=1e-7)
    torch.testing.assert_close(ours.gradient, theirs.gradient, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", [n for n, m in OBJECTIVES.items() if issubclass(m, RowwiseObjective)])
def test_rowwise_losses_do_not_mix_rows(name: str) -> None:
    objective = OBJECTIVES[name]()
    assert isinstance(objective, RowwiseObjective)
    seen = visit(objective)
    together = objective.losses(*seen)
    assert together.shape == (len(seen.logits),)
    for i, loss in enumerate(together):
        step = seen.step
        one = slice(i, i + 1)
        if step.uniform is not None:
            step = step._replace(uniform=step.uniform[one])
        state = seen.state._replace(rows={name: rows[one] for name, rows in seen.state.rows.items()})
        alone = objective.losses(seen.logits[one], seen.candidates[one], state, step)
        torch.testing.assert_close(alone[0], loss, rtol=1e-12, atol=1e-12)


# --- stacking and compiling ---------------------------------------------------------------------------------


def stacked(visits: list[Visit]) -> Visit:
    leaves = [torch.utils._pytree.tree_flatten(tuple(v))[0] for v in visits]
    spec = torch.utils._pytree.tree_flatten(tuple(visits[0]))[1]
    stack = [
        torch.stack(parts) if isinstance(parts[0], Tensor) else parts[0]
        for parts in zip(*leaves, strict=True)
    ]
    return Visit(*torch.utils._pytree.tree_unflatten(stack, spec))


def over_runs(objective: Objective) -> Callable[..., tuple[Tensor, Tensor, State]]:
    """Losses, gradients and new states of stacked runs, composed as in training."""

    def of_all(seen: Visit, numbers: dict[str, Tensor] | None = None) -> tuple[Tensor, Tensor, State]:
        numbers = numbers or {}
        time = Step(seen.step.progress[0], seen.step.epoch[0])
        arguments = (seen.candidates, seen.state, seen.step.uniform, numbers)
        axes = (
            0,
            0 if any(seen.state) else None,
            0 if objective.needs_noise else None,
            0 if numbers else None,
        )

        def loss(
            z: Tensor, candidates: Tensor, state: State, uniform: Tensor | None, fields: dict[str, Tensor]
        ) -> Tensor:
            return with_fields(objective, fields).loss(z, candidates, state, time._replace(uniform=uniform))

        def update(
            z: Tensor, candidates: Tensor, state: State, uniform: Tensor | None, fields: dict[str, Tensor]
        ) -> State:
            return with_fields(objective, fields).update(z, candidates, state, time._replace(uniform=uniform))

        def total(logits: Tensor) -> tuple[Tensor, Tensor]:
            losses = vmap(loss, (0, *axes))(logits, *arguments)
            return losses.sum(), losses

        gradients, (_, losses) = grad_and_value(total, has_aux=True)(seen.logits)
        return losses, gradients, vmap(update, (0, *axes))(seen.logits, *arguments)

    return of_all


def assert_stacked(stack: tuple[Tensor, Tensor, State], position: int, alone: Outcome) -> None:
    losses, gradients, states = stack
    torch.testing.assert_close(losses[position], alone.loss, rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(gradients[position], alone.gradient, rtol=1e-12, atol=1e-13)
    for name, rows in alone.after.rows.items():
        torch.testing.assert_close(states.rows[name][position], rows, rtol=1e-12, atol=1e-13)


@each_objective
def test_vmap_over_runs_is_a_loop(objective: Objective) -> None:
    visits = [visit(objective, seed=seed) for seed in range(3)]
    stack = over_runs(objective)(stacked(visits))
    for i, seen in enumerate(visits):
        assert_stacked(stack, i, outcome(objective, seen))


def float_fields(objective: Objective) -> dict[str, float]:
    fields = {f.name: getattr(objective, f.name) for f in dataclasses.fields(objective)}  # type: ignore[arg-type]
    return {name: value for name, value in fields.items() if isinstance(value, float)}


@pytest.mark.parametrize("name", [n for n, m in OBJECTIVES.items() if float_fields(m())])
def test_stacked_runs_may_differ_in_float_fields(name: str) -> None:
    objective = OBJECTIVES[name]()
    visits = [visit(objective, seed=seed) for seed in range(2)]
    for field, value in float_fields(objective).items():
        values = [value, value / 2 + 1e-3]
        stack = over_runs(objective)(stacked(visits), {field: torch.tensor(values, dtype=torch.float64)})
        for i, (seen, run_value) in enumerate(zip(visits, values, strict=True)):
            assert_stacked(stack, i, outcome(OBJECTIVES[name](**{field: run_value}), seen))


def compare_compiled(objective: Objective, backend: str) -> None:
    torch._dynamo.reset()
    seen = stacked([visit(objective, seed=seed, dtype=torch.float32) for seed in range(2)])
    eager = over_runs(objective)
    compiled = torch.compile(eager, fullgraph=True, backend=backend)
    torch.testing.assert_close(compiled(seen), eager(seen), rtol=1e-5, atol=1e-6)


@pytest.mark.compiled
@each_objective
def test_traced_in_one_graph(objective: Objective) -> None:
    compare_compiled(objective, "aot_eager")


@pytest.mark.compiled
@pytest.mark.slow
@each_objective
def test_compiled_equals_eager(objective: Objective) -> None:
    compare_compiled(objective, "inductor")


# --- small and special sets ---------------------------------------------------------------------------------


@each_objective
@pytest.mark.parametrize(("n", "k"), [(1, 5), (6, 2), (1, 2), (3, 40)])
def test_small_batches_and_few_or_many_classes(objective: Objective, n: int, k: int) -> None:
    assert_finite(outcome(objective, visit(objective, n=n, k=k)))


@each_objective
def test_sets_with_all_labels(objective: Objective) -> None:
    """They carry no information: `init` refuses them, or training ignores them."""
    candidates = full_sets(8, 4)
    if not accepts(objective, candidates):
        return
    seen = visit(objective, candidates=candidates)
    assert_finite(outcome(objective, seen))
    only = torch.ones(3, 4, dtype=torch.bool)
    if accepts(objective, only):
        assert_finite(outcome(objective, visit(objective, candidates=only)))


def truth_of(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.gather(-1, labels[:, None]).squeeze(-1)


def binary_cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    targets = torch.nn.functional.one_hot(labels, logits.shape[-1]).to(logits)
    return binary_cross_entropy_with_logits(logits, targets, reduction="none").sum(-1).mean()


def absolute_error(logits: Tensor, labels: Tensor) -> Tensor:
    return (2 - 2 * truth_of(logits.softmax(-1), labels)).mean()


def squared_error(logits: Tensor, labels: Tensor) -> Tensor:
    targets = torch.nn.functional.one_hot(labels, logits.shape[-1])
    return (logits.softmax(-1) - targets).square().sum(-1).mean()


def generalized_cross_entropy(logits: Tensor, labels: Tensor, q: float = 0.7) -> Tensor:
    return ((1 - truth_of(logits.softmax(-1), labels) ** q) / q).mean()


def pairwise_comparison(logits: Tensor, labels: Tensor) -> Tensor:
    margins = truth_of(logits, labels)[:, None] - logits
    return ((-margins).sigmoid() - 0.5).sum(-1).mean()


def one_versus_all(logits: Tensor, labels: Tensor) -> Tensor:
    truth = truth_of(logits, labels)
    others = (logits.sigmoid() - 0.5).sum(-1) - (truth.sigmoid() - 0.5)
    return ((-truth).sigmoid() - 0.5 + others / (logits.shape[-1] - 1)).mean()


#: The supervised loss that a method equals if every set has one candidate.
SUPERVISED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "propall": binary_cross_entropy,
    "cc": cross_entropy,
    "proden": cross_entropy,
    "rc": cross_entropy,
    "cavl": cross_entropy,
    "forward": cross_entropy,
    "free": cross_entropy,
    "nn": cross_entropy,
    "ga": cross_entropy,
    "scl_nl": cross_entropy,
    "mcl_log": cross_entropy,
    "mcl_mae": absolute_error,
    "mcl_mse": squared_error,
    "mcl_gce": generalized_cross_entropy,
    "abs": absolute_error,
    "pc": pairwise_comparison,
    "ova": one_versus_all,
    "op": cross_entropy,
}


@each_objective
def test_singletons_are_supervision(objective: Objective) -> None:
    """Check equality with the loss in `SUPERVISED`, and that descent from zero favors the label."""
    # Methods for one complementary label accept singletons only with two classes.
    k = 5 if accepts(objective, singletons(15, 5)) else 2
    candidates = singletons(15, k)
    labels = candidates.int().argmax(-1)
    seen = visit(objective, candidates=candidates)
    if seen.step.uniform is not None:
        seen = seen._replace(step=seen.step._replace(uniform=torch.full_like(seen.step.uniform, 0.5)))
    if objective.name in SUPERVISED:
        expected = SUPERVISED[objective.name](seen.logits, labels)
        torch.testing.assert_close(outcome(objective, seen).loss, expected, rtol=1e-10, atol=1e-12)
    start = seen._replace(logits=torch.zeros_like(seen.logits))
    downhill = -outcome(objective, start).gradient
    assert (downhill.argmax(-1) == labels).all()


def test_supervised_losses_belong_to_registered_methods() -> None:
    assert SUPERVISED.keys() <= OBJECTIVES.keys()
