"""What a configuration may hold. Prefect shows the same descriptions as a form."""

from learnkernels.conf.schema.base import LearnerName, MetricName, Parameter, Positive, PredictorName, Strict
from learnkernels.conf.schema.compare import (
    BASELINE_TITLES,
    GRID_SEARCH_TITLE,
    BaselineConfig,
    BaselineName,
    ClusterName,
    CompareConfig,
    DaskConfig,
    TrackingConfig,
)
from learnkernels.conf.schema.datasets import (
    DatasetConfig,
    NgramsConfig,
    SyntheticName,
    name_of_files,
)
from learnkernels.conf.schema.grids import grid_values
from learnkernels.conf.schema.kernels import (
    CategoricalConfig,
    ConstantConfig,
    CosineConfig,
    DirichletConfig,
    FamilyConfig,
    FeatureConfig,
    GaussianConfig,
    LaplacianConfig,
    OwnConfig,
    PolynomialConfig,
    PrecomputedConfig,
)
from learnkernels.conf.schema.learners import PRESETS, LearnerConfig, PresetName
from learnkernels.conf.schema.protocol import OF_PROBABILITIES, ProtocolConfig

__all__ = [
    "BASELINE_TITLES",
    "GRID_SEARCH_TITLE",
    "OF_PROBABILITIES",
    "PRESETS",
    "BaselineConfig",
    "BaselineName",
    "CategoricalConfig",
    "ClusterName",
    "CompareConfig",
    "ConstantConfig",
    "CosineConfig",
    "DaskConfig",
    "DatasetConfig",
    "DirichletConfig",
    "FamilyConfig",
    "FeatureConfig",
    "GaussianConfig",
    "LaplacianConfig",
    "LearnerConfig",
    "LearnerName",
    "MetricName",
    "NgramsConfig",
    "OwnConfig",
    "Parameter",
    "PolynomialConfig",
    "Positive",
    "PrecomputedConfig",
    "PredictorName",
    "PresetName",
    "ProtocolConfig",
    "Strict",
    "SyntheticName",
    "TrackingConfig",
    "grid_values",
    "name_of_files",
]
