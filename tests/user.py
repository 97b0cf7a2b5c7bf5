"""A new user in an empty folder, and the commands that this user runs as processes."""

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from dev.tools.forked import Commands, Started

ROOT = Path(__file__).resolve().parents[1]
# As the installed command, without the working folder
COMMAND = [
    sys.executable,
    "-P",
    "-m",
    "learnkernels",
]


def new_home(folder: Path) -> Path:
    """Make an empty home and an empty working folder in `folder`; return `folder`."""
    (folder / "home").mkdir()
    (folder / "work").mkdir()
    return folder


def environment(home: Path) -> dict[str, str]:
    """Return the environment of a new user: an empty home, no settings, this project."""
    names = ("PATH", "LANG", "LC_ALL", "CI")
    prefixes = ("OPENBLAS_", "COVERAGE_")
    inherited = {
        name: value
        for name, value in os.environ.items()
        if name in names or name.startswith(prefixes)
    }
    return inherited | {
        "HOME": str(home / "home"),
        "PYTHONPATH": str(ROOT),
        "PYTHONDONTWRITEBYTECODE": "1",
        "LOKY_MAX_CPU_COUNT": "1",  # tests share the cores
    }


def learnkernels(
    home: Path, *arguments: str, **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run the command as a new user who has set some environment variables."""
    return subprocess.run(
        [*COMMAND, *arguments], cwd=home / "work", env=environment(home) | settings, capture_output=True, text=True,
        timeout=600, umask=0o022,  # as most shells have it
    )  # fmt: skip


def open_to_others(folder: Path) -> list[Path]:
    """Return the paths below a folder that other users may read, write or enter."""
    paths = [path for path in folder.rglob("*") if not path.is_symlink()]
    return [path for path in paths if path.stat().st_mode & 0o077]


@dataclass
class User:
    """A new user whose commands are forked from a process that has imported the libraries."""

    home: Path
    commands: Commands

    @property
    def work(self) -> Path:
        """The working folder."""
        return self.home / "work"

    def start(self, *arguments: str, **settings: str) -> Started:
        """Start the command in the working folder, with some environment variables set."""
        return self.commands.start(
            ["learnkernels", *arguments], self.work, environment(self.home) | settings
        )

    def run(self, *arguments: str, **settings: str) -> subprocess.CompletedProcess[str]:
        """Run the command as `start` does, to its end."""
        return self.start(*arguments, **settings).wait()


def key_of(work: Path) -> tuple[str, str]:
    """Return user and password of the servers of a working folder."""
    user, _, key = (work / ".learnkernels" / "key").read_text().partition(":")
    return user, key
