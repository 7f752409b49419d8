import torch

from propall.nets.resnet import ResNet32


def test_resnet32_shapes_and_projections():
    net = ResNet32((3, 32, 32), 10)
    assert net.feature_maps(torch.zeros(2, 3, 32, 32)).shape == (2, 64, 8, 8)
    projections = [not isinstance(block.shortcut, torch.nn.Identity) for block in net.blocks]
    assert [i for i, projects in enumerate(projections) if projects] == [5, 10]
    # 1 stem + 2 per block + 1 head = 32 layers, projections not counted.
    assert 1 + 2 * len(net.blocks) + 1 == 32
