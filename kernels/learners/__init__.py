"""Learners of kernel weights, one file an algorithm, and the table that lists them."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from kernels.learners.align import align
from kernels.learners.alignf import alignf, kkt_certificate
from kernels.learners.single import single
from kernels.learners.solution import Products, Solution
from kernels.learners.unif import unif
from kernels.solvers.certificate import Certificate
from kernels.targets import Task

Needs = Literal["moments", "uncentered moments", "grams"]
"""What a learner is given: ``(M, a)`` of the centered kernels, the same of the kernels as they are, or the kernels."""


@dataclass(frozen=True)
class Learner:
    """One row of the table of learners.

    Attributes
    ----------
    solve : callable
        ``solve(M, a, **params) -> Solution`` of one that needs moments; M may be an array or form itself on demand, see
        `Products`. ``solve(grams, target, *, regularisation, start, **params) -> Solution`` of one that needs the base
        kernels, a `GramOperator`: it learns the weights together with a predictor of that regularisation.
    summary : str
        What it does, for help pages.
    needs : {"moments", "uncentered moments", "grams"}
        What `solve` is given.
    tasks : tuple of str
        The tasks it serves.
    source : str
        Paper and equation.
    predictor : str or None
        The predictor whose problem it solves, which ``predictor: auto`` takes; None for two-stage learners.
    """

    solve: Callable[..., Solution]
    summary: str
    needs: Needs
    tasks: tuple[Task, ...]
    source: str
    predictor: str | None = None

    @property
    def params(self) -> dict[str, Any]:
        """Names of the parameters that a user may set, with their defaults."""
        given = ("M", "a", "grams", "target", "regularisation", "start")
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
}

__all__ = [
    "LEARNERS",
    "Certificate",
    "Learner",
    "Products",
    "Solution",
    "align",
    "alignf",
    "kkt_certificate",
    "single",
    "unif",
]
