"""Learning kernels from data: families, learners, predictors and estimators."""

NUMERICS_VERSION = 12
"""Version of numbers: stored results of another version are not used."""
