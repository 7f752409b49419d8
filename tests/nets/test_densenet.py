import torch

from propall.nets.densenet import DenseNet161, DenseNetBC100


def test_densenets_downsample_at_transitions():
    with torch.device("meta"):
        assert DenseNetBC100((3, 32, 32), 10).feature_maps(torch.zeros(2, 3, 32, 32)).shape == (2, 342, 8, 8)
        large = DenseNet161((3, 32, 32), 10)
        assert large.stem(torch.zeros(2, 3, 32, 32)).shape == (2, 96, 8, 8)
        assert large.feature_maps(torch.zeros(2, 3, 32, 32)).shape == (2, 2208, 1, 1)
