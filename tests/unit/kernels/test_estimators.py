"""The estimators: scikit-learn's own checks, and that they are the learners and predictors of the package."""

import copy
import pickle
import warnings
from dataclasses import replace
from functools import partial
from itertools import combinations

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.special import expit
from sklearn.base import clone
from sklearn.decomposition import KernelPCA
from sklearn.ensemble import HistGradientBoostingRegressor
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC
from sklearn.utils.estimator_checks import parametrize_with_checks

from learnkernels import (
    KernelLearningClassifier,
    KernelLearningRegressor,
    LearnedKernelTransformer,
    learn_kernel,
    load,
)
from learnkernels.kernels import families
from learnkernels.kernels.centering import center_cross_gram, center_gram
from learnkernels.kernels.estimators import (
    base,
    chunk_rows_for,
    default_family,
    fit_on_kernel,
    supervised,
)
from learnkernels.kernels.families import (
    FamilyUnion,
    FeatureFamily,
    GaussianFamily,
    LinearFamily,
)
from learnkernels.kernels.families.base import distinct_rows, drawn_rows
from learnkernels.kernels.learners import (
    CA,
    CR,
    L1SVM,
    L2KRR,
    LEARNERS,
    NKRR,
    RFM,
    as_learner,
    learn_path,
)
from learnkernels.kernels.model_selection.evaluation import KernelPredictors
from learnkernels.kernels.predictors import (
    KRR,
    Auto,
    ConjugateGradients,
    Nystroem,
    as_predictor,
    svm,
)
from learnkernels.kernels.predictors.base import TrainingSet
from learnkernels.kernels.predictors.calibration import (
    assign_calibration_folds,
    conformal_quantile,
    fit_sigmoid,
    probabilities,
)
from learnkernels.kernels.predictors.krr_cg import held_out_rows
from learnkernels.kernels.row_groups import RowGroups
from learnkernels.kernels.statistics.gram import gram_statistics
from learnkernels.kernels.targets import Target
from tests.reference import ridge_predictions
from tests.refusals import require_refusals
from tests.unit.conftest import peak_of
from tests.unit.kernels.test_serialization import FAMILIES

FAMILY = GaussianFamily([0.1, 0.4, 1.6])

# Rounding of solutions of systems of condition up to 1e4, on scores of order one.
SOLVES = 1e-9

# Machines are solved to 1e-9 of the margin; scores add some of that up.
MACHINES = 1e-6

# Residuals of 1e-12 on systems of condition up to 1e4, and the directions of landmarks
# that count as rounding.
ITERATED = 1e-7
CG, ALL_ROWS = ConjugateGradients(tol=1e-12), Nystroem(n_components=10_000, tol=1e-12)


def rows(m: int = 60, d: int = 3, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).normal(size=(m, d))


def labels(X: np.ndarray, names=("no", "yes"), seed: int = 0) -> np.ndarray:
    """Return as many classes as names, by noisy angle in the first two features."""
    noise = np.random.default_rng(seed).normal(scale=0.3, size=(2, len(X)))
    angle = np.arctan2(X[:, 1] + noise[0], X[:, 0] + noise[1]) + np.pi
    return np.array(names)[
        np.minimum(angle * len(names) / (2 * np.pi), len(names) - 1).astype(int)
    ]


def numbers(X: np.ndarray) -> np.ndarray:
    return np.sin(2 * X[:, 0]) * X[:, 1] + 3.0


def masked_signal(m: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """Return rows and numbers for which alignf-linear gives the second feature a negative weight."""
    signal, noise = np.random.default_rng(11).normal(size=(2, m))
    return np.column_stack([signal + noise, noise]), signal


NAMES = {"two": ("no", "yes"), "four": ("a", "b", "c", "d")}
DIFFERENCE = FamilyUnion([LinearFamily(), LinearFamily()], [[0], [1]])

X, X_NEW = rows(), rows(25, seed=1)
TWO, FOUR, NUMBERS = labels(X), labels(X, NAMES["four"]), numbers(X)
for array in (X, X_NEW, TWO, FOUR, NUMBERS):
    array.flags.writeable = False


def target_for(model) -> np.ndarray:
    return TWO if hasattr(model, "C") else NUMBERS


# scikit-learn's checks -----------------------------------------------------------------------------------------------


CHECKED = [
    KernelLearningClassifier(),
    KernelLearningRegressor(),
    LearnedKernelTransformer(),
]
CHECKED += [KernelLearningClassifier(predictor="krr", probability=True)]
CHECKED += [KernelLearningRegressor(learner="alignf", alpha=1.0)]


COPIES = "only ratios of weights count: copies, which add up to more rows, are the same with another C or alpha alone"


def expected_failures(estimator) -> dict[str, str]:
    """Checks that a weight counts as so many copies for one C; `test_a_weight_is_a_number_of_copies` has two."""
    if isinstance(estimator, LearnedKernelTransformer):
        return {}
    return dict.fromkeys(
        (
            f"check_sample_weight_equivalence_on_{kind}_data"
            for kind in ("dense", "sparse")
        ),
        COPIES,
    )


@parametrize_with_checks(CHECKED, expected_failed_checks=expected_failures)
def test_scikit_learn_checks_pass(estimator, check):
    check(estimator)


# Scores --------------------------------------------------------------------------------------------------------------


def unit_gram(kernel) -> tuple[np.ndarray, float]:
    """Return the Gram matrix of mean diagonal one, and what it was divided by."""
    K = kernel.gram()
    unit = np.trace(K) / len(K)
    return K / unit, unit


@pytest.mark.parametrize(("y", "C"), [(TWO, 0.1), (FOUR, 5.0)], ids=NAMES)
@pytest.mark.parametrize("predictor", ["svm", "krr", CG, ALL_ROWS], ids=str)
def test_a_classifier_is_that_of_the_matrix_of_the_learned_kernel(predictor, y, C):
    n = len(np.unique(y))
    model = KernelLearningClassifier(
        family=FAMILY, C=C, predictor=predictor, probability=False
    ).fit(X, y)
    assert (model.predictor_, model.predictor_reason_) == (
        as_predictor(predictor).name,
        "",
    )
    kernel = learn_kernel(X, y, learner="alignf", family=FAMILY)
    np.testing.assert_array_equal(model.weights_, kernel.weights)
    assert model.alignment_ == kernel.alignment
    K, unit = unit_gram(kernel)
    K_cross = kernel.cross_gram(X_NEW) / unit
    decision = model.decision_function(X_NEW)
    scores = model.kernel_.cross_gram(X_NEW) @ model.dual_coef_ + model.intercept_
    columns = 1 if n == 2 else n * (n - 1) // 2 if predictor == "svm" else n
    assert (scores.shape, model.intercept_.shape) == ((25, columns), (columns,))
    if predictor == "svm":
        machine = SVC(kernel="precomputed", C=C, tol=1e-9, break_ties=n > 2).fit(K, y)
        np.testing.assert_allclose(
            decision, machine.decision_function(K_cross), atol=MACHINES
        )
        predicted = machine.predict(K_cross)
    else:
        expected = ridge_predictions(K, Target.of(y).Y, C, K_cross).squeeze()
        np.testing.assert_allclose(
            decision, expected, rtol=0, atol=SOLVES if predictor == "krr" else ITERATED
        )
        predicted = model.classes_[
            (expected > 0).astype(int) if n == 2 else expected.argmax(axis=1)
        ]
    assert model.predict(X_NEW).tolist() == predicted.tolist()
    # Scores of pairs of classes become votes, which are compared above
    if columns in (
        1,
        n,
    ):
        np.testing.assert_allclose(decision, scores.squeeze(), rtol=0, atol=SOLVES)


@pytest.mark.parametrize("predictor", ["auto", CG, ALL_ROWS], ids=str)
def test_a_regression_is_the_ridge_regression_on_the_learned_kernel(predictor):
    many = np.column_stack([NUMBERS * (k + 1) + X[:, 2] for k in range(3)])
    for learner, y in (
        ("alignf", NUMBERS),
        ("alignf", many[:, :1]),
        ("alignf", many),
        ("l2-krr", many),
    ):
        model = KernelLearningRegressor(
            family=FAMILY, learner=learner, alpha=0.2, predictor=predictor
        ).fit(X, y)
        assert model.predictor_ == ("krr" if predictor == "auto" else predictor.name)
        one_stage = learner == "l2-krr"
        kernel = learn_kernel(
            X, y, learner=learner, family=FAMILY, C=5.0 if one_stage else None
        )
        K, unit = (kernel.gram(), 1.0) if one_stage else unit_gram(kernel)
        expected = ridge_predictions(K, y, 5.0, kernel.cross_gram(X_NEW) / unit)
        tolerance = SOLVES if predictor == "auto" else ITERATED
        np.testing.assert_allclose(
            model.predict(X_NEW), expected, rtol=0, atol=tolerance
        )


def test_a_machine_that_interior_points_solve_scores_alike(monkeypatch):
    models = [
        KernelLearningClassifier(family=FAMILY, C=10.0).fit(X, y) for y in (TWO, FOUR)
    ]
    monkeypatch.setattr(svm, "MAX_ITERATIONS", 3)
    for usual, y in zip(models, (TWO, FOUR), strict=True):
        assert svm._fit(
            unit_gram(usual.kernel_)[0], Target.of(y).values, 10.0, None, 1e-3
        ).exact
        exact = clone(usual).fit(X, y)
        np.testing.assert_allclose(
            exact.decision_function(X),
            usual.decision_function(X),
            rtol=0,
            atol=MACHINES,
        )
        np.testing.assert_allclose(
            exact.intercept_, usual.intercept_, rtol=0, atol=MACHINES
        )


@pytest.mark.parametrize("weighted", [False, True])
def test_a_kernel_with_negative_weights_is_projected(weighted):
    X, y = masked_signal(60)
    y = np.where(y > 0, "high", "low")
    w = (
        np.random.default_rng(0).integers(1, 4, size=60)
        if weighted
        else np.ones(60, dtype=int)
    )
    again = np.repeat(np.arange(60), w)
    eigenvalues, Q = np.linalg.eigh(
        learn_kernel(
            X[again], y[again], learner="alignf-linear", family=DIFFERENCE
        ).gram()
    )
    assert eigenvalues[0] < -1e-6
    K = (Q * np.maximum(eigenvalues, 0)) @ Q.T
    K /= np.trace(K) / len(K)
    for predictor in ("svm", "krr"):
        C = w.mean()  # as many rows weigh by as much more where they are repeated
        model = KernelLearningClassifier(
            family=DIFFERENCE,
            learner="alignf-linear",
            C=C,
            predictor=predictor,
            probability=False,
        )
        model.fit(X, y, sample_weight=w)
        assert model.kernel_.indefinite
        dual, intercept = (
            as_predictor(predictor)
            .fit_matrix(K, Target.of(y[again]), [1.0], fine=True)
            .coefficients()
        )
        scores = (
            model.kernel_.cross_gram(X[again]) @ model.dual_coef_ + model.intercept_
        )
        np.testing.assert_allclose(scores, K @ dual + intercept, rtol=0, atol=MACHINES)


@pytest.mark.parametrize(
    ("learner", "predictor"), [("l1-svm", "svm"), ("nkrr", "krr"), ("cr", "krr")]
)
def test_an_estimator_predicts_what_a_comparison_predicts(learner, predictor):
    family, target = None if learner == "cr" else FAMILY, Target.of(FOUR)
    model = KernelLearningClassifier(family=family, learner=learner, C=2.0).fit(X, FOUR)
    assert model.predictor_ == predictor
    if learner == "cr":
        path = [learn_kernel(X, FOUR, learner=learner, C=2.0)]
    else:
        path = learn_path(
            learner, FAMILY, X, gram_statistics(FAMILY, X, target.Y), target, [2.0]
        )
    compared = KernelPredictors(path, target, predictor, [2.0]).predict(X_NEW)[0]
    # Machines of a comparison stop at a tolerance of 1e-3, and ties of votes go to the
    # first class there.
    agreeing = np.mean(model.predict(X_NEW) == np.array(target.classes)[compared])
    assert agreeing >= (0.95 if predictor == "svm" else 1.0)


# Ridge regression on every learned kernel ----------------------------------------------------------------------------


POWERS = [
    (NKRR(degree=degree, offset=offset), family, centering)
    for degree in (1, 2, 3, 4)
    for offset in (0.0, 0.7)
    for centering in ("center", "target", "none")
    for family in (FAMILY, FeatureFamily(2))
]
SUMS = [
    (name, FAMILY if learner.takes_family else None, "center")
    for name, learner in LEARNERS.items()
    if learner.learns_kernel and not learner.signed
]
SUMS += [(name, FAMILY, "target") for name in ("unif", "l2-krr")] + [
    ("align", FAMILY, "none")
]
KINDS = ("numbers", "two classes", "three classes")
RIDGES = [(*case, KINDS[number % 3]) for number, case in enumerate(POWERS + SUMS)]
RIDGES += [
    ("lp-svm", FAMILY, "center", "two classes"),
    ("easymkl", FAMILY, "center", "three classes"),
]
RIDGES = [
    (*case, kind)
    for *case, kind in RIDGES
    if {"numbers": "regression"}.get(kind, "classification")
    in as_learner(case[0]).tasks
]


def ridge_problem(kind: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return rows of which some are there twice, their target, and its columns as a ridge regression takes them."""
    X = rows(40, 2, seed=4)[np.r_[:40, 3, 3, 5]]
    signal = (
        np.sin(2 * X[:, 0])
        + X[:, 1] ** 2
        + np.random.default_rng(7).normal(scale=0.3, size=43)
    )
    if kind == "numbers":
        return X, signal + 3.0, signal[:, None] + 3.0
    y = np.digitize(signal, [1.5] if kind == "two classes" else [0.0, 1.5])
    return (
        X,
        y,
        np.where(y, 1.0, -1.0)[:, None] if kind == "two classes" else np.eye(3)[y],
    )


def ridge_estimator(learner, family, centering: str, kind: str):
    """Return an estimator by ridge regression, with a ridge of one half."""
    options = {
        "family": family,
        "learner": learner,
        "centering": centering,
        "predictor": "krr",
    }
    if kind == "numbers":
        return KernelLearningRegressor(alpha=0.5, **options)
    return KernelLearningClassifier(C=2.0, probability=False, **options)


def weights_for(learner, X: np.ndarray) -> np.ndarray | None:
    """Return weights of rows for a learner that takes some."""
    return (
        np.random.default_rng(3).uniform(0.5, 3.0, len(X))
        if as_learner(learner).takes_weights
        else None
    )


@pytest.mark.parametrize(("learner", "family", "centering", "kind"), RIDGES, ids=str)
def test_an_estimator_is_the_ridge_regression_on_its_kernel(
    learner, family, centering, kind
):
    X, y, Y = ridge_problem(kind)
    X_new = rows(9, 2, seed=5)
    w = weights_for(learner, X)
    model = ridge_estimator(learner, family, centering, kind).fit(X, y, sample_weight=w)
    kernel = model.kernel_
    np.testing.assert_array_equal(kernel.rows, np.arange(len(X)))
    w = np.ones(len(X)) if w is None else w / w.mean()
    unit = np.average(np.diag(kernel.gram()), weights=w) if kernel.C is None else 1.0
    mean = (
        np.zeros(Y.shape[1])
        if centering == "none"
        else np.average(Y, axis=0, weights=w)
    )
    dual = np.linalg.solve(kernel.gram() / unit + 0.5 * np.diag(1 / w), Y - mean)
    expected = kernel.cross_gram(X_new) / unit @ dual + mean
    scores = (
        model.predict(X_new) if kind == "numbers" else model.decision_function(X_new)
    )
    # Entries of the fourth powers reach 1e3 times the ridge.
    np.testing.assert_allclose(
        scores.reshape(expected.shape),
        expected,
        rtol=0,
        atol=SOLVES * np.abs(expected).max(),
    )


@pytest.mark.parametrize(("learner", "family", "centering", "kind"), RIDGES, ids=str)
def test_left_out_scores_are_those_of_fits_without_the_row_and_its_copies(
    learner, family, centering, kind
):
    X, y, Y = ridge_problem(kind)
    w = weights_for(learner, X)
    kernel = (
        ridge_estimator(learner, family, centering, kind)
        .fit(X, y, sample_weight=w)
        .kernel_
    )
    training = TrainingSet.of(kernel, X, np.arange(len(X)))
    target = Target.of(y, "regression" if kind == "numbers" else "classification")
    positions, scores = KRR().fit(training, target, [2.0], fine=True).held_out()
    np.testing.assert_array_equal(positions, np.arange(len(X)))
    w = np.ones(len(X)) if w is None else w / w.mean()
    K = kernel.gram() / (
        np.average(np.diag(kernel.gram()), weights=w) if kernel.C is None else 1.0
    )
    centered = centering == "center" and kernel.degree == 1 and not kernel.offset
    expected = np.empty(Y.shape)
    for row in range(len(X)):
        others = np.flatnonzero((X[row] != X).any(axis=1))
        among, across = K[np.ix_(others, others)], K[[row]][:, others]
        if centered:  # as a fit on the other rows would be, which changes nothing but the centering
            among, across = (
                center_gram(among, w[others]),
                center_cross_gram(across, among, w[others]),
            )
        mean = (
            np.zeros(Y.shape[1])
            if centering == "none"
            else np.average(Y[others], axis=0, weights=w[others])
        )
        dual = np.linalg.solve(among + 0.5 * np.diag(1 / w[others]), Y[others] - mean)
        expected[row] = (across @ dual + mean)[0]
    np.testing.assert_allclose(
        scores, expected, rtol=0, atol=SOLVES * np.abs(expected).max()
    )


# Chunks --------------------------------------------------------------------------------------------------------------


def test_a_chunk_stays_below_its_bytes_and_depends_on_the_training_rows_alone():
    for m in (1, 2, 999, 1024, 1025, 50_000, 10**7):
        n = chunk_rows_for(m)
        assert n == 1 or 8 * n * m <= base.CHUNK_BYTES
        assert 1 <= n <= base.MOST_CHUNK_ROWS
        assert n & (n - 1) == 0
    assert chunk_rows_for(50_000) == 128


def test_batches_and_copies_have_the_bits_of_all_rows_at_once(monkeypatch):
    monkeypatch.setattr(base, "MOST_CHUNK_ROWS", 16)
    X_new = rows(83, seed=1)
    single = X_new.astype(np.float32)
    for model in (
        KernelLearningClassifier(family=FAMILY, probability=True),
        KernelLearningClassifier(family=FAMILY, predictor=Nystroem(n_components=20)),
        KernelLearningRegressor(learner="ca"),
        KernelLearningRegressor(family=FAMILY, learner=L2KRR(radius=2.0)),
        LearnedKernelTransformer(family=FAMILY, n_components=9, random_state=0),
    ):
        model.fit(X, target_for(model))
        copies = pickle.loads(pickle.dumps(model)), copy.deepcopy(model)
        for again in copies:
            assert (again.family_, again.learner) == (model.family_, model.learner)
        names = ("decision_function", "predict", "predict_proba", "transform")
        for name in filter(partial(hasattr, model), names):
            apply = getattr(model, name)
            whole = apply(X_new)
            for batch in (16, 48):
                parts = [apply(X_new[i : i + batch]) for i in range(0, 83, batch)]
                np.testing.assert_array_equal(np.concatenate(parts), whole)
            for again in (
                apply(np.asfortranarray(X_new)),
                *(getattr(one, name)(X_new) for one in copies),
            ):
                np.testing.assert_array_equal(again, whole)
            np.testing.assert_array_equal(apply(single), apply(single.astype(float)))


def test_memory_of_a_prediction_does_not_grow_with_its_rows(monkeypatch):
    X = rows(500)
    model = KernelLearningRegressor(family=FAMILY, alpha=1.0).fit(X, numbers(X))
    X_new = rows(16_000, seed=1)
    monkeypatch.setattr(base, "CHUNK_BYTES", 1 << 18)
    # The kernel with all new rows takes 64 MB; a chunk of it 0.25 MB and its tiles a
    # few more.
    assert peak_of(model.predict, X_new, before=(X_new[:64],)) < 8e6


# Sample weights ------------------------------------------------------------------------------------------------------


WEIGHTED = [
    (KernelLearningClassifier(family=FAMILY, C=3.0), sparse.csr_matrix),
    (
        KernelLearningClassifier(family=FAMILY, predictor="krr", probability=True),
        np.asarray,
    ),
    (
        KernelLearningClassifier(family=FAMILY, C=3.0, predictor=CG, probability=True),
        np.asarray,
    ),
    (KernelLearningClassifier(probability=True), sparse.csr_matrix),
    (KernelLearningClassifier(predictor=ALL_ROWS, probability=True), sparse.csr_matrix),
    (
        KernelLearningRegressor(family=FAMILY, learner="align", alpha=0.1),
        sparse.csr_matrix,
    ),
    (
        KernelLearningRegressor(
            family=FAMILY, learner="align", alpha=0.1, predictor=CG
        ),
        sparse.csr_matrix,
    ),
    (
        KernelLearningRegressor(
            family=FAMILY, learner="align", alpha=0.1, predictor=ALL_ROWS
        ),
        np.asarray,
    ),
]


def fitted_on_copies(model, weighted, X, y, w):
    """Fit on each row as often as its weight says, with the C of `weighted`: copies weigh by their mean number more."""
    index = np.random.default_rng(2).permutation(np.repeat(np.arange(len(w)), w))
    C = weighted.C_ / w[w > 0].mean()
    given = {"C": C} if hasattr(model, "C") else {"alpha": 1 / C}
    return clone(model).set_params(**given).fit(X[index], y[index])


@pytest.mark.parametrize(("model", "kind"), WEIGHTED)
def test_a_weight_is_a_number_of_copies(model, kind):
    kept, y = (
        np.random.default_rng(5).random((60, 3)) < 0.7,
        FOUR if hasattr(model, "C") else NUMBERS,
    )
    some, w = np.where(kept, X, 0.0), np.random.default_rng(1).integers(0, 4, size=60)
    weighted = clone(model).fit(kind(some), y, sample_weight=w)
    repeated = fitted_on_copies(model, weighted, kind(some), y, w)
    assert (weighted.family_, weighted.kernel_.X.shape[0]) == (
        repeated.family_,
        np.count_nonzero(w),
    )
    np.testing.assert_allclose(weighted.weights_, repeated.weights_, rtol=0, atol=1e-9)
    names = [
        name
        for name in ("decision_function", "predict_proba")
        if hasattr(weighted, name)
    ]
    for new in (X_NEW, kind(X_NEW)):
        for name in names or ["predict"]:
            expected, got = getattr(repeated, name)(new), getattr(weighted, name)(new)
            # The prior of probabilities counts rows, which copies are more of.
            atol = 0.05 if name == "predict_proba" else MACHINES
            np.testing.assert_allclose(got, expected, rtol=0, atol=atol)
        assert (
            not names
            or weighted.predict(new).tolist() == repeated.predict(new).tolist()
        )


def test_unit_weights_change_no_bit_and_serve_every_learner():
    for learner in ("alignf", "l2-krr"):
        model = KernelLearningRegressor(family=FAMILY, learner=learner)
        one, other = (
            clone(model).fit(X, NUMBERS, sample_weight=w).dual_coef_
            for w in (None, np.ones(60))
        )
        np.testing.assert_array_equal(one, other)


# Rows and labels -----------------------------------------------------------------------------------------------------


def test_labels_keep_their_type():
    for names in (("no", "yes"), (-3, 7), (False, True), (3, 1, 2), (2**40, 5, -1)):
        y = labels(X, names)
        model = KernelLearningClassifier(family=FAMILY).fit(X, y)
        assert (model.classes_.tolist(), model.predict(X).dtype) == (
            sorted(names),
            y.dtype,
        )
        assert model.score(X, y) > 0.7


def test_names_of_features_are_kept_and_asked_for():
    table, y = (
        pd.DataFrame(X, columns=["height", "width", "depth"]),
        pd.Series(TWO, dtype="category"),
    )
    model, plain = (
        KernelLearningClassifier(family=FAMILY).fit(given, y) for given in (table, X)
    )
    assert model.feature_names_in_.tolist() == ["height", "width", "depth"]
    np.testing.assert_array_equal(model.predict(table), plain.predict(X))
    np.testing.assert_array_equal(
        model.predict(table[["width", "height", "depth"]]), plain.predict(X)
    )
    fit_on_kernel(model, model.kernel_, TWO[model.kernel_.rows])
    assert not hasattr(model, "feature_names_in_")
    features = LearnedKernelTransformer(
        family=FAMILY, n_components=3, random_state=0
    ).set_output(transform="pandas")
    assert features.fit_transform(table, TWO).columns.tolist() == [
        f"learnedkerneltransformer{k}" for k in range(3)
    ]


def test_sparse_rows_are_rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 9)) * (rng.random((60, 9)) < 0.4)
    y = X @ np.arange(9.0) + 1.0
    union = FamilyUnion([LinearFamily(), GaussianFamily([0.1])])
    kinds = {
        sparse.csr_matrix: None,
        sparse.csc_array: FeatureFamily(9),
        sparse.coo_matrix: union,
    }
    for kind, family in kinds.items():
        dense, thin = (
            KernelLearningRegressor(family=family, learner="alignf").fit(as_rows, y)
            for as_rows in (X, kind(X))
        )
        assert sparse.issparse(thin.kernel_.X)
        np.testing.assert_allclose(
            thin.predict(kind(X)), dense.predict(X), rtol=0, atol=1e-9
        )


def test_the_tag_for_sparse_rows_follows_the_base_kernels():
    stored = FamilyUnion([LinearFamily(), families.PrecomputedFamily(np.eye(3)[None])])
    serving = [{}, {"learner": "ca"}, {"learner": "no such"}]
    others = [
        {"learner": CA(per_feature=True)},
        {"learner": CR(kind="laplacian")},
        {"family": stored},
    ]
    for params in (*serving, *others):
        model = KernelLearningClassifier(**params)
        assert model.__sklearn_tags__().input_tags.sparse is (params in serving)
        if params in others:
            with pytest.raises(
                TypeError, match=r"needs dense rows, got sparse ones\. Use X\.toarray"
            ):
                model.fit(sparse.csr_matrix(X), TWO)


def test_stored_matrices_are_learned_from_by_position():
    family = families.PrecomputedFamily(FAMILY.tile(X, X))
    model = KernelLearningClassifier(family=family, C=1.0).fit(family.X[:40], TWO[:40])
    expected = (
        KernelLearningClassifier(family=FAMILY, C=1.0)
        .fit(X[:40], TWO[:40])
        .decision_function(X[40:])
    )
    np.testing.assert_allclose(
        model.decision_function(family.X[40:]), expected, rtol=0, atol=MACHINES
    )
    assert cross_val_score(model, family.X, TWO, cv=3).min() > 0.5


@pytest.mark.parametrize("learner", ["alignf", "ca", "cr"])
def test_the_order_of_columns_and_rows_does_not_matter(learner):
    order = np.random.default_rng(0).permutation(60)
    one = KernelLearningClassifier(learner=learner, C=1.0).fit(X, TWO)
    two = KernelLearningClassifier(learner=learner, C=1.0).fit(
        X[order][:, [2, 0, 1]], TWO[order]
    )
    # Searched bandwidths settle to 1e-7, and weights follow.
    tolerance = MACHINES if learner == "alignf" else 1e-4
    np.testing.assert_allclose(
        two.decision_function(X[:, [2, 0, 1]]),
        one.decision_function(X),
        rtol=0,
        atol=tolerance,
    )


# Default base kernels ------------------------------------------------------------------------------------------------


def test_default_bandwidths_are_powers_of_two_around_the_median():
    X = rows(200, d=8)
    D = ((X[:, None] - X[None]) ** 2).sum(axis=2)[np.triu_indices(200, 1)]
    gammas = np.array(default_family(X).gammas)
    assert len(gammas) == 7
    np.testing.assert_array_equal(np.diff(np.log2(gammas)), 1.0)
    assert abs(np.log2(gammas[3] * np.median(D))) <= 0.5
    assert default_family(4 * X).gammas == tuple(gammas / 16)


def test_default_bandwidths_depend_on_the_set_of_rows_alone():
    X = rows(1500, d=4)
    expected = default_family(X)
    shuffled = X[np.random.default_rng(0).permutation(1500)]
    assert (
        default_family(np.repeat(shuffled, np.arange(1500) % 3 + 1, axis=0)) == expected
    )
    mostly_zero = np.vstack([X, np.tile(X[0], (20_000, 1))])
    assert default_family(mostly_zero) == expected
    assert default_family(sparse.csr_matrix(X)) == expected
    stored_zeros = sparse.csr_matrix(X)
    stored_zeros.data[::5] = 0.0
    first, which = distinct_rows(
        sparse.vstack([stored_zeros, sparse.csr_matrix(stored_zeros.toarray())]).tocsr()
    )
    assert len(first) == 1500
    np.testing.assert_array_equal(which[:1500], which[1500:])
    many = rows(20_000, d=2, seed=1)
    expected = default_family(many)
    assert default_family(np.repeat(many[::-1], 2, axis=0)) == expected
    assert default_family(sparse.csr_matrix(many)) == expected
    D = np.linalg.norm(many[:1000, None] - many[:1000], axis=2) ** 2
    assert abs(np.log2(expected.gammas[3] * np.median(D))) <= 0.6
    signed_zero = np.array([[0.0], [-0.0], [1.0]])
    assert default_family(signed_zero) == default_family(signed_zero[1:])


def test_default_bandwidths_of_many_rows_sort_few_of_them(monkeypatch):
    seen = []
    monkeypatch.setattr(
        base, "distinct_rows", lambda X: seen.append(X.shape[0]) or distinct_rows(X)
    )
    default_family(
        sparse.random_array(
            (50_000, 300), density=0.02, format="csr", rng=np.random.default_rng(0)
        )
    )
    assert seen == [base.MOST_SORTED]


def test_rows_without_distances_have_no_default_bandwidths():
    far = "X must have rows at distances whose squares are ordinary numbers, got a median of "
    table = [
        (
            np.ones((9, 2)),
            "X must hold at least two different rows to choose bandwidths by, got 9 equal ones; give f",
        ),
        (sparse.csr_matrix((9, 2)), "X must hold at least two different rows"),
        (rows(9) * 1e200, far + "inf"),
        (rows(9) * 1e-200, far + "0; scale"),
    ]
    fit = partial(KernelLearningRegressor(learner="alignf").fit, y=np.arange(9.0))
    require_refusals(
        (partial(act, X), said) for act in (default_family, fit) for X, said in table
    )


# Fitting on a kernel that was learned elsewhere ----------------------------------------------------------------------


def test_fitting_is_learning_the_kernel_and_fitting_on_it():
    models = [
        KernelLearningClassifier(family=FAMILY, probability=True),
        KernelLearningClassifier(family=FAMILY, learner="l1-svm", C=2.0),
    ]
    for model in [
        *models,
        KernelLearningRegressor(family=FAMILY, learner="l2-krr", alpha=0.5),
    ]:
        y = target_for(model)
        fitted = model.fit(X, y)
        apart = fit_on_kernel(clone(model), fitted.kernel_, y[fitted.kernel_.rows])
        names = ("dual_coef_", "intercept_", "weights_", "calibration_", "classes_")
        for name in filter(partial(hasattr, fitted), names):
            np.testing.assert_array_equal(getattr(apart, name), getattr(fitted, name))
        assert (apart.n_features_in_, apart.family_) == (3, FAMILY)
        np.testing.assert_array_equal(apart.predict(X), fitted.predict(X))


def test_a_kernel_or_rows_that_do_not_fit_the_estimator_are_refused():
    y, few = TWO, labels(rows(50))
    machines, kernel = (
        learn_kernel(X, y, learner=learner, family=FAMILY)
        for learner in ("l1-svm", "alignf")
    )
    same, model = (
        KernelLearningClassifier(family=FAMILY, learner="l1-svm"),
        KernelLearningClassifier(family=FAMILY),
    )
    stronger = KernelLearningClassifier(family=FAMILY, learner="l1-svm", C=3.0)
    table = [
        (
            same,
            machines,
            y[:7],
            None,
            "y an entry for each of these 60, got shapes () and (7,)",
        ),
        (stronger, machines, y, None, "learned with C = 1, and the e"),
        (
            same,
            machines,
            np.full(60, "no"),
            None,
            "y must hold at least two classes, got 1 class",
        ),
        (
            model,
            kernel,
            y,
            rows(60, 4),
            "X must have 3 features and more rows than 59, the last that the kernel",
        ),
        (
            model,
            kernel,
            few,
            rows(50),
            "y an entry for each of these 50, got shapes (50, 3) and (50,)",
        ),
        (model, kernel, y, X[0], "got shapes (3,) and (60,)"),
        (
            model,
            kernel,
            few,
            X,
            "y an entry for each of these 60, got shapes (60, 3) and (50,)",
        ),
    ]
    require_refusals(
        (
            (partial(fit_on_kernel, one, of, y, X=X), said)
            for one, of, y, X, said in table
        ),
        literal=True,
    )


def test_fitting_anew_forgets_probabilities():
    model = KernelLearningClassifier(family=FAMILY, probability=True).fit(X, TWO)
    model.set_params(probability=False).fit(X, TWO)
    assert not {"calibration_", "predict_proba"} & set(dir(model))
    with pytest.raises(NotFittedError):
        model.set_params(probability=True).predict_proba(X)


# Probabilities -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("weighted", [False, True])
def test_a_sigmoid_minimizes_its_loss(weighted):
    rng = np.random.default_rng(0)
    scores = rng.normal(size=200) * 40
    positive = rng.random(200) < expit(0.05 * scores - 1.0)
    w = rng.uniform(0.2, 3.0, size=200) if weighted else np.ones(200)
    n_plus, n_minus = w[positive].sum(), w[~positive].sum()
    t = np.where(positive, (n_plus + 1) / (n_plus + 2), 1 / (n_minus + 2))
    slope, offset = fit_sigmoid(scores, positive, w if weighted else None)
    p = expit(slope * scores + offset)
    # The loss is convex: it is least where its gradient is zero.
    np.testing.assert_allclose([w @ (p - t), (w * scores) @ (p - t)], 0.0, atol=1e-8)


def test_scores_that_separate_give_finite_probabilities_and_scores_that_mislead_their_shares():
    for scale in (1e-6, 1.0, 1e8):
        scores = scale * np.array([-2.0, -1.0, 1.0, 2.0, 3.0])
        slope, offset = fit_sigmoid(scores, scores > 0, None)
        assert slope > 0
        # The targets are 1/4 and 4/5; the gradient of the loss is zero.
        left = expit(slope * scores + offset) - [0.25, 0.25, 0.8, 0.8, 0.8]
        np.testing.assert_allclose(
            [left.sum(), left @ (scores / scale)], 0.0, atol=1e-9
        )
        assert fit_sigmoid(scores, scores < 0, None)[0] == 0.0
        assert fit_sigmoid(np.zeros(5), scores > 0, None)[0] == 0.0


CALIBRATED = [
    ("svm", TWO),
    ("svm", FOUR),
    ("krr", TWO),
    ("krr", FOUR),
    (CG, TWO),
    (ALL_ROWS, FOUR),
]


@pytest.mark.parametrize(("predictor", "y"), CALIBRATED)
def test_probabilities_are_fitted_on_scores_of_held_out_rows(predictor, y):
    model = KernelLearningClassifier(
        family=FAMILY, predictor=predictor, probability=True, C=2.0
    ).fit(X, y)
    kernel, Y = learn_kernel(X, y, learner="alignf", family=FAMILY), Target.of(y).Y
    K, _ = unit_gram(kernel)
    folds = assign_calibration_folds(kernel.X, np.unique(y, return_inverse=True)[1])
    # In closed form, each row by itself
    folds = np.arange(len(X)) if predictor == "krr" else folds
    scores, told = np.empty(Y.shape), np.arange(len(X))
    if predictor is CG:  # some rows
        told = held_out_rows(
            TrainingSet.of(kernel, X, np.arange(len(X))), Target.of(y), 0
        )
        folds = np.isin(np.arange(len(X)), told)
    for fold in np.unique(folds[told]):
        out, others = np.flatnonzero(folds == fold), np.flatnonzero(folds != fold)
        among, across = K[np.ix_(others, others)], K[np.ix_(out, others)]
        if predictor != "svm":  # with the best intercept for the rows it is fitted on
            among, across = center_gram(among), center_cross_gram(across, among)
        if predictor is ALL_ROWS:  # whose kernel is scaled by these rows, too
            among, across = (
                part * len(others) / np.trace(among) for part in (among, across)
            )
        if predictor == "svm":
            held_out = (
                SVC(kernel="precomputed", C=2.0, tol=1e-9)
                .fit(among, y[others])
                .decision_function(across)
            )
        else:
            held_out = ridge_predictions(among, Y[others], 2.0, across)
        scores[out] = held_out.reshape(len(out), -1)
    # Every class's score of every row counts.
    slope, offset = fit_sigmoid(scores[told].ravel(), Y[told].ravel() > 0, None)
    # The intercept moves to where both classes are as probable
    if y is TWO and predictor != "svm":
        plain = clone(model).set_params(probability=False).fit(X, y)
        np.testing.assert_allclose(
            model.intercept_, plain.intercept_ + offset / slope, rtol=1e-5
        )
        offset = 0.0
    np.testing.assert_allclose(
        model.calibration_, [slope, offset], rtol=1e-5, atol=1e-12
    )
    P = model.predict_proba(X_NEW)
    raw = expit(
        model.decision_function(X_NEW).reshape(25, -1) * model.calibration_[0]
        + model.calibration_[1]
    )
    expected = (
        np.column_stack([1 - raw, raw])
        if y is TWO
        else raw / raw.sum(axis=1, keepdims=True)
    )
    np.testing.assert_allclose(P, expected, rtol=1e-9)
    if y is FOUR:
        np.testing.assert_array_equal(
            model.classes_[P.argmax(axis=1)], model.predict(X_NEW)
        )


def test_probabilities_keep_the_order_of_scores_whose_sigmoids_underflow():
    P = probabilities(
        np.array([[-3000.0, -2000.0, -2001.0], [-1e6, -2e6, 5.0]]), np.array([1.0, 0.0])
    )
    np.testing.assert_allclose(P.sum(axis=1), 1.0, rtol=1e-12)
    np.testing.assert_allclose(
        P[0], [0.0, 1 / (1 + np.exp(-1)), np.exp(-1) / (1 + np.exp(-1))], rtol=1e-12
    )
    assert P[1].argmax() == 2


def test_calibration_folds_spread_classes_and_keep_copies_together():
    X = rows(100, d=2)
    codes = np.repeat([0, 1, 2, 3], [57, 40, 2, 1])
    folds = assign_calibration_folds(X, codes)
    for k in (0, 1):
        assert np.ptp(np.bincount(folds[codes == k], minlength=5)) <= 1
    assert (len(set(folds[codes == 2])), folds[-1]) == (2, -1)
    order = np.random.default_rng(0).permutation(300)
    repeated = assign_calibration_folds(
        np.repeat(X, 3, axis=0)[order], np.repeat(codes, 3)[order]
    )
    np.testing.assert_array_equal(repeated, np.repeat(folds, 3)[order])
    np.testing.assert_array_equal(
        assign_calibration_folds(sparse.csr_matrix(X), codes) < 0, folds < 0
    )


def test_a_class_of_one_row_has_a_probability():
    with_rare, y = np.vstack([X, [[9.0, 9.0, 9.0]]]), np.append(TWO, "rare")
    for predictor in ("svm", "krr"):
        model = KernelLearningClassifier(
            family=FAMILY, C=10.0, predictor=predictor, probability=True
        )
        P = model.fit(with_rare, y).predict_proba(with_rare)
        assert P[:, 1].argmax() == 60  # also where one is NaN, which comes first


# Transformer ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "learner", ["alignf", "l2-krr", NKRR(degree=2, offset=0.5), "ca"], ids=str
)
def test_all_components_give_the_gram_matrix(learner):
    for method in ("nystroem", "eigen"):
        model = LearnedKernelTransformer(
            family=None if learner == "ca" else FAMILY,
            learner=learner,
            n_components=60,
            method=method,
        )
        Z = model.fit_transform(X, NUMBERS)
        K = model.kernel_.gram()
        np.testing.assert_allclose(Z @ Z.T, K, rtol=0, atol=1e-9 * np.abs(K).max())
        # A bandwidth that ca finds, of 2e5 in the unit of squared distances, multiplies
        # the rounding of these.
        np.testing.assert_allclose(
            model.kernel_.cross_gram(X), K, rtol=0, atol=1e-9 * np.abs(K).max()
        )
        K_cross = model.kernel_.cross_gram(X_NEW)
        # New rows have parts along small eigenvalues, whose rounding their roots
        # amplify.
        np.testing.assert_allclose(
            model.transform(X_NEW) @ Z.T,
            K_cross,
            rtol=0,
            atol=1e-6 * np.abs(K_cross).max(),
        )


def test_landmarks_approximate_as_nystroems_formula_does():
    model = LearnedKernelTransformer(
        family=FAMILY, n_components=12, random_state=3
    ).fit(X, TWO)
    K, L = model.kernel_.gram(), model.landmarks_
    assert len(set(L.tolist())) == 12
    Z = model.transform(X)
    # The kernel is centered on the landmarks, then what comes of it on all rows.
    among = K[np.ix_(L, L)]
    cross = center_cross_gram(K[:, L], among)
    expected = center_gram(
        cross @ np.linalg.pinv(center_gram(among), hermitian=True) @ cross.T
    )
    np.testing.assert_allclose(Z @ Z.T, expected, rtol=0, atol=1e-8)
    others = clone(model).set_params(random_state=4).fit(X, TWO)
    assert others.landmarks_.tolist() != L.tolist()
    np.testing.assert_array_equal(clone(model).fit(X, TWO).transform(X), Z)


def test_eigen_components_are_kernel_principal_components():
    among = np.vstack([X, X_NEW])
    model = LearnedKernelTransformer(family=FAMILY, n_components=4, method="eigen").fit(
        X, NUMBERS
    )
    pca = KernelPCA(4, kernel="precomputed").fit(model.kernel_.gram())
    expected = pca.transform(model.kernel_.cross_gram(among))
    np.testing.assert_allclose(
        np.abs(model.transform(among)), np.abs(expected), rtol=0, atol=1e-8
    )
    few = LearnedKernelTransformer(family=LinearFamily(), method="eigen").fit_transform(
        X, NUMBERS
    )
    assert few.shape == (60, 3)  # as many as the rank


def test_features_are_of_mean_squared_length_one():
    far = X + np.array([5.0, 0.0, 0.0])
    for family in (
        None,
        FeatureFamily(3),
        families.PolynomialFamily([1, 2]),
        FamilyUnion([families.CosineFamily()]),
    ):
        Z = LearnedKernelTransformer(family=family, n_components=60).fit_transform(
            far, NUMBERS
        )
        np.testing.assert_allclose((Z**2).sum() / 60, 1.0, rtol=1e-9)
        np.testing.assert_allclose(Z.mean(axis=0), 0.0, atol=1e-7)


@pytest.mark.parametrize("learner", ["alignf", "alignf-linear"])
def test_ridge_regression_on_all_features_is_that_on_the_kernel(learner):
    """Features are of mean squared length one, as kernels are for the regressor: one alpha means the same to both."""
    X, y = masked_signal(80)
    at_once = KernelLearningRegressor(
        family=DIFFERENCE, learner=learner, alpha=0.3
    ).fit(X[:40], y[:40])
    assert at_once.kernel_.indefinite == (learner == "alignf-linear")
    on_rows = clone(at_once).set_params(predictor=ALL_ROWS).fit(X[:40], y[:40])
    np.testing.assert_allclose(
        on_rows.predict(X), at_once.predict(X), rtol=0, atol=ITERATED
    )
    for method in ("nystroem", "eigen"):
        features = LearnedKernelTransformer(
            family=DIFFERENCE, learner=learner, method=method, n_components=40
        )
        two_steps = make_pipeline(features, Ridge(alpha=0.3)).fit(X[:40], y[:40])
        np.testing.assert_allclose(
            two_steps.predict(X), at_once.predict(X), rtol=0, atol=1e-6
        )


def test_the_kind_of_target_is_seen_unless_it_is_given():
    count, outputs = np.arange(60) % 3, rows(60, d=2, seed=7)
    table = [
        (TWO, None, TWO),
        (count, None, count.astype(str)),
        (count, "regression", count + 0.5),
    ]
    table += [(NUMBERS, None, NUMBERS), (outputs, None, outputs)]
    for number, (y, task, learned_as) in enumerate(table):
        model = LearnedKernelTransformer(family=FAMILY, learner="align", task=task).fit(
            X, y
        )
        for given in ({"y": y, "task": task}, {"y": learned_as}):
            expected = learn_kernel(X, learner="align", family=FAMILY, **given).weights
            np.testing.assert_allclose(
                model.weights_, expected, rtol=1e-12, err_msg=f"row {number}"
            )


# Shown, and far rows -------------------------------------------------------------------------------------------------


def test_estimators_read_well():
    model = KernelLearningClassifier(family=GaussianFamily([2.0**-7, 0.5, 0.3]), C=10)
    assert (
        repr(model)
        == "KernelLearningClassifier(C=10, family=GaussianFamily([2**-7, 0.5, 0.3]))"
    )
    assert eval(repr(model)).get_params() == model.get_params()
    pipeline = make_pipeline(StandardScaler(), model)
    for shown in (model, pipeline, model.fit(X, TWO), pipeline.fit(X, TWO)):
        html = shown._repr_html_()
        assert "KernelLearningClassifier" in html
        assert "2**-7" in html


def test_one_row_far_out_spoils_neither_its_own_prediction_nor_others():
    """Its kernel with the others is zero at 1e3 and at 2e8: both models must predict the same."""
    X, new = rows(60), rows(20)
    y = numbers(X)
    y[7] = 5.0
    said = []
    for far in (1e3, 2e8):
        X[7] = far
        model = KernelLearningRegressor(
            family=GaussianFamily([0.5, 1.0, 2.0]), predictor="krr", alpha=0.01
        ).fit(X, y)
        said.append(
            np.concatenate(
                [model.predict(X), model.predict(X[7:8]), model.predict(new)]
            )
        )
    # Rows near zero are moved by a mean of 2e8 / 60, and keep 1e-9 of their digits.
    np.testing.assert_allclose(said[1], said[0], rtol=0, atol=1e-7)


# Families ------------------------------------------------------------------------------------------------------------


def test_a_family_can_be_pasted_back_and_is_made_of_its_parameters():
    # Large ones are told by their size
    for family in (family for family in FAMILIES if "<" not in repr(family)):
        again = eval(repr(family), vars(families))
        assert (again, hash(again), again.names) == (family, hash(family), family.names)
    stored = families.PrecomputedFamily(np.eye(3)[None].repeat(2, axis=0), ["a", "b"])
    for family in (*FAMILIES, stored):
        again = clone(family)
        assert again == family == type(family)(**family.get_params(deep=False))
        assert again is not family
        assert again.set_params(**family.get_params()) == family
    # Copies that scikit-learn makes for each fold would read mapped matrices into
    # memory.
    assert copy.deepcopy(stored) is stored
    again = clone(KernelLearningClassifier(family=stored)).family
    assert again == stored
    assert again.get_params()["matrices"] is stored.get_params()["matrices"]
    assert (
        repr(GaussianFamily(np.linspace(0.1, 1, 500))) == "GaussianFamily(<500 values>)"
    )
    assert (
        repr(FeatureFamily([f"n{k}" for k in range(5000)]))
        == "FeatureFamily(<5000 values>)"
    )
    assert (
        repr(families.PrecomputedFamily(np.eye(3)[None]))
        == "PrecomputedFamily(<1 matrices of 3 rows>)"
    )
    assert "scales=<array of shape (9, 5)>" in repr(
        families.ScaledFamily(GaussianFamily([1.0]), np.ones((9, 5)))
    )


def test_families_are_told_apart():
    different = {repr(family): family for family in FAMILIES}
    alike = [GaussianFamily([1.0]), families.LaplacianFamily([1.0]), [1.0]]
    alike += [families.PolynomialFamily([2], 0.1, coef0) for coef0 in (0.0, 1.0)]
    # Each of its own matrices
    alike += [families.PrecomputedFamily(np.eye(3)[None]) for _ in range(2)]
    for some in (different.values(), alike):
        assert not [(one, two) for one, two in combinations(some, 2) if one == two]


def test_what_is_derived_follows_the_parameters_that_are_set():
    family = GaussianFamily([0.5, 1.0])
    family.tile(X, X)
    assert family.set_params(gammas=[0.3]) is family
    assert family == GaussianFamily([0.3])
    np.testing.assert_array_equal(family.tile(X, X), GaussianFamily([0.3]).tile(X, X))
    assert FeatureFamily(2).set_params(features=5) == FeatureFamily(5)
    union = FamilyUnion([LinearFamily()]).set_params(
        families=[LinearFamily(), GaussianFamily([1.0])]
    )
    assert union.names == ("linear", "gaussian(gamma=1)")
    union.set_params(families__1__gammas=[2.0], columns=[[0], None])
    assert union.names == ("linear on columns 0", "gaussian(gamma=2)")
    scaled = families.ScaledFamily(GaussianFamily([1.0]), [[1.0]])
    scaled.set_params(base=LinearFamily(), scales=[[1.0], [2.0]])
    assert scaled.names == ("linear scaled 1", "linear scaled 2")
    matrices = families.PrecomputedFamily(np.eye(3)[None].repeat(2, axis=0), ["a", "b"])
    assert matrices.set_params(kernels=[1]).names == ("b",)
    with pytest.raises(ValueError, match="positions from 0 to 1"):
        matrices.set_params(kernels=[2])


# Refusals ------------------------------------------------------------------------------------------------------------


def test_a_parameter_out_of_its_range_is_refused_by_fit():
    sample = "sample must be 'auto' or a number of rows of at least 256, got "
    classifier, regressor = KernelLearningClassifier(), KernelLearningRegressor()
    transformer = LearnedKernelTransformer()
    table = [
        (
            classifier,
            {"learner": "ensemble"},
            "learner='ensemble' combines predictors and learns no kernel, so it is only",
        ),
        (
            classifier,
            {"predictor": "nystrm"},
            r"svm, got 'nystrm' \(did you mean 'nystroem'\?\).",
        ),
        (classifier, {"C": 0}, "C must be a positive, finite number, got 0"),
        (
            classifier,
            {"C": "1"},
            "C must be a positive, finite number or 'auto', got '1'",
        ),
        (
            regressor,
            {"learner": "l1-svm"},
            "l1-svm does not serve regression; use one of align, ",
        ),
        (
            regressor,
            {"learner": 3},
            "learner must be a name such as 'alignf' or a Learner such as .*, got int",
        ),
        (
            regressor,
            {"learner": "ca", "family": FAMILY},
            "takes no family. Remove family; the parameters of CA restrict the kernels",
        ),
        (
            regressor,
            {"family": "gaussian"},
            "got 'gaussian'; give an object such as GaussianFamily",
        ),
        (
            regressor,
            {"alpha": float("nan")},
            "alpha must be a positive, finite number, got nan",
        ),
        (
            regressor,
            {"alpha": np.inf},
            "alpha must be a positive, finite number, got inf",
        ),
        (
            regressor,
            {"normalize": "max"},
            "normalize must be one of trace, frobenius, none, got 'max'",
        ),
        (
            regressor,
            {"predictor": "svm"},
            "predictor 'svm' does not support regression. Use one of auto, krr, krr-cg, nystroem.",
        ),
        (
            regressor,
            {"predictor": [9]},
            "predictor must be a name such as 'auto' or a Predictor such as .*, got list",
        ),
        (
            regressor,
            {"predictor__n_component": 9},
            "Auto has no parameter 'n_component'. Did you mean 'n_components'\\? Its parameters are n_components, mem",
        ),
        (regressor, {"learner": "alingf"}, "did you mean 'alignf'"),
        (regressor, {"centering": "centre"}, "did you mean 'center'"),
        (
            regressor,
            {"predictor": Auto(n_components="9")},
            "n_components must be a whole number of at least 2, got '9'",
        ),
        (
            regressor,
            {"predictor": Auto(memory="2GB")},
            "memory must be a positive, finite number, got '2GB'",
        ),
        (regressor, {"sample": "some"}, sample + "'some'"),
        (regressor, {"sample": 10, "learner": "ca"}, sample + "10"),
        (
            regressor,
            {"sample": 256, "family": FeatureFamily(3)},
            "sample must be None where statistics of rank-one f",
        ),
        (
            transformer,
            {"n_components": 0},
            "n_components must be a whole number of at least 1, got 0",
        ),
        (
            transformer,
            {"n_components": 2.5},
            "n_components must be a whole number of at least 1, got 2.5",
        ),
        (
            transformer,
            {"method": "random"},
            "method must be one of nystroem, eigen, got 'random'",
        ),
        (
            transformer,
            {"task": "regresion"},
            "task must be one of classification, regression or None, .*'regression'",
        ),
        (
            transformer,
            {"task": "regression", "learner": "l1-svm"},
            "l1-svm does not serve regression",
        ),
    ]
    X = rows(300)
    y = {classifier: labels(X), regressor: numbers(X), transformer: np.arange(300) % 2}

    def fit(model, params):
        return clone(model).set_params(**params).fit(X, y[model])

    require_refusals(
        (partial(fit, model, params), said) for model, params, said in table
    )


def test_a_learner_in_the_place_of_the_family_and_the_reverse_are_refused():
    expected = "family must be a family of base kernels or None, got "
    some = "; give an object such as GaussianFamily([0.1, 1.0])."
    families_given = [
        ("alignf", "a learner; write learner='alignf'."),
        ("mine:Learner", "a learner; write learner='mine:Learner'."),
        (L2KRR(), "a learner; write learner=L2KRR()."),
        ("gaussian", f"'gaussian'{some}"),
        (GaussianFamily, f"the class GaussianFamily{some}"),
    ]
    table = []
    for family, got in families_given:
        table += [
            (partial(model.fit, X, TWO), expected + got)
            for model in (KernelLearningClassifier(family=family),)
        ]
        table += [
            (
                partial(LearnedKernelTransformer(family=family).fit, X, TWO),
                expected + got,
            )
        ]
        table += [
            (
                partial(learn_kernel, X, TWO, learner="alignf", family=family),
                expected + got,
            )
        ]
    learner = (
        "learner must be a name such as 'alignf' or a Learner such as Alignf(), got "
    )
    table += [
        (
            partial(learn_kernel, X, TWO, learner=FAMILY, family="alignf"),
            f"{learner}{FAMILY!r}; pass base kernels as family.",
        ),
        (
            partial(KernelLearningClassifier(learner=L2KRR).fit, X, TWO),
            learner + "the class L2KRR.",
        ),
    ]
    require_refusals(table, literal=True)


def test_a_parameter_that_does_not_exist_is_refused_with_those_that_do():
    makers = {
        KernelLearningRegressor: ("C", "alpha"),
        KernelLearningClassifier: ("alpha", "C"),
    }
    for kind, (wrong, right) in makers.items():
        for act in (kind, kind().set_params):
            with pytest.raises((TypeError, ValueError)) as caught:
                act(**{wrong: 1.0})
            assert (
                str(caught.value)
                == f"{kind.__name__} has no parameter {wrong!r}. Use {right}, which is 1 / {wrong}."
            )
            with pytest.raises((TypeError, ValueError)) as caught:
                act(lerner="alignf")
            names = ", ".join(kind().get_params(deep=False))
            sentence = f"{kind.__name__} has no parameter 'lerner'. Did you mean 'learner'? Its parameters are "
            assert str(caught.value).startswith(sentence)
            assert sorted(
                str(caught.value).removeprefix(sentence).rstrip(".").split(", ")
            ) == sorted(names.split(", "))
    require_refusals(
        [
            (
                lambda: KernelLearningRegressor(learner="alignf").set_params(
                    learner__foo=1
                ),
                "Alignf takes no parameters, got 'foo'.",
            ),
            (
                lambda: KernelLearningRegressor(family=FAMILY).set_params(
                    family__gamma=1
                ),
                "GaussianFamily has no parameter 'gamma'. Did you mean 'gammas'? Its parameters are gammas.",
            ),
        ],
        literal=True,
    )


AT_FIT = "Pass a DataFrame, whose missing values are imputed, or impute them first."
AT_PREDICT = (
    "Impute them, or fit the model on a DataFrame, whose missing values are imputed."
)
TEXT = "and an array must hold numbers. Pass a DataFrame, whose columns of text become categories."


@pytest.mark.parametrize(
    "kind",
    [KernelLearningClassifier, KernelLearningRegressor, LearnedKernelTransformer],
)
def test_rows_that_are_not_finite_numbers_are_refused_with_their_place(kind):
    gaps = X.copy()
    gaps[[3, 5, 7], [2, 2, 0]] = np.nan
    infinite = np.where(np.isnan(gaps), np.inf, X)
    texts = X.astype(object)
    texts[:, 1] = np.where(X[:, 1] > 0, "blue", "red")
    first, y = texts[0, 1], TWO if kind is KernelLearningClassifier else NUMBERS
    model = kind(family=FAMILY).fit(X, y)
    use = model.transform if kind is LearnedKernelTransformer else model.predict
    missing, large = (
        "Input X contains NaN in 3 of 60 rows ",
        "Input X contains infinity in 3 of 60 rows ",
    )
    table = []
    for act, advice in (
        (partial(kind(family=FAMILY).fit, y=y), AT_FIT),
        (use, AT_PREDICT),
    ):
        table += [
            (partial(act, gaps), f"{missing}(columns 0, 2). {advice}"),
            (
                partial(act, sparse.csr_array(gaps)),
                f"{missing}(columns 0, 2). {advice}",
            ),
            (partial(act, infinite), f"{large}(columns 0, 2). Replace these values."),
            (partial(act, texts), f"X holds text, such as {first!r}, {TEXT}"),
            (partial(act, texts.tolist()), f"X holds text, such as {first!r}, {TEXT}"),
        ]
    table += [
        (
            partial(use, pd.DataFrame(gaps, columns=["a", "b", "c"])),
            f"{missing}(columns 'a', 'c'). {AT_PREDICT}",
        )
    ]
    with pytest.warns(UserWarning, match="feature names"):
        require_refusals(table, literal=True)
    with_gaps = kind().fit(pd.DataFrame(gaps), y)  # as the sentence says
    with_texts = kind().fit(pd.DataFrame(texts).infer_objects(), y)
    assert with_gaps.table_ is not None
    assert with_texts.table_ is not None


def test_what_was_not_asked_for_is_no_attribute_and_the_reason_is_told():
    absent = [
        (
            KernelLearningClassifier(family=FAMILY, probability=False).fit(X, TWO),
            "predict_proba",
            "probability=True",
        ),
        (
            KernelLearningRegressor(family=FAMILY, intervals=False).fit(X, NUMBERS),
            "predict_interval",
            "intervals=True",
        ),
        (
            KernelLearningRegressor(family=FAMILY, intervals=False).fit(X, NUMBERS),
            "predict_quantiles",
            "intervals=True",
        ),
    ]
    for model, name, setting in absent:
        assert not hasattr(model, name)
        with pytest.raises(AttributeError) as caught:
            getattr(model, name)
        assert (
            str(caught.value.__cause__)
            == f"{name} is only available with {setting}, before fit."
        )


def test_sample_weights_count_in_probabilities_even_if_class_weights_cancel_them():
    y = np.arange(200) % 2
    X = np.random.default_rng(0).normal(size=(200, 2)) + 0.5 * y[:, None]
    sample_weight = np.where(y == 1, 0.1, 1.0)
    model = KernelLearningClassifier(
        family=GaussianFamily([1.0]), predictor="krr", class_weight={0: 1.0, 1: 10.0}
    )
    nearly = sample_weight * np.where(np.arange(200) == 0, 1 + 1e-9, 1.0)
    found, expected = (
        model.fit(X, y, sample_weight=weights).predict_proba(X)
        for weights in (sample_weight, nearly)
    )
    # The weights differ by 1e-9.
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_weights_that_are_none_or_not_served_are_refused():
    ones, seventh = np.ones(60), np.arange(60) == 7
    table = [
        (
            {},
            np.ones(5),
            r"sample_weight must have one entry per row, got shape \(5,\) for 60 rows",
        ),
        ({}, ones[:, None], r"got shape \(60, 1\)"),
        (
            {},
            np.where(seventh, -1.0, 1.0),
            "sample_weight must be finite and not negative, got -1 for row 7",
        ),
        (
            {},
            np.where(seventh, np.nan, 1.0),
            "sample_weight must be finite and not negative, got nan for row 7",
        ),
        (
            {},
            0 * ones,
            "sample_weight must be positive for at least 2 rows, got zero, or .*, for all but 0 of 60",
        ),
        ({}, np.eye(60)[0], "sample_weight must be positive for at least 2 rows"),
        (
            {"sample": "auto"},
            np.arange(60),
            "sample must be None where rows have weights, got 'auto'; ",
        ),
    ]
    once = " does not support sample_weight or class_weight. Use a learner that does: rfm, or a two-stage learner"
    table += [
        ({"learner": name}, np.arange(60), name + once)
        for name in ("l2-krr", "ca", "cr", "single-stage")
    ]
    fits = [
        (partial(KernelLearningRegressor(**given).fit, X, NUMBERS, w), said)
        for given, w, said in table
    ]
    require_refusals(fits)


def test_a_target_that_cannot_be_learned_is_refused():
    classes, ones = LearnedKernelTransformer(task="classification"), np.ones(60)
    table = [
        (KernelLearningClassifier(), NUMBERS, "Unknown label type: continuous"),
        (
            KernelLearningClassifier(),
            ones,
            "y must hold at least two classes, got 1 class",
        ),
        (
            LearnedKernelTransformer(),
            ones,
            r"y must hold at least two classes, got only \[1.0\]",
        ),
        (classes, NUMBERS, "Unknown label type: continuous"),
        (
            classes,
            np.arange(120).reshape(60, 2) % 4,
            "y must be one column of labels for classification, got shape",
        ),
    ]
    require_refusals((partial(model.fit, X, y), said) for model, y, said in table)


def test_samples_have_a_few_rows_of_each_class_and_are_uniform_if_these_do():
    is_rare = np.isin(np.arange(5000), [7, 1200, 2600, 4100, 4900])
    values = np.where(is_rare, 3.0, 0.0)
    copies = RowGroups(np.arange(5000) // 2)
    with_rare = (
        Target.of(is_rare),
        Target.of(values, "regression"),
        Target.of(np.column_stack([values, 2.0 * values]), "regression"),
        replace(Target.of(is_rare), row_groups=copies),
    )
    uniform = (
        Target.of(np.arange(5000) % 3),
        Target.of(np.arange(5000.0), "regression"),
        Target.of(np.arange(5000) % 1000, "classification"),
    )
    for seed in range(5):
        for target in with_rare:
            drawn = target.sample(1500, seed)
            assert is_rare[drawn].sum() == 5
            assert len(np.unique(drawn)) == 1500
            assert (np.diff(drawn) > 0).all()
        for target in uniform:
            np.testing.assert_array_equal(
                target.sample(1500, seed), drawn_rows(5000, 1500, seed)
            )
        np.testing.assert_array_equal(
            replace(uniform[0], row_groups=copies).sample(1500, seed),
            copies.sample(1500, seed),
        )


@pytest.mark.parametrize("task", ["classification", "regression"])
def test_classes_of_a_sample_are_counted_once(task, monkeypatch):
    drawn = []
    strata = Target._strata

    def noted(target, rows):
        drawn.append(len(rows))
        return strata(target, rows)

    monkeypatch.setattr(Target, "_strata", noted)
    is_rare = np.arange(5000) % 1000 == 7
    assert is_rare[Target.of(is_rare.astype(float), task).sample(1500, 0)].sum() == 5
    assert drawn == [1500]


RARE = np.setdiff1d(
    np.random.default_rng(0).permutation(600)[250:],
    np.union1d(drawn_rows(600, 100, 0), drawn_rows(600, 300, 0)),
)[:6]
"""Rows that uniform samples of 100, 250 and 300 rows lack."""


@pytest.mark.parametrize(
    "estimator", [KernelLearningClassifier, KernelLearningRegressor]
)
@pytest.mark.parametrize(
    ("options", "n_rare"),
    [
        ({"learner": RFM(search_rows=100)}, 6),
        ({"learner": RFM(search_rows=100), "sample": 300}, 6),
        ({"time_limit": 1e-9}, 5),
    ],
)
def test_a_rare_class_or_number_reaches_each_step_of_a_fit(options, n_rare, estimator):
    many = rows(600)
    many[RARE] += 4.0
    y = np.isin(np.arange(600), RARE) * 1.0
    with warnings.catch_warnings(record=True):
        warnings.simplefilter("always")
        model = estimator(**options).fit(many, y)
    assert y[model.kernel_.rows].sum() == n_rare
    values = model.predict(many)
    if estimator is KernelLearningClassifier:
        values = model.predict_proba(many)[:, 1]
    assert values[RARE].min() > values[y == 0].max()


def test_learners_and_weighted_machines_that_end_early_warn_through_the_estimator(
    monkeypatch,
):
    with pytest.warns(ConvergenceWarning, match="l1-svm"):
        KernelLearningClassifier(
            family=FAMILY, learner=L1SVM(max_iter=1, tol=1e-14)
        ).fit(X, TWO)
    monkeypatch.setattr(svm, "MAX_WEIGHTED_ITERATIONS", 3)
    with pytest.warns(
        ConvergenceWarning,
        match="ended after 3 iterations, before its tolerance of 1e-09; use a small",
    ):
        KernelLearningClassifier(family=FAMILY, C=1.0).fit(
            X, TWO, sample_weight=np.arange(1, 61)
        )


# Intervals -----------------------------------------------------------------------------------------------------------


WITH_INTERVALS = [
    {"learner": "alignf"},
    {"predictor": "nystroem"},
    {"learner": "nkrr", "family": FeatureFamily(3)},
]


@pytest.mark.parametrize("params", WITH_INTERVALS)
def test_intervals_hold_as_many_new_targets_as_they_say(params):
    rng = np.random.default_rng(0)
    X, noise = rng.normal(size=(1500, 3)), rng.standard_t(3, size=1500)
    y = X[:, 0] * X[:, 1] + 0.5 * noise
    model = KernelLearningRegressor(**params).fit(X[:300], y[:300])
    for alpha in (0.1, 0.5):
        low, high = model.predict_interval(X[300:], alpha).T
        np.testing.assert_allclose(
            (low + high) / 2, model.predict(X[300:]), rtol=0, atol=1e-9
        )
        # 300 residuals and 1,200 targets: three standard deviations of the difference
        # of two shares.
        spread = 3 * np.sqrt(alpha * (1 - alpha) * (1 / 300 + 1 / 1200))
        assert np.mean((y[300:] < low) | (y[300:] > high)) == pytest.approx(
            alpha, abs=spread
        )
    sentence = "alpha must be between 0.00332, as 300 residuals are known, and 1, got"
    require_refusals(
        [
            (partial(model.predict_interval, X, alpha), sentence)
            for alpha in (0.0, 1.0, 0.001, [0.1, 0.2])
        ]
    )


def test_ranks_of_residuals_are_those_of_exact_fractions():
    for n in (9, 19, 99, 199, 999):
        residuals = np.arange(1.0, n + 1)[:, None]
        for numerator in range(1, n + 1):
            alpha = numerator / (n + 1)
            quantile = conformal_quantile(residuals, alpha)
            assert quantile is not None
            assert quantile.tolist() == [n + 1 - numerator]
        assert conformal_quantile(residuals, 0.999 / (n + 1)) is None
        least = conformal_quantile(residuals, 1.0 - 1e-15)
        assert least is not None
        assert least.tolist() == [1.0]


def test_residuals_are_those_of_fits_without_the_row_and_its_copies():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(12, 2))[np.r_[:12, 3, 3, 5]]
    y = np.column_stack([X[:, 0] + rng.normal(size=15), X[:, 1] ** 2])
    for family in (FAMILY, FeatureFamily(2)):
        model = KernelLearningRegressor(family=family, learner="unif", alpha=0.3).fit(
            X, y
        )
        K, expected = model.kernel_.gram(), []
        K /= np.trace(K) / 15
        for row in range(15):
            others = np.flatnonzero((X[row] != X).any(axis=1))
            among, across = K[np.ix_(others, others)], K[[row]][:, others]
            among, across = center_gram(among), center_cross_gram(across, among)
            expected.append(
                y[row] - ridge_predictions(among, y[others], 1 / 0.3, across)[0]
            )
        np.testing.assert_allclose(
            model.residuals_, np.sort(np.abs(expected), axis=0), rtol=0, atol=1e-9
        )
    assert model.predict_interval(X, 0.2).shape == (15, 2, 2)
    assert not hasattr(model.set_params(intervals=False).fit(X, y), "residuals_")
    i = np.arange(1200.0)[:, None]
    many = KernelLearningRegressor(family=FAMILY, learner="unif", alpha=0.3).fit(
        i % 7 + X[:1], y[:1].repeat(1200, 0) * i
    )
    assert many.residuals_.shape == (999, 2)


def test_a_time_limit_fits_samples_of_the_rows_until_the_next_would_take_too_long(
    capsys, monkeypatch
):
    monkeypatch.setattr(supervised, "FIRST_ROWS", 50)
    X, noise = np.split(np.random.default_rng(0).normal(size=(70, 3)), [2], axis=1)
    y = np.sign(X[:, 0]) + 0.1 * noise[:, 0]
    labels = np.where(np.arange(70) == 69, "rare", np.where(y > 0, "high", "low"))
    for model, target in (
        (KernelLearningRegressor(), y),
        (KernelLearningClassifier(), labels),
    ):
        with pytest.warns(
            UserWarning, match="time_limit=1e-09: fitted on a sample of 50 of 70 rows"
        ):
            sample = (
                clone(model).set_params(time_limit=1e-9, verbose=True).fit(X, target)
            )
        told = capsys.readouterr().out
        assert "50 of 70 rows" in told
        assert "krr is fitted" in told
        rows = sample.kernel_.rows
        assert sample.n_samples_fit_ == len(np.unique(rows)) == 50
        np.testing.assert_array_equal(sample.kernel_.X, X[rows])
        assert set(target[rows]) == set(target) or target is y
        expected = clone(model).fit(X[rows], target[rows])
        np.testing.assert_array_equal(sample.dual_coef_, expected.dual_coef_)
        whole, unlimited = (
            clone(model).set_params(time_limit=1e6).fit(X, target),
            clone(model).fit(X, target),
        )
        assert whole.n_samples_fit_ == 70
        np.testing.assert_array_equal(whole.dual_coef_, unlimited.dual_coef_)
        with pytest.raises(
            ValueError, match="time_limit must be a positive, finite number, got 0"
        ):
            clone(model).set_params(time_limit=0).fit(X, target)
    assert not capsys.readouterr().out


BOOSTED = {"boost": HistGradientBoostingRegressor(max_iter=5), "learner": "rfm"}


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (
            KernelLearningRegressor(**BOOSTED),
            [
                "metrics of round 1 on",
                "rfm learned",
                "selected C = ",
                "boosted trees on 160",
                "krr is fitted",
            ],
        ),
        (
            KernelLearningRegressor(family=FAMILY, predictor="krr-cg"),
            [
                "alignf learned",
                "selected C = ",
                "50 columns of the matrix",
                "krr-cg is fitted",
            ],
        ),
        (
            KernelLearningRegressor(family=FAMILY, alpha=1.0, predictor="nystroem"),
            [
                "alignf learned",
                "fitting 160 rows for scores of 40 held-out rows",
                "nystroem is fitted",
            ],
        ),
        (
            KernelLearningClassifier(family=FAMILY, C=1.0, predictor="svm"),
            [
                "alignf learned",
                "support vector machine on 200 rows, C = 1",
                "for scores of 40 held-out",
                "svm is",
            ],
        ),
    ],
    ids=str,
)
def test_a_verbose_fit_prints_its_steps_in_order(model, expected: list[str], capsys):
    Z = np.random.default_rng(0).normal(size=(200, 3))
    y = Z[:, 0] + np.sign(Z[:, 1])
    if isinstance(model, KernelLearningClassifier):
        y = y > 0
    quiet = clone(model).fit(Z, y)
    assert not capsys.readouterr().out
    verbose = clone(model).set_params(verbose=True).fit(Z, y)
    lines = capsys.readouterr().out.splitlines()
    assert all(line.startswith(f"{type(model).__name__}, ") for line in lines)
    positions = [
        next((i for i, line in enumerate(lines) if text in line), text)
        for text in expected
    ]
    assert positions == sorted(positions), lines
    np.testing.assert_array_equal(verbose.dual_coef_, quiet.dual_coef_)
    quiet.fit(Z, y)
    assert not capsys.readouterr().out


@pytest.mark.parametrize("y", [np.full(60, 2.5), np.tile([1.0, -3.0], (60, 1))])
def test_a_constant_target_is_predicted(y: np.ndarray):
    with pytest.warns(UserWarning, match="y is constant, so no kernel is learned"):
        model = KernelLearningRegressor().fit(X[:60], y)
    np.testing.assert_array_equal(
        model.predict(X_NEW), np.broadcast_to(y[0], (len(X_NEW), *y.shape[1:]))
    )
    np.testing.assert_array_equal(
        model.predict_interval(X_NEW)[:, 0], model.predict(X_NEW)
    )


@pytest.mark.parametrize("kind", [np.asarray, sparse.csr_matrix])
def test_a_constant_target_of_equal_rows_is_predicted(kind, tmp_path):
    with pytest.warns(UserWarning, match="y is constant, so no kernel is learned"):
        model = KernelLearningRegressor().fit(kind(np.ones((30, 3))), np.full(30, 2.5))
    np.testing.assert_array_equal(model.predict(kind(X_NEW)), np.full(25, 2.5))
    np.testing.assert_array_equal(model.predict_interval(kind(X_NEW)), 2.5)
    assert not model.feature_importances_.any()
    model.save(tmp_path / "model.safetensors")
    restored = load(tmp_path / "model.safetensors")
    np.testing.assert_array_equal(restored.predict(kind(X_NEW)), np.full(25, 2.5))
