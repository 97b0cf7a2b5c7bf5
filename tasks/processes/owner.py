"""Process that owns a file, folder, run or server."""

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


@dataclass(frozen=True)
class Owner:
    """Process that owns a temporary file or folder.

    `host` distinguishes containers, which may share a name. `started` is in hundredths
    of a second since the machine's start.
    """

    host: str
    pid: int
    started: int

    @classmethod
    def this(cls) -> Owner:
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Owner:
        """Return the process `pid` of this host as an owner."""
        return cls(_host(), pid, _started(psutil.Process(pid)))

    @classmethod
    def read(cls, text: str) -> Owner | None:
        """Parse the owner in a name such as ``run~OWNER~x7``; None without one."""
        match = re.search(
            r"(?:^|~)(?P<host>[\w.-]+)~(?P<pid>\d+)~(?P<started>\d+)(?=$|[~.])", text
        )
        if match is None:
            return None
        return cls(match["host"], int(match["pid"]), int(match["started"]))

    def __str__(self) -> str:
        """Return ``host~pid~started``, which is valid in file names."""
        return f"{self.host}~{self.pid}~{self.started}"

    @property
    def here(self) -> bool:
        """Whether the owner is a process of this host."""
        return self.host == _host()

    @property
    def gone(self) -> bool:
        """Whether the owner's process has ended; False if on another host."""
        if not self.here:
            return False
        try:
            process = psutil.Process(self.pid)
            is_reused = abs(_started(process) - self.started) > 1
            return is_reused or process.status() == psutil.STATUS_ZOMBIE
        except psutil.NoSuchProcess:
            # The system may hide processes of other users
            return not psutil.pid_exists(self.pid)


def _started(process: psutil.Process) -> int:
    seconds: float = process.create_time() - psutil.boot_time()
    return round(100 * seconds)


@cache
def _host() -> str:
    parts = [re.sub(r"[^\w.-]", "-", socket.gethostname()) or "host"]
    with suppress(OSError):  # only Linux has these files
        parts.append(
            hashlib.sha256(Path("/etc/machine-id").read_bytes()).hexdigest()[:6]
        )
    with suppress(OSError):
        parts.append(str(os.stat("/proc/self/ns/pid").st_ino))
    return ".".join(parts)
