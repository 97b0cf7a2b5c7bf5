"""Groups and times of rows: what chooses and what is tested is never of one group, nor out of order."""

import datetime

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.base import clone
from sklearn.datasets import make_blobs
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.model_selection import GroupKFold, cross_validate

from learnkernels import (
    FeatureFamily,
    GaussianFamily,
    KernelLearningClassifier,
    KernelLearningRegressor,
)
from learnkernels.kernels.centering import Centering, center_gram
from learnkernels.kernels.learners import learn_kernel
from learnkernels.kernels.learners.rfm_metrics import (
    Examples,
    left_out_gradients,
    radial_kernel,
)
from learnkernels.kernels.model_selection.folds import assign_blocks, assign_folds
from learnkernels.kernels.predictors import as_predictor
from learnkernels.kernels.predictors.base import TrainingSet
from learnkernels.kernels.predictors.calibration import held_out_splits
from learnkernels.kernels.predictors.krr_cg import held_out_rows
from learnkernels.kernels.row_groups import (
    Panel,
    RowGroups,
    as_row_groups,
    find_panel,
    near_duplicates,
)
from learnkernels.kernels.solvers.factor import LeaveOneOut
from learnkernels.kernels.targets import Target

FAMILY = GaussianFamily([0.1, 1.0])


def data(m: int = 60, d: int = 3, n_groups: int = 14, seed: int = 0):
    """Rows, two targets and the group of each row."""
    rng = np.random.default_rng(seed)
    return (
        rng.normal(size=(m, d)),
        rng.normal(size=(m, 2)),
        rng.integers(0, n_groups, m),
    )


def ridge_predictions(K, cross, Y, w, ridge, centering):
    """Predictions of a weighted kernel ridge regression, by one linear system."""
    A = K + ridge * np.diag(1 / w)
    if centering is not Centering.CENTER:
        intercept = (
            np.average(Y, axis=0, weights=w) if centering is Centering.TARGET else 0.0
        )
        return cross @ np.linalg.solve(A, Y - intercept) + intercept
    ones = np.ones((len(K), 1))
    solution = np.linalg.solve(
        np.block([[A, ones], [ones.T, np.zeros((1, 1))]]),
        np.vstack([Y, np.zeros((1, Y.shape[1]))]),
    )
    return cross @ solution[:-1] + solution[-1]


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("centering", list(Centering))
def test_left_out_residuals_are_those_of_refits(centering, weighted, ordered):
    X, Y, numbers = data()
    w = (
        np.random.default_rng(1).uniform(0.5, 2.0, len(X))
        if weighted
        else np.ones(len(X))
    )
    K = np.exp(-np.square(X[:, None] - X).sum(axis=2))
    groups = RowGroups(numbers, ordered)
    expected = np.full_like(Y, np.nan)
    splits = groups.splits(5)
    if not ordered:
        splits = [
            (np.flatnonzero(numbers != g), np.flatnonzero(numbers == g))
            for g in np.unique(numbers)
        ]
    for training, test in splits:
        among = K[np.ix_(training, training)]
        predictions = ridge_predictions(
            among, K[np.ix_(test, training)], Y[training], w[training], 0.3, centering
        )
        expected[test] = Y[test] - predictions
    path = LeaveOneOut(
        centering.gram(K, w), Y, w if weighted else None, centering, groups
    )
    np.testing.assert_allclose(path.at(0.3).residuals, expected, rtol=1e-7)
    loss = np.nansum(w * np.square(expected).sum(axis=1))
    assert path.at(0.3).loss == pytest.approx(loss, rel=1e-9)


ROWS_HELD_OUT = {"rows": None, "groups": False, "time": True}


@pytest.mark.parametrize("ordered", ROWS_HELD_OUT.values(), ids=ROWS_HELD_OUT)
@pytest.mark.parametrize("n_outputs", [1, 2])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("centering", list(Centering))
def test_conjugate_gradients_predict_held_out_rows_with_the_intercept_of_the_others(
    centering, weighted, n_outputs, ordered
):
    X, Y, numbers = data(300)
    Y = Y[:, :n_outputs] + 5.0 * (numbers >= 10)[:, None]
    w = np.ones(300)
    if weighted:
        w = np.random.default_rng(1).uniform(0.5, 2.0, 300)
        w /= w.mean()
    kernel = learn_kernel(
        X,
        Y,
        learner="unif",
        family=FAMILY,
        sample_weight=w if weighted else None,
        task="regression",
        centering=centering,
    )
    groups = None if ordered is None else RowGroups(numbers, ordered)
    rows, scores = (
        as_predictor("krr-cg", tol=1e-12)
        .fit(
            TrainingSet.of(kernel, None, np.arange(300)),
            Target("regression", Y, row_groups=groups),
            [4.0],
            fine=True,
        )
        .held_out()
    )
    others = np.setdiff1d(np.arange(300), rows)
    K = kernel.gram()
    expected = ridge_predictions(
        K[np.ix_(others, others)],
        K[np.ix_(rows, others)],
        Y[others],
        w[others],
        np.average(K.diagonal(), weights=w) / 4.0,
        centering,
    )
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-8)


def test_residuals_of_the_last_times_are_those_of_predictions_from_earlier_ones():
    t = np.arange(600)
    X = (t / 600)[:, None]
    y = 5.0 * (t >= 480) + 0.1 * np.random.default_rng(0).normal(size=600)
    given = {"family": GaussianFamily([30.0]), "learner": "unif", "alpha": 0.01}
    model = KernelLearningRegressor(predictor="krr-cg", **given).fit(X, y, time=t)
    past = KernelLearningRegressor(predictor="krr", **given).fit(X[:480], y[:480])
    expected = np.median(np.abs(y[480:] - past.predict(X[480:])))
    np.testing.assert_allclose(np.median(model.residuals_), expected, rtol=0.02)


def test_groups_of_one_row_change_no_residual_and_no_gradient():
    X, Y, _ = data()
    K, slopes = radial_kernel(X)
    plain = LeaveOneOut(K, Y).at(0.3)
    grouped = LeaveOneOut(K, Y, row_groups=RowGroups(np.arange(len(X))[::-1])).at(0.3)
    np.testing.assert_allclose(grouped.residuals, plain.residuals, rtol=1e-9)
    for one, other in zip(
        left_out_gradients(X, slopes, plain),
        left_out_gradients(X, slopes, grouped),
        strict=True,
    ):
        np.testing.assert_allclose(other, one, rtol=0, atol=1e-10)


def test_gradients_are_those_of_regressions_without_the_group():
    X, Y, numbers = data()
    K, slopes = radial_kernel(X)
    gradients = list(
        left_out_gradients(
            X, slopes, LeaveOneOut(K, Y, row_groups=RowGroups(numbers)).at(0.3)
        )
    )
    for row in (0, 7, 31):
        others = np.flatnonzero(numbers != numbers[row])
        alpha = (
            LeaveOneOut(center_gram(K[np.ix_(others, others)]), Y[others]).at(0.3).alpha
        )
        expected = 2 * (slopes[row, others, None] * alpha).T @ (X[row] - X[others])
        found = np.stack([of_output[row] for of_output in gradients])
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("n_groups", [2, 3, 14, 60])
@pytest.mark.parametrize("task", ["classification", "regression"])
@pytest.mark.parametrize("ordered", [False, True])
def test_no_split_divides_a_group_or_looks_ahead(ordered, task, n_groups):
    X, Y, _ = data()
    numbers = np.random.default_rng(2).permutation(np.arange(60) % n_groups)
    groups = RowGroups(numbers, ordered)
    y = Y[:, 0] if task == "regression" else (Y[:, 0] > 0).astype(int)
    target = Target(
        task, y, () if task == "regression" else ("a", "b"), row_groups=groups
    )
    splits = [*groups.splits(5), *held_out_splits(X, target)]
    positions = np.column_stack([np.arange(60.0), X[:, 1:]])
    for training, test in Examples(positions, target.Y, None, groups).splits(0):
        splits.append((training.X[:, 0].astype(int), test.X[:, 0].astype(int)))
    kernel = learn_kernel(X, y, learner="alignf", family=FAMILY)
    held_out = held_out_rows(TrainingSet.of(kernel, None, np.arange(60)), target, 0)
    splits.append((np.setdiff1d(np.arange(60), held_out), held_out))
    for training, test in splits:
        assert min(len(training), len(test)) > 0
        assert not np.intersect1d(numbers[training], numbers[test]).size
        if ordered:
            assert numbers[training].max() < numbers[test].min()


@pytest.mark.parametrize("ordered", [False, True])
@pytest.mark.parametrize("name", ["krr", "nystroem", "svm", "monomials"])
def test_held_out_scores_do_not_depend_on_the_targets_of_their_group(name, ordered):
    X, Y, numbers = data()
    family = FeatureFamily(3) if name == "monomials" else FAMILY
    task = "classification" if name == "svm" else "regression"
    y = (Y[:, 0] > 0).astype(int) if name == "svm" else Y[:, 0]
    classes = ("a", "b") if name == "svm" else ()
    kernel = learn_kernel(X, y, learner="unif", family=family, task=task)
    training = TrainingSet.of(kernel, None, np.arange(len(X)))
    predictor = as_predictor("krr" if name == "monomials" else name)
    groups = RowGroups(numbers, ordered)
    last = numbers.max()
    changed = y.copy()
    swapped = np.flatnonzero(numbers == last)
    changed[swapped] = changed[swapped][::-1] if name == "svm" else 5.0
    scores = []
    for values in (y, changed):
        path = predictor.fit(
            training, Target(task, values, classes, row_groups=groups), [1.0], fine=True
        )
        rows, found = path.held_out()
        full = np.full((len(X), found.shape[1]), np.nan)
        full[rows] = found
        scores.append(full)
    of_group = numbers == last
    if ordered:
        of_group |= groups.blocks(6) == groups.blocks(6).max()
    assert np.isfinite(scores[0][of_group]).all()
    # Conjugate gradients
    np.testing.assert_allclose(
        scores[1][of_group], scores[0][of_group], rtol=0, atol=1e-6
    )


def test_comparisons_and_estimators_draw_the_same_folds():
    _, Y, numbers = data(200)
    y = Target.of(np.where(Y[:100].ravel() > 0, "up", "down"))
    folds = assign_folds(y, 5, 3, numbers)
    for fold, (_, test) in enumerate(RowGroups(numbers).splits(5, 3, y.values)):
        np.testing.assert_array_equal(test, np.flatnonzero(folds == fold))
    np.testing.assert_array_equal(
        RowGroups(numbers, True).blocks(5), assign_blocks(y, 5, numbers)
    )


def test_copies_join_groups_unless_most_rows_would_be_in_one():
    joined = RowGroups(np.array([0, 0, 1, 1, 2, 2, 3, 3])).joined_by(
        np.array([0, 1, 1, 2, 3, 4, 5, 6])
    )
    np.testing.assert_array_equal(joined.numbers, [0, 0, 0, 0, 1, 1, 2, 2])
    groups = RowGroups(np.array([0, 0, 1, 1, 2, 2]))
    assert groups.joined_by(np.zeros(6, dtype=int)) is groups


@pytest.mark.parametrize(
    "estimator", [KernelLearningRegressor, KernelLearningClassifier]
)
def test_near_copies_in_groups_are_not_interpolated(estimator):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(100, 4))
    signal = X @ [0.6, -0.5, 0.4, 0.3]
    y = signal + 1.5 * rng.normal(size=100)
    copies = np.repeat(np.arange(100), 4)
    X_copies = X[copies] + 0.1 * rng.normal(size=(400, 4))
    y_copies = y[copies] + 0.15 * rng.normal(size=400)
    X_new = rng.normal(size=(500, 4))
    truth = X_new @ [0.6, -0.5, 0.4, 0.3]
    if estimator is KernelLearningClassifier:
        y_copies = y_copies > 0
    model = estimator().fit(X_copies, y_copies, groups=copies)
    scores = model._scores(X_new)[:, 0]
    # 100 noisy rows; 0.4 and less without groups
    assert np.corrcoef(scores, truth)[0, 1] > 0.7
    assert 1 / model.C_ > 1.0


def test_intervals_cover_rows_of_new_groups():
    """Each group has an effect, and its features reveal the group."""
    rng = np.random.default_rng(0)
    X_groups = rng.normal(size=(60, 5))
    effects = rng.normal(size=60)
    member = np.repeat(np.arange(60), 8)
    X = X_groups[member] + 0.05 * rng.normal(size=(480, 5))
    y = X[:, 0] + effects[member] + 0.3 * rng.normal(size=480)
    training = member < 40
    model = KernelLearningRegressor().fit(
        X[training], y[training], groups=member[training]
    )
    bounds = model.predict_interval(X[~training], alpha=0.2)
    covered = (bounds[:, 0] <= y[~training]) & (y[~training] <= bounds[:, 1])
    assert covered.mean() > 0.6  # 20 groups: a standard error of about 0.09 below 0.8


def test_rows_may_come_in_any_order():
    X, Y, _ = data(120, 3)
    time = np.arange(120)
    order = np.random.default_rng(0).permutation(120)
    y = Y[:, 0] + X[:, 0]
    model = KernelLearningRegressor().fit(X, y, time=time)
    shuffled = KernelLearningRegressor().fit(X[order], y[order], time=time[order])
    np.testing.assert_allclose(
        shuffled.predict(X[:20]), model.predict(X[:20]), rtol=0, atol=1e-6
    )
    assert shuffled.alpha_ == model.alpha_


@pytest.mark.parametrize(
    "time",
    [
        np.arange(60.0),
        pd.Series(pd.date_range("2024-01-01", periods=60, tz="Europe/Berlin")),
        [datetime.date(2024, 1, 1) + datetime.timedelta(days=day) for day in range(60)],
        np.arange("2024-01-01", "2024-03-01", dtype="datetime64[D]"),
    ],
)
def test_times_are_numbers_or_dates(time):
    np.testing.assert_array_equal(as_row_groups(None, time, 60).numbers, np.arange(60))


BAD = [
    (
        {"groups": [0, 1]},
        "groups must have one entry per row, got shape \\(2,\\) for 60 rows",
    ),
    (
        {"groups": ["a", None] * 30},
        "groups must have no missing values, got 30 of 60, the first in row 1",
    ),
    ({"time": [np.nan, *range(59)]}, "time must have no missing values, got 1 of 60"),
    (
        {"time": pd.Series([pd.NaT, *pd.date_range("2024", periods=59)])},
        "time must have no missing values, got 1",
    ),
    (
        {"groups": pd.array(["a", "b", pd.NA] * 20, dtype="string[python]")},
        "groups must have no missing values, got 20 of 60, the first in row 2",
    ),
    (
        {"time": pd.array([*range(59), pd.NA], dtype="Int64").astype(object)},
        "time must have no missing values, got 1 of 60, the first in row 59",
    ),
    (
        {"groups": [7] * 60},
        "groups must have at least two different values, got only 7",
    ),
    ({"time": np.ones(60)}, "time must have at least two different values, got only 1"),
    ({"groups": range(60), "time": range(60)}, "groups and time cannot be combined"),
    (
        {"time": ["2024-01-01"] * 30 + ["2024-01-02"] * 30},
        "time must hold numbers or datetimes, got",
    ),
    ({"groups": [1, "a"] * 30}, "groups must hold values of one type, got int and str"),
]


@pytest.mark.parametrize(("arguments", "sentence"), BAD)
@pytest.mark.parametrize(
    "estimator", [KernelLearningRegressor, KernelLearningClassifier]
)
def test_wrong_groups_and_times_are_refused_in_a_sentence(
    estimator, arguments, sentence
):
    X, _, _ = data()
    arguments = {
        name: np.array(values, dtype=object) if name == "groups" else values
        for name, values in arguments.items()
    }
    with pytest.raises(ValueError, match=sentence):
        estimator().fit(X, np.arange(60) % 2, **arguments)


def test_classes_that_only_late_rows_have_are_refused():
    X, _, _ = data()
    y = np.where(np.arange(60) < 55, np.arange(60) % 2, 2)
    with pytest.raises(
        ValueError,
        match="time must leave each class rows before the last 10 of 60 rows, got none",
    ):
        KernelLearningClassifier().fit(X, y, time=np.arange(60))


def test_groups_that_are_the_classes_are_refused():
    X, _, _ = data()
    with pytest.raises(ValueError, match="groups must divide at least one class"):
        KernelLearningClassifier().fit(X, np.arange(60) % 3, groups=np.arange(60) % 3)


@pytest.mark.parametrize("predictor", ["krr", "svm", "nystroem"])
def test_a_class_of_one_group_has_probabilities(predictor):
    X, _, numbers = data()
    y = np.where(numbers < 2, 2, np.arange(60) % 2)
    y[numbers == 1] = 0
    model = KernelLearningClassifier(family=FAMILY, predictor=predictor).fit(
        X, y, groups=numbers
    )
    np.testing.assert_allclose(model.predict_proba(X).sum(axis=1), 1.0, rtol=1e-9)


def test_groups_must_differ_among_the_rows_with_a_weight():
    X, Y, _ = data()
    with pytest.raises(
        ValueError, match="two different values among the rows with a positive weight"
    ):
        KernelLearningRegressor().fit(
            X, Y, sample_weight=np.arange(60) < 30, groups=np.arange(60) < 30
        )


@pytest.mark.parametrize("kind", ["groups", "time"])
@pytest.mark.parametrize("learner", ["rfm", "l2-krr", "alignf"])
@pytest.mark.parametrize("predictor", ["krr", "krr-cg", "nystroem", "svm"])
def test_each_predictor_fits_with_groups_and_times(predictor, learner, kind):
    if learner == "l2-krr" and predictor == "svm":
        pytest.skip("a ridge regression learns its weights with krr")
    # Rows tell their group, whose label is random
    rng = np.random.default_rng(0)
    numbers = np.arange(120) // 3
    X = rng.normal(size=(40, 3))[numbers] + 0.3 * rng.normal(size=(120, 3))
    y = rng.permutation(np.arange(40) % 2)[numbers]
    alone = KernelLearningClassifier(learner=learner, predictor=predictor).fit(X, y)
    model = clone(alone).fit(X, y, **{kind: numbers})
    confidence, confidence_alone = (
        fitted.predict_proba(X).max(axis=1).mean() for fitted in (model, alone)
    )
    assert confidence < confidence_alone - 0.05


def test_groups_are_routed_as_metadata():
    X, Y, numbers = data()
    with sklearn.config_context(enable_metadata_routing=True):
        model = KernelLearningRegressor().set_fit_request(groups=True)
        result = cross_validate(
            model,
            X,
            Y[:, 0],
            cv=GroupKFold(3),
            params={"groups": numbers},
            error_score="raise",
        )
    assert len(result["test_score"]) == 3


# Near-duplicates -----------------------------------------------------------------------------------------------------


def near_copies(
    copies: int = 4, d: int = 6, m: int = 150, noise: float = 0.1, seed: int = 0
):
    """Rows of normal features, each several times with a little noise, and the row that each comes from."""
    rng = np.random.default_rng(seed)
    origin = np.repeat(np.arange(m), copies)
    return rng.normal(size=(m, d))[origin] + noise * rng.normal(
        size=(m * copies, d)
    ), origin


@pytest.mark.parametrize("copies", [2, 4, 8])
@pytest.mark.parametrize("noise", [1e-9, 0.01, 0.1])
def test_clusters_of_near_duplicates_are_found(copies, noise):
    X, origin = near_copies(copies, noise=noise)
    order = np.random.default_rng(1).permutation(len(X))
    groups = near_duplicates(X[order] * [1, 1e3, 1e-3, 5, 1, 1] + [0, 1e4, 0, 0, 9, 0])
    together = groups.numbers[:, None] == groups.numbers
    expected = origin[order, None] == origin[order]
    assert (together == expected).mean() > 0.999
    assert together[expected].mean() > 0.9


ORDINARY = {
    "normal": lambda rng, d: rng.normal(size=(600, d)),
    "heavy tails": lambda rng, d: rng.standard_t(2, size=(600, d)),
    "few values": lambda rng, d: rng.integers(0, 4, size=(600, d)).astype(float),
    "one number beside few values": lambda rng, d: np.column_stack(
        [rng.normal(size=600), rng.integers(0, 3, size=(600, d - 1))]
    ),
    "copies": lambda rng, d: np.repeat(rng.normal(size=(150, d)), 4, axis=0),
    "evenly spaced": lambda rng, d: np.column_stack(
        [np.arange(600.0), rng.normal(size=(600, d - 1))]
    ),
    "five broad clusters": lambda rng, d: (
        9 * rng.integers(0, 5, size=(600, 1)) + rng.normal(size=(600, d))
    ),
    "constant": lambda rng, d: np.ones((600, d)),
}


@pytest.mark.parametrize("d", [1, 2, 4, 12])
@pytest.mark.parametrize("kind", ORDINARY)
def test_ordinary_rows_are_no_near_duplicates(kind, d):
    assert near_duplicates(ORDINARY[kind](np.random.default_rng(0), d)) is None


def test_near_duplicates_are_not_interpolated(capsys):
    X, origin = near_copies()
    rng = np.random.default_rng(1)
    coefficients = np.array([0.6, -0.5, 0.4, 0.3, 0.2, -0.3])
    y = (X[::4] @ coefficients + 1.5 * rng.normal(size=150))[
        origin
    ] + 0.15 * rng.normal(size=600)
    X_new = rng.normal(size=(1000, 6))
    model = KernelLearningRegressor(verbose=True).fit(X, y)
    error = np.sqrt(np.mean((model.predict(X_new) - X_new @ coefficients) ** 2))
    assert error < 0.6  # 0.5 here; 0.8 where leave-one-out chooses alpha
    assert model.alpha_ > 1.0
    assert abs(model.n_groups_ - 150) < 15
    assert f"{model.n_groups_} groups" in capsys.readouterr().out
    assert KernelLearningRegressor().fit(X[::4], y[::4]).n_groups_ is None


def panel_of(rng, n_units=50, n_years=4):
    """Rows of units that repeat in all columns but the year, in random order."""
    frame = pd.DataFrame(rng.normal(size=(n_units, 3)), columns=["a", "b", "c"])
    frame["kind"] = rng.choice(["x", "y", "z"], size=n_units)
    frame = frame.loc[np.repeat(np.arange(n_units), n_years)]
    frame["day"] = np.tile(
        pd.date_range("2020-01-01", periods=n_years, freq="367D"), n_units
    )
    return frame.sample(frac=1, random_state=0)


@pytest.mark.parametrize(
    "estimator", [KernelLearningRegressor, KernelLearningClassifier]
)
def test_a_panel_without_groups_is_warned_of(estimator):
    table = panel_of(np.random.default_rng(0))
    y = (table["a"].to_numpy() + np.random.default_rng(1).normal(size=200) > 0) * 1
    expected = "^rows of 50 units are equal in all columns but 'day'; errors and inter"
    with pytest.warns(UserWarning, match=expected):
        estimator().fit(table, y)
    with pytest.warns(UserWarning, match="all columns but 'x1'"):
        estimator().fit(
            np.column_stack([table["a"], table["day"].dt.year, table["b"]]), y
        )
    units = np.unique(table["a"], return_inverse=True)[1]
    assert estimator().fit(table, y, groups=units).n_groups_ == 50


def columns_of(X):
    return [slice(column, column + 1) for column in range(X.shape[1])]


@pytest.mark.parametrize("d", [1, 2, 4, 12])
@pytest.mark.parametrize("kind", ORDINARY)
def test_ordinary_rows_are_no_panel(kind, d):
    X = ORDINARY[kind](np.random.default_rng(0), d)
    assert find_panel(X, columns_of(X), [True] * X.shape[1]) is None


def test_a_panel_is_found_by_equality_of_all_other_columns():
    rng = np.random.default_rng(0)
    units = np.repeat(rng.normal(size=(30, 2)), 5, axis=0)
    dates = rng.normal(size=(150, 2))
    X = np.column_stack([units[:, :1], dates, units[:, 1:]])
    places = [slice(0, 1), slice(1, 3), slice(3, 4)]
    assert find_panel(X, places, [True] * 3) == Panel(1, 30)
    assert find_panel(X, columns_of(X), [True] * X.shape[1]) is None  # two columns vary
    X[rng.permutation(150)[:5], 0] += 1.0
    assert find_panel(X, places, [True] * 3).column == 1
    X[rng.permutation(150)[:60], 0] += rng.normal(size=60)
    assert (
        find_panel(X, places, [True] * 3) is None
    )  # less than four fifths of the rows


def test_panels_need_two_columns_that_distinguish_units_by_numbers():
    rng = np.random.default_rng(0)
    unit = np.repeat(np.arange(30), 5)
    first, second = rng.normal(size=(2, 30))[:, unit]
    date = rng.normal(size=150)
    X = np.column_stack([first, second, date])
    columns = columns_of(X)
    assert find_panel(X, columns, [True] * 3) == Panel(2, 30)
    assert find_panel(X, columns, [False, True, True]) is None
    assert find_panel(X[:, [0, 2]], columns[:2], [True] * 2) is None
    X[:, 1] = unit % 3
    assert find_panel(X, columns, [True] * 3) is None
    axis = np.arange(12.0)
    grid = np.stack(np.meshgrid(axis, axis, axis), axis=-1).reshape(-1, 3)
    assert find_panel(grid, columns, [True] * 3) is None


def test_clusters_that_are_classes_are_no_groups():
    X, origin = near_copies()
    whole = near_duplicates(X)
    common = origin % 2
    np.testing.assert_array_equal(near_duplicates(X, common).numbers, whole.numbers)
    one_cluster = np.where(origin == 3, 2, common)
    np.testing.assert_array_equal(
        near_duplicates(X, one_cluster).numbers, whole.numbers
    )
    assert near_duplicates(X, origin) is None
    assert near_duplicates(X, np.minimum(origin, 25)) is not None
    assert near_duplicates(X, np.minimum(origin, 60)) is None


@pytest.mark.parametrize(
    ("distance", "options"),
    [
        (0.0, {}),
        (4.0, {}),
        (0.0, {"boost": HistGradientBoostingClassifier(max_iter=5)}),
        (0.0, {"predictor": "svm"}),
        (0.0, {"predictor": "nystroem"}),
    ],
)
def test_classes_that_are_clusters_have_probabilities(distance, options):
    X, y = make_blobs(200, n_features=8, centers=10, cluster_std=0.3, random_state=0)
    X[0] += distance
    assert near_duplicates(X).n_groups < 20
    model = KernelLearningClassifier(**options).fit(X, y)
    assert model.n_groups_ is None
    assert model.predict_proba(X)[np.arange(1, 200), y[1:]].min() > 0.5


# Two groups or times, the fewest that can be respected ----------------------------------------------------------------


@pytest.mark.parametrize("n_values", [2, 3, 4])
@pytest.mark.parametrize("argument", ["groups", "time"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"family": FAMILY},
        {"family": FAMILY, "predictor": "krr-cg"},
        {"family": FAMILY, "predictor": "nystroem"},
    ],
)
def test_few_groups_or_times_suffice_for_a_fit_with_intervals(
    options, argument, n_values
):
    X, _, _ = data(m=120)
    y = X[:, 0] + 0.1 * np.random.default_rng(3).normal(size=len(X))
    numbers = np.arange(len(X)) * n_values // len(X)
    model = KernelLearningRegressor(**options).fit(X, y, **{argument: numbers})
    below, above = model.predict_interval(X).T
    assert np.isfinite(below).all()
    assert (below < above).all()


@pytest.mark.parametrize("ordered", [False, True])
def test_without_another_group_each_row_is_left_out(ordered):
    X, Y, _ = data()
    K = center_gram(X @ X.T)
    one_group = RowGroups(np.zeros(len(X), dtype=int), ordered)
    grouped = LeaveOneOut(K, Y, row_groups=one_group).at(0.1)
    np.testing.assert_array_equal(
        grouped.residuals, LeaveOneOut(K, Y).at(0.1).residuals
    )


@pytest.mark.parametrize("argument", ["groups", "time"])
def test_probabilities_differ_between_rows_if_each_group_has_one_class(argument):
    rng = np.random.default_rng(0)
    patient = np.repeat(np.arange(4), 100)
    label = patient % 2
    X = rng.normal(size=(400, 3)) + 0.8 * label[:, None]
    model = KernelLearningClassifier(family=FAMILY, predictor="krr-cg")
    model.fit(X, label, **{argument: patient})
    assert (model.calibration_[..., 0] > 0).all()
    agrees = (model.predict_proba(X)[:, 1] > 0.5) == model.predict(X)
    assert agrees.mean() > 0.9


def test_held_out_rows_have_a_row_of_each_class():
    X, _, _ = data()
    y = np.isin(np.arange(60), (3, 40)).astype(int)
    kernel = learn_kernel(X, y, learner="alignf", family=FAMILY)
    training = TrainingSet.of(kernel, None, np.arange(60))
    for seed in range(8):
        held_out = held_out_rows(training, Target.of(y), seed)
        assert 12 <= len(held_out) <= 13
        assert set(y[held_out]) == {0, 1}


@pytest.mark.parametrize("ordered", [False, True])
def test_held_out_rows_have_two_groups_and_all_classes_if_others_can_train(ordered):
    label_of_group = np.array([1, 0, 0, 1, 0, 0, 0, 0, 0, 0])
    numbers = np.repeat(np.arange(10), 300)
    y = label_of_group[numbers]
    groups = RowGroups(numbers, ordered)
    target = Target("classification", y, ("a", "b"), row_groups=groups)
    held_out = held_out_rows(None, target, 0)
    others = np.setdiff1d(np.arange(len(y)), held_out)
    assert len(np.unique(numbers[held_out])) >= 2
    # The last time of the second class is before the middle: most rows must train.
    assert set(y[held_out]) == ({0} if ordered else {0, 1})
    assert set(y[others]) == {0, 1}


def test_a_class_seen_last_before_the_held_out_times_extends_them():
    numbers = np.repeat(np.arange(10), 300)
    y = np.isin(numbers, (0, 6)).astype(int)
    target = Target(
        "classification", y, ("a", "b"), row_groups=RowGroups(numbers, True)
    )
    assert numbers[held_out_rows(None, target, 0)].min() == 6


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("argument", ["groups", "time"])
def test_a_time_limit_skips_samples_whose_groups_or_classes_cannot_be_divided(
    argument, seed
):
    X, _, _ = data(m=600)
    numbers = np.arange(600)
    y = (X[:, 0] > 0).astype(int)
    if argument == "time":
        y[5] = 2
        y[540:580] = 2
    else:
        numbers = (numbers == 5).astype(int)
    model = KernelLearningClassifier(
        family=FAMILY, learner="unif", predictor="svm", C=1.0, random_state=seed
    )
    expected = model.fit(X, y, **{argument: numbers}).decision_function(X)
    model = clone(model).set_params(time_limit=1e6)
    model.fit(X, y, **{argument: numbers})
    np.testing.assert_array_equal(model.decision_function(X), expected)


def test_copies_of_rows_are_no_panel():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.normal(size=(60, 2)), rng.integers(0, 3, 60)])
    copies = np.vstack([X, X])
    assert find_panel(copies, columns_of(copies), [True] * 3) is None
