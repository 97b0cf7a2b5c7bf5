"""Keys of a configuration, whose descriptions Prefect shows in forms."""

from .base import Strict as Strict
from .base import grid_values as grid_values
from .compare import BASELINE_TITLES as BASELINE_TITLES
from .compare import FEWEST_FOLDS as FEWEST_FOLDS
from .compare import GRID_SEARCH_TITLE as GRID_SEARCH_TITLE
from .compare import MOST_AT_ONCE as MOST_AT_ONCE
from .compare import MOST_FOLDS as MOST_FOLDS
from .compare import OF_PROBABILITIES as OF_PROBABILITIES
from .compare import BaselineConfig as BaselineConfig
from .compare import BaselineName as BaselineName
from .compare import CompareConfig as CompareConfig
from .compare import DaskConfig as DaskConfig
from .compare import DriftConfig as DriftConfig
from .compare import ProtocolConfig as ProtocolConfig
from .compare import TrackingConfig as TrackingConfig
from .datasets import DatasetConfig as DatasetConfig
from .datasets import NgramsConfig as NgramsConfig
from .datasets import name_of_files as name_of_files
from .learners import FamilyConfig as FamilyConfig
from .learners import FeatureConfig as FeatureConfig
from .learners import LearnerConfig as LearnerConfig
from .learners import OwnConfig as OwnConfig
from .learners import PrecomputedConfig as PrecomputedConfig
