"""
Texts: kernels of n-grams
=========================

Do words or phrases tell texts on statistics from others? The kernel of length n counts
the sequences of n words that two texts have in common, relative to their lengths. A
transformer counts them, and learning weighs the lengths.
"""

import ast
import re
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy
from learnkernels import KernelLearningClassifier, NGramTransformer
from sklearn.feature_extraction.text import TfidfVectorizer
from sklearn.model_selection import StratifiedKFold, cross_val_score
from sklearn.pipeline import make_pipeline
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
y = np.array(list(texts.values()))
print(f"{len(texts)} texts, {y.mean():.0%} of them on statistics")

# %%
# In a pipeline, each fold counts the n-grams of its training texts. The base kernels of
# the transformer are known before: one per length.
ngrams = NGramTransformer(max_length=3)
family = ngrams.family
kernels = {name: (family.subset([k]), "unif") for k, name in enumerate(family.names)}
kernels |= {"equal weights": (family, "unif"), "alignf": (family, "alignf")}
models = {
    name: make_pipeline(
        ngrams, KernelLearningClassifier(family=kernel, learner=learner)
    )
    for name, (kernel, learner) in kernels.items()
}
models["linear SVM"] = make_pipeline(TfidfVectorizer(ngram_range=(1, 3)), LinearSVC())
folds = StratifiedKFold(5, shuffle=True, random_state=0)
errors = {}
for name, model in models.items():
    errors[name] = 1 - cross_val_score(model, list(texts), y, cv=folds)
    print(f"{name:<14} {errors[name].mean():.3f} +- {errors[name].std():.3f}")

# %%
# Sequences of three words get no weight: two texts seldom have one in common. The linear
# SVM, which counts rare words for more, is the measure of what words can tell.
learned = models["alignf"].fit(list(texts), y)[-1].kernel_
plt.barh(family.names[::-1], learned.shares[::-1])
plt.xlabel("weight of the kernel, share of one")
plt.tight_layout()

plt.show()
