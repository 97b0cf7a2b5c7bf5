"""
Rare classes
============

One row in twenty is ill. Accuracy is high for a model that calls everybody healthy;
what does ``class_weight`` change, and by which number does one see it?
"""

import matplotlib.pyplot as plt
from learnkernels import KernelLearningClassifier
from sklearn.datasets import make_classification
from sklearn.metrics import (
    PrecisionRecallDisplay,
    accuracy_score,
    average_precision_score,
    recall_score,
)
from sklearn.model_selection import train_test_split

X, ill = make_classification(
    1500,
    n_features=8,
    n_informative=4,
    weights=[0.95],
    class_sep=0.8,
    flip_y=0.02,
    random_state=1,
)
X, X_test, ill, ill_test = train_test_split(
    X, ill, test_size=0.7, stratify=ill, random_state=0
)
print(f"{ill.sum()} of {len(ill)} training rows are ill")

# %%
# "balanced" counts each class as much as the other, in the kernel and in the predictor.
models = {
    "all rows alike": KernelLearningClassifier(),
    "ill count fivefold": KernelLearningClassifier(class_weight={0: 1, 1: 5}),
    "balanced": KernelLearningClassifier(class_weight="balanced"),
}
found = {}
for name, model in models.items():
    told = model.fit(X, ill).predict(X_test)
    found[name] = {
        "accuracy": accuracy_score(ill_test, told),
        "recall": recall_score(ill_test, told),
        "average precision": average_precision_score(
            ill_test, model.decision_function(X_test)
        ),
    }
    print(
        f"{name:<20} "
        + "   ".join(f"{measure} {value:.2f}" for measure, value in found[name].items())
    )
print(f"calling all healthy:  accuracy {1 - ill_test.mean():.2f}   recall 0.00")

# %%
# Weights move the threshold. They do not put the rows into a better order: here average
# precision falls. Who needs a recall of 0.8 reads the threshold off this curve, and
# compares models by average precision (``--metric average_precision`` on the command
# line).
fig, ax = plt.subplots()
for name, model in models.items():
    PrecisionRecallDisplay.from_estimator(model, X_test, ill_test, name=name, ax=ax)

plt.show()
