"""Data sets, splits, and corruptions that turn true labels into candidate sets."""

from propall.data.catalog import DATASETS as DATASETS
from propall.data.catalog import load as load
from propall.data.corruption import CORRUPTIONS as CORRUPTIONS
from propall.data.corruption import Corruption as Corruption
from propall.data.dataset import PartialDataset as PartialDataset
from propall.data.dataset import Problem as Problem
from propall.data.dataset import Source as Source
