"""Which predictor suits so many rows: a factorisation, conjugate gradients, or landmarks."""

from __future__ import annotations

from dataclasses import dataclass

from learnkernels.kernels.predictors import resolve_predictor
from learnkernels.kernels.predictors.krr_cg import SKETCH
from learnkernels.kernels.predictors.landmarks import MEMORY
from learnkernels.kernels.targets import Task

EXACT_ROWS = 10_000
"""Most training rows of a predictor that forms their matrix: beyond, it takes minutes."""

RIDGE_ROWS = 5000
"""Most of them for kernel ridge regression, which conjugate gradients take over: at twice as many, in an eighth of the
time of the matrix's eigenvectors."""

EXACT_MATRICES = 4
"""Matrices of all pairs of rows that an exact predictor holds at once."""

CONJUGATE_FLOPS = 1e13
"""Most work of conjugate gradients over pairs of rows: some minutes on two cores."""

STEPS = 30
"""Steps of conjugate gradients that are reckoned with."""


@dataclass(frozen=True)
class PredictorChoice:
    """A predictor, and why it was chosen.

    Attributes
    ----------
    name : str
        Of the table of predictors.
    reason : str
        One sentence; empty where a user named the predictor.
    """

    name: str
    reason: str


def choose_predictor(
    name: str,
    task: Task,
    own: str | None = None,
    *,
    n_rows: int,
    n_kernels: int,
    n_features: int,
    n_columns: int,
    memory: int = MEMORY,
    power: bool = False,
    indefinite: bool = False,
) -> PredictorChoice:
    """Return the predictor for so many training rows.

    Parameters
    ----------
    name : str
        A predictor of the table, which is taken, or ``auto``.
    task : {"classification", "regression"}
        What it is to serve.
    own : str, optional
        The predictor whose problem the learner solves.
    n_rows, n_kernels, n_features : int
        m, p and d.
    n_columns : int
        Columns that are solved for at once: outputs times regularisations.
    memory : int
        Bytes that a fit may take beside the data set.
    power, indefinite : bool, default False
        Whether the kernel is a power of a sum, which exact predictors alone serve, or has negative weights, which
        conjugate gradients do not.

    Returns
    -------
    choice : PredictorChoice

    Raises
    ------
    ValueError
        As `resolve_predictor`.

    Notes
    -----
    ``auto`` takes the first of these that fits. Exact, the learner's own predictor or else the task's: up to
    `EXACT_ROWS` rows, of kernel ridge regression `RIDGE_ROWS`, whose matrices fit the memory. For kernel ridge
    regression conjugate gradients on all rows, which give the same numbers: while the preconditioner fits the memory
    and thirty passes over the pairs of rows stay below `CONJUGATE_FLOPS`. Otherwise landmarks.
    """
    exact = resolve_predictor(name, task, own)
    if name != "auto":
        return PredictorChoice(exact, "")
    matrices = EXACT_MATRICES * 8 * n_rows**2
    rows, room = f"{n_rows:,} training rows", f"the {_size(memory)} there are"
    held = 8 * n_rows * (2 * SKETCH + 6 * n_columns)
    conjugate = exact == "krr" and held <= memory and not (indefinite or power)
    most = RIDGE_ROWS if conjugate else EXACT_ROWS
    if n_rows <= most and matrices <= memory:
        return PredictorChoice(exact, f"{exact}, exact: the matrices of {rows} take {_size(matrices)} of {room}")
    if power:
        return PredictorChoice(exact, f"{exact}, exact: the kernel is a power, which landmarks do not serve")
    too_large = (
        f"the matrices of {rows} would take {_size(matrices)}, with {room}"
        if matrices > memory
        else f"{rows} are more than the {most:,} up to which their matrix is factorised"
    )
    work = STEPS * n_rows**2 * (2.0 * n_features + 6.0 * n_kernels + 2.0 * n_columns)
    if conjugate and work <= CONJUGATE_FLOPS:
        return PredictorChoice("krr-cg", f"krr-cg, conjugate gradients on all pairs of rows: {too_large}")
    pairs = f", and {STEPS} passes over all pairs of rows too long" if conjugate else ""
    return PredictorChoice("nystrom", f"nystrom, landmarks in place of all rows: {too_large}{pairs}")


def _size(n_bytes: float) -> str:
    """Return a number of bytes for a sentence."""
    for unit in ("B", "kB", "MB"):
        if n_bytes < 1000:
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    return f"{n_bytes:.3g} GB"
