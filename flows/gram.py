"""Write matrices of base kernels."""

from __future__ import annotations

from typing import Annotated, Any

from dask.utils import format_bytes
from prefect import flow

from learnkernels.conf.forms import WholeConfig, form_field
from learnkernels.tasks.data.dataset import load_dataset
from learnkernels.tasks.data.ingest import ingest
from learnkernels.tasks.measure import matrices
from learnkernels.tasks.measure.families import build_family
from learnkernels.tasks.measure.progress import RunProgress
from learnkernels.tasks.naming import run_name, step
from learnkernels.tasks.workers.cluster import DaskPool

_write = step("matrices {index.dataset}")(matrices.write_matrices)


@flow(name="gram", flow_run_name=run_name("{config}-gram"))
def gram(
    *,
    output: Annotated[
        str, form_field("Folder to write to, with a folder for each data set.")
    ],
    dtype: Annotated[
        matrices.Dtype, form_field("Data type of the values.")
    ] = "float64",
    config: WholeConfig,
) -> dict[str, Any]:
    """Write the matrices of the base kernels of every data set.

    1. Ingest every data set.
    2. Refuse a folder with other matrices, and matrices that do not fit the disk.
    3. Compute strips of rows on Dask for every missing folder.
    4. Return the folder, its size, and a line for each data set.
    """
    with (
        RunProgress(
            2 * len(config.datasets), "gram-progress", "the matrices"
        ) as progress,
        DaskPool(config.dask) as pool,
    ):
        pool.require_usable()
        jobs = []
        for dataset in config.datasets:
            progress.start(f"reading {dataset.label}")
            ref = ingest(dataset, config.data_dir, config.protocol.seed)
            local = config.on(dataset)
            matrices.require_matrices(ref, local)
            family = build_family(
                local.kernels, load_dataset(ref).features, f"data set {ref.name}"
            )
            folder = matrices.matrix_folder(output, ref.name)
            index = matrices.index_of(ref, local, family, dtype)
            matrices.require_place(folder, index)
            jobs.append((ref, family, folder, index))
            progress.advance()
        matrices.require_space([(folder, index) for _, _, folder, index in jobs])
        done = []
        for ref, family, folder, index in jobs:
            progress.start(f"{ref.name}: matrices")
            done.append(
                _write(
                    folder, index, family, load_dataset(ref).X, pool, progress.advance
                )
            )
        n_bytes = sum(
            file.stat().st_size
            for *_, folder, index in jobs
            for file in index.files(folder)
        )
    return {"folder": output, "size": format_bytes(n_bytes), "stores": done}
