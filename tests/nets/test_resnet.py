import torch

from propall.nets.resnet import ResNet32
from propall.nets.wide_resnet import WideResNet


def test_resnet32_shapes_and_projections():
    net = ResNet32((3, 32, 32), 10)
    assert net.feature_maps(torch.zeros(2, 3, 32, 32)).shape == (2, 64, 8, 8)
    projections = [not isinstance(block.shortcut, torch.nn.Identity) for block in net.blocks]
    assert [i for i, projects in enumerate(projections) if projects] == [5, 10]
    # 1 stem + 2 per block + 1 head = 32 layers, projections not counted.
    assert 1 + 2 * len(net.blocks) + 1 == 32


def test_dropout_of_wide_resnets_acts_in_training_only():
    torch.manual_seed(0)
    plain = WideResNet((3, 8, 8), 4, depth=10, width=1)
    net = WideResNet((3, 8, 8), 4, depth=10, width=1, dropout=0.5)
    assert [p.shape for p in net.parameters()] == [p.shape for p in plain.parameters()]
    assert sum(isinstance(part, torch.nn.Dropout) for part in net.modules()) == 3  # one per block
    assert all(part.p == 0.5 for part in net.modules() if isinstance(part, torch.nn.Dropout))
    assert not any(isinstance(part, torch.nn.Dropout) for part in plain.modules())
    x = torch.randn(4, 3, 8, 8)
    assert not torch.equal(net(x), net(x))
    assert torch.equal(net.eval()(x), net(x))
