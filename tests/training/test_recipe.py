import pytest
import torch
from jaxtyping import TypeCheckError

from propall.training.recipe import Recipe


def test_batches_cover_what_they_should():
    assert Recipe(batch_size=10).batch_sizes(25) == [10, 10]
    assert Recipe(batch_size=10, last_batch="keep").batch_sizes(25) == [10, 10, 5]
    assert Recipe(batch_size=10, last_batch="keep").batch_sizes(21) == [10, 10]  # one row has no variance
    assert Recipe(batch_size=10).batch_sizes(7) == [7]


def test_schedules():
    epochs = torch.tensor([0.0, 29.0, 30.0, 60.0])
    assert Recipe(decay=0.5, decay_every=30).rate_factor(epochs, epochs).tolist() == [1, 1, 0.5, 0.25]
    smooth = Recipe(decay=0.5, decay_every=50, smooth_decay=True)
    torch.testing.assert_close(
        smooth.rate_factor(torch.tensor(25.0), torch.tensor(0.0)), torch.tensor(0.5**0.5)
    )
    assert Recipe().rate_factor(epochs, epochs).tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("epochs", -1),
        ("epochs", 1.5),
        ("batch_size", 0),
        ("learning_rate", float("nan")),
        ("weight_decay", -1e-4),
        ("optimizer", "lbfgs"),
        ("last_batch", "pad"),
        ("augmentation", "mixup"),
        ("precision", "float8"),
    ],
)
def test_bad_values_are_named(field, value):
    with pytest.raises(ValueError, match=field):
        Recipe(**{field: value})


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        ("linear", [0.2, 0.6, 1.0, 0.5, 0.0]),
        ("cosine", [0.2, 0.6, 1.0, 0.5, 0.0]),
        ("one_cycle", [0.04, 0.52, 1.0, 0.5, 0.0]),
    ],
)
def test_one_cycle_schedules(schedule, expected):
    recipe = Recipe(schedule=schedule, warm_up=0.2)
    progress = torch.tensor([0.0, 0.1, 0.2, 0.6, 1.0])
    torch.testing.assert_close(recipe.rate_factor(progress, progress), torch.tensor(expected))
    assert not recipe.has_constant_rate


def test_additions_that_are_not_used_do_not_show():
    """Checkpoints of earlier versions are found by a digest of the text, results by a key of the values."""
    assert repr(Recipe(epochs=2)) == (
        "Recipe(epochs=2, batch_size=256, optimizer='sgd', learning_rate=0.05, momentum=0.9, "
        "weight_decay=0.0, decay=1.0, decay_every=1, smooth_decay=False, last_batch='drop', "
        "augmentation='none', precision='float32')"
    )
    assert repr(Recipe(nesterov=True)).endswith("precision='float32', nesterov=True)")
    assert "nesterov" not in Recipe().to_dict()


@pytest.mark.parametrize("views", [True, "crdpll"])
def test_views_of_another_kind_are_refused(views):
    # With PROPALL_CHECK_SHAPES=1, the annotation refuses them first.
    with pytest.raises(
        (TypeError, TypeCheckError), match=rf"views: got {views!r}; expected|parameter 'views'"
    ):
        Recipe(views=views)
