"""
A schedule: every night a challenger
====================================

Rows come in every day, and a model is trained every night. Should tonight's replace the
one in use? Training on new rows always changes a few predictions. Here, another recipe
is promoted if it is better on the same folds, by a test for folds that share rows.

``learnkernels deploy table.yaml --model churn --cron "0 3 * * *"`` schedules this
with Prefect, MLflow and files. It also promotes the same recipe on new rows, unless it
is worse. Here is the decision between recipes in a few lines.
"""

import matplotlib.pyplot as plt
from learnkernels import KernelLearningRegressor
from learnkernels.tasks.measure.t_tests import corrected_p
from sklearn.datasets import make_friedman1
from sklearn.linear_model import RidgeCV
from sklearn.model_selection import KFold, cross_val_score

X, y = make_friedman1(400, n_features=8, noise=2.0, random_state=0)
RECIPES = {
    "linear": RidgeCV(),
    "alignf": KernelLearningRegressor(learner="alignf"),
    "rfm": KernelLearningRegressor(learner="rfm"),
    "unif": KernelLearningRegressor(learner="unif"),
}

# %%
# Each night has more rows and a challenger of another recipe. Both recipes are learned
# anew on the same five folds: a champion that was fitted before has seen rows of
# today's test folds.
nights = [(60, "alignf"), (120, "alignf"), (240, "rfm"), (300, "rfm"), (400, "unif")]
champion, history = "linear", []
for rows, challenger in nights:
    folds = KFold(5, shuffle=True, random_state=rows)
    scoring = "neg_root_mean_squared_error"
    errors = {
        name: -cross_val_score(
            RECIPES[name], X[:rows], y[:rows], cv=folds, scoring=scoring
        )
        for name in dict.fromkeys((champion, challenger))
    }
    mine, other = errors[champion], errors[challenger]
    p = None if challenger == champion else corrected_p(other, mine, test_share=0.25)
    promoted = p is not None and p < 0.1
    history.append((rows, champion, mine.mean(), challenger, other.mean(), promoted))
    print(
        f"{rows} rows: {champion} {mine.mean():.2f}, {challenger} {other.mean():.2f}: ",
        end="",
    )
    if p is None:
        print("the same recipe")
    else:
        print(f"p = {p:.3f}, {'promoted' if promoted else 'stays'}")
    champion = challenger if promoted else champion

# %%
# What was in use, night by night.
rows, _, mine, _, others, _ = zip(*history, strict=True)
plt.plot(rows, mine, "o-", label="champion of the night before")
plt.plot(rows, others, "s--", label="challenger")
for night, *_, other, promoted in history:
    if promoted:
        plt.annotate(
            "promoted",
            (night, other),
            xytext=(0, -14),
            textcoords="offset points",
            ha="center",
        )
plt.xlabel("rows so far")
plt.ylabel("RMSE on five folds; the noise has 2")
plt.legend()

plt.show()
