"""Stores on disk as commands, several processes at once, and killed ones leave them."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest
from prefect.settings import PREFECT_API_URL

from learnkernels.tasks.data.dataset import dataset_digest, load_dataset, store_dataset
from learnkernels.tasks.processes.owner import Owner
from learnkernels.tasks.store import (
    atomic_path,
    leftovers,
    store_path,
    temporary_folder,
)
from tests.unit.tasks.test_matrices import files_of, make
from tests.unit.tasks.test_store import people, refuse
from tests.user import ROOT, learnkernels

# Several processes ----------------------------------------------------------------------------------------------------


def store_often(home: str) -> list[str]:
    os.environ["LEARNKERNELS_HOME"] = home
    digests = []
    for number in range(40):
        dataset = people()
        dataset.X[0, 0] = number
        ref = store_dataset(dataset, "people", "here", refuse)
        digests.append(dataset_digest(load_dataset(ref)))
    return digests


def test_three_processes_that_store_the_same_data_sets_all_succeed(
    working_folder: Path,
):
    home = os.environ["LEARNKERNELS_HOME"]
    with ProcessPoolExecutor(3, mp_context=get_context("fork")) as pool:
        one, two, three = pool.map(store_often, [home] * 3)
    assert one == two == three
    assert {child.name for child in store_path("datasets").iterdir()} == set(one)


ELSEWHERE = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--mount-proc")
"""What runs a command where the processes of here cannot be seen, as in a container on the same folder."""


def test_a_container_on_the_same_folder_leaves_what_is_at_work_here_and_the_other_way_round(
    tmp_path: Path,
):
    if (
        shutil.which("unshare") is None
        or subprocess.run([*ELSEWHERE, "true"], capture_output=True).returncode
    ):
        pytest.skip("this system allows no namespace of processes")
    code = "import os, sys; from pathlib import Path; from learnkernels.tasks.store import temporary_folder; "
    code += "folder = temporary_folder(Path(sys.argv[1])); os._exit(0)"
    with temporary_folder(tmp_path) as ours:
        subprocess.run(
            [*ELSEWHERE, sys.executable, "-c", code, str(tmp_path)], check=True
        )
        assert Path(ours).is_dir()
        (theirs,) = set(tmp_path.iterdir()) - {Path(ours)}
        with temporary_folder(tmp_path):
            assert theirs.is_dir()


# What a kill leaves --------------------------------------------------------------------------------------------------


@contextmanager
def killed_at_the_end(program: str, path: Path) -> Iterator[int]:
    """Run a program on a path until it prints a line, give its process, and kill it."""
    command, env = (
        [sys.executable, "-c", program, str(path)],
        os.environ | {"PYTHONPATH": str(ROOT)},
    )
    pipe = subprocess.PIPE
    with subprocess.Popen(
        command, stdin=pipe, stdout=pipe, env=env, text=True
    ) as process:
        assert process.stdout.readline() == "writing\n"
        yield process.pid
        process.send_signal(signal.SIGKILL)


WRITER = """
import sys
from pathlib import Path
from learnkernels.tasks.store import atomic_path, keep
with {writer}(Path(sys.argv[1])) as temporary:
    print("writing", flush=True)
    input()
"""


@pytest.mark.parametrize("writer", ["keep", "atomic_path"])
def test_what_a_killed_writer_leaves_is_told_and_goes_with_the_next(
    tmp_path: Path, writer: str
):
    with killed_at_the_end(WRITER.format(writer=writer), tmp_path / "it") as pid:
        (left,) = tmp_path.iterdir()
        assert Owner.read(left.name) == Owner.of(pid)
        assert leftovers(tmp_path) == []
    assert leftovers(tmp_path) == [left]
    foreign = (
        tmp_path
        / f".learnkernels~{replace(Owner.of(os.getpid()), host='other.1', pid=pid)}~x"
    )
    foreign.mkdir()
    with atomic_path(tmp_path / "file") as temporary:
        temporary.write_text("new")
    assert {child.name for child in tmp_path.iterdir()} == {"file", foreign.name}


HALF_MADE = """
import sys
from pathlib import Path
from tests.unit.tasks.test_matrices import FAMILY, index_of, make
class Waiting(type(FAMILY)):
    def tile(self, A, B, shift=None):
        print("writing", flush=True)
        input()
make(Path(sys.argv[1]), index_of(), family=Waiting(FAMILY.gammas))
"""


def test_matrices_whose_run_was_killed_are_made_again(tmp_path: Path):
    folder = tmp_path / "toy"
    with killed_at_the_end(HALF_MADE, folder):
        assert not folder.exists()
    make(folder)
    assert files_of(folder) == files_of(make(tmp_path / "fresh").folder)
    assert {path.name for path in tmp_path.iterdir()} == {"toy", "fresh"}


# A command ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow(10)
def test_the_command_writes_matrices_and_names_folder_and_size(
    home: Path, prefect_server: None
):
    conf = str(ROOT / "conf/quickstart.yaml")
    missing = learnkernels(
        home, "compare", conf, "--set", "kernels=[{family: precomputed, path: grams}]"
    )
    assert missing.returncode == 2
    assert "there are no matrices in grams/breast_cancer" in missing.stderr
    options = ["--output", "grams", "--dtype", "float32", "--set", "dask.workers=0"]
    run = learnkernels(
        home, "gram", conf, *options, PREFECT_API_URL=str(PREFECT_API_URL.value())
    )
    assert run.returncode == 0, run.stderr
    assert "Traceback" not in run.stderr
    assert re.fullmatch(
        r"matrices: grams \([\d.]+ MiB\)", run.stdout.strip().splitlines()[-1]
    )
    indexes = [
        json.loads(path.read_text())
        for path in sorted((home / "work" / "grams").glob("*/index.json"))
    ]
    made = [(index["dataset"], index["dtype"]) for index in indexes]
    assert made == [("breast_cancer", "float32"), ("diabetes", "float32")]
    (home / "work" / "few.yaml").write_text(
        "name: few\ndatasets: [{source: sklearn, name: wine}]\n"
    )
    none = learnkernels(home, "gram", "few.yaml", "--output", "grams")
    assert none.returncode == 2
    sentence = "error: few.yaml: 'kernels' gives none whose matrices could be written; give families."
    assert none.stderr.strip() == sentence
