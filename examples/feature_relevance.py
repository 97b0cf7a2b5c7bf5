"""Do the weights of a learned kernel say which features matter?

Two answers are read off the training. *Weights*: one Gaussian kernel a feature, weighed by `alignf`. *Bandwidths*:
the learner `ca` with one bandwidth a feature; a feature with a narrow bandwidth matters, one with a wide bandwidth
does not. Beside each stands the usual answer, *permutation importance* of the same model: how much the error on
held-out rows grows when a feature is shuffled. It costs many predictions, and says what the model uses, not what it
missed. Nor do the others: a search that ends early misses features, so look at R2 as well.

Two problems. In Friedman's function, features 0 to 4 matter and 5 to 9 are noise, so the answers can be checked:

    y = 10 sin(pi x0 x1) + 20 (x2 - 1/2)^2 + 10 x3 + 5 x4 + noise

For the diabetes data nobody knows; there we ask whether the answers agree.

Run it with `.venv/bin/python examples/feature_relevance.py`; it takes some ten seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import spearmanr
from sklearn.datasets import load_diabetes, make_friedman1
from sklearn.inspection import permutation_importance
from sklearn.model_selection import train_test_split
from sklearn.preprocessing import StandardScaler

from learnkernels import FamilyUnion, GaussianFamily, KernelLearningRegressor
from learnkernels.kernels.learners import CA

OF_WEIGHTS, OF_BANDWIDTHS = "weights shuffled", "bandwidths shuffled"
METHODS = ["weights", OF_WEIGHTS, "bandwidths", OF_BANDWIDTHS, "coarse bandwidths"]
"""What is put side by side; shuffled is permutation importance of the model before it."""

DEFAULT, FINE = 1e-3, 1e-4
"""Thresholds of `ca`. With its default, coarse, the search may be over before it comes to a feature of small effect."""


@dataclass(frozen=True)
class Result:
    """What each method says.

    `relevance` are shares of sum one; `r2` is that of both models on held-out rows, `agreement` their rank correlation
    with shuffling; `relevant` names the features that matter, where that is known.
    """

    names: list[str]
    relevance: dict[str, np.ndarray]
    r2: dict[str, float]
    agreement: dict[str, float]
    relevant: list[str] | None = None

    def overlooked(self, method: str) -> list[str]:
        """Return the features that matter and get no more than rounding."""
        shares = zip(self.names, self.relevance[method], strict=True)
        return [name for name, share in shares if name in (self.relevant or []) and share < 1e-6]

    def ranking(self, method: str) -> list[str]:
        """Return the names, the most relevant first."""
        return [self.names[k] for k in np.argsort(-self.relevance[method], kind="stable")]


def by_kernel_weights(X: np.ndarray, y: np.ndarray, names: list[str]) -> tuple[np.ndarray, KernelLearningRegressor]:
    """Return the weight of each feature's own kernel.

    A sum of such kernels is an additive model. It sees what a feature does alone, and cannot see a feature that acts
    through others only, like each input of an exclusive or.
    """
    family = FamilyUnion([GaussianFamily([0.5])] * len(names), columns=[[k] for k in range(len(names))], views=names)
    regressor = KernelLearningRegressor(family, "alignf", alpha=0.1).fit(X, y)
    return regressor.kernel_.shares, regressor


def by_bandwidths(X: np.ndarray, y: np.ndarray, threshold: float) -> tuple[np.ndarray, KernelLearningRegressor]:
    """Return the mean of one over the squared bandwidth of each feature, weighed by the kernels it belongs to.

    Here a kernel sees all features at once, so features that act together count. With many features and few rows
    `shrinkage` must be tuned; ten features of some hundred rows do without. The search for kernels ends when one adds
    no more than `threshold` to the alignment.
    """
    learner = CA(per_feature=True, threshold=threshold)
    regressor = KernelLearningRegressor(learner=learner, alpha=0.1).fit(X, y)
    kernel = regressor.kernel_
    assert kernel.parameters is not None, "a learner that searches finds parameters"
    relevance = kernel.shares @ (1 / kernel.parameters**2)
    return relevance / relevance.sum(), regressor


def shuffled(regressor: KernelLearningRegressor, X_test: np.ndarray, y_test: np.ndarray) -> np.ndarray:
    """Return the permutation importance of each feature, as shares of one."""
    found = permutation_importance(regressor, X_test, y_test, n_repeats=10, random_state=0).importances_mean
    # Shuffling a feature that does not matter may by chance make the error smaller: less than nothing is nothing.
    found = np.maximum(found, 0)
    return np.asarray(found / found.sum())


def study(X: np.ndarray, y: np.ndarray, names: list[str]) -> Result:
    """Measure the relevance of each feature in each way; shuffled ones on rows that were not learned from."""
    X, X_test, y, y_test = train_test_split(X, y, test_size=0.5, random_state=0)
    # In units of its own standard deviation every feature has the same chance.
    scaler = StandardScaler().fit(X)
    X, X_test = scaler.transform(X), scaler.transform(X_test)
    weights, additive = by_kernel_weights(X, y, names)
    coarse, _ = by_bandwidths(X, y, DEFAULT)
    bandwidths, joint = by_bandwidths(X, y, FINE)
    columns = [weights, shuffled(additive, X_test, y_test), bandwidths, shuffled(joint, X_test, y_test), coarse]
    relevance = dict(zip(METHODS, columns, strict=True))
    return Result(
        names,
        relevance,
        {"weights": additive.score(X_test, y_test), "bandwidths": joint.score(X_test, y_test)},
        {
            method: float(spearmanr(relevance[method], relevance[other]).statistic)
            for method, other in (("weights", OF_WEIGHTS), ("bandwidths", OF_BANDWIDTHS))
        },
    )


def friedman() -> Result:
    """Study the problem where the answer is known."""
    X, y = make_friedman1(n_samples=600, n_features=10, noise=1.0, random_state=0)
    result = study(X, y, [f"x{k}" for k in range(10)])
    return replace(result, relevant=result.names[:5])


def diabetes() -> Result:
    """Study the problem where it is not."""
    data = load_diabetes()
    return study(data.data, data.target, list(data.feature_names))


def main() -> dict[str, Result]:
    """Print the story."""
    results = {"Friedman's function (x0 to x4 matter)": friedman(), "diabetes": diabetes()}
    for title, result in results.items():
        print(f"{title}: relevance as shares of one\n")
        print(f"  {'':<5}" + "".join(f"{method:>20}" for method in METHODS))
        for k, name in enumerate(result.names):
            print(f"  {name:<5}" + "".join(f"{result.relevance[method][k]:20.3f}" for method in METHODS))
        print()
        for method in METHODS:
            print(f"  the five largest, {method:<20} {', '.join(result.ranking(method)[:5])}")
        if result.relevant:
            missed = {method: ", ".join(result.overlooked(method)) or "none" for method in METHODS}
            for method, names in missed.items():
                print(f"  overlooked though they matter, {method:<20} {names}")
        for method, rho in result.agreement.items():
            print(f"  {method}: rank correlation with shuffling {rho:.2f}, R2 on held-out rows {result.r2[method]:.2f}")
        print()
    return results


if __name__ == "__main__":
    main()
