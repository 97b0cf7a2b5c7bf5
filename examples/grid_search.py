"""Can learner, base kernels and C be searched like any other parameters, and judged without optimism?

The estimators follow scikit-learn's rules, so `GridSearchCV` varies the learner, the family of base kernels and C
together. Its best score is too good by construction: it is the largest of many. `cross_val_score` around the whole
search (nested cross-validation) gives the error that a user should expect. The learned kernel also serves as a step
before another model: `LearnedKernelTransformer` turns it into features for a logistic regression.

Run it with `.venv/bin/python examples/grid_search.py`; it takes some ten seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV, StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from learnkernels import (
    FamilyUnion,
    GaussianFamily,
    KernelLearningClassifier,
    LaplacianFamily,
    LearnedKernelTransformer,
    LinearFamily,
)

LEARNERS = ["unif", "align", "alignf"]
CS = [0.1, 1.0, 10.0]
FAMILIES = {
    "gaussian": GaussianFamily([2.0**exponent for exponent in (-7, -5, -3)]),
    "laplacian": LaplacianFamily([2.0**exponent for exponent in (-5, -3, -1)]),
    "linear + gaussian": FamilyUnion([LinearFamily(), GaussianFamily([2.0**-5, 2.0**-3])]),
}
OUTER = StratifiedKFold(n_splits=5, shuffle=True, random_state=0)
INNER = StratifiedKFold(n_splits=3, shuffle=True, random_state=1)


@dataclass(frozen=True)
class Result:
    """The table of the search, its best error, the errors of the nested folds, and those of the logistic regression."""

    table: pd.DataFrame
    best_error: float
    nested_errors: np.ndarray
    logistic_errors: np.ndarray
    plain_logistic_errors: np.ndarray


def grid_search() -> GridSearchCV:
    """Return the search; families are values of a parameter like any other."""
    pipeline = make_pipeline(StandardScaler(), KernelLearningClassifier())
    step = "kernellearningclassifier__"
    grid = {f"{step}learner": LEARNERS, f"{step}family": list(FAMILIES.values()), f"{step}C": CS}
    return GridSearchCV(pipeline, grid, cv=INNER, error_score="raise")


def table_of(search: GridSearchCV) -> pd.DataFrame:
    """Return a row for each learner and family with the error at the C that served it best."""
    results, step = search.cv_results_, "param_kernellearningclassifier__"
    # Families compare by what they are, so that the name of each is found again after the search copied them.
    names = [next(name for name, family in FAMILIES.items() if family == found) for found in results[f"{step}family"]]
    table = pd.DataFrame(
        {
            "learner": results[f"{step}learner"],
            "family": names,
            "C": results[f"{step}C"].astype(float),
            "error": 1 - results["mean_test_score"],
            "sd": results["std_test_score"],
        }
    )
    return table.sort_values(["error", "learner", "family", "C"]).drop_duplicates(["learner", "family"])


def compare() -> Result:
    """Search on all rows, judge the search by nested folds, and use the kernel as features."""
    X, y = load_wine(return_X_y=True)
    search = grid_search().fit(X, y)
    nested = 1 - cross_val_score(grid_search(), X, y, cv=OUTER, error_score="raise")
    # Features of a learned kernel: their inner products are the kernel, so a linear model on them is a kernel machine
    # with whatever the linear model offers, here probabilities of three classes.
    logistic = make_pipeline(
        StandardScaler(),
        LearnedKernelTransformer(n_components=60, random_state=0),
        LogisticRegression(C=10.0, max_iter=1000),
    )
    plain = make_pipeline(StandardScaler(), LogisticRegression(C=10.0, max_iter=1000))
    return Result(
        table_of(search),
        1 - search.best_score_,
        nested,
        1 - cross_val_score(logistic, X, y, cv=OUTER, error_score="raise"),
        1 - cross_val_score(plain, X, y, cv=OUTER, error_score="raise"),
    )


def main() -> Result:
    """Print the story."""
    result = compare()
    print("Every learner and family at its best C (error over 3 inner folds of 178 wines):\n")
    print(result.table.to_string(index=False, float_format=lambda value: f"{value:.3g}"))
    nested, logistic, plain = result.nested_errors, result.logistic_errors, result.plain_logistic_errors
    print(
        f"\nBest error of the search, the least of {len(LEARNERS) * len(FAMILIES) * len(CS)}: {result.best_error:.3f}"
    )
    print(f"Error to expect (nested, 5 outer folds):    {nested.mean():.3f} +- {nested.std():.3f}")
    print("\nThe same outer folds:")
    print(f"  features of a learned kernel, then logistic regression: {logistic.mean():.3f} +- {logistic.std():.3f}")
    print(f"  logistic regression on the columns:                     {plain.mean():.3f} +- {plain.std():.3f}")
    print("One wine is an error of 0.006: differences of a few wines tell nothing.")
    return result


if __name__ == "__main__":
    main()
