"""Studies of the papers: closed forms, constructed correlations, and the bends of an objective."""

import numpy as np
import pandas as pd
import pytest
from pydantic import ValidationError

from learnkernels.kernels.engine.operators import FeatureGrams, StackedGrams
from learnkernels.kernels.learners.nkrr import PolynomialRidge
from learnkernels.kernels.model_selection.folds import assign_folds
from learnkernels.kernels.targets import Target
from learnkernels.reproduction import studies
from learnkernels.reproduction.item import (
    BaseKernelsStudy,
    LocalMinimaStudy,
    SurfaceStudy,
    TwoPointStudy,
)
from learnkernels.tasks.data.dataset import fold_seed
from learnkernels.tasks.data.ingest import load_source

ROUNDING = 1e-12
"""Of centered products, which are small beside the kernel where one of two points is rare."""


def test_two_points_have_the_alignments_of_the_paper():
    values = studies.two_point(TwoPointStudy(kind="two-point", points=19)).values
    assert values["A, largest deviation from the closed form"] < ROUNDING
    assert values["rho, largest deviation from one"] < ROUNDING
    assert values["A at alpha = 1/2"] == pytest.approx(np.sqrt(0.5), abs=ROUNDING)


def test_weights_stand_for_repeated_points():
    """By the definition of both alignments on ten rows."""
    H = np.eye(10) - 0.1
    for minority in (1, 3):
        x = np.repeat([-1.0, 1.0], [minority, 10 - minority])
        K, L = np.outer(x, x) + 1, np.outer(x, x)
        uncentered = (K * L).sum() / np.linalg.norm(K) / np.linalg.norm(L)
        Kc, Lc = H @ K @ H, H @ L @ H
        centered = (Kc * Lc).sum() / np.linalg.norm(Kc) / np.linalg.norm(Lc)
        np.testing.assert_allclose(
            studies.two_point_alignments(minority / 10),
            (centered, uncentered),
            rtol=ROUNDING,
        )


def trials_of(
    accuracy: list[float],
    rho: list[float],
    uncentered: list[float],
    name: str = "made up",
) -> pd.DataFrame:
    """Return two trials of some base kernels, whose mean is what is given."""
    rows = []
    for fold, move in enumerate((-0.01, 0.01)):
        for k, (a, r, u) in enumerate(zip(accuracy, rho, uncentered, strict=True)):
            rows.append((name, f"kernel {k}", 0, fold, a + move, r - move, u + move))
    return pd.DataFrame(
        rows, columns=["dataset", "kernel", "repeat", "fold", "accuracy", "rho", "A"]
    )


def test_correlations_of_a_constructed_case():
    accuracy = np.array([0.6, 0.7, 0.9])
    made_up = trials_of(
        accuracy.tolist(), (accuracy / 2).tolist(), (-accuracy).tolist()
    )
    another = trials_of(accuracy.tolist(), [0.1, 0.3, 0.2], [0.2, 0.2, 0.2], "another")
    result = studies.correlations(pd.concat([made_up, another]))
    assert result.values["rho made up"] == pytest.approx(1)
    assert result.values["A made up"] == pytest.approx(-1)
    assert result.values["rho made up sd"] == pytest.approx(0)
    assert result.values["trials"] == made_up["fold"].nunique()
    assert result.values["rho another"] == pytest.approx(
        np.corrcoef(accuracy, [0.1, 0.3, 0.2])[0, 1]
    )
    assert result.values["rho - A, least"] == pytest.approx(
        result.values["rho another"] - result.values["A another"]
    )
    assert [row["data set"] for row in result.tables[0][1]] == ["made up"] * 3 + [
        "another"
    ] * 3
    assert set(result.figures) == {"base_kernels"}
    assert studies.correlation([0.1, 0.2, 0.4], [1.0, 1.0, 1.0]) == 0


def test_base_kernels_alone_are_measured_in_every_trial(shared_data):
    source = {
        "source": "file",
        "path": "ionosphere.parquet",
        "positive": "g",
        "task": "regression",
        "subsample": 100,
    }
    kernels = [{"family": "gaussian", "gammas": [0.125, 8.0]}]
    keys = {
        "protocol": {"grid": [0.25, 4.0, 64.0]},
        "parts": [{"datasets": [source], "kernels": kernels}],
    }
    study = BaseKernelsStudy.model_validate({"kind": "base-kernels", **keys})
    part = study.parts[0]
    dataset = load_source(part.datasets[0], str(shared_data), 0)
    rows = pd.DataFrame(
        studies.measure_base_kernels(
            dataset, "ionosphere", part.kernels, study.protocol, 0
        )
    )
    assert rows.groupby("kernel")["fold"].apply(list).tolist() == [[0, 1, 2, 3, 4]] * 2
    of = rows.groupby("kernel", sort=False)[["accuracy", "rho", "A"]].mean()
    # a bandwidth that is too narrow sees no neighbor
    assert of["accuracy"].iloc[0] > of["accuracy"].iloc[1]
    assert of["rho"].iloc[0] > of["rho"].iloc[1]
    # By the definition, on the rows that the first trial trains on.
    folds = assign_folds(dataset.target, 5, fold_seed(0, 0))
    X, y = (
        dataset.X[np.isin(folds, (2, 3, 4))],
        dataset.target.Y[np.isin(folds, (2, 3, 4)), 0],
    )
    K = np.exp(-0.125 * ((X[:, None] - X) ** 2).sum(axis=2))
    H = np.eye(len(y)) - 1 / len(y)
    expected = y @ H @ K @ H @ y / np.linalg.norm(H @ K @ H) / (y @ H @ y)
    first = rows[(rows["kernel"] == rows["kernel"].iloc[0]) & (rows["fold"] == 0)].iloc[
        0
    ]
    # Sums of some thousand products
    assert first["rho"] == pytest.approx(expected, rel=1e-9)
    assert first["A"] == pytest.approx(
        y @ K @ y / np.linalg.norm(K) / (y @ y), rel=1e-9
    )


def test_local_minima_are_counted_inside_the_range(monkeypatch: pytest.MonkeyPatch):
    assert studies.count_minima(np.array([3.0, 1, 2, 0, 5])) == 2
    assert (
        studies.count_minima(np.array([0.0, 1, 2, 3]))
        == studies.count_minima(np.array([3.0, 2, 1]))
        == 0
    )
    # Rounding on the ground of one valley
    assert studies.count_minima(np.array([3.0, 1, 1 + 1e-12, 1, 5])) == 1
    cancer = {"source": "sklearn", "name": "breast_cancer", "scale": "standard"}
    study = {
        "kind": "local-minima",
        "datasets": [cancer],
        "rows": 60,
        "draws": 1,
        "steps": 2,
        "points": 40,
    }
    monkeypatch.setattr(studies, "ingest", load_source)
    monkeypatch.setattr(studies, "load_dataset", lambda loaded: loaded)
    shares: list[float] = []
    result = studies.local_minima(
        LocalMinimaStudy.model_validate(study), None, shares.append
    )
    assert shares == [1.0]
    assert result.values["objectives"] == 2
    assert 1 <= result.values["local minima, most"] <= 3
    # The first objective, by its definition: F' at eps I is the centered target kernel
    # less a share of the centering.
    dataset = load_source(LocalMinimaStudy.model_validate(study).datasets[0], ".", 0)
    some = np.random.default_rng([0, 0]).permutation(dataset.X.shape[0])[:60]
    y, D = (
        dataset.target.Y[some, 0],
        ((dataset.X[some, None] - dataset.X[some]) ** 2).sum(axis=2),
    )
    y = y - y.mean()
    H = np.eye(60) - 1 / 60
    P = np.outer(y, y) - (y @ y) / 59 * H
    (axis,) = [axis for axis in result.figures["objectives"].axes if axis.get_title()]
    sigmas, shown = axis.lines[0].get_data()
    h = np.array([-(np.exp(-D / sigma**2) * P).sum() for sigma in sigmas])
    np.testing.assert_allclose(shown, h / np.abs(h).max(), atol=1e-9)


def test_a_surface_has_value_and_bend_at_every_pair_of_weights():
    rng = np.random.default_rng(5)
    Z = rng.normal(size=(30, 2))
    target = Target.of(
        np.sign(Z[:, 0] * Z[:, 1] + 0.3 * rng.normal(size=30)), "regression"
    )
    Z -= Z.mean(axis=0)
    weights = np.linspace(0.2, 1.4, 4)
    values, smallest = studies._values_and_curvatures(
        PolynomialRidge(FeatureGrams(Z), target, 0.1, degree=2), weights
    )
    dense = PolynomialRidge(
        StackedGrams(np.einsum("ik,jk->kij", Z, Z)), target, 0.1, degree=2
    )
    for (i, j), value in np.ndenumerate(values):
        at = dense.at(weights[[i, j]])
        assert value == pytest.approx(at.value)
        assert smallest[i, j] == pytest.approx(
            min(studies.hessian_eigenvalues(dense, at)[0], 0), rel=1e-6
        )
    bent = smallest < 0
    assert bent.any()
    assert not bent.all()


def five_features() -> tuple[StackedGrams, Target]:
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(40, 5)) * np.linspace(0.5, 1.5, 5)
    Z -= Z.mean(axis=0)
    y = Z[:, 0] * Z[:, 1] + 0.5 * Z[:, 2] + 0.3 * rng.normal(size=40)
    return StackedGrams(np.einsum("ik,jk->kij", Z, Z)), Target.of(y)


def bend_at(
    grams: StackedGrams, target: Target, mu: np.ndarray, C: float
) -> np.ndarray:
    objective = PolynomialRidge(grams, target, C, degree=2)
    return studies.hessian_eigenvalues(objective, objective.at(mu))


def test_the_bend_is_that_of_finite_differences():
    grams, target = five_features()
    Y = target.Y - target.Y.mean(axis=0)
    for size, C in ((0.05, 0.01), (0.4, 1.0), (2.0, 10.0)):
        h = 1e-3 * size
        mu = size * np.random.default_rng(1).uniform(0.5, 1, 5)

        def F(change, mu=mu, C=C):
            K = np.tensordot(mu + change, grams.grams, axes=1) ** 2
            return float(np.trace(Y.T @ np.linalg.inv(K + np.eye(40) / C) @ Y))

        steps = h * np.eye(5)
        H = [[F(a + b) - F(a - b) - F(b - a) + F(-a - b) for b in steps] for a in steps]
        eigenvalues = np.linalg.eigvalsh(H) / (4 * h**2)
        # Second differences: (h / size)^2 and rounding of F / h^2.
        atol = 1e-5 * np.abs(eigenvalues).max() + 1e-12 * F(0) / h**2
        np.testing.assert_allclose(
            bend_at(grams, target, mu, C), eigenvalues, rtol=0, atol=atol
        )
        assert atol < 1e-2 * np.abs(eigenvalues).max()


def test_small_weights_are_in_a_concave_region_and_one_kernel_of_great_weight_in_a_convex_one():
    grams, target = five_features()
    assert bend_at(grams, target, np.full(5, 0.01), 0.01)[0] < 0
    one = StackedGrams(grams.grams[:1])
    assert bend_at(one, target, np.array([0.01]), 0.01)[0] < 0
    assert bend_at(one, target, np.array([100.0]), 1.0)[0] >= 0


def test_convexity_of_diagonal_kernels_begins_at_the_root_of_a_third_of_lambda():
    rng = np.random.default_rng(0)
    first = rng.uniform(0.2, 0.8, 12)
    grams, target = (
        StackedGrams(np.stack([np.diag(first), np.diag(1 - first)])),
        Target.of(rng.normal(size=12)),
    )
    for share, holds in ((1.001, True), (0.999, False)):
        # Every diagonal entry of the sum is that share
        mu = np.full(2, share * np.sqrt(1 / 0.5 / 3))
        assert (bend_at(grams, target, mu, 0.5)[0] >= 0) == holds


def test_what_a_study_cannot_be_is_named():
    wine = {"source": "sklearn", "name": "wine"}
    surface = {"kind": "surface", "datasets": [wine]}
    part = {"datasets": [wine], "kernels": [{"family": "gaussian", "gammas": [1.0]}]}
    split = {"split": {"train": 50, "validation": 20, "test": 20}}
    base = {"kind": "base-kernels", "parts": [part]}
    table = [
        (SurfaceStudy, surface | {"columns": ["a"]}, "at least 2 items"),
        (SurfaceStudy, surface | {"columns": ["a", "b"], "upper": 0}, "greater than 0"),
        (BaseKernelsStudy, base | {"protocol": split}, "give 'folds'"),
    ]
    for study, data, sentence in table:
        with pytest.raises(ValidationError, match=sentence):
            study.model_validate(data)
