"""Learning kernels from data: the mathematics, arrays in and results out.

Base kernels come in `families`; the `engine` passes over their tiles; `statistics` has
their alignment statistics for every union of folds; `learners` turn those into weights
with `solvers`, or find base kernels by `search`; `predictors` use the learned kernel,
`estimators` are all that behind scikit-learn's interface, `files` saves and loads
models.
"""

NUMERICS_VERSION = 10
"""Raised whenever a weight or score may move by more than rounding; stored results of another version are not used."""
