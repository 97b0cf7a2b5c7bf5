"""What a configuration may hold. Prefect shows the same descriptions as a form."""

from learnkernels.conf.schema.base import Strict, grid_values
from learnkernels.conf.schema.compare import (
    BASELINE_TITLES,
    GRID_SEARCH_TITLE,
    OF_PROBABILITIES,
    BaselineConfig,
    BaselineName,
    CompareConfig,
    DaskConfig,
    DriftConfig,
    ProtocolConfig,
    TrackingConfig,
)
from learnkernels.conf.schema.datasets import DatasetConfig, NgramsConfig, name_of_files
from learnkernels.conf.schema.kernels import CosineConfig, FamilyConfig, FeatureConfig, OwnConfig, PrecomputedConfig
from learnkernels.conf.schema.learners import LearnerConfig

__all__ = [
    "BASELINE_TITLES",
    "GRID_SEARCH_TITLE",
    "OF_PROBABILITIES",
    "BaselineConfig",
    "BaselineName",
    "CompareConfig",
    "CosineConfig",
    "DaskConfig",
    "DatasetConfig",
    "DriftConfig",
    "FamilyConfig",
    "FeatureConfig",
    "LearnerConfig",
    "NgramsConfig",
    "OwnConfig",
    "PrecomputedConfig",
    "ProtocolConfig",
    "Strict",
    "TrackingConfig",
    "grid_values",
    "name_of_files",
]
