"""Who wrote a file or opened a run: a process of a host, so that another can tell whether it is gone."""

from __future__ import annotations

import hashlib
import os
import re
import socket
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import psutil

_WRITTEN = re.compile(r"(?:^|~)(?P<host>[\w.-]+)~(?P<pid>\d+)~(?P<started>\d+)(?=$|[~.])")


@dataclass(frozen=True)
class Owner:
    """A process.

    Attributes
    ----------
    host : str
        Name of its machine with a few digits of what tells machines of one name apart and, on Linux, the number of its
        namespace of processes: containers may share a name and a folder, and do not see each other's processes.
    pid : int
    started : int
        Hundredths of a second after the machine's start, which no setting of the clock changes: a number of a process
        is given again, after a restart even soon.
    """

    host: str
    pid: int
    started: int

    @classmethod
    def this(cls) -> Owner:
        """Return the owner that this process is."""
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Owner:
        """Return the owner that a process of this host is.

        Raises
        ------
        psutil.NoSuchProcess
            There is none.
        """
        return cls(_host(), pid, _started(psutil.Process(pid)))

    @classmethod
    def read(cls, text: str) -> Owner | None:
        """Return the owner that a name such as ``run~OWNER~x7`` names, or None where it names none."""
        found = _WRITTEN.search(text)
        return None if found is None else cls(found["host"], int(found["pid"]), int(found["started"]))

    def __str__(self) -> str:
        """Return ``host~pid~started``, which a file may be named by."""
        return f"{self.host}~{self.pid}~{self.started}"

    @property
    def here(self) -> bool:
        """Whether its processes can be seen from here."""
        return self.host == _host()

    @property
    def gone(self) -> bool:
        """Whether it is known to have ended; of another host that is never known."""
        if not self.here:
            return False
        try:
            process = psutil.Process(self.pid)
            return process.status() == psutil.STATUS_ZOMBIE or abs(_started(process) - self.started) > 1
        except psutil.NoSuchProcess:
            return not psutil.pid_exists(self.pid)  # it does where the system hides the processes of others


def _started(process: psutil.Process) -> int:
    since: float = process.create_time() - psutil.boot_time()
    return round(100 * since)


@cache
def _host() -> str:
    parts = [re.sub(r"[^\w.-]", "-", socket.gethostname()) or "host"]
    with suppress(OSError):  # another system than Linux has neither
        parts.append(hashlib.sha256(Path("/etc/machine-id").read_bytes()).hexdigest()[:6])
    with suppress(OSError):
        parts.append(str(os.stat("/proc/self/ns/pid").st_ino))
    return ".".join(parts)
