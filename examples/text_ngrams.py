"""Which phrases tell what a text is about?

Texts become counts of n-grams: thousands of columns, nearly all of them zero. With `FeatureFamily` every n-gram is a
base kernel of its own, of rank one, and its weight says how well that n-gram alone aligns with the classes. Nothing
is made dense on the way: counts stay a sparse matrix from the vectorizer to the prediction.

The texts are on every machine that has SciPy: the descriptions in its source files, taken without importing them. A
text is positive if it comes from `scipy.stats`, and negative if from the parts on signals, optimisation, integration
and interpolation. A linear support vector machine on the same counts is the yardstick.

Run it with `.venv/bin/python examples/text_ngrams.py`; it takes some ten seconds.
"""

from __future__ import annotations

import ast
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import scipy
from scipy import sparse
from sklearn.base import BaseEstimator
from sklearn.dummy import DummyClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import GridSearchCV, train_test_split
from sklearn.svm import LinearSVC

from learnkernels import FeatureFamily, KernelLearningClassifier

STATISTICS = ["stats"]
OTHERS = ["signal", "optimize", "integrate", "interpolate"]
CS = [0.1, 1.0, 10.0, 100.0, 1000.0]
"""For kernels of mean diagonal one."""

LINEAR_CS = [0.001, 0.01, 0.1, 1.0, 10.0]
"""For the counts as they are, of which a text holds some thirty."""

FOLDS = 3


@dataclass(frozen=True)
class Result:
    """What was learned from how many texts, and the held-out errors.

    `positive` is the share of training texts on statistics; `heaviest` are the n-grams of largest weight: name, weight
    as share of one, and the share of training texts on statistics and of the others that hold it.
    """

    n_texts: int
    positive: float
    n_ngrams: int
    density: float
    sparse_end_to_end: bool
    heaviest: list[tuple[str, float, float, float]]
    n_zero: int
    errors: dict[str, float]
    chosen: dict[str, float]
    n_test: int


def descriptions(part: str) -> list[str]:
    """Return the description of each public function and class of a part of SciPy, without parameters and examples."""
    folder = Path(scipy.__file__).parent / part
    found = []
    for file in sorted(folder.rglob("*.py")):
        if "tests" in file.parts:
            continue
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.name.startswith("_"):
                # The first section of a docstring begins with a title underlined by dashes.
                text = re.split(r"\n\s*\w[\w ]*\n\s*-{3,}", ast.get_docstring(node) or "")[0]
                # Names in backquotes and dotted names would give the answer away: `scipy.stats.norm` is no phrase.
                text = re.sub(r":\w+:`[^`]*`|`+[^`]*`+|\w+(\.\w+)+", " ", text)
                if len(text.split()) >= 8:
                    found.append(text)
    return found


def texts() -> tuple[list[str], np.ndarray]:
    """Return the distinct texts, and for each whether it is about statistics."""
    label_of: dict[str, bool] = {}
    for about, parts in ((True, STATISTICS), (False, OTHERS)):
        for part in parts:
            for text in descriptions(part):
                label_of.setdefault(text, about)
    return list(label_of), np.array(list(label_of.values()))


def tuned(estimator: BaseEstimator, values: list[float]) -> GridSearchCV:
    """Return the search for C within the training texts."""
    return GridSearchCV(estimator, {"C": values}, cv=FOLDS, error_score="raise")


def compare() -> Result:
    """Learn on two thirds of the texts and measure on the rest."""
    every_text, about_statistics = texts()
    train_texts, test_texts, y, y_test = train_test_split(
        every_text, about_statistics, test_size=1 / 3, random_state=0, stratify=about_statistics
    )
    # Single words and pairs of words that three training texts hold at least; whether, not how often.
    vectorizer = CountVectorizer(ngram_range=(1, 2), min_df=3, binary=True, token_pattern=r"(?u)\b[a-z]{2,}\b")
    X, X_test = vectorizer.fit_transform(train_texts), vectorizer.transform(test_texts)

    # One base kernel an n-gram, which must be as many as there are columns: the vocabulary comes first. `align` weighs
    # each n-gram by its own alignment; `alignf` weighs them together, so that of phrases that say the same one will do.
    family = FeatureFamily(vectorizer.get_feature_names_out())
    searches = {
        "align": tuned(KernelLearningClassifier(family, "align"), CS).fit(X, y),
        "alignf": tuned(KernelLearningClassifier(family, "alignf"), CS).fit(X, y),
        "linear SVM": tuned(LinearSVC(dual="auto", max_iter=100_000), LINEAR_CS).fit(X, y),
    }
    models = {**searches, "most frequent class": DummyClassifier().fit(X, y)}

    kernel, together = (searches[name].best_estimator_.kernel_ for name in ("align", "alignf"))
    shares = kernel.shares
    heaviest = np.argsort(-shares, kind="stable")[:15]
    inside, outside = (np.asarray(X[rows].mean(axis=0)).ravel() for rows in (y, ~y))
    return Result(
        n_texts=len(every_text),
        positive=float(y.mean()),
        n_ngrams=X.shape[1],
        density=X.nnz / (X.shape[0] * X.shape[1]),
        sparse_end_to_end=sparse.issparse(kernel.X),
        heaviest=[(family.names[k], float(shares[k]), float(inside[k]), float(outside[k])) for k in heaviest],
        n_zero=int((together.weights == 0).sum()),
        errors={name: 1 - model.score(X_test, y_test) for name, model in models.items()},
        chosen={name: search.best_params_["C"] for name, search in searches.items()},
        n_test=len(y_test),
    )


def main() -> Result:
    """Print the story."""
    result = compare()
    print(f"{result.n_texts} texts, {result.n_ngrams} n-grams, {result.density:.2%} of the entries are not zero")
    print(f"Training rows inside the learned kernel are sparse: {result.sparse_end_to_end}")
    print("\nThe n-grams of largest weight under align, and the share of texts that hold them:\n")
    print(f"  {'n-gram':<28} {'weight':>7}   {'statistics':>10} {'others':>7}")
    for name, share, inside, outside in result.heaviest:
        print(f"  {name:<28} {share:7.4f}   {inside:10.1%} {outside:7.1%}")
    print(f"\nalignf gives weight to {result.n_ngrams - result.n_zero} n-grams and none to {result.n_zero}.")
    print(f"\nHeld-out error on {result.n_test} texts (C chosen by {FOLDS} folds of the training texts):")
    for name, error in result.errors.items():
        chosen = f"C = {result.chosen[name]:g}" if name in result.chosen else ""
        print(f"  {name:<20} {error:.3f}   {chosen}")
    noise = (result.errors["linear SVM"] * (1 - result.errors["linear SVM"]) / result.n_test) ** 0.5
    print(f"One standard error of such a share is {noise:.3f}.")
    return result


if __name__ == "__main__":
    main()
