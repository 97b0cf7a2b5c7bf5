"""How a run comes by Dask workers: started here, or found at a scheduler's address."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from pathlib import Path

import dask
import psutil
from dask.utils import format_bytes, parse_bytes
from distributed import Client, LocalCluster, Security, default_client

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import DaskConfig
from learnkernels.tasks.store import LIBRARIES

KEPT_BYTES, KEPT_SHARE = 1 << 28, 16
"""Workers keep what they have freed, up to so many bytes and to this part of their memory.

By Dask's default they give it back after each tile, and pay in page faults. Single arrays of a quarter of that and more
are given back.
"""

THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
"""Settings of BLAS and of all else that has threads, of which a worker has one."""

NEVER_PAUSED = {"distributed.worker.memory.pause": False}
"""A worker that Dask pauses, at 80 % of its memory, waits for that to fall; what libraries and the C library keep does
not, and the run would wait forever. At 95 % it is ended, and a sentence reports it."""

LEFT_TO_ITS_NANNY = {"distributed.deploy.lost-worker-timeout": "1 day"}
"""A worker of this machine that ends is started again by its nanny. Dask's cluster looks once, 15 s after an end, and
closes that nanny where no process of it is up at that moment, which may have ended like the one before."""

SELDOM_WATCHED: dict[str, str | bool] = {
    "distributed.admin.tick.interval": "1 s",
    "distributed.admin.system-monitor.interval": "10 s",
    "distributed.worker.profile.enabled": False,
}
"""What pages would show is not measured: all processes of this machine share its cores, and the figures, taken up to a
hundred times a second, cost two workers of two cores a twentieth of their pass."""

LOOPBACK = "127.0.0.1"
"""A Dask scheduler runs whatever it is sent, so a local one listens here alone, and to who has the keys of the run."""

NO_PAGES: dict[str, list[str]] = {"distributed.scheduler.http.routes": [], "distributed.worker.http.routes": []}
"""Dask's pages have no authentication, and any user of the machine could read them."""

OURS = ("DASK_CONFIG", "DASK_TEMPORARY_DIRECTORY")
"""Settings of Dask that each process has from here."""

SAME = (*LIBRARIES, "dask", "distributed", "pyarrow")
"""What all sides need in one version: numbers, or what travels, depend on it."""


def workers_here(n_workers: int, memory: str) -> LocalCluster:
    """Start worker processes of this machine, of one thread each, that only who started them can use.

    Parameters
    ----------
    n_workers : int
        How many.
    memory : str
        Limit of each, such as ``4GiB``.

    Raises
    ------
    InputError
        Processes do not start, and the environment has settings of Dask.
    """
    kept = min(KEPT_BYTES, parse_bytes(memory) // KEPT_SHARE)
    spawned = {"MALLOC_TRIM_THRESHOLD_": kept, "MALLOC_MMAP_THRESHOLD_": kept // 4, **dict.fromkeys(THREADS, 1)}
    settings = {"distributed.nanny.pre-spawn-environ": spawned}
    given = [name for name in os.environ if name.startswith("DASK_") and name not in OURS]
    try:
        with dask.config.set(NO_PAGES | settings), _deaf_to_interrupts():
            return LocalCluster(
                n_workers=n_workers,
                threads_per_worker=1,
                memory_limit=memory,
                host=LOOPBACK,
                protocol="tls://",
                security=Security.temporary(),  # a pair of keys that goes with the run and is in no file
                dashboard_address=f"{LOOPBACK}:0",
                scheduler_kwargs={"dashboard": False},
                config=NEVER_PAUSED | NO_PAGES,  # also of those that Dask starts when one has ended
                silence_logs=logging.CRITICAL,  # what ends a worker is a sentence; a heartbeat at the end is no error
            )
    except RuntimeError as error:
        if not given:
            raise
        raise InputError(
            f"dask: workers of this machine do not start ({error}); unset {', '.join(given)} in the environment, or "
            "correct it."
        ) from error


def running_scheduler() -> tuple[str | None, Security | None]:
    """Return address and keys of the scheduler that Dask's client in this process has, or `DASK_SCHEDULER_ADDRESS`."""
    with suppress(ValueError):  # there is no client
        client = default_client()
        return client.scheduler.address, client.security
    return dask.config.get("scheduler-address", None), None


def connected(config: DaskConfig, security: Security | None = None) -> Client:
    """Return a client of a scheduler that runs elsewhere.

    Raises
    ------
    InputError
        No scheduler answers at the address, it has no workers, or its certificates are not those given.
    """
    where, security = config.scheduler, security or _security(config)
    try:
        client = Client(where, timeout=config.timeout, set_as_default=False, security=security)
    except (OSError, ValueError, TypeError) as error:
        raise InputError(
            f"dask.scheduler: no Dask scheduler answers at {where} within {config.timeout:g} s "
            f"({type(error).__name__}); start one with 'dask scheduler', or leave the key out for a local cluster."
        ) from None
    try:
        client.wait_for_workers(1, timeout=config.timeout)
    except TimeoutError:
        client.close()
        raise InputError(
            f"dask.scheduler: the scheduler at {where} has no workers after {config.timeout:g} s; start some with "
            f"'dask worker {where}', or set dask.timeout higher."
        ) from None
    return client


def require_same_versions(client: Client, known: Collection[str]) -> set[str]:
    """Refuse workers that have other versions of what numbers depend on; return the addresses of all.

    Parameters
    ----------
    client : distributed.Client
        Of the scheduler.
    known : collection of str
        Addresses of workers that need not be asked again.

    Raises
    ------
    InputError
        Python, or a package, is of another version on a worker than here, or not there at all.
    """
    workers = set(client.scheduler_info(n_workers=-1)["workers"])
    if workers <= set(known):
        return workers
    of = client.get_versions(packages=list(SAME))
    ours = of["client"]["packages"]
    for address, theirs in sorted(of["workers"].items()):
        if not isinstance(theirs, dict) or address in known:
            continue  # one that has just ended has nothing to say
        packages = theirs["packages"]
        others = [
            f"{name} {packages.get(name) or 'not at all'} and not {ours[name]}"
            for name in SAME
            if packages.get(name) != ours[name]
        ]
        if _python(packages) != _python(ours):
            others.insert(0, f"Python {_python(packages)} and not {_python(ours)}")
        if others:
            raise InputError(
                f"dask: the worker at {address} has {', '.join(others[:4])}; install there what is installed here: the "
                "same Python, and learnkernels with its constraints.txt."
            )
    return workers


def _python(packages: dict[str, str]) -> str:
    return ".".join(packages["python"].split(".")[:2])


def _security(config: DaskConfig) -> Security | None:
    """Return the keys of this side; None where they are not said, and Dask's own configuration may have them.

    Raises
    ------
    InputError
        A file is missing, or none of PEM's.
    """
    if config.certificates is None:
        return None
    for name, path in config.certificates.model_dump().items():
        try:
            text = Path(path).read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "not of PEM's format"
            raise InputError(f"dask.certificates.{name}: {path} cannot be read ({reason}); correct the path.") from None
        if "-----BEGIN" not in text:
            raise InputError(f"dask.certificates.{name}: {path} is no file of PEM's format; correct the path.")
    files = config.certificates
    return Security(require_encryption=True, tls_ca_file=files.ca, tls_client_cert=files.cert, tls_client_key=files.key)


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """Have threads that start within, and the processes that these start, not notice Ctrl-C: they end with this one."""
    resource_tracker.ensure_running()  # the first to start a process would start that, and listen again
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def worker_memory(setting: str, workers: int) -> str:
    """Return the memory limit of one worker: as set, or half of what is free now shared among them."""
    return str(format_bytes(psutil.virtual_memory().available // (2 * workers))) if setting == "auto" else setting
