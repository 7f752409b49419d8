"""A portfolio weighed without true labels."""

import numpy as np
import pytest
import torch
from sklearn.ensemble import ExtraTreesRegressor
from sklearn.utils.estimator_checks import parametrize_with_checks

from propall import PartialLabelClassifier, PartialLabelPortfolio
from propall.estimators.cooccurrence import DEPENDENT, candidate_dependence
from propall.estimators.mixture import ClassifierMixture
from propall.estimators.portfolio import (
    MIXTURE,
    TREES,
    PortfolioMember,
    are_histograms,
    mixture_weights,
    standard_portfolio,
)
from propall.estimators.scorers import candidate_log_likelihood, cooccurrence_log_likelihood
from propall.methods.boosting import Boosting
from propall.methods.forest import Forest
from propall.methods.ipal import IPAL
from tests.fixtures.candidates import blurred_clouds, separate_clouds


def member(name, method="propall", start="", **settings):
    settings = {"epochs": 20, "n_estimators": 5, "bagging": 0.8, **settings}
    return PortfolioMember(name, PartialLabelClassifier(method, **settings), start)


def forest(name, start="", **settings):
    return PortfolioMember(
        name, PartialLabelClassifier(Forest(trees=20), standardize=False, **settings), start
    )


def bagged_forest(name, start=""):
    return forest(name, start, n_estimators=5, bagging=0.8)


BAGS = "rows that are listed twice may be in different bags"
MEMBERS = [
    member("linear"),
    member("peers", "proden", net="mlp", targets="peer"),
    member("neighbors", "ipal"),
    forest("forest"),
    forest("forest from linear", "linear"),
    forest("forest from all", MIXTURE),
    PortfolioMember("boosting", PartialLabelClassifier(Boosting(iterations=5), standardize=False), MIXTURE),
]


@pytest.mark.slow
@parametrize_with_checks(
    [PartialLabelPortfolio(members=[member("linear"), forest("forest")], random_state=0)],
    expected_failed_checks=lambda _: {
        "check_sample_weight_equivalence_on_dense_data": BAGS,
        "check_sample_weight_equivalence_on_sparse_data": BAGS,
    },
)
def test_scikit_learn_checks(estimator, check) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def fitted():
    X, S, _ = blurred_clouds()
    return PartialLabelPortfolio(members=MEMBERS, random_state=0).fit(X, S)


def test_the_weighted_mean_is_at_least_as_likely_as_its_best_member(fitted) -> None:
    weights = [row["weight"] for row in fitted.results_]
    assert sum(weights) == pytest.approx(1)
    assert min(weights) >= 0
    assert fitted.best_score_ >= max(row["score"] for row in fitted.results_) - 0.02


def test_predictions_are_the_weighted_mean(fitted, tmp_path) -> None:
    X, _, truth = blurred_clouds(seed=5)
    mixture = fitted.best_estimator_
    mean = sum(w * c.predict_proba(X) for w, c in zip(mixture.weights, mixture.components, strict=True))
    sharpened = mean ** (1 / fitted.temperature_)
    np.testing.assert_allclose(
        fitted.predict_proba(X), sharpened / sharpened.sum(1, keepdims=True), rtol=1e-6
    )
    assert (fitted.predict(X) == truth).mean() == fitted.score(X, truth) > 0.65
    mixture.save(tmp_path / "mixture.safetensors")
    loaded = ClassifierMixture.load(tmp_path / "mixture.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(X), mixture.predict_proba(X))
    with pytest.raises(ValueError, match="is a mixture of classifiers"):
        PartialLabelClassifier.load(tmp_path / "mixture.safetensors")


def test_a_mixture_whose_members_share_their_scaling_is_saved(tmp_path) -> None:
    X, S, _ = blurred_clouds()
    one, other = (PartialLabelClassifier(net="linear", epochs=1, random_state=s).fit(X, S) for s in (0, 1))
    other.mean_, other.scale_ = one.mean_, one.scale_  # as when they are trained in one stack
    mixture = ClassifierMixture([one, other], [0.5, 0.5], ["one", "other"])
    mixture.save(tmp_path / "mixture.safetensors")
    loaded = ClassifierMixture.load(tmp_path / "mixture.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(X), mixture.predict_proba(X))


def test_training_rows_are_resolved_by_members_that_did_not_see_them(fitted) -> None:
    _, S, truth = blurred_clouds()
    resolution = fitted.out_of_fold_
    assert S[np.arange(len(S)), resolution.column].all()
    assert (resolution.column == truth).mean() > 0.75
    # In-sample trees would know nearly every row.
    predicted = np.exp(fitted.out_of_bag_["forest"]).argmax(1)
    assert (predicted == truth).mean() < 0.9


def test_a_time_limit_stops_after_the_first_member() -> None:
    X, S, truth = separate_clouds()
    lines = []
    portfolio = PartialLabelPortfolio(members=MEMBERS, time_limit=0, report=lines.append, random_state=0)
    portfolio.fit(X, S)
    assert [row["refusal"] for row in portfolio.results_] == ["", *["the time limit has passed"] * 6]
    assert portfolio.results_[0]["weight"] == 1
    assert (portfolio.predict(X) == truth).mean() > 0.9
    assert any("best so far: linear" in line for line in lines)


@pytest.mark.parametrize(("name", "calls"), [("neighbors", 5), ("boosting", 5), ("forest", 4)])
def test_a_member_that_takes_too_long_is_stopped_within_it(name, calls, monkeypatch) -> None:
    """The clock jumps past the limit when the member is fitted, so that nearly all of its parts are left."""
    X, S, _ = separate_clouds()
    clock, parts = [0.0], []
    monkeypatch.setattr("propall.estimators.portfolio.time.perf_counter", lambda: clock[0])

    def count(function):
        def counted(*arguments, **settings):
            clock[0] = 100.0
            parts.append(name)
            return function(*arguments, **settings)

        return counted

    for kind, method in ((IPAL, "fit_rows"), (Boosting, "_fit"), (ExtraTreesRegressor, "fit")):
        monkeypatch.setattr(kind, method, count(getattr(kind, method)))
    members = [MEMBERS[0], next(each for each in MEMBERS if each.name == name)]
    portfolio = PartialLabelPortfolio(members=members, time_limit=50, random_state=0).fit(X, S)
    assert portfolio.results_[1]["refusal"] == "the time limit has passed"
    assert 0 < len(parts) < calls


def test_an_interrupt_keeps_what_is_fitted() -> None:
    X, S, _ = separate_clouds()

    def interrupt(line):
        if line.startswith("fitting 'neighbors'"):
            raise KeyboardInterrupt

    portfolio = PartialLabelPortfolio(members=MEMBERS, report=interrupt, random_state=0).fit(X, S)
    assert [row["refusal"] for row in portfolio.results_] == ["", "", *["interrupted"] * 5]


def test_members_that_cannot_be_fitted_are_left_out() -> None:
    X, S, _ = separate_clouds(n=12)
    members = [member("linear"), member("neighbors", "ipal")]
    portfolio = PartialLabelPortfolio(members=members, random_state=0).fit(X, S)
    assert portfolio.results_[1]["refusal"]
    assert portfolio.best_estimator_.names == ["linear"]
    with pytest.raises(ValueError, match="members: none of them could be fitted"):
        PartialLabelPortfolio(members=members[1:], random_state=0).fit(X, S)


def test_a_member_that_sees_every_row_is_named() -> None:
    X, S, _ = separate_clouds(n=12)
    whole = PartialLabelPortfolio(members=[member("linear", bagging=None)], random_state=0)
    with pytest.raises(ValueError, match="'linear' has bagging=None; expected a share"):
        whole.fit(X, S)


def test_members_that_cannot_be_weighed_are_named() -> None:
    X, S, _ = separate_clouds(n=20)
    few = PartialLabelPortfolio(members=[member("linear", n_estimators=3)], random_state=0)
    with pytest.raises(ValueError, match="some rows are in every bag"):
        few.fit(X, S)
    twice = PartialLabelPortfolio(members=[member("linear"), forest("linear")], random_state=0)
    with pytest.raises(ValueError, match="members: got the names 'linear', 'linear'"):
        twice.fit(X, S)
    with pytest.raises(ValueError, match="X: 1 row"):
        PartialLabelPortfolio("quick", classes=["a", "b"]).fit(X[:1], ["a"])


def test_many_equal_members_share_the_weight() -> None:
    mask = np.eye(3, dtype=bool)[np.arange(30) % 3]
    weights = mixture_weights([np.full((30, 3), -np.log(3))] * 40, mask, dependent=False)
    assert weights.sum() == pytest.approx(1)
    assert (weights > 0).all()


def test_the_background_of_a_scene_is_not_rewarded() -> None:
    """Every row shows grass and an animal; naming the grass is always a candidate, and never right."""
    random = np.random.default_rng(0)
    truth = random.integers(1, 4, 200)
    mask = np.eye(4, dtype=bool)[truth]
    mask[:, 0] = True
    mask[::10, 0] = False
    right = np.full((200, 4), 0.1 / 3)
    right[np.arange(200), truth] = 0.9
    grass = np.full((200, 4), 0.05 / 3)
    grass[:, 0] = 0.95
    wrong = random.random(200) < 0.2
    right[wrong] = 0.25
    assert candidate_log_likelihood(grass, mask) < 0
    assert cooccurrence_log_likelihood(right, mask) > cooccurrence_log_likelihood(grass, mask) + 0.3
    weights = mixture_weights([np.log(right), np.log(grass)], mask)
    assert weights[0] > 0.75


def test_equally_good_members_get_equal_weights() -> None:
    random = np.random.default_rng(0)
    truth = random.integers(0, 3, 300)
    mask = np.eye(3, dtype=bool)[truth] | (random.random((300, 3)) < 0.3)
    logs = []
    for quality in (2.0, 2.0, 0.0):
        scores = random.normal(size=(300, 3)) + quality * np.eye(3)[truth]
        logs.append(scores - np.log(np.exp(scores).sum(1, keepdims=True)))
    for dependent in (False, True):
        weights = mixture_weights(logs, mask, dependent=dependent)
        np.testing.assert_allclose(weights[:2], 0.5, atol=0.1)
        assert weights[2] < 0.05


@pytest.mark.parametrize("dependent", [False, True])
def test_rows_without_weight_do_not_weigh_members(dependent) -> None:
    random = np.random.default_rng(0)
    truth = random.integers(0, 3, 200)
    mask = np.eye(3, dtype=bool)[truth]
    mask[np.arange(200), (truth + random.integers(3, size=200)) % 3] = True
    first = np.arange(200) < 100
    right = np.where(np.eye(3, dtype=bool)[truth], 0.8, 0.1)
    # Each member is right in one half of the rows, and wrong in the other.
    members = [np.log(np.where(half[:, None], right, np.roll(right, 1, axis=1))) for half in (first, ~first)]
    both = mixture_weights(members, mask, dependent=dependent, resamples=3)
    one = mixture_weights(members, mask, first.astype(float), dependent=dependent, resamples=3)
    assert one[0] > 0.95 > both[0]
    assert one[0] == pytest.approx(
        mixture_weights([m[first] for m in members], mask[first], dependent=dependent, resamples=3)[0]
    )


def test_chance_is_no_dependence() -> None:
    """Frequencies of few rows differ from the expected ones by chance, a bit less since these are fitted."""
    random = np.random.default_rng(0)
    masks = [np.eye(6, dtype=bool)[random.integers(6, size=60)] for _ in range(40)]
    distances = [candidate_dependence(mask | (random.random((60, 6)) < 0.3)) for mask in masks]
    assert -0.08 < np.mean(distances) < 0


def test_candidates_that_come_together_change_members_and_criterion() -> None:
    random = np.random.default_rng(0)
    scenes = np.array([[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 0, 0], [0, 0, 0, 0, 1, 1]], dtype=bool)
    together = scenes[random.integers(0, 3, 300)]
    truth = random.integers(0, 6, 300)
    independent = np.eye(6, dtype=bool)[truth] | (random.random((300, 6)) < 0.3)
    independent[independent.all(1), 0] = False
    assert candidate_dependence(together) > DEPENDENT
    assert abs(candidate_dependence(independent)) < 0.05
    assert candidate_dependence(independent, np.ones(300)) == candidate_dependence(independent)
    assert candidate_dependence(np.eye(3, dtype=bool)) == 0
    unequal = np.eye(6, dtype=bool)[truth] | (random.random((300, 6)) < [0.9, 0.1, 0.1, 0.5, 0.02, 0.3])
    assert abs(candidate_dependence(unequal)) < 0.05
    X = random.normal(size=(300, 2))
    members = [forest("forest")]
    portfolio = PartialLabelPortfolio(members=members, random_state=0).fit(X, together)
    assert portfolio.criterion_ == "cooccurrence_log_likelihood"
    assert portfolio.results_[0]["score"] == portfolio.results_[0]["cooccurrence_log_likelihood"]
    portfolio = PartialLabelPortfolio(members=members, random_state=0).fit(X, independent)
    assert portfolio.criterion_ == "candidate_log_likelihood"
    for dependent in (False, True):
        trees = [m.model.method for m in standard_portfolio("best", 500, dependent=dependent)]
        assert {t.balanced for t in trees if isinstance(t, Forest | Boosting)} == {dependent}
    names = [member.name for member in standard_portfolio("best", 500)]
    assert not any("square root" in name for name in names)


def test_square_roots_are_tried_on_histograms_or_on_request() -> None:
    X, S, _ = blurred_clouds()
    X = X - X.min()
    standardized = (X - X.mean(0)) / X.std(0)

    def tries_roots(X, histograms=None) -> bool:
        quick = PartialLabelPortfolio("quick", histograms=histograms, time_limit=0, random_state=0)
        return "IPAL, square root" in [row["name"] for row in quick.fit(X, S).results_]

    assert tries_roots(X)
    assert not tries_roots(standardized)
    assert tries_roots(standardized, histograms=True)
    assert not tries_roots(X, histograms=False)
    with pytest.raises(ValueError, match=r"histograms: got 'no'; expected None, a bool or 'brief'"):
        tries_roots(X, histograms="no")
    assert are_histograms(np.array([0.0] * 9 + [-1.0]))
    assert not are_histograms(np.array([0.0] * 8 + [-1.0]))
    assert not are_histograms(np.array([0.0] * 8 + [np.nan]))


def test_brief_square_roots_differ_in_normal_effort_only() -> None:
    def settings(effort, histograms):
        members = standard_portfolio(effort, 1000, histograms=histograms)
        return {m.name: (m.start, m.model.get_params()) for m in members}

    for effort in ("quick", "best"):
        assert repr(settings(effort, "brief")) == repr(settings(effort, True))
    brief, complete, none = (settings("normal", histograms) for histograms in ("brief", True, False))
    deep = "bagged MLPs, square root, peer targets"
    assert brief[deep][1]["epochs"] == (complete[deep][1]["epochs"] + 1) // 2
    assert set(complete) - set(brief) == {f"forest from {deep}"}
    assert set(brief) - set(none) == {"linear, square root", "IPAL, square root", deep}
    assert all(repr(brief[name]) == repr(complete[name]) for name in set(brief) - {deep})


@pytest.mark.parametrize("dependent", [False, True])
@pytest.mark.parametrize("n_rows", [1000, 1_000_000])
@pytest.mark.parametrize("effort", ["quick", "normal", "best"])
def test_standard_portfolios_leave_every_row_out(effort, n_rows, dependent) -> None:
    members = standard_portfolio(effort, n_rows, histograms=dependent, dependent=dependent)
    assert any(isinstance(member.model.method, TREES) for member in members) == (n_rows < 100_000)
    names = [member.name for member in members]
    assert len(set(names)) == len(names)
    for position, each in enumerate(members):
        assert each.start in ["", MIXTURE, *names[:position]]
        model = each.model
        assert isinstance(model.method, TREES) or (model.bagging == 0.8 and model.n_estimators % 5 == 0)


def test_copies_of_a_row_with_other_candidates_are_left_out_with_it():
    """Labels are random, so accuracy above chance would be a leak through copies in the bag."""
    random = np.random.default_rng(0)
    X, truth = np.tile(random.normal(size=(100, 20)), (2, 1)), np.tile(random.integers(4, size=100), 2)
    mask = np.eye(4, dtype=bool)[truth] | (random.random((200, 4)) < 0.2)
    mask[np.arange(200), (truth + 1) % 4] = False
    members = [
        member("network", "proden", net="mlp", epochs=40),
        member("neighbors", "ipal"),
        forest("forest"),
        PortfolioMember(
            "boosting", PartialLabelClassifier(Boosting(iterations=10), standardize=False), MIXTURE
        ),
        forest("forest from all", MIXTURE),
    ]
    portfolio = PartialLabelPortfolio(members=members, random_state=0).fit(X, mask)
    # 0.44 and more if copies are drawn one by one.
    for logs in portfolio.out_of_bag_.values():
        assert (logs.argmax(1) == truth).mean() < 0.35


@pytest.mark.parametrize("make", [forest, bagged_forest])
def test_held_out_scores_of_noise_are_no_better_than_guessing(make):
    """Forests must not see, through the targets of other rows, what the candidates of a row are."""
    random = np.random.default_rng(0)
    X = random.integers(0, 2, size=(150, 6)).astype(float)
    mask = np.ones((150, 4), dtype=bool)
    mask[np.arange(150), random.integers(4, size=150)] = False
    members = [make("forest"), make("second", "forest"), make("third", MIXTURE)]
    portfolio = PartialLabelPortfolio(members=members, random_state=0).fit(X, mask)
    # The trees that a row is out of bag of have -0.13 and more.
    assert all(row["score"] < np.log(3 / 4) + 0.01 for row in portfolio.results_)


def test_forests_start_from_networks_that_leave_out_the_same_rows():
    """Networks of other bags know the candidates of a row, and would tell forests through other rows."""
    random = np.random.default_rng(0)
    X = random.integers(0, 2, size=(150, 6)).astype(float)
    mask = np.ones((150, 4), dtype=bool)
    mask[np.arange(150), random.integers(4, size=150)] = False
    network = member("network", "proden", net="mlp", epochs=60, net_options={"widths": (64,)})
    members = [network, forest("second", "network"), forest("third", MIXTURE)]
    portfolio = PartialLabelPortfolio(members=members, random_state=0).fit(X, mask)
    # Guessing has -0.288, forests that start from networks of other bags -0.28.
    assert all(row["score"] < np.log(3 / 4) for row in portfolio.results_)


def test_a_bagged_forest_consists_of_the_forests_of_the_bags() -> None:
    X, S, truth = blurred_clouds()
    members = [member("linear"), bagged_forest("forest"), bagged_forest("second", MIXTURE)]
    portfolio = PartialLabelPortfolio(members=members, random_state=0).fit(X, S)
    rows = torch.as_tensor(X, dtype=torch.float32)
    for name in ("forest", "second"):
        model = portfolio.members_[name]
        each = [trees.probabilities(rows).numpy() for trees in model.classifiers_]
        # Every row is judged by the one forest that leaves it out.
        by_one = np.array([np.isclose(model.out_of_bag_, part).all(1) for part in each])
        np.testing.assert_array_equal(by_one.sum(0) >= 1, True)
        np.testing.assert_allclose(by_one.mean(1), 0.2, atol=0.05)
        assert (np.mean(each, axis=0).argmax(1) == model.predict(X)).mean() > 0.99
    assert (portfolio.predict(X) == truth).mean() > 0.7


def test_forests_of_other_bags_are_refused() -> None:
    X, S, _ = blurred_clouds()
    members = [member("linear", n_estimators=2, bagging=0.5), forest("halves", n_estimators=2, bagging=0.5)]
    members.append(bagged_forest("second", "linear"))
    portfolio = PartialLabelPortfolio(members=members, random_state=0).fit(X, S)
    _, halves, second = (row["refusal"] for row in portfolio.results_)
    assert "'halves' has bagging=0.5, n_estimators=2" in halves
    assert "start='linear'; expected bagging=0.8, n_estimators=5 and a start with these bags" in second


def test_forests_of_few_rows_are_fitted_to_all_of_them() -> None:
    def bagging(effort, n_rows):
        models = [m.model for m in standard_portfolio(effort, n_rows) if isinstance(m.model.method, Forest)]
        return {(model.bagging, model.n_estimators) for model in models}

    assert bagging("quick", 1000) == {(0.8, 5)}
    assert bagging("quick", 999) == bagging("normal", 1000) == bagging("best", 1000) == {(None, 1)}


def test_many_classes_are_weighed_by_their_candidates_alone(monkeypatch) -> None:
    random = np.random.default_rng(0)
    truth = random.integers(0, 30, 400)
    mask = np.eye(30, dtype=bool)[truth] | np.eye(30, dtype=bool)[(truth + 1) % 30]
    mask |= random.random(mask.shape) < 0.05
    chances = [random.dirichlet(np.ones(30), 400) + skill * np.eye(30)[truth] for skill in (0.3, 0.5, 0.4)]
    logs = [np.log(each / each.sum(1, keepdims=True)) for each in chances]
    weight = random.uniform(0.2, 2, 400)
    dependence = candidate_dependence(mask, weight)
    weights = mixture_weights(logs, mask, weight)
    for module in ("portfolio", "cooccurrence", "scorers"):
        monkeypatch.setattr(f"propall.estimators.{module}.has_few_candidates", lambda mask: True)
    monkeypatch.setattr("propall.estimators.portfolio.log_set_probabilities", None)  # is not called
    assert candidate_dependence(mask, weight) == pytest.approx(dependence, rel=1e-9)
    np.testing.assert_allclose(mixture_weights(logs, mask, weight), weights, rtol=1e-9)


def test_a_table_with_many_classes_is_fitted_and_saved(tmp_path) -> None:
    random = np.random.default_rng(0)
    k = 257
    truth = np.arange(3 * k) % k
    X = 4 * random.normal(size=(k, 5))[truth] + 0.3 * random.normal(size=(3 * k, 5))
    mask = np.eye(k, dtype=bool)[truth] | np.eye(k, dtype=bool)[random.permutation(truth)]
    bagged = {"n_estimators": 5, "bagging": 0.8, "standardize": False}
    trees = PartialLabelClassifier(Forest(trees=8, rounds=2), **bagged)
    members = [member("neighbors", "ipal"), PortfolioMember("forest", trees)]
    portfolio = PartialLabelPortfolio(members=members, random_state=0).fit(X, mask)
    assert [row["refusal"] for row in portfolio.results_] == ["", ""]
    assert (portfolio.out_of_fold_.column == truth).mean() > 0.8
    assert portfolio.out_of_bag_["forest"].dtype == np.float32
    portfolio.best_estimator_.save(tmp_path / "mixture.safetensors")
    loaded = ClassifierMixture.load(tmp_path / "mixture.safetensors")
    np.testing.assert_array_equal(loaded.predict_proba(X), portfolio.predict_proba(X))
    # Dense leaves alone would take 2 bytes x 257 classes x 40 trees x some 300 leaves.
    assert (tmp_path / "mixture.safetensors").stat().st_size < 3e6


def test_boosting_is_left_out_with_many_classes() -> None:
    few, many = (standard_portfolio("normal", n_rows=2000, n_classes=k) for k in (256, 257))
    assert {member.name for member in few} - {member.name for member in many} == {"boosting from the mixture"}


def test_the_time_limit_includes_the_preparation(monkeypatch) -> None:
    X, S, _ = separate_clouds()
    clock = [0.0]
    monkeypatch.setattr("propall.estimators.portfolio.time.perf_counter", lambda: clock[0])

    def slow(*arguments):
        clock[0] = 100.0
        return candidate_dependence(*arguments)

    monkeypatch.setattr("propall.estimators.portfolio.candidate_dependence", slow)
    portfolio = PartialLabelPortfolio(members=MEMBERS[:2], time_limit=50, random_state=0).fit(X, S)
    assert [row["refusal"] for row in portfolio.results_] == ["", "the time limit has passed"]
