"""
Words that tell what a text is about
====================================

Which phrases tell texts on statistics from others? Every word and pair of words is a
base kernel of its own, of rank one, and its weight says how well that phrase alone
aligns with the classes. Counts stay sparse from the vectorizer to the prediction.
"""

import ast
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy
from learnkernels import FeatureFamily, KernelLearningClassifier
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.model_selection import train_test_split
from sklearn.svm import LinearSVC

# %%
# The texts are on every machine that has SciPy: descriptions in its source files,
# without names that would give the answer away. Positive are those of ``scipy.stats``.
texts = {}
for part in ("stats", "signal", "optimize", "interpolate"):
    for file in sorted((Path(scipy.__file__).parent / part).glob("*.py")):
        for node in ast.parse(file.read_text(encoding="utf-8")).body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                text = re.split(
                    r"\n\s*\w[\w ]*\n\s*-{3,}", ast.get_docstring(node) or ""
                )[0]
                text = re.sub(r":\w+:`[^`]*`|`+[^`]*`+|\w+(\.\w+)+", " ", text)
                if len(text.split()) >= 8:
                    texts.setdefault(text, part == "stats")
train, test, y, y_test = train_test_split(
    list(texts), list(texts.values()), test_size=1 / 3, random_state=0
)
y, y_test = np.array(y), np.array(y_test)

vectorizer = CountVectorizer(
    ngram_range=(1, 2), min_df=3, binary=True, token_pattern=r"(?u)\b[a-z]{2,}\b"
)
X, X_test = vectorizer.fit_transform(train), vectorizer.transform(test)
filled = X.nnz / np.prod(X.shape)
print(f"{len(texts)} texts, {X.shape[1]} phrases, {filled:.1%} of the entries filled")

# %%
# ``align`` weighs each phrase by its own alignment; ``alignf`` weighs them together, so
# that of phrases that say the same one will do.
family = FeatureFamily(vectorizer.get_feature_names_out())
models = {
    "align": KernelLearningClassifier(family=family, learner="align").fit(X, y),
    "alignf": KernelLearningClassifier(family=family, learner="alignf").fit(X, y),
    "linear SVM": LinearSVC(C=0.1).fit(X, y),
}
errors = {name: 1 - model.score(X_test, y_test) for name, model in models.items()}
errors["most frequent class"] = min(y_test.mean(), 1 - y_test.mean())
for name, error in errors.items():
    print(f"{name:<20} {error:.3f}")
print(f"one standard error of such a share: {np.sqrt(0.1 * 0.9 / len(y_test)):.3f}")

# %%
# The phrases of largest weight, and how many of the training texts hold them.
shares = models["align"].kernel_.shares
heaviest = [
    (family.names[k], shares[k], X[y][:, k].mean(), X[~y][:, k].mean())
    for k in np.argsort(-shares)[:12]
]
print(f"{'phrase':<24} {'weight':>7} {'statistics':>11} {'others':>7}")
for name, share, inside, outside in heaviest:
    print(f"{name:<24} {share:7.4f} {inside:11.1%} {outside:7.1%}")
plt.barh(
    [name for name, *_ in heaviest[::-1]], [share for _, share, *_ in heaviest[::-1]]
)
plt.xlabel("weight, share of one")
plt.tight_layout()
without = (models["alignf"].weights_ == 0).sum()
print(f"alignf gives no weight to {without} of {family.n_kernels} phrases")

plt.show()
