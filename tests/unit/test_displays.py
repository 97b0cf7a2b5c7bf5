"""Figures of learned kernels: what they show is what was learned, and what cannot be shown is said."""

from io import BytesIO
from itertools import pairwise

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.datasets import make_classification, make_regression
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from learnkernels import (
    GaussianFamily,
    KernelLearningClassifier,
    KernelLearningRegressor,
    KernelWeightsDisplay,
)
from learnkernels.displays import (
    ExplanationDisplay,
    InteractionDisplay,
    LearningHistoryDisplay,
    RegularizationDisplay,
    RelevanceDisplay,
    short_names,
)
from learnkernels.kernels.estimators import Explanation
from learnkernels.kernels.learners import learn_kernel


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    X, y = make_regression(120, 4, n_informative=1, noise=1.0, random_state=0)
    return X, y / y.std()


@pytest.fixture(scope="module")
def weighing(rows: tuple[np.ndarray, np.ndarray]) -> KernelLearningRegressor:
    return KernelLearningRegressor(learner="alignf").fit(*rows)


@pytest.fixture(scope="module")
def finding(rows: tuple[np.ndarray, np.ndarray]) -> KernelLearningRegressor:
    return KernelLearningRegressor(learner="rfm").fit(*rows)


def test_bars_are_the_largest_shares_and_dots_their_alignments(
    weighing: KernelLearningRegressor,
):
    display = KernelWeightsDisplay.from_estimator(weighing, largest=3)
    assert isinstance(display.figure_, Figure)
    kernel = weighing.kernel_
    largest = np.argsort(-np.abs(kernel.shares), kind="stable")[:3][::-1]
    np.testing.assert_array_equal(
        [bar.get_width() for bar in display.ax_.patches], kernel.shares[largest]
    )
    np.testing.assert_array_equal(
        display.ax_.lines[0].get_xdata(), kernel.alignments[largest]
    )
    names = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert names == [kernel.family.names[k] for k in largest]
    assert display._repr_png_()[:4] == b"\x89PNG"
    assert (
        KernelWeightsDisplay.from_estimator(kernel, ax=display.ax_).figure_
        is display.figure_
    )


NAMES = [
    *(f"laplacian(gamma={gamma}, norm=2) in full metric {k}" for k in (1, 2) for gamma in (0.0515592379783, 0.103118)),
    *(f"laplacian(gamma={gamma}) in spread" for gamma in (0.00813120647241, 19139108.9031)),
    "gaussian(gamma=2^-3) on numbers", "constant", "price in $ of 1.23456",
]  # fmt: skip


def test_base_kernels_stand_in_groups_of_their_metric_and_family_with_three_digits():
    shares = np.array([0.1, 0.2, 0.05, 0.02, 0.3, 0.01, 0.15, 0.1, 0.07])
    display = KernelWeightsDisplay(NAMES, shares, 2 * shares).plot(largest=9)
    lines = [label.get_text() for label in display.ax_.get_yticklabels()][::-1]
    assert lines == [
        "spread, laplacian", "gamma=0.00813", "gamma=1.91e+07",
        "full metric 1, laplacian, norm=2", "gamma=0.103", "gamma=0.0516",
        "other base kernels", "constant", "price in $ of 1.23456",
        "numbers, gaussian", "gamma=2^-3",
        "full metric 2, laplacian, norm=2", "gamma=0.0516", "gamma=0.103",
    ]  # fmt: skip
    drawn = {
        round(bar.get_y() + bar.get_height() / 2): bar.get_width()
        for bar in display.ax_.patches
    }
    dots = dict(
        zip(
            display.ax_.lines[0].get_ydata(),
            display.ax_.lines[0].get_xdata(),
            strict=True,
        )
    )
    order = [4, 5, 1, 0, 7, 8, 6, 2, 3]
    kernels = [
        place
        for place, line in enumerate(lines[::-1])
        if "," not in line and line != "other base kernels"
    ][::-1]
    assert [drawn[place] for place in kernels] == shares[order].tolist()
    assert [dots[place] for place in kernels] == (2 * shares)[order].tolist()
    bold = [
        label.get_text()
        for label in display.ax_.get_yticklabels()
        if label.get_fontweight() == "bold"
    ]
    assert len(bold) == 5
    assert all("," in text or text == "other base kernels" for text in bold)


def test_names_that_rounding_would_make_equal_keep_their_digits():
    names = [
        "gaussian(gamma=0.12341)",
        "gaussian(gamma=0.12342)",
        "gaussian(gamma=0.45678)",
    ]
    assert short_names(names) == [*names[:2], "gaussian(gamma=0.457)"]
    display = KernelWeightsDisplay(names, np.ones(3) / 3, np.ones(3)).plot()
    assert [label.get_text() for label in display.ax_.get_yticklabels()][
        ::-1
    ] == short_names(names)


@pytest.mark.parametrize("n_kernels", [1, 12, 30])
def test_the_legend_covers_no_bar_and_labels_do_not_overlap(n_kernels: int):
    names = [f"gaussian(gamma={k / 7}) in metric {k % 5}" for k in range(n_kernels)]
    display = KernelWeightsDisplay(
        names, np.linspace(0.1, 1, n_kernels), np.full(n_kernels, 0.5)
    )
    display.plot(largest=30)
    display.figure_.savefig(BytesIO(), format="png")
    legend, axes = (
        display.ax_.get_legend().get_window_extent(),
        display.ax_.get_window_extent(),
    )
    assert legend.y0 >= axes.y1 - 1e-6
    assert legend.y1 <= display.figure_.bbox.y1
    boxes = [label.get_window_extent() for label in display.ax_.get_yticklabels()]
    assert all(above.y0 >= below.y1 - 1 for below, above in pairwise(boxes))


def test_a_pipeline_is_shown_by_its_last_step(rows: tuple[np.ndarray, np.ndarray]):
    model = make_pipeline(
        StandardScaler(), KernelLearningRegressor(learner="unif")
    ).fit(*rows)
    shares = KernelWeightsDisplay.from_estimator(model).shares
    # Equal up to rounding
    np.testing.assert_allclose(shares, 1 / len(shares), rtol=1e-12)


def test_the_relevance_is_the_estimators(
    finding: KernelLearningRegressor, rows: tuple[np.ndarray, np.ndarray]
):
    display = RelevanceDisplay.from_estimator(finding, largest=2)
    assert [bar.get_width() for bar in display.ax_.patches] == list(
        finding.relevance_.values()
    )[:2]
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == list(
        finding.relevance_
    )[:2]
    correlations = np.corrcoef(rows[0].T, rows[1])[-1, :-1]
    informative = np.argmax(np.abs(correlations))
    assert next(iter(display.relevance)) == f"x{informative}"


def test_the_interactions_are_the_estimators(weighing: KernelLearningRegressor):
    display = InteractionDisplay.from_estimator(weighing, largest=3)
    assert [bar.get_width() for bar in display.ax_.patches] == list(
        weighing.interactions_.values()
    )[:3]
    labels = [label.get_text() for label in display.ax_.get_yticklabels()]
    assert labels == [", ".join(pair) for pair in list(weighing.interactions_)[:3]]


def test_histories_are_of_rounds_or_of_iterations(finding, rows):
    display = LearningHistoryDisplay.from_estimator(finding)
    np.testing.assert_array_equal(
        display.ax_.lines[0].get_ydata(), finding.kernel_.history
    )
    one_stage = KernelLearningRegressor(learner="l2-krr").fit(*rows)
    display = LearningHistoryDisplay.from_estimator(one_stage)
    np.testing.assert_array_equal(
        display.values, one_stage.kernel_.certificate.objectives
    )
    assert display.ax_.get_xlabel() == "iteration"
    by_ascent = KernelLearningRegressor(learner="ca").fit(*rows)
    display = LearningHistoryDisplay.from_estimator(by_ascent)
    assert display.ax_.get_ylabel() == "alignment on the training rows"
    at_once = KernelLearningRegressor(learner="unif").fit(*rows)
    with pytest.raises(
        ValueError,
        match=r"^unif finds its kernel in one step; there is no history of it\.$",
    ):
        LearningHistoryDisplay.from_estimator(at_once)


def test_along_the_regularization_stand_what_single_fits_find():
    X, y = make_classification(90, 4, random_state=0)
    model, grid = KernelLearningClassifier(learner="l1-svm", C=7.0), (0.1, 10.0)
    display = RegularizationDisplay.from_estimator(model, X, y, grid=grid)
    for shares, C in zip(display.shares, grid, strict=True):
        np.testing.assert_array_equal(
            shares,
            KernelLearningClassifier(learner="l1-svm", C=C).fit(X, y).kernel_.shares,
        )
    assert display.scores.shape == (2, 3)
    assert (
        display.score_ax_.lines[0].get_ydata().tolist()
        == display.scores.mean(axis=1).tolist()
    )
    assert model.C == 7.0


def test_what_cannot_be_shown_is_said(rows: tuple[np.ndarray, np.ndarray]):
    with pytest.raises(NotFittedError):
        KernelWeightsDisplay.from_estimator(KernelLearningRegressor())
    with pytest.raises(
        TypeError,
        match=r"^expected an estimator that has learned a kernel, got StandardScaler",
    ):
        KernelWeightsDisplay.from_estimator(StandardScaler().fit(rows[0]))
    with pytest.raises(
        ValueError,
        match=r"^cr finds other base kernels at each value; take a learner that weighs",
    ):
        RegularizationDisplay.from_estimator(
            KernelLearningRegressor(learner="cr"), *rows, grid=(0.001, 1000.0), cv=2
        )


def test_a_notebook_shows_a_table_of_text_and_no_markup(
    rows: tuple[np.ndarray, np.ndarray],
):
    class Named(GaussianFamily):
        names = ("<b>one</b>", "two")

    html = learn_kernel(*rows, learner="unif", family=Named([0.1, 1.0]))._repr_html_()
    assert "&lt;b&gt;one" in html
    assert "<b>one" not in html
    assert html.count("<tr>") == 1 + 2


def explained(
    contributions: np.ndarray,
    data: np.ndarray,
    errors: np.ndarray | None = None,
    outputs=(),
) -> Explanation:
    """An explanation of some contributions, with base values of 2."""
    names = tuple(f"column {j}" for j in range(contributions.shape[1]))
    base_values = np.full(contributions.sum(axis=1).shape, 2.0)
    predictions = base_values + contributions.sum(axis=1)
    return Explanation(
        contributions, base_values, predictions, data, names, outputs, 50, errors
    )


def test_bars_of_one_row_are_the_largest_contributions_with_their_values_and_errors():
    contributions = np.array([[0.5, -2.0, 0.1, 0.2, -0.4]])
    data = np.array([[1.23456, "red", None, 7, np.nan]], dtype=object)
    display = ExplanationDisplay(explained(contributions, data, contributions**2)).plot(
        largest=3
    )
    labels = [label.get_text() for label in display.ax_.get_yticklabels()][::-1]
    assert labels == [
        "column 1 = red",
        "column 0 = 1.235",
        "column 4 = missing",
        "2 other columns",
    ]
    widths = [bar.get_width() for bar in display.ax_.patches][::-1]
    np.testing.assert_allclose(widths, [-2.0, 0.5, -0.4, 0.3], rtol=1e-12)
    (lines,) = display.ax_.collections
    ends = [segment[:, 0].tolist() for segment in lines.get_segments()][::-1]
    np.testing.assert_allclose(
        ends, [[-6.0, 2.0], [0.25, 0.75], [-0.56, -0.24]], rtol=1e-12
    )
    assert display.ax_.get_title(loc="left") == "base value 2, prediction 0.4"
    assert display._repr_png_()[:4] == b"\x89PNG"


def test_points_of_rows_are_their_contributions_in_the_order_of_their_values():
    rng = np.random.default_rng(0)
    contributions = rng.normal(size=(60, 3)) * [0.1, 3.0, 1.0]
    numbers = rng.normal(size=60)
    data = np.column_stack([rng.choice(["a", "b"], 60), numbers, np.arange(60)]).astype(
        object
    )
    data[:, 1] = numbers
    data[0, 1] = None
    display = ExplanationDisplay(explained(contributions, data)).plot(largest=2)
    assert [label.get_text() for label in display.ax_.get_yticklabels()] == [
        "column 2",
        "column 1",
    ]
    points = display.ax_.collections[-1]
    x, y = points.get_offsets().T
    np.testing.assert_allclose(x, contributions[:, 1])
    assert np.abs(y - 1).max() <= 0.4 + 1e-12
    assert len(np.unique(np.round(np.column_stack([x, y]), 9), axis=0)) == 60
    ranks = np.ma.filled(points.get_array(), np.nan)
    assert np.isnan(ranks[0])
    np.testing.assert_array_equal(np.argsort(ranks[1:]), np.argsort(numbers[1:]))
    assert display.figure_.axes[-1].get_ylabel() == "value of the column"


@pytest.mark.parametrize(("output", "shown"), [(None, "b"), ("a", "a"), ("c", "c")])
def test_one_class_is_plotted(output: str | None, shown: str):
    contributions = np.array([[[0.1, 0.3, -0.4], [0.2, 0.3, -0.5]]])
    display = ExplanationDisplay(
        explained(contributions, np.zeros((1, 2)), outputs=("a", "b", "c"))
    )
    display.plot(output=output)
    assert display.ax_.get_xlabel() == f"contribution to the prediction of {shown}"
    widths = sorted(bar.get_width() for bar in display.ax_.patches)
    np.testing.assert_allclose(widths, sorted(contributions[0, :, "abc".index(shown)]))
    with pytest.raises(
        ValueError,
        match=r"^output must be a class or output of the explanation \(a, b, c\), got 'd'\.$",
    ):
        display.plot(output="d")


def test_a_pipeline_explains_transformed_rows(rows: tuple[np.ndarray, np.ndarray]):
    X, y = rows
    model = make_pipeline(
        StandardScaler(), KernelLearningRegressor(learner="unif")
    ).fit(X, y)
    explanation = ExplanationDisplay.from_estimator(model, X[:2]).explanation
    np.testing.assert_allclose(
        explanation.predictions, model.predict(X[:2]), rtol=1e-12
    )
    np.testing.assert_allclose(
        explanation.data, model[:-1].transform(X[:2]), rtol=1e-12
    )
    with pytest.raises(
        TypeError,
        match=r"^expected an estimator with the method explain, got StandardScaler without it",
    ):
        ExplanationDisplay.from_estimator(StandardScaler().fit(X), X)
    with pytest.raises(NotFittedError):
        ExplanationDisplay.from_estimator(KernelLearningRegressor(), X)
