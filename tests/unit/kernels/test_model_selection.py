"""The protocol: folds, trials, and the choice of the regularization without a look at the test fold."""

from functools import partial

import numpy as np
import pytest

from learnkernels import GaussianFamily, centered_alignment, gram_statistics
from learnkernels.kernels.learned_kernel import LearnedKernel
from learnkernels.kernels.learners import (
    L1KRR,
    L1SVM,
    L2KRR,
    NKRR,
    SingleStage,
    learn_from_statistics,
    learn_path,
)
from learnkernels.kernels.model_selection.evaluation import Evaluation, KernelPredictors
from learnkernels.kernels.model_selection.folds import (
    Trial,
    assign_folds,
    assign_nested_split,
    assign_split,
    inner_trials,
    nested_split_trial,
    split_trial,
    trials,
)
from learnkernels.kernels.model_selection.metrics import metric_for
from learnkernels.kernels.predictors import as_predictor
from learnkernels.kernels.targets import Target
from tests.reference import (
    combined,
    combined_cross,
    gaussian,
    grams,
    ridge_predictions,
    support_vector_predictions,
)
from tests.refusals import require_refusals

GAMMAS = [0.05, 0.1, 0.6]
FAMILY = GaussianFamily(GAMMAS)
GRID = [0.03, 0.3, 3.0, 30.0]


def small_data(task: str, m: int = 60, seed: int = 0) -> tuple[np.ndarray, Target]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(m, 3))
    score = X[:, 0] * X[:, 1] + X[:, 2] + 0.3 * rng.normal(size=m)
    if task == "regression":
        return X, Target.of(score + 4.0)
    if task == "two classes":
        return X, Target.of(np.where(score > 0, "high", "low"))
    return X, Target.of(
        np.array(["low", "middle", "high"])[np.digitize(score, [-0.6, 0.6])]
    )


def learned(
    X, target: Target, folds: np.ndarray, trial: Trial, learner: str = "alignf"
) -> LearnedKernel:
    statistics = gram_statistics(FAMILY, X, target.Y, folds)
    return learn_from_statistics(
        learner, FAMILY, X, statistics.restrict(trial.training)
    )


def with_trial(
    task: str, number: int, **options: int
) -> tuple[np.ndarray, Target, np.ndarray, Trial]:
    """Return a problem, five folds of its rows, and one of the trials on them."""
    X, target = small_data(task, **options)
    return X, target, assign_folds(target, 5, seed=5), trials(5)[number]


# Folds ---------------------------------------------------------------------------------------------------------------

TASKS = ["regression", "two classes", "three classes"]


def unbalanced(*counts: int) -> Target:
    """Return a classification with so many rows of each class, in a mixed order."""
    names = np.repeat([f"c{k}" for k in range(len(counts))], counts)
    return Target.of(np.random.default_rng(0).permutation(names))


@pytest.mark.parametrize("task", TASKS)
def test_folds_are_balanced_in_rows_and_classes_and_drawn_by_the_seed(task):
    _, target = small_data(task)
    for n_folds in (3, 5, 7):
        folds = assign_folds(target, n_folds, seed=1)
        parts = [
            np.ones(60, dtype=bool),
            *(target.values == k for k in range(len(target.classes))),
        ]
        counts = np.array(
            [np.bincount(folds[part], minlength=n_folds) for part in parts]
        )
        assert (folds.shape, counts.shape[1]) == ((60,), n_folds)
        assert (np.ptp(counts, axis=1) <= 1).all()
    np.testing.assert_array_equal(
        assign_folds(target, 5, seed=3), assign_folds(target, 5, seed=3)
    )
    assert (assign_folds(target, 5, seed=3) != assign_folds(target, 5, seed=4)).any()


def test_every_fold_tests_once_and_validates_once_and_rare_classes_are_always_trained_on():
    target = Target.of(np.array(["a"] * 30 + ["b"] * 17 + ["rare"] * 3))
    for n_folds in (3, 4, 9, 10):
        folds, plan, everyone = (
            assign_folds(target, n_folds, seed=1),
            trials(n_folds),
            list(range(n_folds)),
        )
        assert [trial.index for trial in plan] == everyone
        assert sorted(trial.test for trial in plan) == everyone
        assert sorted(trial.validation for trial in plan) == everyone
        for trial in plan:
            assert sorted([*trial.training, trial.validation, trial.test]) == everyone
            assert set(target.values[np.isin(folds, trial.training)]) == {0, 1, 2}


def test_folds_and_splits_that_cannot_be_drawn_are_refused():
    twenty, fifty = (Target.of(np.arange(m), "regression") for m in (20.0, 50.0))
    _, two = small_data("two classes")
    folds = partial(assign_folds, seed=0)
    split = partial(assign_split, seed=0)
    held = partial(assign_split, fifty, seed=0, held_out=np.arange(50) < 8)
    nested = partial(assign_nested_split, two, seed=0)
    table = [
        (
            folds,
            (twenty.take(range(4)), 5),
            "there must be at least one row a fold, got 4 rows for 5 folds",
        ),
        (
            folds,
            (unbalanced(3, 3), 4),
            "a class must have as many rows as there are folds, got 3 for 4",
        ),
        (
            folds,
            (unbalanced(9, 2), 3),
            "class must have a row in at least 3 folds, .* got 2 for class 'c1'; leave",
        ),
        (
            split,
            (twenty, 10, 6, 5),
            r"at most the 20 rows there are, got 10 \+ 6 \+ 5 = 21; draw fewer",
        ),
        (
            split,
            (unbalanced(96, 4), 10, 40, 40),
            "one training row, got none of class 'c1', 4 of 100 rows, among 10",
        ),
        (split, (fifty, 20, 10, None), "test must be a number of rows"),
        (
            held,
            (20, 10, 9),
            "test must be 2 to 8, the rows that the data set holds out, got 9",
        ),
        (
            held,
            (40, 10, None),
            "train, validation must together be at most the 42 rows there are",
        ),
        (
            nested,
            (40, 30, 5),
            r"must together be at most the 60 rows there are, got 40 \+ 30",
        ),
        (
            nested,
            (8, 30, 10),
            "of the 8 training rows, there must be at least one row a fold",
        ),
    ]
    require_refusals(
        (partial(assign, *sizes), sentence) for assign, sizes, sentence in table
    )


# Splits --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "counts", [(100,), (30, 30), (83, 17), (50, 30, 20), (97, 2, 1), (10, 10, 10, 70)]
)
def test_a_split_draws_the_rows_asked_for_with_the_shares_of_the_classes(counts):
    m = sum(counts)
    target = (
        Target.of(np.arange(m), "regression")
        if len(counts) == 1
        else unbalanced(*counts)
    )
    classes = np.zeros(m, dtype=int) if len(counts) == 1 else target.values
    for sizes in [(50, 20, 30), (51, 11, 20), (40, 10, 10)]:  # of a hundred rows
        sizes = tuple(size * m // 100 for size in sizes)
        if any(round(sizes[0] * count / m) < 1 for count in counts):
            sizes = (m - 4, 2, 2)
        drawn = [assign_split(target, *sizes, seed) for seed in range(3)]
        np.testing.assert_array_equal(assign_split(target, *sizes, seed=2), drawn[2])
        assert (drawn[0] != drawn[1]).any()
        for folds in drawn:
            assert tuple(np.bincount(folds + 1, minlength=4)) == (
                m - sum(sizes),
                *sizes,
            )
        for part, size in enumerate(sizes):
            of_seeds = np.array(
                [
                    np.bincount(classes[folds == part], minlength=len(counts))
                    for folds in drawn
                ]
            )
            # A part is cut out of a line along which each class is within half a row,
            # at either end, of its share.
            assert (
                np.abs(of_seeds[0] - size * np.array(counts) / m)
                < 0.5 * len(counts) + 0.5
            ).all()
            assert (of_seeds == of_seeds[0]).all()
            assert part or of_seeds[0].all()
    assert split_trial() == Trial(0, (0,), 1, 2)


@pytest.mark.parametrize("counts", [None, (15, 5)])
def test_every_row_of_a_class_is_as_likely_to_be_drawn(counts):
    target = (
        Target.of(np.arange(20.0), "regression")
        if counts is None
        else unbalanced(*counts)
    )
    drawn = np.array([assign_split(target, 8, 4, 4, seed) for seed in range(1000)])
    for part, share in enumerate((0.4, 0.2, 0.2)):
        # Four and a half deviations of 1000 draws.
        assert (
            np.abs((drawn == part).mean(axis=0) - share)
            < 4.5 * np.sqrt(share * (1 - share) / 1000)
        ).all()


@pytest.mark.parametrize("test", [None, 20])
def test_rows_that_are_held_out_test_and_do_nothing_else(test):
    target = Target.of(np.repeat(["a", "b", "c"], 50))
    held_out = np.zeros(150, dtype=bool)
    held_out[::4] = True
    folds = assign_split(target, 60, 30, test, seed=3, held_out=held_out)
    assert [(folds == part).sum() for part in (0, 1, 2)] == [
        60,
        30,
        test or held_out.sum(),
    ]
    assert held_out[folds == 2].all()
    assert not held_out[(folds == 0) | (folds == 1)].any()
    assert np.bincount(target.values[folds == 0]).tolist() == [20, 20, 20]
    nested = assign_nested_split(target, 60, test, 4, seed=3, held_out=held_out)
    np.testing.assert_array_equal(nested == 4, folds == 2)
    assert not held_out[(nested >= 0) & (nested < 4)].any()


@pytest.mark.parametrize("task", TASKS)
def test_a_nested_split_divides_its_training_rows_into_folds_that_validate_each_other(
    task: str,
):
    _, target = small_data(task, m=90)
    folds = assign_nested_split(target, 45, 30, 5, seed=2)
    assert (np.sum(folds == 5), np.sum(folds == -1)) == (30, 15)
    np.testing.assert_array_equal(
        np.bincount(folds[(folds >= 0) & (folds < 5)]), [9] * 5
    )
    np.testing.assert_array_equal(assign_nested_split(target, 45, 30, 5, seed=2), folds)
    assert (assign_nested_split(target, 45, 30, 5, seed=3) != folds).any()
    # Each class is spread evenly over the folds, up to one row
    if task != "regression":
        counts = [
            np.bincount(target.values[folds == fold], minlength=len(target.classes))
            for fold in range(5)
        ]
        assert (np.ptp(counts, axis=0) <= 1).all()
    trial = nested_split_trial(5)
    assert trial == Trial(0, (0, 1, 2, 3, 4), None, 5)
    assert [inner.validation for inner in inner_trials(trial)] == [0, 1, 2, 3, 4]
    for inner in inner_trials(trial):
        assert sorted([*inner.training, inner.validation]) == [0, 1, 2, 3, 4]


# Evaluation ----------------------------------------------------------------------------------------------------------


def evaluate_by_hand(
    kernel: LearnedKernel, X, target: Target, folds, trial: Trial, predictor: str
):
    """Return the validation errors, the test errors and the trivial error, one fit a regularization."""
    parts = trial.training, trial.validation, trial.test
    train, validate, test = (np.flatnonzero(np.isin(folds, part)) for part in parts)
    numbers, y = target.task == "regression", target.values

    def error(rows, predictions):
        return (
            np.sqrt(np.mean((predictions - y[rows]) ** 2))
            if numbers
            else np.mean(predictions != y[rows])
        )

    kernels = [gaussian(gamma) for gamma in GAMMAS]
    Ks = grams(kernels, X[train])
    K = combined(Ks, kernel.weights, "trace")
    unit = np.trace(K) / len(train)
    errors = []
    for rows in (validate, test):
        cross = (
            combined_cross(
                grams(kernels, X[rows], X[train]), Ks, kernel.weights, "trace"
            )
            / unit
        )
        for value in GRID:
            given = value, cross.astype(float)
            if predictor == "svm":
                predictions = support_vector_predictions(
                    (K / unit).astype(float), y[train], *given
                )
            else:
                Y = y[train] if numbers else target.Y[train]
                predictions = ridge_predictions((K / unit).astype(float), Y, *given)
                if not numbers:
                    predictions = (
                        predictions[:, 0] > 0
                        if Y.shape[1] == 1
                        else predictions.argmax(axis=1)
                    )
            errors.append(error(rows, predictions))
    constant = y[train].mean() if numbers else np.bincount(y[train]).argmax()
    return errors[: len(GRID)], errors[len(GRID) :], error(test, constant)


def evaluation_on(X, target: Target, folds: np.ndarray) -> Evaluation:
    return Evaluation(X, target, folds, metric_for(None, target))


SERVED = [
    ("regression", "krr"),
    *((task, of) for task in TASKS[1:] for of in ("krr", "svm")),
]


@pytest.mark.parametrize(("task", "predictor"), SERVED)
def test_a_trial_gives_what_a_slow_loop_gives(task, predictor):
    X, target, folds, trial = with_trial(task, 3, m=40)
    kernel = learned(X, target, folds, trial)
    predictors = KernelPredictors([kernel], target, predictor, GRID)
    result = evaluation_on(X, target, folds).result([predictors], kernel.rows, trial)
    validation, test, trivial = evaluate_by_hand(
        kernel, X, target, folds, trial, predictor
    )
    np.testing.assert_allclose(result.validation_errors, validation, rtol=1e-9)
    best = min(range(len(GRID)), key=validation.__getitem__)
    assert GRID[best] == result.C
    assert result.error == pytest.approx(test[best], rel=1e-9)
    assert result.trivial_error == pytest.approx(trivial, rel=1e-12)
    assert (result.n_train, result.n_test) == (24, 8)


# Candidates, paths and indefinite kernels ----------------------------------------------------------------------------


class GivenPredictions:
    """PredictorPath that predict one number each, wherever they are asked."""

    def __init__(self, *numbers):
        self.numbers, self.grid = numbers, [2.0**g for g in range(len(numbers))]

    def predict(self, X_new):
        return np.tile(np.array(self.numbers)[:, None], X_new.shape[0])


def first_trial() -> tuple[Target, np.ndarray, Trial]:
    """Return a target of zeros, folds of its rows, and the first trial on them."""
    target = Target.of(np.zeros(30), "regression")
    return target, assign_folds(target, 5, seed=10), trials(5)[0]


def test_the_validation_fold_chooses_and_ties_go_to_the_strongest_regularization():
    target, folds, trial = first_trial()
    plain = [
        ([(3, 1, 1, 2)], 0, 1, False),
        ([(1, 1, 1, 1)], 0, 0, False),
        ([(4, 3, 2, 2)], 0, 2, False),
    ]
    plain += [([(2, 3, 2, 4)], 0, 0, True), ([(5,)], 0, 0, False)]
    # The edge is flagged only where the error still falls.
    falling = [
        ([(4, 3, 2, 1)], 0, 3, True),
        ([(1, 2, 3, 4)], 0, 0, True),
        ([(2, 1)], 0, 1, True),
    ]
    level = [
        ([(3, 1, 2, 4)], 0, 1, False),
        ([(3, 2, 1.0001, 1)], 0, 3, False),
        ([(1, 1.0001, 2, 3)], 0, 0, False),
    ]
    several = [([(3, 2, 4), (5, 1, 2)], 1, 1, False)]
    several.append(([(3, 1, 4), (5, 1, 2)], 0, 1, False))  # a tie goes to the first
    # And one between regularizations to the stronger
    several.append(([(3, 2, 1), (1, 5, 6)], 1, 0, True))
    for errors, candidate, position, edge in (*plain, *falling, *level, *several):
        candidates = [GivenPredictions(*numbers) for numbers in errors]
        result = evaluation_on(np.zeros((30, 1)), target, folds).result(
            candidates, np.arange(18), trial
        )
        assert (result.candidate, result.position, result.edge) == (
            candidate,
            position,
            edge,
        ), errors
        assert candidates[candidate].grid[position] == result.C
        assert result.error == errors[candidate][position]
        np.testing.assert_array_equal(result.validation_errors, errors[candidate])


class GivenAlignment(GivenPredictions):
    """PredictorPath of a kernel whose alignment is given; they remember the rows that they were asked about."""

    def __init__(self, alignment, *numbers):
        super().__init__(*numbers)
        self.alignment = alignment

    def validation_alignment(self, X_new, target_new, sample_weight=None):
        self.seen = X_new, target_new
        return self.alignment


def test_the_alignment_on_the_validation_fold_chooses_the_candidate_and_the_error_the_regularization():
    X, (target, folds, trial) = np.arange(30.0)[:, None], first_trial()
    evaluation, given = evaluation_on(X, target, folds), (np.arange(18), trial)
    validation = np.flatnonzero(folds == trial.validation)
    errors = [(6, 3, 4), (9, 5, 5), (2, 1, 2)]  # by the error the last would be chosen
    chosen = {
        (0.2, 0.6, 0.4): 1,
        (0.5, 0.1, 0.5): 0,
        (-0.5, -0.1, -0.2): 1,
        (np.nan, -0.3, np.nan): 1,
    }
    for alignments, candidate in chosen.items():
        candidates = [
            GivenAlignment(a, *numbers)
            for a, numbers in zip(alignments, errors, strict=True)
        ]
        result = evaluation.result(candidates, *given, by="alignment")
        assert (result.candidate, result.position) == (candidate, 1)
        assert (result.error, result.C) == (errors[candidate][1], 2.0)
        np.testing.assert_array_equal(result.validation_errors, errors[candidate])
        for of in candidates:
            np.testing.assert_array_equal(of.seen[0][:, 0], validation)
            np.testing.assert_array_equal(of.seen[1].values, target.values[validation])
        by_error = evaluation.result(candidates, *given)
        assert (by_error.candidate, by_error.position) == (2, 1)


def test_learning_and_choosing_refuse_what_they_cannot_do():
    target, folds, trial = first_trial()
    candidates = [GivenAlignment(0.5, 1, 2), GivenPredictions(1, 2)]
    choose = partial(
        evaluation_on(np.zeros((30, 1)), target, folds).result,
        candidates,
        np.arange(18),
    )
    without = (
        "needs candidates with a kernel, got GivenPredictions at 1; choose by error"
    )
    X, two = small_data("two classes")
    learn = partial(
        learn_from_statistics,
        family=FAMILY,
        X=X,
        statistics=gram_statistics(FAMILY, X, two.Y),
    )
    require_refusals(
        [
            (partial(choose, trial, by="alignment"), without),
            (
                partial(learn, "l2-krr"),
                "l2-krr learns weights and predictor together and needs the target",
            ),
            (
                partial(learn, "ensemble", target=two),
                "ensemble learns hypotheses and not a kernel",
            ),
        ]
    )


def test_predictors_align_as_the_kernel_matrices_of_the_new_rows_do_on_average():
    X, target, folds, trial = with_trial("three classes", 1)
    rows = np.flatnonzero(folds == trial.validation)
    kernels, expected = (
        [learned(X, target, folds, trial, learner) for learner in ("alignf", "single")],
        [],
    )
    Ks = grams([gaussian(gamma) for gamma in GAMMAS], X[rows])
    for kernel in kernels:
        K = sum(
            weight / scale * gram
            for weight, scale, gram in zip(
                kernel.weights, kernel.scales, Ks, strict=True
            )
        )
        expected.append(
            centered_alignment(
                np.asarray(K, dtype=float), target.Y[rows] @ target.Y[rows].T
            )
        )
    of = KernelPredictors(kernels, target, "krr", GRID[:2])
    assert of.validation_alignment(X[rows], target.take(rows)) == pytest.approx(
        np.mean(expected), rel=1e-9
    )
    alike = np.flatnonzero(target.values == 0)[:2]
    with pytest.raises(
        ValueError,
        match=r"the target is constant on the 2 rows .*; give more rows to validate, or ch",
    ):
        of.validation_alignment(X[alike], target.take(alike))


@pytest.mark.parametrize(
    "learner",
    [L2KRR(center=1.0), L1KRR(), NKRR(), NKRR(degree=3, offset=0.7), L1SVM()],
    ids=repr,
)
def test_the_predictor_at_the_learned_regularization_is_the_one_that_was_learned(
    learner,
):
    """Weights and predictor solve one problem: its value at the training rows is that of the certificate."""
    X, target = small_data("two classes")
    values = [0.5, 8.0]
    kernels = learn_path(
        learner, FAMILY, X, gram_statistics(FAMILY, X, target.Y), target, values
    )
    training = target.take(kernels[0].rows)
    for kernel, value in zip(kernels, values, strict=True):
        assert value == kernel.C
        K, fitted = (
            kernel.gram(),
            as_predictor(learner.predictor).fit_matrix(
                kernel.gram(), training, [value]
            ),
        )
        if learner.predictor == "krr":
            reached, rel = (
                np.vdot(training.Y - training.Y.mean(axis=0), fitted.dual[0]),
                1e-8,
            )
        else:
            beta, rel = fitted.dual[0, :, 0], 1e-3  # of scikit-learn
            reached = 2 * np.abs(beta).sum() - beta @ K @ beta
        assert kernel.certificate.objectives[-1] == pytest.approx(reached, rel=rel)


def test_a_path_learned_at_once_is_the_one_learned_value_by_value():
    X, target = small_data("two classes")
    statistics = gram_statistics(FAMILY, X, target.Y)
    for learner in (L1SVM(tol=1e-8), L2KRR(tol=1e-8), SingleStage(tol=1e-8)):
        path = learn_path(learner, FAMILY, X, statistics, target, GRID)
        for kernel, value in zip(path, GRID, strict=True):
            alone = learn_from_statistics(
                learner, FAMILY, X, statistics, target=target, C=value
            )
            # The start is another; the root of the gap is left to the weights.
            np.testing.assert_allclose(kernel.weights, alone.weights, rtol=0, atol=1e-3)


@pytest.mark.parametrize("task", TASKS)
def test_cross_validation_chooses_the_lowest_mean_error(task: str):
    """Against a loop over folds, candidates and C that fits one predictor at a time."""
    X, target = small_data(task, m=80)
    trial, folds = nested_split_trial(4), assign_nested_split(target, 50, 25, 4, seed=1)
    predictor = "krr" if task == "regression" else "svm"

    def candidates(of: Trial, grid: list[float]) -> list[KernelPredictors]:
        kernels = [
            learned(X, target, np.where(folds < 0, 4, folds), of, name)
            for name in ("unif", "alignf")
        ]
        return [
            KernelPredictors([kernel], target, predictor, grid) for kernel in kernels
        ]

    fits = ((of, candidates(of, GRID)) for of in inner_trials(trial))
    selection = evaluation_on(X, target, folds).select_by_cross_validation(fits)
    errors = np.zeros((2, len(GRID)))
    for of in inner_trials(trial):
        rows = np.flatnonzero(folds == of.validation)
        for position, C in enumerate(GRID):
            for c, one in enumerate(candidates(of, [C])):
                errors[c, position] += (
                    target.take(rows).error(one.predict(X[rows])[0]) / 4
                )
    # A ridge fitted for one C and one of a path differ by the rounding of an
    # eigendecomposition.
    np.testing.assert_allclose(selection.errors, errors, atol=1e-9)
    assert (
        selection.errors[selection.candidate, selection.position]
        == selection.errors.min()
    )
    assert GRID[selection.position] == selection.C

    fitted = candidates(trial, [selection.C])[selection.candidate]
    training, test = (
        np.flatnonzero((folds >= 0) & (folds < 4)),
        np.flatnonzero(folds == 4),
    )
    result = evaluation_on(X, target, folds).outcome(
        fitted, 0, selection, training, trial
    )
    assert result.error == target.take(test).error(fitted.predict(X[test])[0])
    assert (result.n_train, result.n_test, result.candidate) == (
        50,
        25,
        selection.candidate,
    )
