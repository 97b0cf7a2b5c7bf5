"""What are the matrices of the base kernels?"""

from __future__ import annotations

from typing import Literal, TypedDict

from dask.utils import format_bytes
from prefect import flow

from learnkernels.conf.schema import CompareConfig
from learnkernels.tasks.data.ingest import ingest
from learnkernels.tasks.evidence.progress import RunProgress
from learnkernels.tasks.matrices.store import SHARD_BYTES, require_space
from learnkernels.tasks.measure.positions import materialise, plan_matrices
from learnkernels.tasks.naming import run_name
from learnkernels.tasks.workers.cluster import DaskPool


class Matrices(TypedDict):
    """What the flow returns: where the matrices lie, their size, and one line a data set."""

    folder: str
    size: str
    stores: list[str]


@flow(name="materialise-base-kernels", flow_run_name=run_name("{config}-gram"))
def gram(
    config: CompareConfig,
    output: str,
    dtype: Literal["float64", "float32"] = "float64",
    shard_bytes: int = SHARD_BYTES,
) -> Matrices:
    """Write the matrices of the base kernels of every data set, for learners and programs that want them whole.

    1. Ingest every data set: read, check, store under its digest.
    2. Look at what is there: refuse matrices of something else, keep finished shards that are whole.
    3. Refuse what the disk has no room for.
    4. Compute the missing shards on Dask; each is written whole, then recorded in the manifest.
    """
    with (
        RunProgress(2 * len(config.datasets), "gram-progress", "the matrices") as progress,
        DaskPool(config.dask) as pool,
    ):
        pool.require_usable()
        jobs = []
        for dataset in config.datasets:
            progress.start(f"reading {dataset.label}")
            ref = ingest(dataset, config.data_dir, config.protocol.seed)
            jobs.append((ref, plan_matrices(ref, config.kernels, output, dtype, shard_bytes)))
            progress.advance()
        require_space([plan for _, plan in jobs])
        done = []
        for ref, plan in jobs:
            progress.start(f"{ref.name}: {len(plan.missing)} shards")
            done.append(materialise(ref, config.kernels, plan, pool, progress.advance))
    return {
        "folder": output,
        "size": format_bytes(sum(ref.n_bytes for ref in done)),
        "stores": [ref.summary for ref in done],
    }
