"""Displays of learned kernels: `from_estimator` computes values, `plot` draws them."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.model_selection import cross_val_score
from sklearn.utils.validation import check_is_fitted

from learnkernels.kernels.estimators import Explanation
from learnkernels.kernels.learned_kernel import LearnedKernel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KERNEL_NAME = re.compile(
    r"(?P<family>[\w-]+)\((?P<first>[^,()]+)(?:, (?P<others>[^()]+))?\)(?: (?:in|on) (?P<metric>.+))?"
)
"""Name of a base kernel such as ``laplacian(gamma=0.5, norm=2) in full metric 1``."""


class _Display:
    ax_: Axes
    figure_: Figure

    def _axes(self, ax: Axes | None, height: float = 4.0) -> Axes:
        if ax is None:
            try:
                # Estimators do not need matplotlib
                from matplotlib.figure import (
                    Figure,
                )
            except ImportError:
                raise ImportError(
                    "figures need matplotlib; install it with: pip install matplotlib"
                ) from None
            ax = Figure(figsize=(6.4, height), layout="constrained").subplots()
        self.ax_ = ax
        self.figure_ = ax.figure  # type: ignore[assignment]
        return ax

    def _draw_bars(self, values: dict[str, float], label: str, ax: Axes | None) -> None:
        ax = self._axes(ax, 1.0 + 0.3 * len(values))
        heights = range(len(values))[::-1]
        ax.barh(heights, list(values.values()), color="#9ecae1")
        ax.set_yticks(heights, list(values), parse_math=False)
        ax.set_xlabel(label)
        ax.grid(axis="x", alpha=0.3)

    def _repr_png_(self) -> bytes | None:
        from io import BytesIO

        if not hasattr(self, "figure_"):
            return None
        png = BytesIO()
        self.figure_.savefig(png, format="png", dpi=110)
        return png.getvalue()


def _last_step(estimator: Any) -> Any:
    return estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator


def _learned_kernel(estimator: Any) -> LearnedKernel:
    if isinstance(estimator, LearnedKernel):
        return estimator
    estimator = _last_step(estimator)
    check_is_fitted(estimator)
    kernel = getattr(estimator, "kernel_", None)
    if not isinstance(kernel, LearnedKernel):
        raise TypeError(
            f"expected an estimator that has learned a kernel, got {type(estimator).__name__} without one."
        )
    return kernel


class KernelLabel(NamedTuple):
    """Label of a base kernel in a figure, and its group."""

    group: str
    text: str


class Line(NamedTuple):
    """Row of labels in a bar plot: a base kernel's label, or a group name."""

    kernel: int | None
    text: str


def short_names(names: Sequence[str]) -> list[str]:
    """Round numbers in kernel names to three digits where names stay distinct."""
    number = re.compile(r"(?<==)-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?=[,) ]|$)")
    rounded = [
        number.sub(lambda match: f"{float(match[0]):.3g}", name) for name in names
    ]
    counts = Counter(rounded)
    return [
        name if counts[short] > 1 else short
        for name, short in zip(names, rounded, strict=True)
    ]


def kernel_labels(names: Sequence[str]) -> list[KernelLabel]:
    """Return each base kernel's group, and its label: its first parameter.

    Other forms of names are the group *other base kernels*. A single group is unnamed,
    and its labels are names.
    """
    shortened = short_names(names)
    labels = []
    for name in shortened:
        match = KERNEL_NAME.fullmatch(name)
        if match is None:
            labels.append(KernelLabel("other base kernels", name))
            continue
        parts = [match["metric"], match["family"], match["others"]]
        group = ", ".join(part for part in parts if part)
        labels.append(KernelLabel(group, match["first"]))
    if len({label.group for label in labels}) > 1:
        return labels
    return [KernelLabel("", name) for name in shortened]


@dataclass
class KernelWeightsDisplay(_Display):
    """Bar plot of the weights of the base kernels, next to their alignments.

    Use `from_estimator` to create a display. A base kernel with a large alignment and
    no weight is redundant: other base kernels contain the same information.

    Parameters
    ----------
    names : sequence of str
        Names of the p base kernels.
    shares : ndarray of shape (p,)
        Weights, divided by the sum of their absolute values.
    alignments : ndarray of shape (p,)
        Centered alignment of each base kernel with the target kernel on the training
        rows.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the plot.
    figure_ : matplotlib Figure
        Figure of the plot.

    Examples
    --------
    >>> from learnkernels import KernelLearningRegressor, KernelWeightsDisplay
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True)
    >>> model = KernelLearningRegressor(learner="alignf").fit(X, y)
    >>> KernelWeightsDisplay.from_estimator(model).ax_.get_xlabel()
    'share of the learned kernel; alignment'
    """

    names: Sequence[str]
    shares: np.ndarray
    alignments: np.ndarray

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, largest: int = 12, ax: Axes | None = None
    ) -> Self:
        """Plot the kernel weights of a fitted estimator.

        Parameters
        ----------
        estimator : estimator of learnkernels, Pipeline or LearnedKernel
            Fitted estimator; of a pipeline, the last step.
        largest : int, default 12
            Number of base kernels to show.
        ax : matplotlib Axes, optional
            Axes to plot on, by default of a new figure.

        Returns
        -------
        display : KernelWeightsDisplay

        Raises
        ------
        TypeError
            The estimator has no learned kernel.
        NotFittedError
            The estimator is not fitted.
        """
        kernel = _learned_kernel(estimator)
        return cls(kernel.family.names, kernel.shares, kernel.alignments).plot(
            largest=largest, ax=ax
        )

    def plot(self, *, largest: int = 12, ax: Axes | None = None) -> Self:
        """Plot the largest kernel weights as bars, and alignments as dots.

        Base kernels are grouped by metric and family, in descending order of shares.

        Parameters
        ----------
        largest : int, default 12
            Number of base kernels to show.
        ax : matplotlib Axes, optional
            Axes to plot on, by default of a new figure.

        Returns
        -------
        display : KernelWeightsDisplay
        """
        order = np.argsort(-np.abs(self.shares), kind="stable")
        lines = self._lines(order[:largest])[::-1]
        kernels = []
        heights = []
        for height, line in enumerate(lines):
            if line.kernel is not None:
                kernels.append(line.kernel)
                heights.append(height)
        ax = self._axes(ax, 1.4 + 0.26 * len(lines))
        ax.barh(heights, self.shares[kernels], color="#9ecae1", label="share")
        ax.plot(
            self.alignments[kernels],
            heights,
            "o",
            color="#08519c",
            label="alignment of it alone",
        )
        ax.set_yticks(
            range(len(lines)), [line.text for line in lines], parse_math=False
        )
        for line, label in zip(lines, ax.get_yticklabels(), strict=True):
            if line.kernel is None:
                label.set_fontweight("bold")
        ax.set_ylim(-0.7, len(lines) - 0.3)
        ax.set_xlabel("share of the learned kernel; alignment")
        ax.grid(axis="x", alpha=0.3)
        # Above the bars
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False)
        return self

    def _lines(self, positions: np.ndarray) -> list[Line]:
        """Return the name of each group, followed by its base kernels."""
        groups: dict[str, list[Line]] = {}
        sums: dict[str, float] = defaultdict(float)
        labels = kernel_labels([self.names[k] for k in positions])
        for k, label in zip(positions.tolist(), labels, strict=True):
            groups.setdefault(label.group, []).append(Line(k, label.text))
            sums[label.group] += abs(self.shares[k])
        lines = []
        for group in sorted(groups, key=lambda name: -sums[name]):
            if group:
                lines.append(Line(None, group))
            lines += groups[group]
        return lines


@dataclass
class RelevanceDisplay(_Display):
    """Bar plot of the relevance of columns for predictions of held-out rows.

    Use `from_estimator` to create a display.

    Parameters
    ----------
    relevance : dict of str to float
        Relevance of each column, the largest first: the increase of the error, relative
        to the error of a constant.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the plot.
    figure_ : matplotlib Figure
        Figure of the plot.
    """

    relevance: dict[str, float]

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, largest: int = 12, ax: Axes | None = None
    ) -> Self:
        """Plot the relevance of columns to the predictions of a fitted estimator.

        Parameters
        ----------
        estimator : estimator of learnkernels or Pipeline
            Fitted estimator; of a pipeline, the last step.
        largest : int, default 12
            Number of columns to show.
        ax : matplotlib Axes, optional
            Axes to plot on, by default of a new figure.

        Returns
        -------
        display : RelevanceDisplay

        Raises
        ------
        TypeError
            The estimator has no learned kernel.
        """
        _learned_kernel(estimator)
        return cls(_last_step(estimator).relevance_).plot(largest=largest, ax=ax)

    def plot(self, *, largest: int = 12, ax: Axes | None = None) -> Self:
        """Plot the columns with the largest relevance as bars, the largest on top.

        Parameters
        ----------
        largest : int, default 12
            Number of columns to show.
        ax : matplotlib Axes, optional
            Axes to plot on, by default of a new figure.

        Returns
        -------
        display : RelevanceDisplay
        """
        values = {}
        for name in list(self.relevance)[:largest]:
            values[name] = self.relevance[name]
        self._draw_bars(values, "relevance", ax)
        return self


@dataclass
class InteractionDisplay(_Display):
    """Bar plot of the largest interactions of column pairs in predictions.

    Use `from_estimator` to create a display.

    Parameters
    ----------
    interactions : dict of tuple of str to float
        Interaction of each pair of columns in predictions for held-out rows, the
        largest first, relative to the error of a constant.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the plot.
    figure_ : matplotlib Figure
        Figure of the plot.
    """

    interactions: dict[tuple[str, str], float]

    @classmethod
    def from_estimator(
        cls, estimator: Any, *, largest: int = 10, ax: Axes | None = None
    ) -> Self:
        """Plot the interactions of columns in predictions of a fitted estimator.

        Parameters
        ----------
        estimator : estimator of learnkernels or Pipeline
            Fitted estimator; of a pipeline, the last step.
        largest : int, default 10
            Number of pairs to show, at most ten.
        ax : matplotlib Axes, optional
            Axes to plot on, by default of a new figure.

        Returns
        -------
        display : InteractionDisplay

        Raises
        ------
        TypeError
            The estimator has no learned kernel.
        """
        _learned_kernel(estimator)
        return cls(_last_step(estimator).interactions_).plot(largest=largest, ax=ax)

    def plot(self, *, largest: int = 10, ax: Axes | None = None) -> Self:
        """Plot the largest interactions as bars, the largest on top.

        Parameters
        ----------
        largest : int, default 10
            Number of pairs to show.
        ax : matplotlib Axes, optional
            Axes to plot on, by default of a new figure.

        Returns
        -------
        display : InteractionDisplay
        """
        values = {}
        for first, second in list(self.interactions)[:largest]:
            values[f"{first}, {second}"] = self.interactions[first, second]
        self._draw_bars(values, "interaction", ax)
        return self


ALIGNMENTS = {
    "rfm": "alignment on rows that did not teach it",
    "ca": "alignment on the training rows",
}
"""Recorded alignments by learner."""


@dataclass
class LearningHistoryDisplay(_Display):
    """Plot of the kernel alignment or objective that a learner recorded in each iteration.

    Use `from_estimator` to create a display.

    Parameters
    ----------
    values : ndarray of shape (r,)
        Value after each round or iteration.
    measure : str
        Name of the values: "objective" after iterations, another name after rounds.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the plot.
    figure_ : matplotlib Figure
        Figure of the plot.
    """

    values: np.ndarray
    measure: str

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> Self:
        """Plot the kernel alignment or objective that a fitted estimator's learner recorded.

        Parameters
        ----------
        estimator : estimator of learnkernels, Pipeline or LearnedKernel
            Fitted estimator; of a pipeline, the last step.
        ax : matplotlib Axes, optional
            Axes to plot on, by default of a new figure.

        Returns
        -------
        display : LearningHistoryDisplay

        Raises
        ------
        ValueError
            The learner has no rounds or iterations.
        """
        kernel = _learned_kernel(estimator)
        if kernel.history:
            measure = ALIGNMENTS.get(kernel.learner, "alignment")
            return cls(np.array(kernel.history), measure).plot(ax=ax)
        if kernel.certificate is None or not kernel.certificate.objectives:
            raise ValueError(
                f"{kernel.learner} finds its kernel in one step; there is no history of it."
            )
        return cls(np.array(kernel.certificate.objectives), "objective").plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Plot the recorded alignment or objective over the learner's iterations.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            Axes to plot on, by default of a new figure.

        Returns
        -------
        display : LearningHistoryDisplay
        """
        ax = self._axes(ax)
        rounds = np.arange(1, len(self.values) + 1)
        ax.plot(rounds, self.values, marker="o", color="#08519c")
        if self.measure == "objective":
            ax.set_xlabel("iteration")
        else:
            ax.set_xlabel("round")
        ax.set_ylabel(self.measure)
        ax.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
        ax.grid(alpha=0.3)
        return self


@dataclass
class RegularizationDisplay(_Display):
    """Plot of kernel weights and cross-validation scores over a regularization grid.

    Use `from_estimator` to create a display. The weights of a two-stage learner do not
    depend on the regularization.

    Parameters
    ----------
    parameter : {"C", "alpha"}
        Regularization parameter.
    grid : ndarray of shape (g,)
        Values of the parameter.
    names : sequence of str
        Names of the p base kernels.
    shares : ndarray of shape (g, p)
        Weights, fitted on all rows and divided by the sum of their absolute values.
    scores : ndarray of shape (g, folds)
        Scores of the estimator on the test folds.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the weights.
    score_ax_ : matplotlib Axes
        Axes of the scores, which share the horizontal axis.
    figure_ : matplotlib Figure
        Figure of the plot.
    """

    parameter: str
    grid: np.ndarray
    names: Sequence[str]
    shares: np.ndarray
    scores: np.ndarray
    score_ax_: Any = field(init=False, default=None)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        grid: Sequence[float] = (0.001, 0.01, 0.1, 1.0, 10.0, 100.0),
        cv: Any = 3,
        scoring: Any = None,
        ax: Axes | None = None,
    ) -> Self:
        """Fit an estimator for each regularization of a grid; plot weights and scores.

        Parameters
        ----------
        estimator : KernelLearningClassifier or KernelLearningRegressor
            Estimator whose ``C`` or ``alpha`` is varied; it stays unchanged and may be
            unfitted. Its learner must weight given base kernels, as alignf and the
            one-stage learners do.
        X, y
            Training rows and targets, as for `fit`.
        grid : sequence of float
            Positive values of the parameter.
        cv : int or cross-validation generator, default 3
            Folds, as for `cross_val_score`.
        scoring : str or callable, optional
            Score, as for `cross_val_score`. By default, the estimator's own score.
        ax : matplotlib Axes, optional
            Axes to plot on, by default of a new figure.

        Returns
        -------
        display : RegularizationDisplay

        Raises
        ------
        ValueError
            Base kernels differ along the grid, since the learner selects its own.

        Notes
        -----
        The estimator is fitted ``folds + 1`` times for each value of the grid.
        """
        parameter = "C" if is_classifier(estimator) else "alpha"
        estimators = [
            clone(estimator).set_params(**{parameter: value}) for value in grid
        ]
        kernels = [_learned_kernel(clone(model).fit(X, y)) for model in estimators]
        names = kernels[0].family.names
        if any(kernel.family.names != names for kernel in kernels):
            raise ValueError(
                f"{kernels[0].learner} finds other base kernels at each value; take a learner that weighs given ones, "
                "such as alignf."
            )
        shares = np.array([kernel.shares for kernel in kernels])
        scores = np.array(
            [
                cross_val_score(model, X, y, cv=cv, scoring=scoring)
                for model in estimators
            ]
        )
        return cls(
            parameter, np.array(grid, dtype=np.float64), names, shares, scores
        ).plot(ax=ax)

    def plot(self, *, largest: int = 12, ax: Axes | None = None) -> Self:
        """Plot kernel weights and mean scores, with standard deviations, over the regularization.

        Parameters
        ----------
        largest : int, default 12
            Number of base kernels to show.
        ax : matplotlib Axes, optional
            Axes to plot on, by default of a new figure. The scores are plotted on new
            axes, `score_ax_`.

        Returns
        -------
        display : RegularizationDisplay
        """
        ax = self._axes(ax)
        names = short_names(self.names)
        largest_shares = np.abs(self.shares).max(axis=0)
        for k in np.argsort(-largest_shares, kind="stable")[:largest]:
            ax.plot(self.grid, self.shares[:, k], marker=".", label=names[k])
        ax.set(xscale="log", xlabel=self.parameter, ylabel="share")
        ax.legend(loc="best", fontsize="small")
        score_ax = ax.twinx()
        mean = self.scores.mean(axis=1)
        sd = self.scores.std(axis=1)
        score_ax.plot(self.grid, mean, color="black", linestyle="--")
        score_ax.fill_between(
            self.grid, mean - sd, mean + sd, color="black", alpha=0.12, linewidth=0
        )
        score_ax.set_ylabel("score on folds left out (dashed)")
        self.score_ax_ = score_ax
        return self


@dataclass
class ExplanationDisplay(_Display):
    """Plot of columns' contributions to predictions: bars for one row, else points.

    Use `from_estimator` to create a display, or pass the result of `explain`.

    Parameters
    ----------
    explanation : Explanation
        Contributions of columns to predictions.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the plot.
    figure_ : matplotlib Figure
        Figure of the plot.

    Examples
    --------
    >>> from learnkernels import ExplanationDisplay, KernelLearningRegressor
    >>> from sklearn.datasets import load_diabetes
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> model = KernelLearningRegressor().fit(X[:200], y[:200])
    >>> ExplanationDisplay.from_estimator(model, X[200:201], largest=3).ax_.get_xlabel()
    'contribution to the prediction'
    """

    explanation: Explanation

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        *,
        output: Any = None,
        largest: int = 10,
        ax: Axes | None = None,
    ) -> Self:
        """Explain predictions for some rows, and plot the contributions of columns.

        Parameters
        ----------
        estimator : KernelLearningClassifier, KernelLearningRegressor or Pipeline
            Fitted estimator; the last step of a pipeline explains the transformed rows.
        X : array-like or table of shape (n, d)
            Rows to explain.
        output : str or int, optional
            Class or output; see `plot`.
        largest : int, default 10
            Number of columns to show.
        ax : matplotlib Axes, optional
            Axes to plot on, by default of a new figure.

        Returns
        -------
        display : ExplanationDisplay

        Raises
        ------
        TypeError
            The estimator has no method `explain`.
        NotFittedError
            The estimator is not fitted.
        """
        last = _last_step(estimator)
        if not hasattr(last, "explain"):
            raise TypeError(
                f"expected an estimator with the method explain, got {type(last).__name__} without it."
            )
        check_is_fitted(last)
        if last is not estimator and len(estimator.steps) > 1:
            X = estimator[:-1].transform(X)
        return cls(last.explain(X)).plot(output=output, largest=largest, ax=ax)

    def plot(
        self, *, output: Any = None, largest: int = 10, ax: Axes | None = None
    ) -> Self:
        """Plot the largest contributions of columns, the largest on top.

        For one row, bars with the standard error as a line; the remaining columns are
        one bar. For several rows, a point per row in the color of its value, gray for
        categories and missing values; columns are sorted by the mean absolute
        contribution.

        Parameters
        ----------
        output : str or int, optional
            Class or output of `explanation.outputs`. By default, the last of two,
            otherwise the one with the largest mean prediction.
        largest : int, default 10
            Number of columns to show.
        ax : matplotlib Axes, optional
            Axes to plot on, by default of a new figure.

        Returns
        -------
        display : ExplanationDisplay

        Raises
        ------
        ValueError
            The explanation has no such output.
        """
        position = self._position_of(output)
        contributions = self._of_output(self.explanation.contributions, position)
        mean_sizes = np.abs(contributions).mean(axis=0)
        descending = np.argsort(-mean_sizes, kind="stable")
        positions = descending[:largest][::-1]
        height = 1.4 + 0.36 * (len(positions) + 1)
        ax = self._axes(ax, height)
        ax.axvline(0.0, color="0.4", linewidth=0.8)
        if len(contributions) == 1:
            self._plot_bars(ax, contributions[0], positions, position)
        else:
            self._plot_points(ax, contributions, positions)
        ax.set_xlabel(self._axis_label(position))
        ax.grid(axis="x", alpha=0.3)
        ax.set_axisbelow(True)
        return self

    def _position_of(self, output: Any) -> int | None:
        outputs = self.explanation.outputs
        if output is not None and str(output) not in outputs:
            names = ", ".join(outputs) or "one output without a name"
            raise ValueError(
                f"output must be a class or output of the explanation ({names}), got {output!r:.60}."
            )
        if not outputs:
            return None
        if output is not None:
            return outputs.index(str(output))
        if len(outputs) == 2:
            return 1
        return int(self.explanation.predictions.mean(axis=0).argmax())

    def _of_output(self, array: np.ndarray, position: int | None) -> np.ndarray:
        if position is None:
            return array
        return array[..., position]

    def _axis_label(self, position: int | None) -> str:
        if position is None:
            return "contribution to the prediction"
        return f"contribution to the prediction of {self.explanation.outputs[position]}"

    def _plot_bars(
        self,
        ax: Axes,
        contributions: np.ndarray,
        positions: np.ndarray,
        position: int | None,
    ) -> None:
        """Plot one row's contributions; the lowest bar sums other columns."""
        explanation = self.explanation
        labels = []
        for j in positions:
            cell = _cell_text(explanation.data[0, j])
            labels.append(f"{explanation.columns[j]} = {cell}")
        widths = contributions[positions]
        n_others = len(contributions) - len(positions)
        if n_others:
            labels.insert(0, f"{n_others} other columns")
            sum_of_others = contributions.sum() - widths.sum()
            widths = np.insert(widths, 0, sum_of_others)
        colors = np.where(widths < 0, "#fdae6b", "#9ecae1")
        ax.barh(range(len(widths)), widths, color=colors)
        if explanation.standard_errors is not None:
            errors = self._of_output(explanation.standard_errors, position)
            first = len(widths) - len(positions)
            heights = np.arange(first, len(widths))
            ax.errorbar(
                widths[first:],
                heights,
                xerr=errors[0, positions],
                fmt="none",
                ecolor="#08519c",
                elinewidth=1.2,
            )
        ax.set_yticks(range(len(widths)), labels, parse_math=False)
        base_values = self._of_output(explanation.base_values, position)
        predictions = self._of_output(explanation.predictions, position)
        title = f"base value {base_values[0]:.4g}, prediction {predictions[0]:.4g}"
        ax.set_title(title, fontsize="medium", loc="left")

    def _plot_points(
        self, ax: Axes, contributions: np.ndarray, positions: np.ndarray
    ) -> None:
        drawn = contributions[:, positions]
        low = drawn.min()
        high = drawn.max()
        for height, j in enumerate(positions):
            x = contributions[:, j]
            y = height + _offsets(x, low, high)
            ranks = _ranks(self.explanation.data[:, j])
            ax.scatter(x, y, s=10, color="0.6", linewidths=0)
            points = ax.scatter(
                x, y, s=10, c=ranks, cmap="viridis", vmin=0.0, vmax=1.0, linewidths=0
            )
        names = [self.explanation.columns[j] for j in positions]
        ax.set_yticks(range(len(names)), names, parse_math=False)
        ax.set_ylim(-0.6, len(positions) - 0.4)
        bar = self.figure_.colorbar(
            points, ax=ax, ticks=[0.0, 1.0], aspect=30, pad=0.02
        )
        bar.ax.set_yticklabels(["low", "high"])
        bar.set_label("value of the column", labelpad=0)
        bar.outline.set_visible(False)


def _cell_text(value: Any) -> str:
    if value is None or value != value:
        return "missing"
    if isinstance(value, float | np.floating):
        return f"{value:.4g}"
    return f"{value!s:.30}".removesuffix(" 00:00:00")


def _ranks(values: np.ndarray) -> np.ndarray:
    """Return ranks from 0 to 1; NaN for missing values, texts and constants."""
    ranks = np.full(len(values), np.nan)
    present = np.array(
        [value is not None and value == value for value in values.tolist()]
    )
    if not present.any():
        return ranks
    has_text = any(isinstance(value, str) for value in values[present].tolist())
    if has_text:
        return ranks
    distinct_values, positions = np.unique(values[present], return_inverse=True)
    if len(distinct_values) == 1:
        return ranks
    counts = np.bincount(positions)
    mean_ranks = np.cumsum(counts) - 0.5 * counts
    mean_ranks -= mean_ranks[0]
    mean_ranks /= mean_ranks[-1]
    ranks[present] = mean_ranks[positions]
    return ranks


def _offsets(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """Return vertical offsets within 0.4 that separate close points."""
    n_bins = 80
    width = max(high - low, np.finfo(np.float64).tiny)
    bins = np.round((x - low) / width * n_bins).astype(np.intp)
    counts = np.bincount(bins)
    starts = np.cumsum(counts) - counts
    order = np.argsort(bins, kind="stable")
    places = np.empty(len(x))
    places[order] = np.arange(len(x)) - starts[bins[order]]
    middles = 0.5 * (counts[bins] - 1)
    step = min(0.08, 0.8 / max(1, counts.max() - 1))
    return np.asarray(step * (places - middles))
