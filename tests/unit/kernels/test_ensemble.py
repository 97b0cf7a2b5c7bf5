"""The ensemble: left-out predictions by really leaving rows out, the combination, and both ways of evaluating it."""

from functools import partial
from itertools import cycle
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import sparse

from learnkernels import (
    FamilyUnion,
    FeatureFamily,
    GaussianFamily,
    LinearFamily,
    PolynomialFamily,
    gram_statistics,
)
from learnkernels.kernels.centering import center_cross_gram, center_gram
from learnkernels.kernels.families import KernelFamily
from learnkernels.kernels.learners import learn_from_statistics
from learnkernels.kernels.learners.ensemble import KernelEnsemble, leave_one_out
from learnkernels.kernels.predictors import ridge_path
from learnkernels.kernels.targets import Target
from tests.reference import bordered
from tests.refusals import require_refusals

GRID = np.array([1e-3, 0.1, 3.0, 100.0])

# One factorization against one solve a row: rounding times the condition of K + I / C,
# 1e4 or so here.
SOLVES = 1e-10

# The same by other sums; weights move with the condition of the hypotheses, which are
# alike: up to 1e5 here.
ALIKE = 1e-8


def data_set(family: KernelFamily, X, target: Target) -> SimpleNamespace:
    """Return a data set of which two of three fold groups train."""
    groups = np.random.default_rng(0).permutation(len(target)) % 3
    statistics = gram_statistics(family, X, target.Y, groups).restrict([0, 2])
    of = SimpleNamespace(
        family=family, X=X, target=target, statistics=statistics, rows=statistics.rows
    )
    of.others = np.setdiff1d(np.arange(len(target)), of.rows)
    of.fit = partial(KernelEnsemble.fit, family, X, statistics, target, grid=GRID)
    return of


def kernels(data: SimpleNamespace, rows: np.ndarray) -> list[np.ndarray]:
    """Return base kernels of rows with the training rows, centered on these, with a mean diagonal of one."""
    new, among = data.X[rows], data.X[data.rows]
    pairs = zip(
        data.family.tile(new, among), data.family.tile(among, among), strict=True
    )
    return [
        center_cross_gram(K_cross, K) * len(K) / np.trace(center_gram(K))
        for K_cross, K in pairs
    ]


def numbers(m: int, d: int, seed: int) -> np.ndarray:
    values = np.random.default_rng(seed).normal(size=(m, d)) + 0.7
    values.flags.writeable = False
    return values


X = numbers(48, 4, seed=1)
SIGNAL = (
    np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2] + 0.3 * numbers(48, 1, seed=2)[:, 0] + 5.0
)
TARGETS = {
    "regression": Target.of(SIGNAL),
    "two-outputs": Target.of(np.column_stack([SIGNAL, X[:, 3] ** 2 - 9.0])),
    "two-classes": Target.of(
        np.array(["low", "high"])[np.argsort(np.argsort(SIGNAL)) // 24]
    ),
    "three-classes": Target.of(
        np.array(list("abc"))[np.digitize(SIGNAL, np.quantile(SIGNAL, [0.3, 0.6]))]
    ),
}
FAMILIES = {
    "gaussian": GaussianFamily([0.05, 0.4, 2.0]),
    "union": FamilyUnion(
        [LinearFamily(), PolynomialFamily([2, 3], gamma=0.5, coef0=1.0)], [[0, 2], None]
    ),
    "features": FeatureFamily(4),
}


def of_gaussians(gammas, target: str = "regression") -> SimpleNamespace:
    return data_set(GaussianFamily(gammas), X, TARGETS[target])


# Left-out rows -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gamma", "q"), [(0.05, 3), (2.0, 1), (2.0, 3)])
def test_left_out_predictions_are_those_of_regressions_without_the_row(gamma, q):
    # The kernel of all rows, centered on them, stays as it is; a regression without a
    # row has its own intercept, which is solved for together with the coefficients.
    K = center_gram(GaussianFamily([gamma]).tile(X, X)[0])
    K *= len(K) / np.trace(K)
    Y = numbers(len(X), q, seed=3) + np.arange(q)
    left_out, found = leave_one_out(*np.linalg.eigh(K), Y, GRID)
    whole = ridge_path(K, Target.of(Y), GRID).dual
    np.testing.assert_allclose(found, whole, rtol=0, atol=SOLVES)
    for step, value in enumerate(GRID):
        for i in range(0, len(X), 5):
            others = np.delete(np.arange(len(X)), i)
            dual, intercept = bordered(K[np.ix_(others, others)], Y[others], 1 / value)
            expected = K[i, others] @ dual + intercept
            np.testing.assert_allclose(
                left_out[step, i] + Y[others].mean(axis=0),
                expected,
                rtol=0,
                atol=SOLVES,
            )


# The combination -----------------------------------------------------------------------------------------------------


SERVED = [
    "regression",
    "two-classes",
    "three-classes",
    "three-classes",
    "two-outputs",
    "regression",
]


@pytest.mark.parametrize(("family", "target"), list(zip(cycle(FAMILIES), SERVED)))
def test_predictions_are_the_weighted_sum_of_the_ridge_regressions(family, target):
    data = data_set(FAMILIES[family], X, TARGETS[target])
    ensemble = data.fit()
    as_numbers = Target("regression", data.target.Y).take(data.rows)
    scores = np.zeros(
        (len(GRID), len(data.others), as_numbers.Y.shape[1])
    ) + as_numbers.Y.mean(axis=0)
    for K, K_cross, weight in zip(
        kernels(data, data.rows),
        kernels(data, data.others),
        ensemble.weights.T,
        strict=True,
    ):
        scores += weight[:, None, None] * (
            K_cross @ ridge_path(K, as_numbers, GRID).dual
        )
    np.testing.assert_array_equal(ensemble.target.values, data.target.values[data.rows])
    predicted, expected = ensemble.predict(X[data.others]), data.target.decode(scores)
    np.testing.assert_allclose(predicted, expected, rtol=0, atol=ALIKE)
    # No hypothesis alone has a smaller error on left-out rows.
    assert (ensemble.errors[:, None] <= ensemble.single_errors * (1 + 1e-7)).all()
    assert (ensemble.errors < 0.999 * ensemble.single_errors.min(axis=1)).any()
    kernel = learn_from_statistics("unif", data.family, data.X, data.statistics)
    np.testing.assert_array_equal(ensemble.X, kernel.X)
    np.testing.assert_array_equal(ensemble.origin, kernel.origin)


@pytest.mark.parametrize("target", ["two-outputs", "three-classes"])
@pytest.mark.parametrize("gammas", [[0.05, 0.4, 2.0], [0.4, 0.401], [0.4]])
def test_weights_are_a_stationary_point_of_the_error_on_left_out_rows(gammas, target):
    data = of_gaussians(gammas, target)
    ensemble, Y = data.fit(), data.target.Y[data.rows]
    G = np.stack(
        [
            leave_one_out(*np.linalg.eigh(K), Y, GRID)[0]
            for K in kernels(data, data.rows)
        ],
        axis=-1,
    )
    ahead = Y - np.array([np.delete(Y, i, axis=0).mean(axis=0) for i in range(len(Y))])
    single_errors = np.sqrt(((ahead[..., None] - G) ** 2).mean(axis=(1, 2)))
    np.testing.assert_allclose(ensemble.single_errors, single_errors, rtol=1e-10)
    residual = ahead - np.einsum("lmqk,lk->lmq", G, ensemble.weights)
    np.testing.assert_allclose(
        ensemble.errors, np.sqrt((residual**2).mean(axis=(1, 2))), rtol=1e-7
    )
    slopes = np.einsum("lmqk,lmq->lk", G, residual)
    sizes = (
        np.linalg.norm(G, axis=(1, 2)) * np.linalg.norm(residual, axis=(1, 2))[:, None]
    )
    np.testing.assert_allclose(slopes / sizes, 0.0, rtol=0, atol=ALIKE)


def test_strong_regularization_does_not_turn_hypotheses_around():
    # The mean of the other rows falls as a row's own target rises. Least squares on
    # predictions that hold that mean would weigh a hypothesis by minus the number of
    # rows, and predict the opposite.
    ensemble = of_gaussians([0.4]).fit(grid=[1e-8])
    assert ensemble.weights[0, 0] > 0
    assert np.corrcoef(ensemble.predict(X)[0], SIGNAL)[0, 1] > 0.5


def test_a_kernel_given_twice_shares_its_weight_exactly_or_up_to_rounding():
    once, twice = (
        of_gaussians(gammas).fit() for gammas in ([1.0, 2.0], [1.0, 2.0, 2.0])
    )
    np.testing.assert_allclose(
        twice.weights[:, 1], once.weights[:, 1] / 2, rtol=0, atol=ALIKE
    )
    np.testing.assert_allclose(
        twice.weights[:, 1], twice.weights[:, 2], rtol=0, atol=ALIKE
    )
    # The Gaussian of the doubled parameter comes from that of the single one by a
    # square.
    twins = FamilyUnion(
        [GaussianFamily([2.0]), GaussianFamily([1.0, 2.0]), GaussianFamily([1.0])]
    )
    of_twins = data_set(twins, X, TARGETS["regression"]).fit()
    assert np.abs(of_twins.weights).max() <= np.abs(once.weights).max()
    for ensemble in (twice, of_twins):
        np.testing.assert_allclose(
            ensemble.predict(X), once.predict(X), rtol=0, atol=ALIKE
        )


@pytest.mark.parametrize("normalize", ["frobenius", "none"])
def test_other_scalings_are_the_trace_scaling_at_other_regularizations(normalize):
    # Of one kernel all scalings are the same; of several, the mean of the mean
    # diagonals is.
    one = of_gaussians([0.4])
    np.testing.assert_allclose(
        one.fit(normalize=normalize).predict(X),
        one.fit().predict(X),
        rtol=0,
        atol=SOLVES,
    )
    data = data_set(FAMILIES["union"], X, TARGETS["regression"])
    scales = {
        "frobenius": np.sqrt(np.diag(data.statistics.products())),
        "none": np.ones(3),
    }[normalize]
    sizes = data.statistics.traces() / scales
    ensemble = data.fit(normalize=normalize)
    for k, relative in enumerate(sizes / sizes.mean()):
        single = data.fit(grid=GRID * relative)
        np.testing.assert_allclose(
            ensemble.single_errors[:, k], single.single_errors[:, k], rtol=1e-9
        )


# Tiles and features --------------------------------------------------------------------------------------------------


FORMS = [np.asarray, sparse.csr_matrix, sparse.csr_matrix, sparse.csr_array]


@pytest.mark.parametrize(("target", "as_given"), list(zip(TARGETS, FORMS, strict=True)))
def test_features_are_the_linear_kernels_of_their_columns(target, as_given):
    counts, new = (
        np.random.default_rng(6).poisson(0.8, size=(m, 4)) * 1.0 for m in (len(X), 9)
    )
    linear = FamilyUnion([LinearFamily()] * 4, [[k] for k in range(4)])
    closed_form = data_set(FeatureFamily(4), as_given(counts), TARGETS[target]).fit()
    by_tiles = data_set(linear, counts, TARGETS[target]).fit()
    np.testing.assert_allclose(
        closed_form.weights, by_tiles.weights, rtol=0, atol=ALIKE
    )
    np.testing.assert_allclose(closed_form.errors, by_tiles.errors, rtol=0, atol=ALIKE)
    np.testing.assert_allclose(
        closed_form.predict(as_given(new)), by_tiles.predict(new), rtol=0, atol=ALIKE
    )


def test_a_feature_that_is_constant_on_the_training_rows_gets_weight_zero():
    data = data_set(
        FeatureFamily(5), np.column_stack([X, np.ones(len(X))]), TARGETS["regression"]
    )
    with_constant, without = (
        data.fit(),
        data_set(FeatureFamily(4), X, TARGETS["regression"]).fit(),
    )
    np.testing.assert_array_equal(with_constant.weights[:, 4], 0.0)
    np.testing.assert_allclose(
        with_constant.weights[:, :4], without.weights, rtol=0, atol=SOLVES
    )
    assert np.isfinite(with_constant.predict(data.X[data.rows] + 1.0)).all()


def test_more_features_than_rows_and_a_feature_of_one_row_are_no_trouble():
    rng = np.random.default_rng(7)
    counts = sparse.csr_matrix(rng.poisson(0.1, size=(30, 80)) * 1.0)
    ensemble = data_set(FeatureFamily(80), counts, Target.of(rng.normal(size=30))).fit()
    assert np.isfinite(ensemble.predict(counts)).all()
    # Without its only row a feature is constant, like one of no row, and predicts the
    # mean of the others for that row.
    held, values = ensemble.X.toarray() != 0, ensemble.target.values
    ahead = (values - values.mean()) * 20 / 19
    np.testing.assert_allclose(
        ensemble.single_errors[:, held.sum(axis=0) == 0],
        np.sqrt(np.mean(ahead**2)),
        rtol=1e-12,
    )
    for k in np.flatnonzero(held.sum(axis=0) == 1)[:5]:
        K = center_gram(np.outer(held[:, k], held[:, k]) * 1.0)
        left_out, _ = leave_one_out(
            *np.linalg.eigh(20 * K / np.trace(K)), values[:, None], GRID
        )
        np.testing.assert_allclose(left_out[:, held[:, k], 0], 0.0, rtol=0, atol=SOLVES)
        expected = np.sqrt(np.mean((ahead - left_out[..., 0]) ** 2, axis=1))
        np.testing.assert_allclose(ensemble.single_errors[:, k], expected, rtol=SOLVES)


@pytest.mark.parametrize("family", ["gaussian", "union"])
def test_the_size_of_the_tiles_changes_nothing(monkeypatch, family):
    data = data_set(
        FAMILIES[family], X, Target("regression", TARGETS["three-classes"].Y)
    )
    whole = data.fit()
    scores = whole.predict(X)
    for module in (
        "learnkernels.kernels.learners.ensemble",
        "learnkernels.kernels.engine.combination",
    ):
        monkeypatch.setattr(f"{module}.block_rows_for", lambda n_matrices: 7)
    again = data.fit()
    np.testing.assert_allclose(again.weights, whole.weights, rtol=0, atol=ALIKE)
    np.testing.assert_allclose(again.predict(X), scores, rtol=0, atol=ALIKE)


def test_what_does_not_fit_is_refused():
    data = of_gaussians([0.4])
    fewer = data.target.take(np.arange(47))
    grids, one_entry = (
        ([], [1.0, 0.0], [-1.0], [np.inf], [np.nan]),
        "one entry per row of X, got 47 for 48 rows",
    )
    table = [
        (lambda: data.fit(normalize="length"), "normalize must be one of"),
        (
            lambda: KernelEnsemble.fit(data.family, X, data.statistics, fewer, GRID),
            one_entry,
        ),
        (lambda: data.fit().predict(X[:, :3]), "features of the training rows, got 3"),
    ]
    require_refusals(
        table
        + [
            (partial(data.fit, grid=grid), "grid must hold positive values")
            for grid in grids
        ]
    )
