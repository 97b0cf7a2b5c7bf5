"""Files that release 0.1.0 wrote: they are read, predict what they did, and are written again as they were."""

import io
import json
from pathlib import Path

import numpy as np

from learnkernels import load_kernel, save_kernel
from learnkernels.kernels.families import family_from_dict
from learnkernels.kernels.families.base import KINDS
from learnkernels.kernels.persistence.kernel import read_arrays
from learnkernels.kernels.persistence.model import TEXT, load_model, save_model

FIXTURES = Path(__file__).parents[2] / "fixtures"
EXPECTED = json.loads((FIXTURES / "expected-0.1.0.json").read_text())
ROWS = np.array(EXPECTED["rows"])


def test_a_kernel_of_every_family_is_read():
    kernel = load_kernel(FIXTURES / "kernel-0.1.0.npz")
    assert kernel.family == family_from_dict(EXPECTED["family"])
    assert kernel.family.to_dict() == EXPECTED["family"]
    text = json.dumps(EXPECTED["family"])
    ours = {kind for kind, of in KINDS.items() if of.__module__.startswith("learnkernels.")}  # not those of other tests
    later = {"metric", "categorical", "constant", "normal-scores", "product"}
    assert all(f'"{kind}"' in text for kind in ours - later)
    np.testing.assert_array_equal(kernel.weights, EXPECTED["weights"])
    # Another machine may add the products of a row in another order.
    np.testing.assert_allclose(kernel.cross_gram(ROWS), EXPECTED["cross_gram"], rtol=0, atol=1e-13)


def test_a_model_is_read():
    model = load_model(FIXTURES / "model-0.1.0.npz")
    assert model.estimator.get_params()["family__gammas"] == (0.1, 0.7)
    columns = model.columns(ROWS)
    assert list(columns) == list(EXPECTED["columns"])
    assert columns.pop("prediction").tolist() == EXPECTED["columns"]["prediction"]
    for name, values in columns.items():
        np.testing.assert_allclose(values, EXPECTED["columns"][name], rtol=0, atol=1e-12)


def test_what_was_read_is_written_bit_by_bit():
    for name, load, save in (("kernel", load_kernel, save_kernel), ("model", load_model, save_model)):
        path, file = FIXTURES / f"{name}-0.1.0.npz", io.BytesIO()
        save(load(path), file)
        ours, theirs = (read_arrays(io.BytesIO(content), name) for content in (file.getvalue(), path.read_bytes()))
        assert list(ours) == list(theirs)
        for key, array in theirs.items():
            if key != TEXT:  # learners and predictors are written with their parameters now
                assert (ours[key].dtype, ours[key].shape) == (array.dtype, array.shape)
                assert ours[key].tobytes() == array.tobytes()
