"""What a configuration may hold. Prefect shows the same descriptions as a form."""

from learnkernels.conf.schema.base import Parameter, Positive, Strict
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
    ENDINGS,
    WILDCARD,
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
from learnkernels.conf.schema.learners import PRESETS, LearnerConfig, LearnerName, PresetName
from learnkernels.conf.schema.predictors import PREDICTOR_OPTIONS, PredictorName
from learnkernels.conf.schema.protocol import OF_PROBABILITIES, MetricName, ProtocolConfig

__all__ = [
    "BASELINE_TITLES",
    "ENDINGS",
    "GRID_SEARCH_TITLE",
    "OF_PROBABILITIES",
    "PREDICTOR_OPTIONS",
    "PRESETS",
    "WILDCARD",
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
