"""Kernel ridge regression as the inner problem of a one-stage learner, on more rows than a matrix of theirs fits."""

from __future__ import annotations

import numpy as np

from learnkernels.kernels.engine.operators import GramOperator, TiledGrams, gram_operator, has_room
from learnkernels.kernels.engine.threads import one_blas_thread
from learnkernels.kernels.solvers.certificate import TOLERANCE
from learnkernels.kernels.solvers.conjugate_gradients import Preconditioner, ShiftedSolutions, solve_shifted
from learnkernels.kernels.solvers.minimax import InnerSolution
from learnkernels.kernels.solvers.ridge import RidgeProblem
from learnkernels.kernels.targets import Target

SKETCH, MOST_SKETCHED = 7, 1500
"""Rows whose columns of the kernel make the preconditioner: times the root of all, with which it takes as long as a
few passes, and most."""

SAMPLE = 3000
"""Rows on which weights to begin with are learned, of four times as many and more."""

EXCESS = 1e-4
"""Share of the duality gap asked for that the residual of a solution may add to the objective."""

FIRST, LEAST = 1e-2, 1e-12
"""Residual, relative to the target, that tells the size of the objective, and the least that is asked for at all."""

CURVATURE = 1e-3
"""Relative residual of the solutions that make the Hessian, whose own error is of the order of its square."""

MOST_STEPS = 400
"""Of conjugate gradients, a solution."""

MOST_REFINEMENTS = 4
"""Solutions to ever smaller residuals."""


class StreamedRidge:
    r"""What `RidgeProblem` is, by conjugate gradients on products of tiles.

    .. math:: J(\mu) \le \Bigl(2 \operatorname{tr} \alpha^\top Y - \lambda \lVert \alpha \rVert^2
              - \operatorname{tr} \alpha^\top K_\mu \alpha\Bigr) + \tfrac1\lambda \lVert R \rVert^2, \qquad
              R = Y - (K_\mu + \lambda I) \alpha

    for every alpha, so that a duality gap is one whatever the residual R is.

    Attributes
    ----------
    grams : TiledGrams
        p base kernels over m rows.
    Y : ndarray of shape (m, q)
        Targets less their mean, of base kernels that are centered.
    ridge : float
        lambda.

    Notes
    -----
    A step is a pass over the pairs of rows, with the base kernels combined; the right-hand sides of the Hessian, one a
    base kernel, go through the same passes. Memory O(m (p q + s)) with the s of `SKETCH`.
    """

    def __init__(self, grams: TiledGrams, target: Target, regularisation: float, tolerance: float = TOLERANCE) -> None:
        """Take the training rows, ``lambda = 1 / regularisation``, which is positive, and the gap that is wanted."""
        self._grams, self._target, self._excess = grams, target, EXCESS * tolerance
        self.Y = target.Y - grams.centering.target_mean(target.Y)
        self.ridge = 1.0 / regularisation
        self._last: tuple[np.ndarray, np.ndarray] | None = None
        self._response: tuple[np.ndarray, np.ndarray] | None = None

    @property
    def grams(self) -> GramOperator:
        """The base kernels."""
        return self._grams

    def of_some_rows(self) -> RidgeProblem | None:
        """Return the problem of a sample of the rows, whose solution is near, or None where that is not far smaller."""
        whole, m = self._grams, self._grams.n_rows
        if m < 4 * SAMPLE:
            return None
        some = self._drawn(SAMPLE)
        grams = gram_operator(
            whole.family, whole.X[some], shift=whole.shift, scales=whole.scales, centering=whole.centering
        )
        return RidgeProblem(grams, self._target.take(some), m / SAMPLE / self.ridge)

    def at(self, mu: np.ndarray) -> InnerSolution:
        """Solve at the weights mu, shape (p,), from what the last solution and its derivative tell."""
        precondition = self._preconditioner(mu)
        alpha, residual = self._start(mu), None
        if not alpha.any():
            alpha = self._corrected(mu, alpha, None, FIRST, precondition)
        for _ in range(MOST_REFINEMENTS):
            within = np.sqrt(self._excess * self.ridge * max(float(np.vdot(alpha, self.Y)), 0.0))
            asked = max(LEAST, 0.5 * within / float(np.linalg.norm(self.Y)))
            alpha = self._corrected(mu, alpha, residual, asked, precondition)
            products = self._grams.products(alpha)
            residual = self.Y - np.einsum("k,kiq->iq", mu, products) - self.ridge * alpha
            excess = float(np.vdot(residual, residual)) / self.ridge
            if excess <= self._excess * float(np.vdot(alpha, self.Y)) or asked <= LEAST:
                break
        forms = np.einsum("kiq,iq->k", products, alpha)
        constant = float(2 * np.vdot(alpha, self.Y) - self.ridge * np.vdot(alpha, alpha))
        self._last, self._response = (mu, alpha), None

        def hessian(kernels: np.ndarray) -> np.ndarray:
            shape = (len(alpha), len(kernels), alpha.shape[1])
            P = products[kernels].transpose(1, 0, 2).reshape(len(alpha), -1)
            found = self._solved(mu, P, CURVATURE, precondition)
            Z, R = found.solutions.reshape(shape), found.remainders.reshape(shape)
            self._response = kernels, Z
            H = 2 * np.einsum("ikq,ilq->kl", P.reshape(shape) + R, Z, optimize=True)
            return np.asarray((H + H.T) / 2)

        return InnerSolution(constant - float(mu @ forms) + excess, constant, forms, alpha, hessian)

    def _start(self, mu: np.ndarray) -> np.ndarray:
        """Return coefficients to begin with: those of the last weights, changed to first order."""
        if self._last is None:
            return np.zeros_like(self.Y)
        before, alpha = self._last
        if self._response is None:
            return alpha
        kernels, response = self._response
        return np.asarray(alpha - np.einsum("k,ikq->iq", (mu - before)[kernels], response))

    def _corrected(
        self,
        mu: np.ndarray,
        alpha: np.ndarray,
        residual: np.ndarray | None,
        asked: float,
        precondition: Preconditioner,
    ) -> np.ndarray:
        """Return coefficients whose residual is about what is asked for, relative to the target."""
        if residual is None:
            residual = self.Y
            if alpha.any():
                residual = self.Y - self._grams.matvec(mu, alpha) - self.ridge * alpha
        norm, wanted = float(np.linalg.norm(residual)), asked * float(np.linalg.norm(self.Y))
        if norm <= wanted:
            return alpha
        return alpha + self._solved(mu, residual, wanted / norm, precondition).solutions

    def _solved(
        self, mu: np.ndarray, B: np.ndarray, tolerance: float, precondition: Preconditioner
    ) -> ShiftedSolutions:
        def apply(V: np.ndarray) -> np.ndarray:
            return self._grams.matvec(mu, V)

        shifts = np.full(B.shape[1], self.ridge)
        with one_blas_thread():  # others would keep their cores for a while after a product, and a pass from them
            return solve_shifted(apply, B, shifts, precondition, tolerance=tolerance, most=MOST_STEPS)

    def _drawn(self, size: int) -> np.ndarray:
        """Return the numbers of some rows, ascending, the same ones each time."""
        return np.sort(np.random.default_rng(0).choice(self._grams.n_rows, size, replace=False))

    def _preconditioner(self, mu: np.ndarray) -> Preconditioner:
        """Return one from some columns of the kernel, less their means where it is centered."""
        m = self._grams.n_rows
        size = min(int(SKETCH * np.sqrt(m)), MOST_SKETCHED, max(1, m // 4))
        some = self._drawn(size)
        C = self._grams.columns(mu, some)
        centering = self._grams.centering
        C = centering.less_mean(C)
        C -= centering.mean(C, axis=1)[:, None]
        among = centering.gram((C[some] + C[some].T) / 2)
        if centering.subtracts:
            among += np.trace(among) / size**2  # along ones, where columns are zero
        return Preconditioner(np.ascontiguousarray(C), among)


def ridge_problem(
    grams: GramOperator, target: Target, regularisation: float, tolerance: float = TOLERANCE
) -> RidgeProblem | StreamedRidge:
    """Return the regression as an inner problem: with a matrix of all pairs of rows where that fits, or without.

    Without one its solutions are as exact as a duality gap of `tolerance` needs.

    Raises
    ------
    ValueError
        The regularisation is not positive and finite.
    """
    if isinstance(grams, TiledGrams) and not has_room(grams.n_rows) and 0 < regularisation < np.inf:
        return StreamedRidge(grams, target, regularisation, tolerance)
    return RidgeProblem(grams, target, regularisation)
