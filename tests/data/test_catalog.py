from pathlib import Path

import pytest

from propall.data import CORRUPTIONS, DATASETS, load


def test_every_data_set_is_there() -> None:
    built_in, images = {"digits", "blobs"}, {"mnist", "fashion_mnist", "kmnist", "cifar10"}
    annotated = {"cifar10n", "cifar10h"}
    real = {"lost", "msrcv2", "birdsong", "soccer_player", "yahoo_news", "fg_net", "italian"}
    assert set(DATASETS) == built_in | images | annotated | real
    for name, loader in DATASETS.items():
        assert loader.name == name
        assert loader.kind in ("images", "real-world", "human annotations", "built in")
        assert bool(loader.files) == (loader.kind != "built in")
        assert loader.reference or name == "blobs"
        for files in loader.files:
            assert files.downloads or files.by_hand
            held = {content for download in files.downloads for content in download.holds}
            assert held in (set(), {content.name for content in files.contents})


def test_an_unknown_name_suggests_similar_ones() -> None:
    with pytest.raises(
        ValueError, match="data set: unknown name 'Fashion-MNIST'; did you mean 'fashion_mnist'"
    ):
        load("Fashion-MNIST")
    with pytest.raises(ValueError, match="data set: unknown name 'zzz'; expected one of digits, blobs"):
        load("zzz")
    with pytest.raises(ValueError, match="unknown name 'uniform_superset'; did you mean 'uniform_proper"):
        CORRUPTIONS["uniform_superset"]


def test_loading_uses_the_environment_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROPALL_DATA", str(tmp_path))
    with pytest.raises(FileNotFoundError, match=str(tmp_path / "mnist")):
        load("mnist")
