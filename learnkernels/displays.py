"""Figures of what was learned, as scikit-learn has its own: `from_estimator` computes them, `plot` draws them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from sklearn.base import clone, is_classifier
from sklearn.model_selection import cross_val_score
from sklearn.utils.validation import check_is_fitted

from learnkernels.kernels.learned import LearnedKernel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGEST = 12
"""Default number of base kernels, or features, that a figure shows."""

PARAMETER = re.compile(r"(?<==)-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?=[,) ]|$)")
"""Decimal number of a parameter in the name of a base kernel."""

KERNEL_NAME = re.compile(
    r"(?P<family>[\w-]+)\((?P<first>[^,()]+)(?:, (?P<others>[^()]+))?\)(?: (?:in|on) (?P<metric>.+))?"
)
"""Name of a base kernel such as ``laplacian(gamma=0.5, norm=2) in full metric 1``."""


class _Display:
    """What figures share: axes of their own where none are given, and the objects that were drawn."""

    ax_: Axes
    figure_: Figure

    def _axes(self, ax: Axes | None, height: float = 4.0) -> Axes:
        if ax is None:
            try:
                from matplotlib.figure import Figure  # here: what learns needs no figures
            except ImportError:
                raise ImportError("figures need matplotlib; install it with: pip install matplotlib") from None
            ax = Figure(figsize=(6.4, height), layout="constrained").subplots()
        self.ax_ = ax
        self.figure_ = ax.figure  # type: ignore[assignment]
        return ax

    def _repr_png_(self) -> bytes | None:
        """Show the figure in a notebook, where it has no window of its own."""
        from io import BytesIO

        if not hasattr(self, "figure_"):
            return None
        png = BytesIO()
        self.figure_.savefig(png, format="png", dpi=110)
        return png.getvalue()


def _last(estimator: Any) -> Any:
    """Return the last step of a pipeline, or the estimator."""
    return estimator.steps[-1][1] if hasattr(estimator, "steps") else estimator


def _kernel_of(estimator: Any) -> LearnedKernel:
    """Return the learned kernel of an estimator, or of a pipeline that ends with one, or a learned kernel itself."""
    if isinstance(estimator, LearnedKernel):
        return estimator
    estimator = _last(estimator)
    check_is_fitted(estimator)
    kernel = getattr(estimator, "kernel_", None)
    if not isinstance(kernel, LearnedKernel):
        raise TypeError(f"expected an estimator that has learned a kernel, got {type(estimator).__name__} without one.")
    return kernel


OTHER_KERNELS = "other base kernels"
"""Group of base kernels whose names are not those of a family with parameters."""


class KernelLabel(NamedTuple):
    """Label of a base kernel in a figure, and the group under which it stands."""

    group: str
    text: str


def short_names(names: Sequence[str]) -> list[str]:
    """Return names with parameters of three significant digits; those that would be equal keep all digits."""
    short = [PARAMETER.sub(lambda found: f"{float(found[0]):.3g}", name) for name in names]
    counts = Counter(short)
    return [name if counts[label] > 1 else label for name, label in zip(names, short, strict=True)]


def kernel_labels(names: Sequence[str]) -> list[KernelLabel]:
    """Return the label of each base kernel: its first parameter, in a group of the same metric, family and others.

    Names of other forms are a group. If there is one group alone, it has no name, and labels are names.
    """
    labels = []
    for name in short_names(names):
        found = KERNEL_NAME.fullmatch(name)
        if found is None:
            labels.append(KernelLabel(OTHER_KERNELS, name))
            continue
        parts = [found["metric"], found["family"], found["others"]]
        labels.append(KernelLabel(", ".join(part for part in parts if part), found["first"]))
    if len({label.group for label in labels}) > 1:
        return labels
    return [KernelLabel("", name) for name in short_names(names)]


@dataclass
class KernelWeightsDisplay(_Display):
    """What each base kernel has of a learned kernel, next to how well it alone is aligned with the target.

    Build it with `from_estimator`. A kernel that is well aligned and has no share adds nothing to the others.

    Attributes
    ----------
    names : sequence of str
        Of the p base kernels.
    shares : ndarray of shape (p,)
        Weights as shares of the sum of their sizes.
    alignments : ndarray of shape (p,)
        Centered alignments of each with the target kernel on the training rows.
    ax_, figure_ : matplotlib Axes and Figure
        What `plot` has drawn on.

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
    def from_estimator(cls, estimator: Any, *, largest: int = LARGEST, ax: Axes | None = None) -> Self:
        """Draw the weights of a fitted estimator.

        Parameters
        ----------
        estimator : estimator of learnkernels, Pipeline or LearnedKernel
            Fitted; of a pipeline the last step.
        largest : int, default 12
            How many base kernels are shown, those of the largest shares.
        ax : matplotlib Axes, optional
            By default of a figure of its own.

        Returns
        -------
        display : KernelWeightsDisplay

        Raises
        ------
        TypeError
            The estimator has no learned kernel.
        NotFittedError
            It is not fitted.
        """
        kernel = _kernel_of(estimator)
        return cls(kernel.family.names, kernel.shares, kernel.alignments).plot(largest=largest, ax=ax)

    def plot(self, *, largest: int = LARGEST, ax: Axes | None = None) -> Self:
        """Draw the largest shares as bars, the largest on top, and alignments as dots.

        Base kernels of different metrics or families stand in groups, the group of the largest sum of shares on top.

        Parameters
        ----------
        largest : int, default 12
            How many.
        ax : matplotlib Axes, optional
            By default of a figure of its own.

        Returns
        -------
        display : KernelWeightsDisplay
            Itself.
        """
        lines = self._lines(np.argsort(-np.abs(self.shares), kind="stable")[:largest])[::-1]
        kernels = [k for k, _ in lines if k is not None]
        heights = [height for height, (k, _) in enumerate(lines) if k is not None]
        ax = self._axes(ax, 1.4 + 0.26 * len(lines))
        ax.barh(heights, self.shares[kernels], color="#9ecae1", label="share")
        ax.plot(self.alignments[kernels], heights, "o", color="#08519c", label="alignment of it alone")
        ax.set_yticks(range(len(lines)), [text for _, text in lines], parse_math=False)
        for (k, _), label in zip(lines, ax.get_yticklabels(), strict=True):
            if k is None:
                label.set_fontweight("bold")
        ax.set_ylim(-0.7, len(lines) - 0.3)
        ax.set_xlabel("share of the learned kernel; alignment")
        ax.grid(axis="x", alpha=0.3)
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=2, frameon=False)  # above the bars
        return self

    def _lines(self, shown: np.ndarray) -> list[tuple[int | None, str]]:
        """Return the lines of the figure from the top: base kernels with their labels, after each group's name."""
        groups: dict[str, list[tuple[int, str]]] = {}
        for k, label in zip(shown.tolist(), kernel_labels([self.names[k] for k in shown]), strict=True):
            groups.setdefault(label.group, []).append((k, label.text))
        lines: list[tuple[int | None, str]] = []
        for group in sorted(groups, key=lambda name: -sum(abs(self.shares[k]) for k, _ in groups[name])):
            if group:
                lines.append((None, group))
            lines += groups[group]
        return lines


@dataclass
class RelevanceDisplay(_Display):
    """How much each feature, or column of a table, counts in a learned metric.

    Build it with `from_estimator`.

    Attributes
    ----------
    relevance : dict of str to float
        Shares of one, the largest first.
    ax_, figure_ : matplotlib Axes and Figure
        What `plot` has drawn on.
    """

    relevance: dict[str, float]

    @classmethod
    def from_estimator(cls, estimator: Any, *, largest: int = LARGEST, ax: Axes | None = None) -> Self:
        """Draw the relevance of a fitted estimator whose learner weighs features, as the default one does.

        Parameters
        ----------
        estimator : estimator of learnkernels or Pipeline
            Fitted; of a pipeline the last step.
        largest : int, default 12
            How many features are shown.
        ax : matplotlib Axes, optional
            By default of a figure of its own.

        Returns
        -------
        display : RelevanceDisplay

        Raises
        ------
        TypeError
            The estimator has no learned kernel.
        AttributeError
            Its learner weighs no features.
        """
        _kernel_of(estimator)
        return cls(_last(estimator).relevance_).plot(largest=largest, ax=ax)

    def plot(self, *, largest: int = LARGEST, ax: Axes | None = None) -> Self:
        """Draw the largest as bars, the largest on top.

        Parameters
        ----------
        largest : int, default 12
            How many.
        ax : matplotlib Axes, optional
            By default of a figure of its own.

        Returns
        -------
        display : RelevanceDisplay
            Itself.
        """
        shown = list(self.relevance.items())[:largest][::-1]
        ax = self._axes(ax, 1.0 + 0.3 * len(shown))
        ax.barh([name for name, _ in shown], [share for _, share in shown], color="#9ecae1")
        ax.set_xlabel("relevance")
        ax.grid(axis="x", alpha=0.3)
        return self


@dataclass
class LearningHistoryDisplay(_Display):
    """How a kernel was found: its alignment round by round, or what is minimized iteration by iteration.

    Build it with `from_estimator`.

    Attributes
    ----------
    values : ndarray of shape (r,)
        After each round or iteration.
    measure : str
        What they are.
    ax_, figure_ : matplotlib Axes and Figure
        What `plot` has drawn on.
    """

    values: np.ndarray
    measure: str

    @classmethod
    def from_estimator(cls, estimator: Any, *, ax: Axes | None = None) -> Self:
        """Draw the history of a fitted estimator.

        Parameters
        ----------
        estimator : estimator of learnkernels, Pipeline or LearnedKernel
            Fitted; of a pipeline the last step.
        ax : matplotlib Axes, optional
            By default of a figure of its own.

        Returns
        -------
        display : LearningHistoryDisplay

        Raises
        ------
        ValueError
            The kernel was found in one step.
        """
        kernel = _kernel_of(estimator)
        if kernel.history:
            return cls(np.array(kernel.history), "alignment on rows that did not teach it").plot(ax=ax)
        if kernel.certificate is None or not kernel.certificate.objectives:
            raise ValueError(f"{kernel.learner} finds its kernel in one step; there is no history of it.")
        return cls(np.array(kernel.certificate.objectives), "objective").plot(ax=ax)

    def plot(self, *, ax: Axes | None = None) -> Self:
        """Draw the values over the rounds.

        Parameters
        ----------
        ax : matplotlib Axes, optional
            By default of a figure of its own.

        Returns
        -------
        display : LearningHistoryDisplay
            Itself.
        """
        ax = self._axes(ax)
        ax.plot(np.arange(1, len(self.values) + 1), self.values, marker="o", color="#08519c")
        ax.set(xlabel="iteration" if self.measure == "objective" else "round", ylabel=self.measure)
        ax.xaxis.get_major_locator().set_params(integer=True)  # type: ignore[call-arg]
        ax.grid(alpha=0.3)
        return self


@dataclass
class RegularizationDisplay(_Display):
    """Shares of the base kernels along the regularization, next to the score on rows that were left out.

    Build it with `from_estimator`. Weights of a two-stage learner do not depend on it: their lines are level.

    Attributes
    ----------
    parameter : {"C", "alpha"}
        What regularizes.
    grid : ndarray of shape (g,)
        Its values.
    names : sequence of str
        Of the p base kernels.
    shares : ndarray of shape (g, p)
        Weights on all rows, as shares of the sum of their sizes.
    scores : ndarray of shape (g, folds)
        Of the estimator, on the folds that were left out.
    ax_, figure_ : matplotlib Axes and Figure
        What `plot` has drawn on.
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
        """Fit copies of an estimator along a grid, and draw what they learn and how well they do.

        Parameters
        ----------
        estimator : KernelLearningClassifier or KernelLearningRegressor
            Whose ``C`` or ``alpha`` is varied; it is not changed, and need not be fitted. Its learner must weigh given
            base kernels, as alignf and the one-stage learners do.
        X, y
            As `fit` takes them.
        grid : sequence of float
            Values, above zero.
        cv : int or cross-validation generator, default 3
            Folds, as `cross_val_score` takes them.
        scoring : str or callable, optional
            By default the estimator's own score.
        ax : matplotlib Axes, optional
            By default of a figure of its own.

        Returns
        -------
        display : RegularizationDisplay

        Raises
        ------
        ValueError
            Base kernels differ along the grid, since the learner finds its own.

        Notes
        -----
        Costs folds + 1 fits a value.
        """
        parameter = "C" if is_classifier(estimator) else "alpha"
        along = [clone(estimator).set_params(**{parameter: value}) for value in grid]
        kernels = [_kernel_of(clone(one).fit(X, y)) for one in along]
        if any(kernel.family.names != kernels[0].family.names for kernel in kernels):
            raise ValueError(
                f"{kernels[0].learner} finds other base kernels at each value; take a learner that weighs given ones, "
                "such as alignf."
            )
        scores = np.array([cross_val_score(one, X, y, cv=cv, scoring=scoring) for one in along])
        shares = np.array([kernel.shares for kernel in kernels])
        return cls(parameter, np.array(grid, dtype=np.float64), kernels[0].family.names, shares, scores).plot(ax=ax)

    def plot(self, *, largest: int = LARGEST, ax: Axes | None = None) -> Self:
        """Draw the largest shares as lines, and the mean score with its deviation over the folds as a band.

        Parameters
        ----------
        largest : int, default 12
            How many base kernels.
        ax : matplotlib Axes, optional
            By default of a figure of its own; a second one, of the score, is put over it, `score_ax_`.

        Returns
        -------
        display : RegularizationDisplay
            Itself.
        """
        ax = self._axes(ax)
        names = short_names(self.names)
        for k in np.argsort(-np.abs(self.shares).max(axis=0), kind="stable")[:largest]:
            ax.plot(self.grid, self.shares[:, k], marker=".", label=names[k])
        ax.set(xscale="log", xlabel=self.parameter, ylabel="share")
        ax.legend(loc="best", fontsize="small")
        self.score_ax_ = over = ax.twinx()
        mean, sd = self.scores.mean(axis=1), self.scores.std(axis=1)
        over.plot(self.grid, mean, color="black", linestyle="--")
        over.fill_between(self.grid, mean - sd, mean + sd, color="black", alpha=0.12, linewidth=0)
        over.set_ylabel("score on folds left out (dashed)")
        return self
