"""What a configuration may hold. Prefect shows the same descriptions as a form."""

from learnkernels.conf.schema.base import Strict as Strict
from learnkernels.conf.schema.base import grid_values as grid_values
from learnkernels.conf.schema.compare import BASELINE_TITLES as BASELINE_TITLES
from learnkernels.conf.schema.compare import FEWEST_FOLDS as FEWEST_FOLDS
from learnkernels.conf.schema.compare import GRID_SEARCH_TITLE as GRID_SEARCH_TITLE
from learnkernels.conf.schema.compare import MOST_AT_ONCE as MOST_AT_ONCE
from learnkernels.conf.schema.compare import MOST_FOLDS as MOST_FOLDS
from learnkernels.conf.schema.compare import OF_PROBABILITIES as OF_PROBABILITIES
from learnkernels.conf.schema.compare import BaselineConfig as BaselineConfig
from learnkernels.conf.schema.compare import BaselineName as BaselineName
from learnkernels.conf.schema.compare import CompareConfig as CompareConfig
from learnkernels.conf.schema.compare import DaskConfig as DaskConfig
from learnkernels.conf.schema.compare import DriftConfig as DriftConfig
from learnkernels.conf.schema.compare import ProtocolConfig as ProtocolConfig
from learnkernels.conf.schema.compare import TrackingConfig as TrackingConfig
from learnkernels.conf.schema.datasets import DatasetConfig as DatasetConfig
from learnkernels.conf.schema.datasets import NgramsConfig as NgramsConfig
from learnkernels.conf.schema.datasets import name_of_files as name_of_files
from learnkernels.conf.schema.learners import FamilyConfig as FamilyConfig
from learnkernels.conf.schema.learners import FeatureConfig as FeatureConfig
from learnkernels.conf.schema.learners import LearnerConfig as LearnerConfig
from learnkernels.conf.schema.learners import OwnConfig as OwnConfig
from learnkernels.conf.schema.learners import PrecomputedConfig as PrecomputedConfig
