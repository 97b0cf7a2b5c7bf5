"""Learners of kernel weights, one file an algorithm, and the table that lists them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from kernels.learners.align import align
from kernels.learners.alignf import alignf, kkt_certificate
from kernels.learners.single import single
from kernels.learners.solution import Certificate, Products, Solution
from kernels.learners.unif import unif
from kernels.targets import Task


@dataclass(frozen=True)
class Learner:
    """One row of the table of learners.

    Attributes
    ----------
    solve : callable
        ``solve(M, a, **params) -> Solution``; M may be an array or form itself on demand, see `Products`.
    summary : str
        What it does, for help pages.
    tasks : tuple of str
        The tasks it serves.
    source : str
        Paper and equation.
    """

    solve: Callable[[Products, np.ndarray], Solution]
    summary: str
    tasks: tuple[Task, ...]
    source: str


_BOTH: tuple[Task, ...] = ("classification", "regression")

LEARNERS: dict[str, Learner] = {
    "unif": Learner(unif, "equal weights", _BOTH, "JMLR 2012, section 5"),
    "single": Learner(single, "the one base kernel that aligns best", _BOTH, "JMLR 2012, after Proposition 7 (q = 1)"),
    "align": Learner(align, "each weight from the kernel's own alignment", _BOTH, "JMLR 2012, equation (3)"),
    "alignf": Learner(
        alignf, "the non-negative combination of highest alignment", _BOTH, "JMLR 2012, Proposition 9, equation (7)"
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
