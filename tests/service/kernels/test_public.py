"""What a fresh process imports with a name of the package, and what works there without the pipeline."""

import json

import learnkernels
from tests.service.kernels.test_files import ROOT, output_of

LIBRARIES = {
    "numpy",
    "scipy",
    "sklearn",
    "threadpoolctl",
    "numba",
    "joblib",
    "pandas",
    "pyarrow",
}


def loaded_by(code: str) -> set[str]:
    """Return which rooms of this project and which libraries a fresh process has loaded after some code."""
    names = json.loads(
        output_of(f"{code}\nimport sys, json; print(json.dumps(sorted(sys.modules)))")
    )
    rooms = {
        ".".join(name.split(".")[:2])
        for name in names
        if name.partition(".")[0] == "learnkernels"
    }
    return rooms | ({name.partition(".")[0] for name in names} & LIBRARIES)


def test_importing_the_package_loads_nothing_else():
    code = f"""
import learnkernels
dir(learnkernels)
hasattr(learnkernels, 'numpy')
assert learnkernels.__file__ == {str(ROOT / "learnkernels" / "__init__.py")!r}
"""
    # Its registry, for the nearest name
    assert loaded_by(code) <= {
        "learnkernels",
        "learnkernels.kernels",
    }


def test_a_name_brings_along_what_it_needs_and_no_more():
    families = [name for name in learnkernels.__all__ if "Family" in name]
    for names, libraries in (
        (["center_gram", "centered_alignment"], {"numpy"}),
        (families, {"numpy", "scipy"}),
    ):
        loaded = loaded_by(f"from learnkernels import {', '.join(names)}")
        assert loaded == {"learnkernels", "learnkernels.kernels"} | libraries


def test_estimators_and_files_work_where_nothing_of_the_pipeline_can_be_imported(
    tmp_path,
):
    code = f"""
import sys
from learnkernels.tasks.environment import PIPELINE
class Missing:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in PIPELINE:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Missing)
import numpy as np
from learnkernels import *
X = np.random.default_rng(0).normal(size=(60, 3))
kernel = learn_kernel(X, X[:, 0], learner="alignf", family=GaussianFamily([0.1, 1.0]))
kernel.save({str(tmp_path / "kernel.safetensors")!r})
assert np.array_equal(load({str(tmp_path / "kernel.safetensors")!r}).weights, kernel.weights)
for estimator in (KernelLearningRegressor(), KernelLearningClassifier(), LearnedKernelTransformer()):
    estimator.fit(X, X[:, 0] > 0).save({str(tmp_path / "estimator.safetensors")!r})
    load({str(tmp_path / "estimator.safetensors")!r})
print("learned")
"""
    assert output_of(code) == "learned"
