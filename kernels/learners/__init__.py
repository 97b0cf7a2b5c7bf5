"""Learners of kernel weights, one file an algorithm, and the table that lists them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from learnkernels.kernels.learners.align import align
from learnkernels.kernels.learners.alignf import alignf, kkt_certificate
from learnkernels.kernels.learners.alignf_linear import alignf_linear
from learnkernels.kernels.learners.ca import ca
from learnkernels.kernels.learners.cr import cr
from learnkernels.kernels.learners.easymkl import easymkl
from learnkernels.kernels.learners.ensemble import KernelEnsemble
from learnkernels.kernels.learners.l1_krr import l1_krr
from learnkernels.kernels.learners.l1_svm import l1_svm
from learnkernels.kernels.learners.l2_krr import l2_krr
from learnkernels.kernels.learners.lp_krr import lp_krr
from learnkernels.kernels.learners.lp_svm import lp_svm
from learnkernels.kernels.learners.lq import lq
from learnkernels.kernels.learners.nkrr import nkrr
from learnkernels.kernels.learners.single import single
from learnkernels.kernels.learners.single_stage import single_stage
from learnkernels.kernels.learners.solution import Products, Solution
from learnkernels.kernels.learners.unif import unif
from learnkernels.kernels.solvers.certificate import Certificate
from learnkernels.kernels.targets import Task

Needs = Literal["moments", "uncentered moments", "grams", "rows", "continuous"]
"""What a learner is given: ``(M, a)`` of the centered kernels, the same of the kernels as they are, or the kernels."""


@dataclass(frozen=True)
class Learner:
    """One row of the table of learners.

    Attributes
    ----------
    solve : callable
        ``solve(M, a, **params) -> Solution`` of one that needs moments; M may be an array or form itself on demand, see
        `Products`. ``solve(grams, target, *, regularisation, start, **params) -> Solution`` of one that needs the base
        kernels, a `GramOperator`: it learns the weights together with a predictor of that regularisation. Of one that
        needs rows, `KernelEnsemble.fit`, which gives hypotheses in place of a kernel. ``solve(X, target, **params) ->
        FoundKernels`` of one that finds its own base kernels in a continuous family.
    summary : str
        What it does, for help pages.
    needs : {"moments", "uncentered moments", "grams", "rows", "continuous"}
        What `solve` is given.
    tasks : tuple of str
        The tasks it serves.
    source : str
        Paper and equation.
    predictor : str or None
        The predictor whose problem it solves, which ``predictor: auto`` takes; None for two-stage learners.
    """

    solve: Callable[..., Any]
    summary: str
    needs: Needs
    tasks: tuple[Task, ...]
    source: str
    predictor: str | None = None

    @property
    def params(self) -> dict[str, Any]:
        """Names of the parameters that a user may set, with their defaults."""
        given = {"M", "a", "grams", "X", "target", "regularisation", "start"}
        if self.needs == "rows":
            given |= {"family", "moments", "grid", "normalise"}
        signature = inspect.signature(self.solve)
        return {name: of.default for name, of in signature.parameters.items() if name not in given}


_BOTH: tuple[Task, ...] = ("classification", "regression")

LEARNERS: dict[str, Learner] = {
    "unif": Learner(unif, "equal weights", "moments", _BOTH, "JMLR 2012, section 5"),
    "single": Learner(
        single, "the one base kernel that aligns best", "moments", _BOTH, "JMLR 2012, after Proposition 7 (q = 1)"
    ),
    "align": Learner(align, "each weight from the kernel's own alignment", "moments", _BOTH, "JMLR 2012, equation (3)"),
    "alignf": Learner(
        alignf,
        "the non-negative combination of highest alignment",
        "moments",
        _BOTH,
        "JMLR 2012, Proposition 9, equation (7)",
    ),
    "alignf-linear": Learner(
        alignf_linear,
        "the combination of highest alignment, with weights of either sign",
        "moments",
        _BOTH,
        "JMLR 2012, Proposition 8",
    ),
    "lq": Learner(
        lq,
        "the highest unnormalised alignment for weights of one q-norm",
        "moments",
        _BOTH,
        "JMLR 2012, equation (4), Proposition 7",
    ),
    "align-uncentered": Learner(
        align,
        "each weight from the kernel's own alignment, without centering",
        "uncentered moments",
        _BOTH,
        "Cristianini et al. 2001; JMLR 2012, section 2.3",
    ),
    "alignf-uncentered": Learner(
        alignf,
        "the non-negative combination of highest alignment, without centering",
        "uncentered moments",
        _BOTH,
        "Cristianini et al. 2001; Kandola et al. 2002; JMLR 2012, section 3.2",
    ),
    "single-stage": Learner(
        single_stage,
        "kernel ridge regression and alignment in one objective",
        "grams",
        _BOTH,
        "JMLR 2012, section 3.4, equation (9)",
        predictor="krr",
    ),
    "l1-krr": Learner(
        l1_krr,
        "kernel ridge regression with weights of bounded sum (trace)",
        "grams",
        _BOTH,
        "UAI 2009, section 5; Lanckriet et al. 2004",
        predictor="krr",
    ),
    "l2-krr": Learner(
        l2_krr,
        "kernel ridge regression with weights in a 2-norm ball",
        "grams",
        _BOTH,
        "UAI 2009, equation (3), Theorem 1, Algorithm 1",
        predictor="krr",
    ),
    "lp-krr": Learner(
        lp_krr,
        "kernel ridge regression with weights in the unit ball of any norm",
        "grams",
        _BOTH,
        "Kloft et al. 2011, with the squared loss",
        predictor="krr",
    ),
    "l1-svm": Learner(
        l1_svm,
        "support vector machine with weights of bounded sum (trace)",
        "grams",
        ("classification",),
        "Lanckriet et al. 2004; JMLR 2012, section 5",
        predictor="svm",
    ),
    "lp-svm": Learner(
        lp_svm,
        "support vector machine with weights in the unit ball of any norm",
        "grams",
        ("classification",),
        "Kloft et al. 2011; D1 and D2 of AFK 2013",
        predictor="svm",
    ),
    "easymkl": Learner(
        easymkl,
        "each weight from the kernel's part in the widest margin between distributions over the classes",
        "grams",
        ("classification",),
        "Aiolli, Donini (2015), Neurocomputing 169:215-224",
        predictor="svm",
    ),
    "nkrr": Learner(
        nkrr,
        "kernel ridge regression with a polynomial of the base kernels",
        "grams",
        _BOTH,
        "NIPS 2009, equation (10), Algorithm 1",
        predictor="krr",
    ),
    "ca": Learner(
        ca,
        "kernels of a continuous family, added one by one along the steepest ascent of the alignment",
        "continuous",
        _BOTH,
        "AFK 2013, Algorithm 1",
    ),
    "cr": Learner(
        cr,
        "a convex combination of a continuous family's kernels, by the risk of kernel ridge regression",
        "continuous",
        _BOTH,
        "Argyriou et al. 2005, 2006; CR of AFK 2013",
        predictor="krr",
    ),
    "ensemble": Learner(
        KernelEnsemble.fit,
        "one ridge regression a base kernel, and the best linear combination of them",
        "rows",
        _BOTH,
        "JMLR 2012, section 3.3",
        predictor="krr",
    ),
}
"""The learners by name, as configurations and `learn_kernel` call them."""

COLUMNS = ["name", "learns", "needs", "predictor", "tasks", "parameters", "source"]
"""Of `table`."""

_NEEDS: dict[Needs, str] = {
    "moments": "alignments",
    "uncentered moments": "uncentered alignments",
    "grams": "base kernels, for each Lambda",
    "rows": "base kernels, one by one",
    "continuous": "the rows",
}


def table() -> list[list[str]]:
    """Return the table of learners as people read it, one row each, in Markdown."""
    return [
        [
            f"`{name}`",
            learner.summary,
            _NEEDS[learner.needs],
            f"`{learner.predictor}`" if learner.predictor else "any",
            " and ".join(learner.tasks),
            ", ".join(f"`{parameter}={default}`" for parameter, default in learner.params.items()),
            learner.source,
        ]
        for name, learner in LEARNERS.items()
    ]


__all__ = [
    "COLUMNS",
    "LEARNERS",
    "Certificate",
    "Learner",
    "Products",
    "Solution",
    "align",
    "alignf",
    "alignf_linear",
    "ca",
    "cr",
    "easymkl",
    "kkt_certificate",
    "l1_krr",
    "l1_svm",
    "l2_krr",
    "lp_krr",
    "lp_svm",
    "lq",
    "nkrr",
    "single",
    "single_stage",
    "table",
    "unif",
]
