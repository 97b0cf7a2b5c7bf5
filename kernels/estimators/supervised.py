"""Classifier and regressor with a learned kernel."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from math import ceil
from numbers import Integral, Real
from os import PathLike
from typing import Any, Literal, Self, TypeVar, cast

import numpy as np
from scipy import sparse
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.metaestimators import available_if
from sklearn.utils.multiclass import check_classification_targets, is_multilabel
from sklearn.utils.validation import check_is_fitted, column_or_1d, has_fit_parameter

from ..base import explain_unknown_arguments, progress_to, report_progress, warn_caller
from ..centering import relative_error
from ..column_encoding import TableEncoding
from ..engine.workers import Workers, blas_threads_for
from ..families.base import KernelFamily, Rows, distinct_rows, drawn_rows, positions_of
from ..families.distances import GaussianFamily
from ..learned_kernel import LearnedKernel, LinearScores
from ..learners import as_learner, learn_kernel
from ..predictors import PREDICTORS, Predictor, TrainingSet, as_predictor
from ..predictors.calibration import (
    MOST_RESIDUALS,
    N_FOLDS,
    class_scores,
    conformal_quantile,
    fit_calibration,
    order_statistics,
    probabilities,
    residual_quantiles,
)
from ..predictors.choice import (
    SELECTION_ROWS,
    PredictionProblem,
    as_regularization,
    best_C,
)
from ..predictors.residual_scale import MOST_ROWS, ResidualScale
from ..row_groups import RowGroups, as_row_groups, find_panel, near_duplicates
from ..solvers.conjugate_gradients import Progress
from ..targets import Target, Task
from ..validation import positive, require_numbers, require_one_of, whole_number
from ..weights import (
    as_sample_weight,
    counting_rows,
    near_one,
    of_mean_one,
    relative_weights,
    weights_of_rows,
)
from .base import (
    KernelLearner,
    Precision,
    default_family,
    learner_reason,
    require_precision,
    set_table,
    within_n_jobs,
)
from .boosting import (
    LEAST_SHARE,
    BoostingProblem,
    is_boosted_by_default,
    require_trees,
    tree_features,
    tree_predictions,
)
from .explanation import (
    BACKGROUND_ROWS,
    CompositeRows,
    Contributions,
    Explanation,
    cells_of,
    column_slices,
    contributions_of,
)
from .multilabel import (
    dense_indicators,
    fit_label_calibration,
    has_labels,
    label_probabilities,
    labels_target,
    require_label_options,
    require_no_columns_of_classes,
    shift_to_even_odds,
)
from .product_kernels import ProductScores
from .sampling import FitSampling
from .time_budget import FIRST_ROWS, LEAST_GROWTH, MeasuredFits

GAIN_OF_ALL_ROWS = 1.3
"""Typical error of half of the rows, relative to that of all."""

WORK_OF_HELD_OUT = 0.5
"""Work of held-out scores by conjugate gradients, relative to the fit."""


@dataclass(eq=False, repr=False, kw_only=True)
class SupervisedLearner(KernelLearner):
    """Base class of the classifier and the regressor, both linear in the kernel."""

    predictor: str | Predictor = "auto"
    boost: Any = "auto"
    precision: Precision = "float64"
    time_limit: float | None = None
    verbose: bool = False

    predictor_: str = field(init=False)
    predictor_reason_: str = field(init=False)
    C_: float = field(init=False)
    n_samples_fit_: int = field(init=False)
    n_groups_: int | None = field(init=False)
    boost_: BaseEstimator | None = field(init=False)
    boost_share_: float = field(init=False)

    _saved = (
        *KernelLearner._saved,
        "predictor_",
        "predictor_reason_",
        "C_",
        "n_samples_fit_",
        "n_groups_",
        "dual_coef_",
        "intercept_",
        "boost_",
        "boost_share_",
    )

    @property
    def dual_coef_(self) -> np.ndarray:
        """Dual coefficient of each row in ``kernel_.X`` for each score, shape (m, q)."""
        return self._linear.dual

    @property
    def intercept_(self) -> np.ndarray:
        """Intercept of each of the q scores of `decision_function`, shape (q,)."""
        return self._linear.intercept

    @property
    def landmarks_(self) -> np.ndarray:
        """Positions of the landmarks among the training rows with positive weight."""
        if not PREDICTORS[getattr(self, "predictor_", "auto")].on_landmarks:
            raise AttributeError(
                "landmarks_ is only available after a fit with predictor='nystroem'."
            )
        return self.kernel_.rows

    def _restore(self, fitted: Mapping[str, Any]) -> None:
        attributes = dict(fitted)
        scores = LinearScores(
            attributes["kernel_"],
            attributes.pop("dual_coef_"),
            attributes.pop("intercept_"),
        )
        super()._restore(attributes)
        self._linear = scores

    def export(self, path: str | PathLike[str]) -> None:
        """Write the fitted model as a Python module that predicts with NumPy only.

        Parameters
        ----------
        path : path
            File to write, ending in ``.py``; an earlier export is replaced.

        Raises
        ------
        ValueError
            The path does not end in ``.py`` or has another file; or the model has
            precomputed or custom base kernels, sparse rows, text columns, several labels
            per row, or `boost` other than scikit-learn's histogram-based trees.

        Notes
        -----
        The module has the `predict`, `predict_proba`, `decision_function` or
        `predict_interval` of the estimator. They take a DataFrame, a dictionary of
        columns, or an array of numbers. Results are equal up to rounding. The module
        contains training rows: protect it.
        """
        from ..exporting import write_module

        check_is_fitted(self)
        self._require_sound()
        write_module(self, path)

    @property
    @abstractmethod
    def _n_scores(self) -> int:
        """Number of scores of a row."""

    def _require_sound(self) -> None:
        super()._require_sound()
        require_one_of("predictor_", self.predictor_, PREDICTORS)
        require_numbers(
            "dual_coef_", self.dual_coef_, (self.kernel_.X.shape[0], self._n_scores)
        )
        require_numbers("intercept_", self.intercept_, (self._n_scores,))
        if self.boost_ is not None:
            self._require_sound_trees()

    def _require_sound_trees(self) -> None:
        if not 0 < self.boost_share_ <= 1:
            raise ValueError(
                f"boost_share_ must be between 0 and 1, got {self.boost_share_}."
            )
        n_classes = None
        if hasattr(self, "classes_"):
            n_classes = len(self.classes_)
        X_trees, _ = tree_features(self.table_, self.kernel_.X[:1])
        predicted = tree_predictions(self.boost_, X_trees, n_classes)
        require_numbers("predictions of boost_", predicted, (1, n_classes or 1))

    def _check_options(self, task: Task) -> None:
        require_precision(self.precision)
        as_predictor(self.predictor).check(task)
        require_trees(self.boost, task)

    @property
    @abstractmethod
    def _uses_held_out_scores(self) -> bool:
        """Whether probabilities or intervals need held-out scores."""

    @abstractmethod
    def _requested_C(self) -> float | Literal["auto"]:
        """Return C, or 1 / alpha."""

    @abstractmethod
    def _encode_target(self, y: np.ndarray) -> Target:
        """Return the target; set the attributes that decode predictions."""

    @abstractmethod
    def _fit_features(
        self, X: Rows, y: np.ndarray, sample_weight: Any, groups: Any, time: Any
    ) -> Self:
        """Learn the kernel and fit the predictor on validated features."""

    @abstractmethod
    def _held_out_predictions(
        self,
        training: TrainingSet,
        target: Target,
        predictor: Predictor,
        rows: np.ndarray,
        scores: np.ndarray,
    ) -> np.ndarray:
        """Return values or probabilities from scores of held-out rows."""

    def _keep_residuals(
        self,
        training: TrainingSet,
        target: Target,
        rows: np.ndarray,
        predictions: np.ndarray,
    ) -> None:
        """Keep residuals of held-out training rows."""

    def _fit(
        self,
        X: Rows,
        y: np.ndarray,
        weights: np.ndarray | None,
        seed: int,
        row_groups: RowGroups | None = None,
    ) -> Self:
        """Fit on all rows or, with a time limit, on growing samples."""
        target = self._encode_target(y)
        if row_groups is None:
            classes = None
            if target.task == "classification":
                classes = target.values
            row_groups = near_duplicates(X, classes)
            if row_groups is None:
                self._warn_of_panel(X)
        self.n_groups_ = None if row_groups is None else row_groups.n_groups
        if self.time_limit is None:
            return self._fit_rows(X, y, weights, len(y), seed, row_groups)
        started = time.perf_counter()
        limit = positive("time_limit", self.time_limit)
        target = replace(target, row_groups=row_groups)
        order = nested_samples(target, seed)
        m = len(y)
        n = least_divided_sample(target, order, FIRST_ROWS)
        fits = MeasuredFits()
        while n < m:
            rows = np.sort(order[:n])
            fit_started = time.perf_counter()
            groups_of_sample = row_groups.take(rows) if row_groups is not None else None
            self._fit_rows(
                X[rows],
                y[rows],
                weights_of_rows(weights, rows),
                m,
                seed,
                groups_of_sample,
            )
            fit_ended = time.perf_counter()
            fits = fits.plus(n, fit_ended - fit_started)
            n_next = fits.next_rows(started + limit - fit_ended, m)
            if n_next is None:
                kernel = replace(self.kernel_, rows=rows[self.kernel_.rows])
                set_coefficients(self, kernel, self.dual_coef_, self.intercept_)
                warn_caller(
                    f"time_limit={self.time_limit:g}: fitted on a sample of {n:,} of {m:,} rows; a fit on all rows "
                    f"takes about {ceil(fits.expected_seconds(m)):,} seconds."
                )
                return self
            n = least_divided_sample(target, order, n_next)
        return self._fit_rows(X, y, weights, m, seed, row_groups)

    def _warn_of_panel(self, X: Rows) -> None:
        columns = column_slices(self.table_, X.shape[1])
        are_numbers = [True] * len(columns)
        if self.table_ is not None:
            are_numbers = [
                any(view == "numbers" for _, view in column.features)
                for column in self.table_.columns
            ]
        panel = find_panel(X, columns, are_numbers)
        if panel is not None:
            warn_caller(
                f"rows of {panel.n_units:,} units are equal in all columns but {self._columns[panel.column]!r}; errors "
                "and intervals hold for new rows of these units. If new units are to be predicted, give the unit of "
                "each row as groups."
            )

    def _fit_rows(
        self,
        X: Rows,
        y: np.ndarray,
        weights: np.ndarray | None,
        n_all: int,
        seed: int,
        row_groups: RowGroups | None = None,
    ) -> Self:
        log = FitLog(type(self).__name__, self.verbose)
        log.write(f"{len(y):,} of {n_all:,} rows")
        if row_groups is not None:
            log.write(
                f"choices respect {row_groups.n_groups:,} groups, times or clusters of near-duplicates"
            )
        target = replace(self._encode_target(y), row_groups=row_groups)
        C = self._requested_C()
        if C == "auto":
            C = self._best_C_of_equal_weights(X, target, seed)
        with progress_to(log.write):
            kernel = self._learn(X, target, C, seed, weights)
        log.write(
            f"{kernel.learner} learned a kernel of {kernel.family.n_kernels} base kernels"
        )
        self.n_samples_fit_ = len(y)
        boosting = self._boosting_problem(X, target, weights, seed)
        training = TrainingSet.of(kernel, X, np.arange(len(y)), None, log.write_step)
        with progress_to(log.write):
            self._fit_predictor(training, target, seed, boosting)
        log.write(f"{self.predictor_} is fitted; {self.sampling_}")
        if boosting is not None:
            log.write(f"share of the boosted trees: {self.boost_share_:.2f}")
        return self

    def _boosting_problem(
        self, X: Rows, target: Target, weights: np.ndarray | None, seed: int
    ) -> BoostingProblem | None:
        if self.boost is False:
            return None
        obstacle = self._obstacle_to_boosting(X, target)
        if self.boost == "auto":
            is_named = self.learner != "auto" or self.family is not None
            if is_named or obstacle is not None or not is_boosted_by_default(target):
                return None
        elif (
            obstacle is None
            and weights is not None
            and not has_fit_parameter(self.boost, "sample_weight")
        ):
            obstacle = "rows have weights, which it does not take"
        if obstacle is not None:
            raise ValueError(
                f"boost={self.boost!r:.60} cannot be used, as {obstacle}; use boost=False."
            )
        return BoostingProblem.of(
            self.boost, self.table_, np.asarray(X), target, weights, seed
        )

    def _obstacle_to_boosting(self, X: Rows, target: Target) -> str | None:
        if sparse.issparse(X):
            return "rows are sparse"
        return None

    def _best_C_of_equal_weights(self, X: Rows, target: Target, seed: int) -> float:
        predictor = self._checked_learner(X, target.task).predictor
        if predictor is None:
            return 1.0
        rows = target.sample(SELECTION_ROWS, seed)
        kernel = learn_kernel(
            X[rows],
            target.values[rows],
            learner="unif",
            family=self._family_or_default(X[rows]),
            task=target.task,
            normalize=self.normalize,
            centering=self.centering,
        )
        training = TrainingSet.of(kernel, None, np.arange(len(rows)))
        return best_C(training, target.take(rows), as_predictor(predictor), seed)

    def _family_or_default(self, X: Rows) -> KernelFamily:
        if self.family is not None:
            return self.family
        return default_family(X)

    def _fit_predictor(
        self,
        training: TrainingSet,
        target: Target,
        seed: int,
        boosting: BoostingProblem | None = None,
    ) -> Self:
        C = self._C_for_kernel(training.kernel, len(target))
        predictor = self._choose_predictor(training, target, seed)
        with blas_threads_for(len(target)):
            if C == "auto":
                with blas_threads_for(min(len(target), SELECTION_ROWS)):
                    C = best_C(training, target, predictor, seed)
                report_progress(f"selected C = {C:g}")
            self.C_ = float(C)
            path = predictor.fit(training, target, [self.C_], fine=True)
            assert path.kernel is not None
            set_coefficients(self, path.kernel, *path.coefficients())
            for name in (
                "calibration_",
                "residuals_",
                "signed_residuals_",
                "residual_scale_",
            ):
                self.__dict__.pop(name, None)
            self.boost_ = None
            self.boost_share_ = 0.0
            if self._uses_held_out_scores or boosting is not None:
                assert path.held_out is not None
                rows, scores = path.held_out()
                if predictor.loss == "squared":
                    scores = _scores_without_optimism(training, target, rows, scores)
                predictions = self._held_out_predictions(
                    training, target, predictor, rows, scores
                )
                if boosting is not None:
                    rows, predictions = self._add_trees(boosting, rows, predictions)
                self._keep_residuals(training, target, rows, predictions)
        self._keep_importance_rows(training.rows, target)
        return self

    def _add_trees(
        self, boosting: BoostingProblem, rows: np.ndarray, by_kernel: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """Fit trees; return held-out rows and averaged predictions."""
        rows_of_trees, by_trees = boosting.held_out_predictions(rows)
        if not len(rows_of_trees):
            return rows, by_kernel
        position = positions_of(rows_of_trees, rows)
        share = boosting.best_share(rows_of_trees, by_kernel[position], by_trees)
        if share < LEAST_SHARE:
            return rows, by_kernel
        self.boost_ = boosting.fit()
        self.boost_share_ = share
        return rows_of_trees, (1.0 - share) * by_kernel[position] + share * by_trees

    def _with_trees(
        self, by_kernel: np.ndarray, features: Rows, n_classes: int | None = None
    ) -> np.ndarray:
        X_trees, _ = tree_features(self.table_, features)
        by_trees = tree_predictions(self.boost_, X_trees, n_classes)
        return (1.0 - self.boost_share_) * by_kernel + self.boost_share_ * by_trees

    @within_n_jobs
    def explain(
        self, X: Any, background: Any = BACKGROUND_ROWS, permutations: int = 1
    ) -> Explanation:
        r"""Return the contribution of each column to the prediction for each new row.

        Contributions are interventional Shapley values: the mean change of the
        prediction if a column changes from its value in a background row to its value
        in the new row, over background rows and orders of the columns. A row's
        contributions and the base value, the mean prediction of the background rows,
        add up to the prediction (regression), the probability of each class, or with
        ``probability=False`` the `decision_function`.

        Parameters
        ----------
        X : array-like or table of shape (n, d)
            New rows; not sparse.
        background : int or array-like or table, default 50
            Background rows, or how many rows of `kernel_` to draw.
        permutations : int, default 1
            Number of orders of the columns per background row.

        Returns
        -------
        explanation : Explanation
            Contributions, base values and standard errors.

        Raises
        ------
        ValueError
            Rows are sparse, or a parameter is invalid.

        Notes
        -----
        Given the background rows, contributions are exact with up to three columns or
        for sums of few products of one kernel per column. Otherwise random orders are
        drawn. Boosted trees are included.

        A new row takes ``B (d - 1)`` predictions for B background rows and d columns,
        in single precision if this changes them by at most 0.1 % of their standard
        deviation.

        References
        ----------
        Lundberg, Lee (2017), NIPS 30:4765-4774. Castro, Gomez, Tejada (2009), Computers
        & Operations Research 36:1726-1730. Janzing, Minorics, Bloebaum (2020), AISTATS.
        """
        n_permutations = whole_number("permutations", permutations, 1)
        features = self._validate_dense(X)
        contributions = self._contributions(
            features, self._background_features(background), n_permutations
        )
        return contributions.explanation(
            cells_of(X, self.table_), tuple(self._columns), self._output_names
        )

    def _contributions(
        self, features: np.ndarray, background: np.ndarray, n_permutations: int
    ) -> Contributions:
        groups = column_slices(self.table_, features.shape[1])
        in_single_precision = copy(self)
        in_single_precision.precision = "float32"
        return contributions_of(
            self._explained_outputs,
            in_single_precision._explained_outputs,
            features,
            CompositeRows(background, groups),
            n_permutations,
            self._explanation_seed,
            ProductScores.of(self._linear) if self._explains_scores else None,
        )

    def _validate_dense(self, X: Any) -> np.ndarray:
        if sparse.issparse(X):
            raise ValueError(
                "explain needs dense rows, got sparse ones. Use X.toarray()."
            )
        features = np.asarray(self._validate_new(X), dtype=np.float64)
        if not len(features):
            raise ValueError(
                "X must hold at least one row, got none; give the rows to explain."
            )
        return features

    @property
    def _explanation_seed(self) -> int:
        if isinstance(self.random_state, Integral):
            return int(self.random_state)
        return 0

    def _background_features(self, background: Any) -> np.ndarray:
        if not isinstance(background, Integral):
            return self._validate_dense(background)
        n_rows = whole_number("background", background, 1)
        kernel = self.kernel_
        rows = kernel.X[drawn_rows(kernel.X.shape[0], n_rows, self._explanation_seed)]
        if sparse.issparse(rows):
            rows = rows.toarray()
        return np.asarray(rows + kernel.origin)

    @property
    @abstractmethod
    def _output_names(self) -> tuple[str, ...]:
        """Names of the explained outputs; empty for a single number."""

    @property
    @abstractmethod
    def _explains_scores(self) -> bool:
        """Whether the explained predictions are linear in the kernel."""

    @abstractmethod
    def _explained_outputs(self, features: Rows) -> np.ndarray:
        """Return the explained predictions, (n, q)."""

    def _C_for_kernel(
        self, kernel: LearnedKernel, n_rows: int
    ) -> float | Literal["auto"]:
        """Return the requested C or, for "auto", the kernel's C, if any."""
        C = self._requested_C()
        if C == "auto":
            self.sampling_ = replace(self.sampling_, C=min(n_rows, SELECTION_ROWS))
            if kernel.C is not None:
                return kernel.C
        elif kernel.C is not None and not np.isclose(kernel.C, C, rtol=1e-9, atol=0):
            raise ValueError(
                f"the kernel was learned with C = {kernel.C:g}, and the estimator has {C:g} (C, "
                "or 1 / alpha); give it that of the kernel."
            )
        return C

    def _choose_predictor(
        self, training: TrainingSet, target: Target, seed: int
    ) -> Predictor:
        predictor = as_predictor(self.predictor)
        if getattr(predictor, "random_state", 0) is None:
            predictor = as_predictor(predictor, random_state=seed)
        learner = as_learner(training.kernel.learner)
        fits = 1.0 + WORK_OF_HELD_OUT * self._uses_held_out_scores
        choice = predictor.choose(
            PredictionProblem.of(
                training, target, 1, learner.predictor, fits, learner.suited
            )
        )
        self.predictor_ = choice.predictor.name
        self.predictor_reason_ = choice.reason
        return choice.predictor


class FitLog:
    """Writer of the lines that `verbose` prints."""

    def __init__(self, estimator: str, is_printed: bool) -> None:
        self.estimator = estimator
        self.is_printed = is_printed
        self.started = time.perf_counter()
        self.last_line = self.started

    def write(self, text: str) -> None:
        """Print a line with the seconds since the start."""
        if not self.is_printed:
            return
        self.last_line = time.perf_counter()
        print(  # noqa: T201
            f"{self.estimator}, {self.last_line - self.started:.1f} s: {text}",
            flush=True,
        )

    def write_step(self, step: int, residual: float) -> None:
        """Print every tenth step, and any step after two silent seconds."""
        longest_silence = 2.0
        if step % 10 == 0 or time.perf_counter() - self.last_line >= longest_silence:
            self.write(f"step {step}, relative residual {residual:.1e}")


def _requires(parameter: str, method: str) -> Callable[[Any], bool]:
    """Return a check that a parameter enables a method."""

    def is_available(estimator: Any) -> bool:
        if not getattr(estimator, parameter):
            raise AttributeError(
                f"{method} is only available with {parameter}=True, before fit."
            )
        return True

    return is_available


@explain_unknown_arguments
@dataclass(eq=False, repr=False, kw_only=True)
class KernelLearningClassifier(ClassifierMixin, SupervisedLearner):  # type: ignore[misc]
    """Classifier with a kernel that is learned from the training data.

    Parameters
    ----------
    learner : str or Learner, default "auto"
        Method that learns the kernel, see ``learnkernels learners``; not `ensemble`.
        "auto": `rfm`, or `alignf` if `family` is given or X is sparse.
    family : KernelFamily or None, default None
        Base kernels. None: found by the learner (`rfm`, `ca`, `cr`), or Gaussian
        kernels with seven bandwidths, see `default_family`.
    C : float or "auto", default "auto"
        Inverse regularization strength, as in `sklearn.svm.SVC`, for a kernel with unit
        mean diagonal. "auto": least cross-validation error on at most 1,500 rows, or
        log loss of leave-one-out scores for ridge regression; for a one-stage learner,
        with equal weights.
    columns : mapping of str to str or sequence of str, or None, default None
        Column types that override inferred ones: "number", "categorical", "date",
        "text", "code" (hash code of a category), "drop", or ordered levels, lowest
        first.
    normalize : {"trace", "frobenius", "none"}, default "trace"
        Scaling of the centered base kernels before learning; ignored by `ca` and `cr`.
    centering : {"center", "target", "none"}, default "center"
        Whether to center the base kernels in feature space. Otherwise, the intercept is
        the mean target ("target") or zero ("none"); most learners refuse both of these.
    sample : "auto", "all", int or None, default None
        Number of training rows drawn to learn the kernel. "auto": 8,192, or 5,000 for
        learners that find base kernels. None: all up to 20,000 (5,000 for rfm),
        otherwise as "auto".
    random_state : int, RandomState or None, default 0
        Seed of samples and of landmarks.
    n_jobs : int or None, default None
        Largest number of threads. None and -1: all available cores.
    predictor : str or Predictor, default "auto"
        Classifier on the learned kernel: "krr" (kernel ridge regression), "krr-cg" (the
        same by conjugate gradients), "svm", "nystroem" (linear classifier on landmarks)
        or an object. "auto": the learner's own; otherwise krr after rfm up to 5,000
        rows, svm up to 20,000 rows, krr-cg or nystroem.
    boost : "auto", False or estimator, default "auto"
        Boosted trees, whose probabilities are averaged with those of the kernel.
        "auto": scikit-learn's histogram-based gradient boosting, with at least 1,000
        rows and at most 20 classes, if `learner`, `family` and `class_weight` are
        defaults.
    precision : {"float64", "float32"}, default "float64"
        Precision of predictions; fits use float64. "float32" takes half the time, with
        relative errors of about 1e-6.
    time_limit : float or None, default None
        Approximate time limit of `fit` in seconds, which fits growing samples of rows.
    verbose : bool, default False
        Whether to print the steps of `fit`.
    class_weight : dict, "balanced" or None, default None
        Weights of the classes, multiplied by the sample weights. "balanced": inversely
        proportional to class frequencies.
    probability : bool, default True
        Whether to calibrate `predict_proba`. Cost: none for krr, half a fit for krr-cg,
        otherwise five fits, or one beyond 10,000 rows.

    Attributes
    ----------
    classes_ : ndarray of shape (n_classes,)
        Class labels, ascending; for several labels per row, positions of their columns.
    multilabel_ : bool
        Whether rows have several labels.
    learner_, learner_reason_ : str
        Learner in use, and the reason for an automatic choice.
    kernel_ : LearnedKernel
        The learned kernel.
    weights_ : ndarray of shape (p,)
        Weights of the base kernels.
    alignment_ : float
        Centered alignment of the kernel with the target.
    family_ : KernelFamily
        The base kernels.
    predictor_, predictor_reason_ : str
        Predictor in use, and the reason for an automatic choice.
    C_ : float
        The requested or selected C.
    landmarks_ : ndarray of int of shape (M,)
        Training rows that are landmarks; only for nystroem.
    dual_coef_ : ndarray of shape (m, q)
        Dual coefficients: ``kernel_.cross_gram(X) @ dual_coef_ + intercept_`` are the
        scores, one for two classes, otherwise one per class, label or (svm) pair of
        classes.
    intercept_ : ndarray of shape (q,)
        Intercept of each score.
    calibration_ : ndarray of shape (2,) or (n_labels, 2)
        Slope and offset of the sigmoid, shared by all classes or per label.
    boost_ : estimator or None
        Fitted trees.
    boost_share_ : float
        Weight of the trees in predictions, between 0 and 1.
    table_ : TableEncoding or None
        Column types and features of a table.
    relevance_ : dict of str to float
        Permutation importance of each column or feature, in descending order: relative
        increase of the squared error of probabilities. Computed when first read.
    feature_importances_ : ndarray of shape (n_features,)
        Relevance of each column, clipped at zero, divided by the sum.
    interactions_ : dict of tuple of str to float
        Ten largest interactions of two columns, in descending order.
    sampling_ : FitSampling
        Number of training rows used in each step of `fit`.
    n_samples_fit_ : int
        Number of training rows of the predictor.
    n_groups_ : int or None
        Number of groups, times or clusters of near-duplicates that choices respected.
    n_features_in_ : int
        Number of columns in `fit`.
    feature_names_in_ : ndarray of shape (d,)
        Names of all columns in `fit`, if X has names.

    Notes
    -----
    A two-stage learner takes O(m^2 (d + p^2)) time. The predictors krr and svm take
    O(m^2) memory and O(m^2) to O(m^3) time; krr-cg some tens of passes over all pairs
    of rows; nystroem O(m M^2) time. Prediction takes O(s) time per row, for s support
    vectors, landmarks or training rows.

    Sample weights are multiplied by class weights and divided by their mean. A row of
    weight w then counts as w copies, except for the prior of probabilities. Rows with
    at most 2.2e-16 of the total weight are dropped, with a warning. Only two-stage
    learners and rfm support weights.

    Probabilities come from Platt's sigmoid, fitted on held-out scores; class weights do
    not influence them. The kernel is learned on all training rows, so probabilities may
    be overconfident. `sklearn.calibration.CalibratedClassifierCV` learns the kernel per
    fold instead.

    Several labels per row share one kernel, learned by regression on their indicators.
    `sklearn.multioutput.MultiOutputClassifier` learns a kernel per label instead.

    Relevances and interactions use models fitted without the tested rows, on at most
    2,500 training rows; at most 500 rows are tested. Only `rfm`, `ca` and `cr` learn
    the kernel again without the tested rows.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828. Platt (1999), Advances in Large
    Margin Classifiers.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from sklearn.model_selection import cross_val_score
    >>> from learnkernels import GaussianFamily, KernelLearningClassifier
    >>> X, y = load_iris(return_X_y=True)
    >>> print(f"{cross_val_score(KernelLearningClassifier(), X, y).mean():.2f}")
    0.97
    >>> model = KernelLearningClassifier(family=GaussianFamily([0.01, 0.1, 1.0])).fit(X, y)
    >>> model.learner_, model.weights_.round(2)
    ('alignf', array([0.  , 0.57, 0.82]))
    """

    C: float | Literal["auto"] = "auto"
    class_weight: Mapping[Any, float] | Literal["balanced"] | None = None
    probability: bool = True

    classes_: np.ndarray = field(init=False)
    multilabel_: bool = field(init=False)
    calibration_: np.ndarray = field(init=False)

    _saved = (*SupervisedLearner._saved, "classes_", "multilabel_", "calibration_")

    @property
    def _has_labels(self) -> bool:
        # Files of earlier versions lack it.
        return getattr(self, "multilabel_", False)

    @property
    def _n_scores(self) -> int:
        n_classes = len(self.classes_)
        if self._has_labels:
            return n_classes
        if n_classes == 2:
            return 1
        if PREDICTORS[self.predictor_].one_vs_one:
            return n_classes * (n_classes - 1) // 2
        return n_classes

    def _require_sound(self) -> None:
        super()._require_sound()
        if len(set(self.classes_.tolist())) < max(2, len(self.classes_)):
            raise ValueError(
                f"classes_ must hold at least two different labels, got {self.classes_.tolist()!r:.60}."
            )
        shape = (len(self.classes_), 2) if self._has_labels else (2,)
        require_numbers(
            "calibration_", getattr(self, "calibration_", np.zeros(shape)), shape
        )

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.classifier_tags.multi_label = True
        return tags

    @within_n_jobs
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        groups: Any = None,
        time: Any = None,
    ) -> Self:
        """Learn the kernel and fit the classifier.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (m, d)
            Training rows; sparse if the base kernels support it. Tables are of pandas,
            polars or Arrow.
        y : array-like or sparse matrix of shape (m,) or (m, n_labels)
            Class labels, at least two; for several labels per row, 0 and 1 per label.
        sample_weight : array-like of shape (m,), optional
            Non-negative weights, of which only ratios matter.
        groups : array-like of shape (m,), optional
            Group of each row, such as a patient; choices are validated on unseen
            groups.
        time : array-like of shape (m,), optional
            Time of each row; choices are validated on later rows. Not with `groups`.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            A parameter is invalid or does not support several labels per row, y has a
            single class, or a class has only late rows.

        Warns
        -----
        UserWarning
            Some weights are too small to matter, parts of a table are not used, or
            rows repeat in all columns but one.
        """
        self._requested_C()
        if is_multilabel(y):
            X, y = self._validate_training(X, y, sample_weight, multi_output=True)
            return self._fit_features(
                X, dense_indicators(y), sample_weight, groups, time
            )
        require_no_columns_of_classes(y)
        X, y = self._validate_training(X, y, sample_weight)
        check_classification_targets(y)
        return self._fit_features(X, y, sample_weight, groups, time)

    def _fit_features(
        self, X: Rows, y: np.ndarray, sample_weight: Any, groups: Any, time: Any
    ) -> Self:
        if has_labels(y):
            require_label_options(self.learner, self.predictor, self.class_weight)
        seed = self._draw_seed()
        row_groups = as_row_groups(groups, time, len(y))
        rows, weights = rows_with_weight(y, sample_weight, self.class_weight)
        X, y = take_rows(X, y, rows)
        target = self._encode_target(y)
        self._check_options(target.task)
        row_groups = groups_of_copies(X, row_groups, rows)
        require_divided_classes(target, row_groups)
        return self._fit(X, y, weights, seed, row_groups)

    @property
    def _uses_held_out_scores(self) -> bool:
        return bool(self.probability)

    def _obstacle_to_boosting(self, X: Rows, target: Target) -> str | None:
        if not self.probability:
            return "probability is False"
        if self.class_weight is not None:
            return "class_weight is given"
        if self.multilabel_:
            return "rows have several labels"
        return super()._obstacle_to_boosting(X, target)

    def _requested_C(self) -> float | Literal["auto"]:
        return as_regularization("C", self.C)

    def _encode_target(self, y: np.ndarray) -> Target:
        self.multilabel_ = has_labels(y)
        if self.multilabel_:
            self.classes_ = np.arange(y.shape[1])
            return labels_target(y)
        classes, codes = np.unique(column_or_1d(y), return_inverse=True)
        if len(classes) < 2:
            raise ValueError(
                f"y must hold at least two classes, got 1 class: {classes.tolist()}."
            )
        self.classes_ = classes
        return Target("classification", codes, tuple(str(label) for label in classes))

    def _held_out_predictions(
        self,
        training: TrainingSet,
        target: Target,
        predictor: Predictor,
        rows: np.ndarray,
        scores: np.ndarray,
    ) -> np.ndarray:
        if self.multilabel_:
            return self._calibrate_labels(
                scores,
                target.Y[rows] > 0,
                weights_of_rows(training.sample_weight, rows),
            )
        scores = class_scores(scores, len(self.classes_), predictor.one_vs_one)
        weights = training.sample_weight
        codes = target.values[rows]
        weighted = fit_calibration(scores, codes, weights_of_rows(weights, rows))
        calibration = weighted
        if self.class_weight is not None:
            sample_weight = self._without_class_weights(weights, target)
            calibration = fit_calibration(
                scores, codes, weights_of_rows(sample_weight, rows)
            )
        held_out_probabilities = probabilities(scores, calibration)
        if len(self.classes_) == 2 and predictor.loss == "squared" and weighted[0] > 0:
            shift = weighted[1] / weighted[0]
            set_coefficients(
                self, self.kernel_, self.dual_coef_, self.intercept_ + shift
            )
            calibration = calibration - [0.0, calibration[0] * shift]
        self.calibration_ = calibration
        return held_out_probabilities

    def _calibrate_labels(
        self, scores: np.ndarray, has_label: np.ndarray, weights: np.ndarray | None
    ) -> np.ndarray:
        calibration = fit_label_calibration(scores, has_label, weights)
        shift = shift_to_even_odds(calibration)
        set_coefficients(self, self.kernel_, self.dual_coef_, self.intercept_ + shift)
        self.calibration_ = calibration.copy()
        self.calibration_[:, 1] -= calibration[:, 0] * shift
        return label_probabilities(scores, calibration)

    def _without_class_weights(
        self, weights: np.ndarray | None, target: Target
    ) -> np.ndarray | None:
        """Return relative sample weights; None if all weights are equal."""
        class_weights = self._weights_of_classes(target)
        if weights is None:
            if np.ptp(class_weights) == 0:
                return None
            weights = np.ones(len(class_weights))
        return relative_weights(weights, 1.0 / near_one(class_weights))

    def _weights_of_classes(self, target: Target) -> np.ndarray:
        class_weight = self.class_weight
        if isinstance(class_weight, Mapping):
            classes = set(self.classes_.tolist())
            class_weight = {
                label: weight
                for label, weight in class_weight.items()
                if label in classes
            }
        return np.asarray(
            compute_sample_weight(class_weight, self.classes_[target.values])
        )

    def decision_function(self, X: Any) -> np.ndarray:
        """Return the decision scores of new rows.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (n, d)
            New rows.

        Returns
        -------
        scores : ndarray of shape (n,), (n, n_classes) or (n, n_labels)
            Positive for the second of two classes; otherwise one score per label or
            class, of which `predict` takes the largest. For svm with more classes,
            scores are numbers of pairwise decisions plus their margins; with boosted
            trees, log-odds or logarithms of the averaged probabilities.
        """
        return self._decisions(self._validate_new(X))

    def _decisions(self, features: Rows) -> np.ndarray:
        decisions, _ = self._decisions_and_probabilities(features)
        return decisions

    def _probabilities(self, features: Rows) -> np.ndarray:
        _, class_probabilities = self._decisions_and_probabilities(features)
        assert class_probabilities is not None
        return class_probabilities

    def _decisions_and_probabilities(
        self, features: Rows
    ) -> tuple[np.ndarray, np.ndarray | None]:
        if self._has_labels:
            scores = self._scores(features)
            if not hasattr(self, "calibration_"):
                return scores, None
            return scores, label_probabilities(scores, self.calibration_)
        n_classes = len(self.classes_)
        decisions = class_scores(
            self._scores(features), n_classes, PREDICTORS[self.predictor_].one_vs_one
        )
        if not hasattr(self, "calibration_"):
            return decisions, None
        class_probabilities = probabilities(decisions, self.calibration_)
        if self.boost_ is None:
            return decisions, class_probabilities
        class_probabilities = self._with_trees(class_probabilities, features, n_classes)
        logarithms = np.log(np.maximum(class_probabilities, np.finfo(np.float64).tiny))
        if n_classes == 2:
            return logarithms[:, 1] - logarithms[:, 0], class_probabilities
        return logarithms, class_probabilities

    def predict(self, X: Any) -> np.ndarray:
        """Return the class of each new row.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (n, d)
            New rows.

        Returns
        -------
        labels : ndarray of shape (n,) or (n, n_labels)
            Classes or, for several labels per row, 0 and 1 per label.
        """
        return self._labels(self._validate_new(X))

    def _labels(self, features: Rows) -> np.ndarray:
        scores = self._decisions(features)
        if self._has_labels:
            return (scores > 0).astype(np.int64)
        if scores.ndim == 1:
            return self.classes_[(scores > 0).astype(np.intp)]
        return self.classes_[scores.argmax(axis=1)]

    @property
    def _output_names(self) -> tuple[str, ...]:
        if not hasattr(self, "calibration_") and len(self.classes_) == 2:
            return ()
        return tuple(map(str, self.classes_.tolist()))

    @property
    def _explains_scores(self) -> bool:
        is_linear = (
            len(self.classes_) == 2 or not PREDICTORS[self.predictor_].one_vs_one
        )
        return is_linear and not hasattr(self, "calibration_")

    def _explained_outputs(self, features: Rows) -> np.ndarray:
        decisions, class_probabilities = self._decisions_and_probabilities(features)
        if class_probabilities is not None:
            return class_probabilities
        return decisions.reshape(len(decisions), -1)

    @available_if(_requires("probability", "predict_proba"))  # type: ignore[untyped-decorator]
    def predict_proba(self, X: Any) -> np.ndarray:
        """Return the probability of each class; requires ``probability=True``.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (n, d)
            New rows.

        Returns
        -------
        P : ndarray of shape (n, n_classes) or (n, n_labels)
            One column per class, with sum one in each row, or one column per label.

        Notes
        -----
        The most probable class is that of `predict`, except for two classes with class
        weights or without the squared loss.
        """
        check_is_fitted(self, "calibration_")
        return self._probabilities(self._validate_new(X))


@explain_unknown_arguments
@dataclass(eq=False, repr=False, kw_only=True)
class KernelLearningRegressor(RegressorMixin, SupervisedLearner):  # type: ignore[misc]
    """Kernel ridge regression with a kernel that is learned from the training data.

    Parameters
    ----------
    learner : str or Learner, default "auto"
        Method that learns the kernel, see ``learnkernels learners``; not `ensemble`.
        "auto": `rfm`, or `alignf` if `family` is given or X is sparse.
    family : KernelFamily or None, default None
        Base kernels. None: found by the learner (`rfm`, `ca`, `cr`), or Gaussian
        kernels with seven bandwidths, see `default_family`.
    alpha : float or "auto", default "auto"
        Regularization strength (1 / C), as in `sklearn.kernel_ridge.KernelRidge`, for a
        kernel with unit mean diagonal. "auto": least squared leave-one-out residuals on
        at most 1,500 rows; for a one-stage learner, with equal weights.
    columns : mapping of str to str or sequence of str, or None, default None
        Column types that override inferred ones: "number", "categorical", "date",
        "text", "code" (hash code of a category), "drop", or ordered levels, lowest
        first.
    normalize : {"trace", "frobenius", "none"}, default "trace"
        Scaling of the centered base kernels before learning; ignored by `ca` and `cr`.
    centering : {"center", "target", "none"}, default "center"
        Whether to center the base kernels in feature space. Otherwise, the intercept is
        the mean target ("target") or zero ("none"); most learners refuse both of these.
    sample : "auto", "all", int or None, default None
        Number of training rows drawn to learn the kernel. "auto": 8,192, or 5,000 for
        learners that find base kernels. None: all up to 20,000 (5,000 for rfm),
        otherwise as "auto".
    random_state : int, RandomState or None, default 0
        Seed of samples and of landmarks.
    n_jobs : int or None, default None
        Largest number of threads. None and -1: all available cores.
    predictor : str or Predictor, default "auto"
        Solver of the ridge regression: "krr" (one factorization), "krr-cg" (conjugate
        gradients), "nystroem" (on landmarks) or an object. "auto": krr up to 5,000
        rows; otherwise krr-cg or nystroem, by size and memory.
    boost : "auto", False or estimator, default "auto"
        Boosted trees, whose predictions are averaged with those of the kernel. "auto":
        scikit-learn's histogram-based gradient boosting, with at least 1,000 rows and
        one output, if `learner` and `family` are defaults.
    precision : {"float64", "float32"}, default "float64"
        Precision of predictions; fits use float64. "float32" takes half the time, with
        relative errors of about 1e-6.
    time_limit : float or None, default None
        Approximate time limit of `fit` in seconds, which fits growing samples of rows.
    verbose : bool, default False
        Whether to print the steps of `fit`.
    intervals : bool, default True
        Whether to enable `predict_interval` and `predict_quantiles`. Cost: little for
        krr, half a fit for krr-cg, five fits for nystroem, or one beyond 10,000 rows.

    Attributes
    ----------
    learner_, learner_reason_ : str
        Learner in use, and the reason for an automatic choice.
    kernel_ : LearnedKernel
        The learned kernel.
    weights_ : ndarray of shape (p,)
        Weights of the base kernels.
    alignment_ : float
        Centered alignment of the kernel with the target.
    family_ : KernelFamily
        The base kernels.
    predictor_, predictor_reason_ : str
        Predictor in use, and the reason for an automatic choice.
    alpha_ : float
        Requested or selected alpha.
    C_ : float
        1 / `alpha_`.
    landmarks_ : ndarray of int of shape (M,)
        Training rows that are landmarks; only for nystroem.
    dual_coef_ : ndarray of shape (m, q)
        Dual coefficients: ``kernel_.cross_gram(X) @ dual_coef_ + intercept_`` are the
        predictions, one column per output.
    intercept_ : ndarray of shape (q,)
        Intercept of each output.
    residuals_ : ndarray of shape (n, q)
        Quantiles of the absolute residuals of held-out rows, ascending; at most 999.
    signed_residuals_ : ndarray of shape (n, q)
        Quantiles of the signed residuals, target minus prediction.
    boost_ : estimator or None
        Fitted trees.
    boost_share_ : float
        Weight of the trees in predictions, between 0 and 1.
    residual_scale_ : ResidualScale or None
        Expected absolute residual of a row. None, for intervals of one width, if y is
        constant or fewer than 40 distinct rows are held out.
    table_ : TableEncoding or None
        Column types and features of a table.
    relevance_ : dict of str to float
        Permutation importance of each column or feature, in descending order: relative
        increase of the squared error. Computed when first read.
    feature_importances_ : ndarray of shape (n_features,)
        Relevance of each column, clipped at zero, divided by the sum.
    interactions_ : dict of tuple of str to float
        Ten largest interactions of two columns, in descending order.
    sampling_ : FitSampling
        Number of training rows used in each step of `fit`.
    n_samples_fit_ : int
        Number of training rows of the predictor.
    n_groups_ : int or None
        Number of groups, times or clusters of near-duplicates that choices respected.
    n_features_in_ : int
        Number of columns in `fit`.
    feature_names_in_ : ndarray of shape (d,)
        Names of all columns in `fit`, if X has names.

    Notes
    -----
    A two-stage learner takes O(m^2 (d + p^2)) time. The predictor krr takes O(m^2)
    memory and O(m^3) time; krr-cg some tens of passes over all pairs of rows; nystroem
    O(m M^2) time. Prediction takes O(m) time per row, or O(M) for nystroem.

    Sample weights are divided by their mean; a row of weight w then counts as w copies.
    Rows with at most 2.2e-16 of the total weight are dropped, with a warning. Only
    two-stage learners and rfm support weights.

    Outputs share one kernel, which outputs of large variance dominate: standardize
    them.

    Relevances and interactions are computed as in `KernelLearningClassifier`.

    References
    ----------
    Cortes, Mohri, Rostamizadeh (2012), JMLR 13:795-828.

    Examples
    --------
    >>> import numpy as np
    >>> from learnkernels import KernelLearningRegressor
    >>> X = np.random.default_rng(0).uniform(-3, 3, size=(200, 2))
    >>> y = np.sin(X[:, 0]) + 0.1 * X[:, 1] ** 2
    >>> model = KernelLearningRegressor().fit(X[:150], y[:150])
    >>> model.score(X[150:], y[150:]) > 0.99
    True
    """

    alpha: float | Literal["auto"] = "auto"
    intervals: bool = True

    _vector: bool = field(init=False)
    residual_scale_: ResidualScale | None = field(init=False)

    _saved = (
        *SupervisedLearner._saved,
        "_vector",
        "residuals_",
        "signed_residuals_",
        "residual_scale_",
    )

    @property
    def _n_scores(self) -> int:
        if self._vector:
            return 1
        return self.dual_coef_.shape[1]

    def _require_sound(self) -> None:
        super()._require_sound()
        for name in ("residuals_", "signed_residuals_"):
            residuals = getattr(self, name, np.zeros(1))
            require_numbers(name, residuals, residuals.shape)
        scale = getattr(self, "residual_scale_", None)
        if scale is not None:
            scale.require_sound(self.kernel_.X.shape[1], self._n_scores)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    @property
    def alpha_(self) -> float:
        """Regularization strength alpha: the parameter, or the selected value."""
        return 1 / self.C_

    @within_n_jobs
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        groups: Any = None,
        time: Any = None,
    ) -> Self:
        """Learn the kernel and fit the ridge regression.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (m, d)
            Training rows; sparse if the base kernels support it. Tables are of pandas,
            polars or Arrow.
        y : array-like of shape (m,) or (m, q)
            Target values.
        sample_weight : array-like of shape (m,), optional
            Non-negative weights, of which only ratios matter.
        groups : array-like of shape (m,), optional
            Group of each row, such as a patient; choices are validated on unseen
            groups.
        time : array-like of shape (m,), optional
            Time of each row; choices are validated on later rows. Not with `groups`.

        Returns
        -------
        self : object

        Raises
        ------
        ValueError
            A parameter is invalid, or the kernel cannot be learned from these rows.

        Warns
        -----
        UserWarning
            The target is constant, so no kernel is learned; some weights are too small
            to matter; parts of a table are not used; or rows repeat in all columns but
            one.
        """
        self._requested_C()
        X, y = self._validate_training(
            X, y, sample_weight, multi_output=True, y_numeric=True
        )
        return self._fit_features(
            X, np.asarray(y, dtype=np.float64), sample_weight, groups, time
        )

    def _fit_features(
        self, X: Rows, y: np.ndarray, sample_weight: Any, groups: Any, time: Any
    ) -> Self:
        seed = self._draw_seed()
        row_groups = as_row_groups(groups, time, len(y))
        rows, weights = rows_with_weight(y, sample_weight)
        X, y = take_rows(X, y, rows)
        self._check_options("regression")
        if (y != y[0]).any():
            return self._fit(X, y, weights, seed, groups_of_copies(X, row_groups, rows))
        warn_caller(
            "y is constant, so no kernel is learned and this value is predicted."
        )
        return self._fit_constant(X, y, seed)

    def _fit_constant(self, X: Rows, y: np.ndarray, seed: int) -> Self:
        """Predict the constant target, with zero coefficients on few rows."""
        rows = drawn_rows(X.shape[0], 100, seed)
        kernel = self._kernel_of_any_target(X[rows])
        constant = np.atleast_1d(y[0])
        self.learner_reason_ = ""
        self.predictor_ = "krr"
        self.predictor_reason_ = ""
        self.C_ = 1.0
        self.sampling_ = FitSampling(len(y), len(rows))
        self.n_samples_fit_ = len(y)
        self.n_groups_ = None
        self.boost_ = None
        self.boost_share_ = 0.0
        self.residuals_ = np.zeros((min(len(y), MOST_RESIDUALS), len(constant)))
        self.signed_residuals_ = self.residuals_
        self.residual_scale_ = None
        self._vector = y.ndim == 1
        set_coefficients(self, kernel, np.zeros((len(rows), len(constant))), constant)
        self._keep_importance_rows(kernel.rows, Target.of(y[rows], "regression"))
        return self

    def _kernel_of_any_target(self, X: Rows) -> LearnedKernel:
        family: KernelFamily = GaussianFamily([1.0])
        centering = "none"
        if len(distinct_rows(X)[0]) > 1:
            family = self._family_or_default(X)
            centering = "center"
        return learn_kernel(
            X,
            np.arange(X.shape[0]) * 1.0,
            learner="unif",
            family=family,
            task="regression",
            centering=centering,
        )

    @property
    def _uses_held_out_scores(self) -> bool:
        return bool(self.intervals)

    def _obstacle_to_boosting(self, X: Rows, target: Target) -> str | None:
        if target.Y.shape[1] > 1:
            return "there are several outputs"
        return super()._obstacle_to_boosting(X, target)

    def _requested_C(self) -> float | Literal["auto"]:
        alpha = as_regularization("alpha", self.alpha)
        if alpha == "auto":
            return "auto"
        return 1.0 / alpha

    def _encode_target(self, y: np.ndarray) -> Target:
        self._vector = y.ndim == 1
        return Target.of(y, "regression")

    def _held_out_predictions(
        self,
        training: TrainingSet,
        target: Target,
        predictor: Predictor,
        rows: np.ndarray,
        scores: np.ndarray,
    ) -> np.ndarray:
        return scores

    def _keep_residuals(
        self,
        training: TrainingSet,
        target: Target,
        rows: np.ndarray,
        predictions: np.ndarray,
    ) -> None:
        if not self.intervals:
            return
        residuals = target.Y[rows] - predictions
        self.residuals_ = order_statistics(np.abs(residuals))
        self.signed_residuals_ = order_statistics(residuals)
        drawn = drawn_rows(len(rows), MOST_ROWS, seed=0)
        row_groups = target.row_groups
        if row_groups is not None:
            row_groups = row_groups.take(rows[drawn])
        X = training.take(rows[drawn])[0]
        self.residual_scale_ = ResidualScale.fit(
            self.kernel_, X, residuals[drawn], row_groups
        )

    def predict(self, X: Any) -> np.ndarray:
        """Return the prediction for each new row.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (n, d)
            New rows.

        Returns
        -------
        values : ndarray of shape (n,) or (n, q)
        """
        values = self._predictions(self._validate_new(X))
        if self._vector:
            return values[:, 0]
        return values

    def _predictions(self, features: Rows) -> np.ndarray:
        by_kernel = self._scores(features)
        if self.boost_ is None:
            return by_kernel
        return self._with_trees(by_kernel, features)

    @property
    def _output_names(self) -> tuple[str, ...]:
        if self._vector:
            return ()
        return tuple(map(str, range(self._n_scores)))

    @property
    def _explains_scores(self) -> bool:
        return self.boost_ is None

    def _explained_outputs(self, features: Rows) -> np.ndarray:
        return self._predictions(features)

    @available_if(_requires("intervals", "predict_interval"))  # type: ignore[untyped-decorator]
    def predict_interval(self, X: Any, alpha: float = 0.1) -> np.ndarray:
        r"""Return a prediction interval with coverage ``1 - alpha`` for each new row.

        .. math:: f(x) \pm s(x) \, \rho_{(\lceil (n + 1)(1 - \alpha) \rceil)}, \qquad
                  \rho_i = \frac{|y_i - f^{(-i)}(x_i)|}{s^{(-i)}(x_i)}

        where s is the expected absolute residual, see `residual_scale_`, and
        :math:`\rho` are the sorted ratios of n held-out training rows.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (n_new, d)
            New rows.
        alpha : float, default 0.1
            Expected share of new targets outside their interval; at least 1 / (n + 1).

        Returns
        -------
        bounds : ndarray of shape (n_new, 2) or (n_new, 2, q)
            Lower and upper bounds.

        Raises
        ------
        ValueError
            `alpha` is not between 0 and 1, or too small for n.

        Notes
        -----
        The coverage holds on average over all rows, and for subgroups only
        approximately. A kernel that ignores a feature cannot represent noise that
        depends on this feature. Sample weights are ignored.

        References
        ----------
        Barber, Candes, Ramdas, Tibshirani (2021), Annals of Statistics 49:486-507
        (jackknife). Lei, G'Sell, Rinaldo, Tibshirani, Wasserman (2018), Journal of the
        American Statistical Association 113:1094-1111, section 5.2 (scale).
        """
        check_is_fitted(self, "residuals_")
        if not isinstance(alpha, Real) or self._residual_quantile(alpha) is None:
            n = len(self._relative_residuals)
            raise ValueError(
                f"alpha must be between {1 / (n + 1):.3g}, as {n:,} residuals are known, and 1, got {alpha!r}."
            )
        features = self._validate_new(X)
        scores = self._predictions(features)
        half_widths = self._half_widths(features, alpha)
        bounds = np.stack([scores - half_widths, scores + half_widths], axis=1)
        if self._vector:
            return bounds[:, :, 0]
        return bounds

    @property
    def _relative_residuals(self) -> np.ndarray:
        """Ascending absolute residuals, divided by the scale, if any."""
        # Files of earlier versions lack it.
        scale = getattr(self, "residual_scale_", None)
        if scale is None:
            return self.residuals_
        return scale.ratios

    def _residual_quantile(self, alpha: float) -> np.ndarray | None:
        """Return half of a relative width; None for too few residuals."""
        return conformal_quantile(self._relative_residuals, alpha)

    def _half_widths(self, X: Rows, alpha: float) -> np.ndarray:
        quantile = self._residual_quantile(alpha)
        assert quantile is not None
        return self._residual_sizes(X) * quantile

    def _residual_sizes(self, X: Rows) -> np.ndarray:
        """Return the expected absolute residual of each row, or ones."""
        scale = getattr(self, "residual_scale_", None)
        if scale is None:
            return np.ones((X.shape[0], self._n_scores))
        return scale.sizes(self._scores_of(scale.scores, X))

    @available_if(_requires("intervals", "predict_quantiles"))  # type: ignore[untyped-decorator]
    def predict_quantiles(
        self, X: Any, quantiles: Sequence[float] = (0.1, 0.5, 0.9)
    ) -> np.ndarray:
        r"""Return quantiles of the target for each new row.

        .. math:: f(x) + s(x) \, \rho_{((n + 1) p)}, \qquad
                  \rho_i = \frac{y_i - f^{(-i)}(x_i)}{s^{(-i)}(x_i)}

        where s is the expected absolute residual, see `residual_scale_`, and
        :math:`\rho` are the sorted ratios of n held-out training rows, interpolated
        between ranks.

        Parameters
        ----------
        X : array-like, sparse matrix or table of shape (n_new, d)
            New rows.
        quantiles : sequence of float, default (0.1, 0.5, 0.9)
            Expected shares p of new targets below their quantile, between 1 / (n + 1)
            and n / (n + 1).

        Returns
        -------
        values : ndarray of shape (n_new, n_quantiles) or (n_new, n_quantiles, q)
            Quantiles in the given order, nondecreasing in p.

        Raises
        ------
        ValueError
            `quantiles` is not a sequence of numbers, or one is too close to 0 or 1.

        Notes
        -----
        A share p of new targets is below the quantile on average over all rows, and for
        subgroups only approximately. Quantiles follow skewed noise, in contrast to
        `predict_interval`, if the skewness does not depend on the row.

        References
        ----------
        Lei, G'Sell, Rinaldo, Tibshirani, Wasserman (2018), Journal of the American
        Statistical Association 113:1094-1111, section 5.2.

        Examples
        --------
        >>> import numpy as np
        >>> from learnkernels import KernelLearningRegressor
        >>> rng = np.random.default_rng(0)
        >>> X = rng.uniform(-3, 3, size=(500, 1))
        >>> y = np.sin(X[:, 0]) + rng.exponential(size=500)
        >>> model = KernelLearningRegressor().fit(X[:400], y[:400])
        >>> values = model.predict_quantiles(X[400:], [0.1, 0.9])
        >>> (y[400:, None] < values).mean(axis=0).round(1)
        array([0.1, 0.9])
        """
        check_is_fitted(self, "signed_residuals_")
        steps = self._residual_steps(quantiles)
        features = self._validate_new(X)
        sizes = self._residual_sizes(features)
        values = self._predictions(features)[:, None, :] + sizes[:, None, :] * steps
        if self._vector:
            return values[:, :, 0]
        return values

    def _residual_steps(self, quantiles: Any) -> np.ndarray:
        """Return quantiles of the signed ratios, (n_quantiles, q)."""
        scale = getattr(self, "residual_scale_", None)
        residuals = self.signed_residuals_ if scale is None else scale.signed_ratios
        n = len(residuals)
        levels = np.asarray(quantiles)
        steps = None
        if levels.ndim == 1 and levels.dtype.kind in "iuf":
            steps = residual_quantiles(residuals, levels)
        if steps is None:
            raise ValueError(
                f"quantiles must be a sequence of numbers from 1/{n + 1} to {n}/{n + 1}, as {n} residuals are known, "
                f"got {quantiles!r:.60}."
            )
        return steps


def nested_samples(target: Target, seed: int) -> np.ndarray:
    """Return an order of the rows whose first n are stratified, for every n."""
    m = len(target)
    codes = np.zeros(m, dtype=np.intp)
    if target.task == "classification":
        codes = target.values
    shuffled = np.random.default_rng(seed).permutation(m)
    by_class = shuffled[np.argsort(codes[shuffled], kind="stable")]
    counts = np.bincount(codes)
    position_in_class = np.arange(m) - np.repeat(np.cumsum(counts) - counts, counts)
    class_size = np.repeat(counts, counts)
    order = by_class[np.argsort(position_in_class / class_size, kind="stable")]
    return target.rare_first(order, FIRST_ROWS)


def least_divided_sample(target: Target, order: np.ndarray, n_rows: int) -> int:
    while n_rows < len(target):
        if has_divided_groups(target.take(np.sort(order[:n_rows]))):
            return n_rows
        n_rows = ceil(LEAST_GROWTH * n_rows)
    return len(target)


def has_divided_groups(target: Target) -> bool:
    if target.row_groups is None:
        return True
    try:
        require_several_groups(target.row_groups)
        require_divided_classes(target, target.row_groups)
    except ValueError:
        return False
    return True


def rows_with_weight(
    y: np.ndarray,
    sample_weight: Any,
    class_weight: Mapping[Any, float] | str | None = None,
) -> tuple[np.ndarray | slice, np.ndarray | None]:
    """Return rows with positive weight (all as a slice), and their weights, with mean one."""
    factors: dict[str, np.ndarray] = {}
    weights = as_sample_weight(sample_weight, len(y), zero=True)
    if weights is not None:
        factors["sample_weight"] = weights
    if class_weight is not None:
        factors["class_weight"] = weights_of_classes(y, class_weight, weights)
    if not factors:
        return slice(None), None
    rows, weights = counting_rows(*factors.values(), name=" times ".join(factors))
    if len(rows) < len(y):
        return rows, weights
    return slice(None), weights


def take_rows(
    X: Rows, y: np.ndarray, rows: np.ndarray | slice
) -> tuple[Rows, np.ndarray]:
    if isinstance(rows, slice):
        return X, y
    return X[rows], y[rows]


def groups_of_copies(
    X: Rows, row_groups: RowGroups | None, rows: np.ndarray | slice
) -> RowGroups | None:
    """Return the groups of rows, joined so that equal rows share a group."""
    if row_groups is None:
        return None
    row_groups = row_groups.take(rows)
    require_several_groups(row_groups)
    _, which = distinct_rows(X)
    return row_groups.joined_by(which)


def require_several_groups(row_groups: RowGroups) -> None:
    if row_groups.n_groups < 2:
        raise ValueError(
            "groups or time must have two different values among the rows with a positive weight, got one."
        )


def require_divided_classes(target: Target, row_groups: RowGroups | None) -> None:
    """Raise ValueError if no class has two groups, or a class has only late rows."""
    if row_groups is None or target.task == "regression":
        return
    if not row_groups.ordered:
        pairs = np.unique(np.column_stack([target.values, row_groups.numbers]), axis=0)
        if len(pairs) == len(np.unique(target.values)):
            raise ValueError(
                "groups must divide at least one class, got a single group for each class; give groups that do not "
                "depend on y."
            )
        return
    training, _ = row_groups.splits(N_FOLDS)[-1]
    late = np.setdiff1d(np.arange(len(target.classes)), target.values[training])
    if len(late):
        raise ValueError(
            f"time must leave each class rows before the last {len(target) - len(training)} of {len(target)} rows, got "
            f"none of class {target.classes[late[0]]!r}; leave that class or time out."
        )


def weights_of_classes(
    y: np.ndarray,
    class_weight: Mapping[Any, float] | str,
    sample_weight: np.ndarray | None,
) -> np.ndarray:
    """Return each row's class weight; "balanced" ignores rows without weight."""
    if class_weight != "balanced" or sample_weight is None or not sample_weight.any():
        class_weights = compute_sample_weight(class_weight, y)
    else:
        has_weight = sample_weight > 0
        class_weights = np.zeros(len(y))
        class_weights[has_weight] = compute_sample_weight(class_weight, y[has_weight])
    return cast(
        np.ndarray,
        as_sample_weight(class_weights, len(y), zero=True, name="class_weight"),
    )


Estimator = TypeVar("Estimator", bound=SupervisedLearner)


@within_n_jobs
def fit_on_kernel(
    estimator: Estimator,
    kernel: LearnedKernel,
    y: Any,
    X: Any = None,
    workers: Workers | None = None,
    progress: Progress | None = None,
) -> Estimator:
    """Fit the predictor of an estimator, in place, on a learned kernel.

    `X` has the rows of `y`; None for ``kernel.X``. The kernel may have been learned on
    the rows ``kernel.rows`` of `X`. ValueError for a different C or wrong shapes.
    """
    y = np.asarray(y)
    d = kernel.X.shape[1]
    rows = kernel.rows
    fits_kernel = True
    if X is not None:
        rows = np.arange(X.shape[0])
        fits_kernel = X.shape[1:] == (d,) and len(rows) > kernel.rows.max()
    if len(y) != len(rows) or not fits_kernel:
        raise ValueError(
            f"X must have {d} features and more rows than {kernel.rows.max()}, the last that the kernel was "
            f"learned from, and y an entry for each of these {len(rows)}, got shapes {np.shape(X)} and {y.shape}; "
            "give all of them."
        )
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    estimator.n_features_in_ = d
    estimator.n_samples_fit_ = len(rows)
    estimator.n_groups_ = None
    estimator.table_ = None
    estimator.sampling_ = FitSampling(len(rows), len(kernel.rows))
    seed = estimator._draw_seed()
    estimator.learner_reason_ = learner_reason(
        estimator.learner, estimator.family, kernel.X, kernel.learner
    )
    if kernel.sample_weight is not None:
        kernel = replace(kernel, sample_weight=of_mean_one(kernel.sample_weight))
    return estimator._fit_predictor(
        TrainingSet.of(kernel, X, rows, workers, progress),
        estimator._encode_target(y),
        seed,
    )


@within_n_jobs
def fit_on_features(
    estimator: Estimator,
    features: np.ndarray,
    y: Any,
    table: TableEncoding | None = None,
    sample_weight: Any = None,
    groups: Any = None,
    time: Any = None,
) -> Estimator:
    """Fit an estimator, in place, on features of an encoded table.

    Boosted trees use the encoding. ValueError for features of another table.
    """
    estimator._requested_C()
    features = np.asarray(features, dtype=np.float64)
    if table is not None and features.shape[1:] != (len(table.features),):
        raise ValueError(
            f"features must have a column for each of the {len(table.features)} features of table, got shape "
            f"{features.shape}; encode the rows by this table."
        )
    if hasattr(estimator, "feature_names_in_"):
        del estimator.feature_names_in_
    estimator.n_features_in_ = features.shape[1]
    set_table(estimator, table)
    return estimator._fit_features(features, np.asarray(y), sample_weight, groups, time)


@dataclass(frozen=True, eq=False)
class FeaturePredictor:
    """Predictor of a fitted estimator with one output, for rows already encoded as numbers."""

    estimator: KernelLearningClassifier | KernelLearningRegressor

    @property
    def classes_(self) -> np.ndarray:
        """Class labels, ascending; only for a classifier."""
        return self._classifier.classes_

    @property
    def _classifier(self) -> KernelLearningClassifier:
        if not isinstance(self.estimator, KernelLearningClassifier):
            raise AttributeError(
                "only a classifier has classes, scores and probabilities."
            )
        return self.estimator

    def predict(self, features: np.ndarray) -> np.ndarray:
        """Return the predicted label or value of each row, (n,)."""
        if isinstance(self.estimator, KernelLearningClassifier):
            return self.estimator._labels(features)
        return self.estimator._predictions(features)[:, 0]

    def decision_function(self, features: np.ndarray) -> np.ndarray:
        """Return the decision scores; only for a classifier."""
        return self._classifier._decisions(features)

    def predict_proba(self, features: np.ndarray) -> np.ndarray:
        """Return the class probabilities, (n, n_classes)."""
        return self._classifier._probabilities(features)


def _scores_without_optimism(
    training: TrainingSet, target: Target, rows: np.ndarray, scores: np.ndarray
) -> np.ndarray:
    """Scale residuals of rows that trained the kernel to the size of new rows' residuals."""
    kernel = training.kernel
    trained_kernel = np.isin(training.rows[rows], kernel.rows)
    if kernel.errors_of_halves is None or not trained_kernel.any():
        return scores
    Y = target.Y[rows]
    residuals = Y - scores
    left_out_error = relative_error(
        residuals[trained_kernel],
        Y[trained_kernel],
        weights_of_rows(training.sample_weight, rows[trained_kernel]),
    )
    test_error_of_halves, left_out_error_of_halves = kernel.errors_of_halves
    largest = max(GAIN_OF_ALL_ROWS * left_out_error, left_out_error_of_halves)
    if not 0 < largest < test_error_of_halves:
        return scores
    factors = np.where(trained_kernel, np.sqrt(test_error_of_halves / largest), 1.0)
    return np.asarray(Y - factors[:, None] * residuals)


def set_coefficients(
    estimator: SupervisedLearner,
    kernel: LearnedKernel,
    dual: np.ndarray,
    intercept: np.ndarray,
) -> None:
    estimator._set_kernel(kernel)
    estimator._linear = LinearScores(kernel, dual, intercept)


def keep_support(estimator: Estimator) -> Estimator:
    """Return an estimator without training rows with zero coefficients."""
    scores = estimator._linear.on_support()
    if scores is estimator._linear:
        return estimator
    smaller = copy(estimator)
    set_coefficients(smaller, scores.kernel, scores.dual, scores.intercept)
    if getattr(estimator, "_importance_rows", None) is not None:
        smaller._stored_importance = estimator._importance
        smaller._importance_rows = None
    return smaller
