"""Which view of the data carries the weight, and is it worth telling views apart?

Every row of the breast cancer data describes the cell nuclei in one image of a tumour by ten quantities (radius,
texture, and so on), and each quantity by three numbers: its mean over the nuclei, the standard error of that mean,
and the mean of the three worst nuclei. These are three views of the same image. One may use a single view, put all
columns side by side, or give each view kernels of its own and let `alignf` weigh them.

Run it with `.venv/bin/python examples/multi_view.py`; it takes a few seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.model_selection import RepeatedStratifiedKFold, cross_val_score
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from learnkernels import FamilyUnion, GaussianFamily, KernelLearningClassifier
from learnkernels.kernels.families import KernelFamily

VIEWS = {"mean": range(0, 10), "standard error": range(10, 20), "worst": range(20, 30)}
"""Columns of each view."""

GAMMAS = [2.0**exponent for exponent in (-9, -7, -5, -3)]
"""Bandwidths for standardised columns: from smooth to sharp, around one over the number of columns."""


@dataclass(frozen=True)
class Result:
    """Held-out errors of each way to use the views, shape (10,) each, and what the views weigh, of sum one."""

    errors: dict[str, np.ndarray]
    view_weights: dict[str, float]
    kernel_weights: dict[str, float]


def on_columns(columns: range) -> FamilyUnion:
    """Return the Gaussian kernels that see these columns alone."""
    return FamilyUnion([GaussianFamily(GAMMAS)], columns=[columns])


def on_each_view() -> FamilyUnion:
    """Return the Gaussian kernels of every view; `views` are their names in what is printed."""
    return FamilyUnion([GaussianFamily(GAMMAS)] * len(VIEWS), columns=list(VIEWS.values()), views=list(VIEWS))


def model(family: KernelFamily, learner: str) -> Pipeline:
    """Return the model: C may be the same for all, as every learned kernel has a mean diagonal of one."""
    return make_pipeline(StandardScaler(), KernelLearningClassifier(family, learner, C=10.0))


def compare() -> Result:
    """Measure each way on the same ten held-out parts, and learn the weights once on all rows."""
    X, y = load_breast_cancer(return_X_y=True)
    # The scaler and the kernel are learned inside each training part, because they are parts of one pipeline.
    folds = RepeatedStratifiedKFold(n_splits=5, n_repeats=2, random_state=0)
    ways = {f"view '{view}' alone": model(on_columns(columns), "alignf") for view, columns in VIEWS.items()}
    ways["all columns, one view"] = model(GaussianFamily(GAMMAS), "alignf")
    ways["three views, equal weights"] = model(on_each_view(), "unif")
    ways["three views, learned weights"] = model(on_each_view(), "alignf")
    errors = {name: 1 - cross_val_score(way, X, y, cv=folds) for name, way in ways.items()}

    fitted = ways["three views, learned weights"].fit(X, y)[-1]
    # `shares` are the weights divided by their sum; the order is that of the family's names.
    shares = fitted.kernel_.shares
    by_view = shares.reshape(len(VIEWS), len(GAMMAS)).sum(axis=1)
    return Result(
        errors,
        {view: float(weight) for view, weight in zip(VIEWS, by_view, strict=True)},
        {name: float(share) for name, share in zip(fitted.family_.names, shares, strict=True)},
    )


def main() -> Result:
    """Print the story."""
    result = compare()
    print("Held-out error (share of tumours told wrongly), 2 x 5 folds:")
    for name, errors in result.errors.items():
        print(f"  {name:<30} {errors.mean():.3f} +- {errors.std():.3f}")
    print("\nWeight of each view, learned on all rows:")
    for view, weight in sorted(result.view_weights.items(), key=lambda item: -item[1]):
        print(f"  {view:<16} {weight:5.2f} {'#' * round(40 * weight)}")
    print("\nBase kernels that carry weight:")
    for name, weight in sorted(result.kernel_weights.items(), key=lambda item: -item[1]):
        if weight > 0:
            print(f"  {name:<38} {weight:.2f}")

    best = min(result.errors, key=lambda name: result.errors[name].mean())
    learned, joined = (result.errors[name] for name in ("three views, learned weights", "all columns, one view"))
    difference = learned - joined
    print(f"\nLowest error: {best}.")
    print(
        f"Learned views against all columns in one: {difference.mean():+.4f} +- {difference.std():.4f} a fold; "
        "differences within one standard deviation tell nothing."
    )
    return result


if __name__ == "__main__":
    main()
