"""All tests run on state folders and databases that are thrown away."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.load_profile("repeatable")

if "PYTEST_XDIST_WORKER" in os.environ:
    # What the process that hands out the tests has set up is its own.
    for inherited in (
        "DASK_CONFIG",
        "DASK_TEMPORARY_DIRECTORY",
        "MPLCONFIGDIR",
        "TMPDIR",
    ):
        os.environ.pop(inherited, None)
    tempfile.tempdir = None  # looked up again
# A shell without job control starts what runs in the background with SIGINT ignored,
# and children inherit that.
signal.signal(signal.SIGINT, signal.default_int_handler)
_STATE = tempfile.TemporaryDirectory(prefix="learnkernels-tests-")
os.environ["LEARNKERNELS_HOME"] = str(Path(_STATE.name) / "state")
os.environ["MLFLOW_TRACKING_URI"] = f"sqlite:///{Path(_STATE.name) / 'mlflow.db'}"
os.environ.pop("PREFECT_API_URL", None)
os.environ.pop("PREFECT_HOME", None)

# Prefect and MLflow read it on import.
from learnkernels.tasks.environment import collect_seldom, prepare_environment  # noqa: E402

collect_seldom()
prepare_environment()


QUICK = 0.1
"""Seconds of a test that says nothing else."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The longest files go first, so that no process is left with one of them at the end."""
    seconds: defaultdict[Path, float] = defaultdict(float)
    for item in items:
        slow = item.get_closest_marker("slow")
        seconds[item.path] += slow.args[0] if slow else QUICK
    items.sort(key=lambda item: -seconds[item.path])


SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture
def shared_data() -> Path:
    """The folder of the real data sets; tests that need it skip where it is missing."""
    if not SHARED.is_dir():
        pytest.skip(
            f"the folder of real data sets, {SHARED.parent.name}/data beside the project, is not here"
        )
    return SHARED


@pytest.fixture(scope="session")
def prefect_server(
    tmp_path_factory: pytest.TempPathFactory, empty_prefect: Path
) -> Iterator[None]:
    """A Prefect server of its own, on a temporary database, once for all flows."""
    from prefect.testing import utilities  # here: tests of the mathematics need neither

    folder = tmp_path_factory.mktemp("server")
    shutil.copy(empty_prefect, folder / "prefect-test.db")
    with pytest.MonkeyPatch.context() as patch:
        # Where it would make its tables first
        patch.setattr(utilities, "mkdtemp", lambda: str(folder))
        with utilities.prefect_test_harness(server_startup_timeout=120):
            yield


@pytest.fixture(scope="session")
def scheduler_elsewhere() -> Iterator[str]:
    """The address of a Dask scheduler with two workers that is not this project's, and open to all."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
    ) as cluster:
        yield cluster.scheduler_address


def _made_once(
    factory: pytest.TempPathFactory, name: str, make: Callable[[Path], None]
) -> Path:
    """Return a file that the first process of a run makes, and the others reuse."""
    parent = factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        parent = parent.parent
    folder = parent / name
    folder.mkdir(exist_ok=True)
    complete = folder / "empty.db"
    incomplete = folder / f"{name}.db"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not complete.exists():
            make(incomplete)
            incomplete.rename(complete)
    return complete


@pytest.fixture(scope="session")
def empty_mlflow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An MLflow database with its tables and nothing in them; making one takes seconds, copying it none."""

    def make(path: Path) -> None:
        from mlflow.store.tracking.sqlalchemy_store import SqlAlchemyStore

        SqlAlchemyStore(
            f"sqlite:///{path}", str(path.parent / "artifacts")
        ).engine.dispose()

    return _made_once(tmp_path_factory, "mlflow", make)


@pytest.fixture(scope="session")
def empty_prefect(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Prefect database with its tables and nothing in them; making one takes more seconds than all that follows."""

    def make(path: Path) -> None:
        home = path.parent
        env = os.environ | {
            "PREFECT_HOME": str(home),
            "PREFECT_PROFILES_PATH": str(home / "profiles.toml"),
        }
        upgrade = [
            sys.executable,
            "-m",
            "prefect",
            "server",
            "database",
            "upgrade",
            "--yes",
        ]
        subprocess.run(
            upgrade, env=env, cwd=home, check=True, capture_output=True, timeout=300
        )

    return _made_once(tmp_path_factory, "prefect", make)


@pytest.fixture
def used_home(tmp_path: Path, empty_mlflow: Path, empty_prefect: Path) -> Path:
    """An empty home and a working folder of a user whose databases have their tables already."""
    work, state = tmp_path / "work", tmp_path / "work" / ".learnkernels"
    for folder in (tmp_path / "home", work):
        folder.mkdir()
    state.mkdir(mode=0o700)
    (state / "prefect").mkdir()
    shutil.copy(empty_mlflow, work / "mlflow.db")
    shutil.copy(empty_prefect, state / "prefect" / "prefect.db")
    return tmp_path


@pytest.fixture
def working_folder(
    tmp_path: Path, empty_mlflow: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """An empty working folder with its own state, store of results and MLflow database."""
    return _work_in(tmp_path, empty_mlflow, monkeypatch)


@pytest.fixture(scope="module")
def module_folder(
    tmp_path_factory: pytest.TempPathFactory, empty_mlflow: Path
) -> Iterator[Path]:
    """A working folder that the tests of one module share; of a test that asks for `working_folder` that one holds."""
    with pytest.MonkeyPatch.context() as patch:
        yield _work_in(tmp_path_factory.mktemp("module"), empty_mlflow, patch)


def _work_in(folder: Path, empty_mlflow: Path, patch: pytest.MonkeyPatch) -> Path:
    shutil.copy(empty_mlflow, folder / "mlflow.db")
    patch.chdir(folder)
    patch.setenv("LEARNKERNELS_HOME", str(folder / "state"))
    patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{folder / 'mlflow.db'}")
    return folder
