"""New users and free ports. System tests start commands as processes, servers, browsers and builds."""

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dev.tools.forked import Commands
from learnkernels.tasks.operate.servers import free_port
from tests.pages import files_of
from tests.user import ROOT, User, environment, new_home


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home and an empty working folder of a new user."""
    return new_home(tmp_path)


@pytest.fixture(scope="session")
def commands(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Commands]:
    """A process from which commands of any folder are forked."""
    folder = new_home(tmp_path_factory.mktemp("commands"))
    with closing(Commands(folder / "work", environment(folder))) as commands:
        yield commands


@pytest.fixture
def user(home: Path, commands: Commands) -> User:
    """A new user in an empty folder."""
    return User(home, commands)


@pytest.fixture
def ports() -> tuple[int, int]:
    """Two free ports of this machine."""
    return free_port(), free_port()


@pytest.fixture(scope="module")
def newcomer(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with what README and first page assume: configurations, a table, and its configuration."""
    folder = tmp_path_factory.mktemp("newcomer")
    (folder / "home").mkdir()
    work = folder / "work"
    shutil.copytree(
        ROOT / "conf",
        work / "conf",
        ignore=shutil.ignore_patterns("*.py", "__pycache__"),
    )
    (work / "mine.yaml").write_text(
        files_of(ROOT / "docs" / "configurations.md")["mine.yaml"]
    )
    rng = np.random.default_rng(0)
    X = rng.normal(size=(90, 3))
    measured = pd.DataFrame(X, columns=["temperature", "pressure", "flow"])
    measured["yield"] = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=90)
    measured.loc[3, "flow"] = np.nan
    measured.insert(0, "id", np.arange(90))
    measured.to_parquet(work / "measurements.parquet")
    table = measured.rename(columns={"flow": "spent"}).assign(
        city=rng.choice(["here", "there", None], 90)
    )
    table["churn"] = np.where(
        table.pop("yield") + (table["city"] == "here") > 0, "yes", "no"
    )
    table.to_csv(work / "table.csv", index=False)
    return folder
