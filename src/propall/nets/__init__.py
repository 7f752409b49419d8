"""Networks `Net(in_shape, n_classes, **options)`: features, then a linear head. `NETS` lists them by name."""

from propall.nets.cnn import SmallCNN
from propall.nets.densenet import DenseNet161, DenseNetBC100
from propall.nets.fast_convnet import FastConvNet
from propall.nets.mlp import MLP, MLP5, MLP500, VALENMLP4, Linear
from propall.nets.network import Network
from propall.nets.resnet import ResNet18, ResNet32
from propall.nets.wide_resnet import WideResNet
from propall.registry import Registry, by_name

NETS: Registry[type[Network]] = by_name(
    "net",
    Linear,
    MLP,
    MLP5,
    MLP500,
    VALENMLP4,
    ResNet32,
    ResNet18,
    WideResNet,
    FastConvNet,
    DenseNetBC100,
    DenseNet161,
    SmallCNN,
)
"""Networks by name.

Examples:
    >>> sorted(NETS)[:3]
    ['densenet161', 'densenet_bc100', 'fast_convnet']
"""
