"""Runs in MLflow: what a comparison that ends early leaves of itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from mlflow import MlflowClient

from learnkernels.conf.schema import CompareConfig
from learnkernels.tasks.evidence.tracking import SWEEP, tracked_run
from learnkernels.tasks.stopping import Stopped


@pytest.mark.parametrize(("error", "status"), [(Stopped, "KILLED"), (KeyboardInterrupt, "KILLED"), (OSError, "FAILED")])
def test_results_that_are_being_written_end_with_their_comparison(
    working_folder: Path, prefect_server: None, error: type[BaseException], status: str
):
    config = CompareConfig.model_validate({"name": "small", "datasets": "iris"})
    client, other = MlflowClient(), None

    def stopped() -> None:
        nonlocal other
        with tracked_run(config, "sweep", "a sweep", "id", "") as sweep:
            client.create_run(sweep.experiment_id, run_name="result", tags={SWEEP: sweep.run_id})
            other = client.create_run(sweep.experiment_id, run_name="of another", tags={SWEEP: "another"})
            raise error

    with pytest.raises(error):
        stopped()
    assert other is not None
    runs = {run.info.run_name: run.info.status for run in client.search_runs([other.info.experiment_id])}
    assert runs == {"a sweep": status, "result": status, "of another": "RUNNING"}
