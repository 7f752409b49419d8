"""Runner: stacked runs give the same numbers as single ones."""

import re
import time
from dataclasses import replace

import pytest
import torch

from propall.data import load
from propall.data.corruption import Exactly, InstanceDependent, PRODENBinomialMin2
from propall.methods.cc import CC
from propall.methods.pl_knn import PLKNN
from propall.methods.proden import PRODEN
from propall.methods.propall import ProPaLL
from propall.methods.valen import VALEN
from propall.nets.wide_resnet import WideResNet
from propall.paper import runner
from propall.paper.runner import (
    RunTask,
    group_stackable,
    remove_finished_checkpoints,
    run_specs,
    run_stacks,
    teacher_scores,
)
from propall.paper.specs import Spec, Split, Teacher
from propall.training.checkpoint import TimeLimitReached
from propall.training.compiled import best_device
from propall.training.recipe import Recipe

QUICK = Recipe(epochs=3, batch_size=16, learning_rate=0.1)


def on_folds(method, recipe=QUICK, folds=5, **fields):
    return [
        Spec("lost", method, recipe=recipe, split=Split(fold=i, folds=folds), **fields) for i in range(folds)
    ]


def test_objectives_of_all_folds_and_rates_share_a_stack_and_the_rest_does_not():
    specs = [
        *on_folds(ProPaLL()),
        *on_folds(PRODEN(), replace(QUICK, learning_rate=0.01, weight_decay=0.1)),
        *on_folds(CC(), replace(QUICK, batch_size=8)),
        *on_folds(VALEN(warm_up=1)),
        *on_folds(VALEN(warm_up=2)),
        *on_folds(PLKNN()),
        Spec("digits", CC(), "mlp", QUICK, Exactly(2)),
    ]
    groups = group_stackable(specs)
    assert sorted(map(len, groups)) == [1] * 6 + [5, 5, 5, 10]
    assert [spec for group in groups for spec in group if isinstance(spec.method, PLKNN)]
    assert {spec.key for group in groups for spec in group} == {spec.key for spec in specs}


def test_folds_in_one_stack_are_tested_on_their_own_rows(root):
    specs = [*on_folds(ProPaLL(), folds=4), *on_folds(CC(), folds=4), *on_folds(PLKNN(neighbours=3), folds=4)]
    together = {result.spec.key: result for result in run_specs(RunTask(specs, "cpu"))}
    for spec in specs:
        (alone,) = run_specs(RunTask([spec], "cpu"))
        stacked = together[spec.key]
        assert stacked.spec == spec
        assert stacked.accuracy == alone.accuracy
        assert stacked.covered == alone.covered
        assert stacked.transductive == alone.transductive
        assert list(stacked.curve) == ([] if isinstance(spec.method, PLKNN) else [1, 2, 3])
    source = load("lost")
    problem = source.fold(2, 4)
    knn = next(r for r in together.values() if isinstance(r.spec.method, PLKNN) and r.spec.split.fold == 2)
    assert knn.candidates == pytest.approx(float(problem.train.candidates.sum(-1).float().mean()))
    assert round(knn.accuracy * len(problem.test_x), 6).is_integer()


def test_a_result_says_where_and_when_and_how_sure():
    spec = Spec("blobs", ProPaLL(), recipe=replace(QUICK, epochs=14), corruption=PRODENBinomialMin2(0.3))
    (result,) = run_specs(RunTask([spec], "cpu"))
    assert result.accuracy == result.curve[14] > 0.5
    last = [result.curve[epoch] for epoch in range(5, 15)]
    assert result.last10 == pytest.approx(sum(last) / 10)
    assert re.search(r"CPU, \d+ threads?$", result.hardware)
    assert result.torch == torch.__version__
    assert result.when.endswith("+00:00")
    assert result.seconds > 0


def test_confusions_are_kept_where_asked():
    specs = [Spec("blobs", CC(), recipe=QUICK, corruption=Exactly(2), seed=seed) for seed in range(2)]
    ((first, second),) = run_stacks(RunTask(specs, "cpu", confusions=[specs[1].key]))
    assert first.confusions == {}
    counts = torch.tensor(second.confusions[3])
    assert counts.diag().sum() / counts.sum() == pytest.approx(second.accuracy)


def test_a_teacher_is_trained_once_and_found_again(tmp_path, monkeypatch):
    recipe = Recipe(epochs=4, batch_size=32, learning_rate=0.1)
    spec = Spec("blobs", CC(), recipe=QUICK, corruption=InstanceDependent(0.4), teacher=recipe)
    source = spec.source(load("blobs"))
    device = best_device("cpu")
    scores = teacher_scores(spec, source, device, tmp_path)
    (file,) = tmp_path.iterdir()
    assert file.name == "blobs-414c494016c8fd05941561db82894348.safetensors"  # as in 0.1.0
    stamp = file.stat().st_mtime_ns
    assert torch.equal(teacher_scores(spec, source, device, tmp_path), scores)
    assert file.stat().st_mtime_ns == stamp
    assert (scores.argmax(-1) == source.truth).float().mean() > 0.8
    other = replace(spec, teacher=replace(recipe, epochs=5))
    assert not torch.equal(teacher_scores(other, source, device, tmp_path), scores)
    assert len(list(tmp_path.iterdir())) == 2
    # The runs use the teacher, and their candidate sets have the mean size it implies.
    (group,) = run_stacks(RunTask([spec], "cpu", teachers=tmp_path))
    law = InstanceDependent(0.4)
    assert len(list(tmp_path.iterdir())) == 2
    assert group[0].candidates == pytest.approx(law.mean_size(scores, source.truth), abs=0.15)


class SmallWideResNet(WideResNet):
    """WRN-10-1, so that a test can train it."""

    def __init__(self, in_shape, n_classes, **options):
        super().__init__(in_shape, n_classes, depth=10, width=1, **options)


def test_a_published_annotator_has_dropout_when_it_draws(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "NETS", {"wrn28_10": SmallWideResNet})
    recipe = Recipe(epochs=2, batch_size=16, learning_rate=0.1)
    teacher = Teacher("wrn28_10", recipe, "public", dropout=0.3)
    spec = Spec("digits", CC(), "mlp", QUICK, InstanceDependent(1.0), Split(per_class=4), teacher=teacher)
    source, device = spec.source(load("digits")), best_device("cpu")
    source = replace(
        source, raw=source.raw[:1].expand_as(source.raw).clone()
    )  # the same image again and again
    torch.manual_seed(3)
    drawn = teacher_scores(spec, source, device, tmp_path / "a")
    after = torch.rand(3)
    torch.manual_seed(3)
    assert torch.equal(torch.rand(3), after)  # the caller's generator is untouched
    assert drawn.std(0).min() > 1e-3
    assert torch.equal(teacher_scores(spec, source, device, tmp_path / "b"), drawn)
    # Without dropout, or in evaluation mode, equal images have equal scores.
    for other in (replace(teacher, dropout=0.0), replace(teacher, scoring="eval")):
        scores = teacher_scores(replace(spec, teacher=other), source, device, tmp_path / "a")
        assert scores.std(0).max() < 1e-4
    assert len(list((tmp_path / "a").glob("*.safetensors"))) == 3


def test_an_interrupted_annotator_draws_the_same_sets(tmp_path, monkeypatch):
    monkeypatch.setattr(runner, "NETS", {"wrn28_10": SmallWideResNet})
    recipe = Recipe(epochs=4, batch_size=16, learning_rate=0.1)
    teacher = Teacher("wrn28_10", recipe, "public", dropout=0.3)
    spec = Spec("digits", CC(), "mlp", QUICK, InstanceDependent(1.0), Split(per_class=4), teacher=teacher)
    source, device = spec.source(load("digits")), best_device("cpu")
    whole = teacher_scores(spec, source, device, tmp_path / "whole")

    def train_an_epoch():
        return teacher_scores(spec, source, device, tmp_path / "parts", tmp_path / "saved", deadline=0)

    for process in range(3):
        torch.manual_seed(process)
        before = torch.get_rng_state()
        with pytest.raises(TimeLimitReached):
            train_an_epoch()
        assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(train_an_epoch(), whole)  # the last epoch, even after the deadline


def test_waiting_for_another_process_ends_at_the_deadline(tmp_path, monkeypatch):
    fcntl = pytest.importorskip("fcntl")
    monkeypatch.setattr(runner, "LOCK_SECONDS", 0.01)
    recipe = Recipe(epochs=2, batch_size=16, learning_rate=0.1)
    spec = Spec("digits", CC(), "mlp", QUICK, InstanceDependent(1.0), Split(per_class=4))
    spec = replace(spec, teacher=Teacher("mlp", recipe))
    source, device = spec.source(load("digits")), best_device("cpu")
    teacher_scores(spec, source, device, tmp_path)
    (path,) = tmp_path.glob("*.safetensors")
    with path.with_suffix(".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        start = time.time()
        with pytest.raises(TimeLimitReached):
            teacher_scores(spec, source, device, tmp_path, deadline=start + 0.1)
        assert time.time() >= start + 0.1
    teacher_scores(spec, source, device, tmp_path, deadline=start)  # nobody holds it, so no wait


def test_only_a_network_with_dropout_can_have_some():
    with pytest.raises(ValueError, match=r"dropout: got 0\.3 for mlp; only wrn28_10"):
        Teacher("mlp", QUICK, dropout=0.3)
    with pytest.raises(ValueError, match=r"dropout: got 1\.5; expected a probability"):
        Teacher("wrn28_10", QUICK, dropout=1.5)


def test_flat_images_are_augmented_as_images():
    recipe = replace(QUICK, epochs=1, augmentation="rotate_flip")
    spec = Spec("digits", CC(), "mlp", recipe, Exactly(2), Split(per_class=5))
    (result,) = run_specs(RunTask([spec], "cpu"))
    (plain,) = run_specs(RunTask([replace(spec, recipe=replace(recipe, augmentation="none"))], "cpu"))
    assert 0 < result.accuracy < 1
    assert result.accuracy != plain.accuracy
    with pytest.raises(ValueError, match="augmentation"):
        list(run_specs(RunTask([Spec("blobs", CC(), "mlp", recipe, Exactly(2))], "cpu")))


def test_a_timed_run_is_trained_by_itself_and_says_how_long_each_epoch_took():
    specs = [Spec("blobs", method, "linear", QUICK, Exactly(2)) for method in (ProPaLL(), CC())]
    timed = [replace(spec, protocol=protocol) for spec in specs for protocol in ("timed", "timed-3epochs")]
    assert [len(group) for group in group_stackable([*specs, *timed])] == [2, 1, 1, 1, 1]
    together = list(run_specs(RunTask(specs, "cpu")))
    assert [(result.stack, result.times) for result in together] == [(2, {}), (2, {})]
    (alone,) = run_specs(RunTask(timed[:1], "cpu"))
    assert alone.stack == 1
    assert list(alone.times) == list(alone.curve) == [1, 2, 3]
    assert 0 < alone.times[1] < alone.times[2] < alone.times[3] < alone.seconds
    assert alone.curve == together[0].curve


def test_what_a_kill_leaves_of_finished_progress_is_tidied(tmp_path):
    for name, keys in (("whole", "a b"), ("waiting", "a c")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "runs.txt").write_text(keys)
    (tmp_path / "half.gone").mkdir()  # killed while it was being removed: the keys were first to go
    (tmp_path / "half.gone" / "stack.safetensors").write_text("")
    remove_finished_checkpoints(tmp_path, {"a", "b"})
    assert [path.name for path in tmp_path.iterdir()] == ["waiting"]
