"""Measure ten million rows on two workers that share nothing: no file, no network but
one to scheduler and objects.

Rows lie in parts on a server that speaks S3; each worker has a network namespace, whose
interface counts its bytes, a folder and a limit of memory of its own. Commands are
those of a user: compare, train, predict into parts. Says seconds, the most memory of
each process, and bytes by worker; with --kill-every, one worker after the other is
killed.

    python -m dev.benchmarks.cluster FOLDER [--rows 10000000] [--kill-every 60]
    [--same-as OTHER]

Needs Linux, the right to make network namespaces, and the packages for tests.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from learnkernels.tasks.data.synthetic import friedman

HOST = "10.77.0.1"
SCHEDULER, OBJECTS = f"tcp://{HOST}:8786", f"http://{HOST}:9000"
BRIDGE, WORKERS = "lkbridge", ("lkworker0", "lkworker1")
BIN = Path(sys.executable).parent
METRIC = {"rounds": 1, "metric": "diagonal", "kernels": "gaussian"}
COMMANDS = ("compare", "train", "predict")
PARTS, GROUPS, NEW_PARTS = 100, 1, 10
GAPPY = ("x6", "x7")
ID = "y"
Columns: TypeAlias = Callable[[np.random.Generator, int], dict[str, Any]]
SECONDS = 0.5
"""Between two looks at the memory of processes."""

ENVIRONMENT = {
    "AWS_ENDPOINT_URL": OBJECTS,
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "benchmark",
    "AWS_SECRET_ACCESS_KEY": "benchmark",
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "DASK_DISTRIBUTED__WORKER__MEMORY__PAUSE": "False",
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "20",
    "DASK_DISTRIBUTED__LOGGING__DISTRIBUTED": "error",
    "MALLOC_TRIM_THRESHOLD_": "65536",
}


def config_of(
    rows: int, landmarks: int, learners: Sequence[str], scale: str
) -> dict[str, Any]:
    """Return the configuration of the comparison: of ten rows nine train and one tests, less a thousandth to choose."""
    dataset = {"source": "file", "path": "s3://rows/table/", "target": "y"}
    return {
        "name": "cluster",
        "datasets": [dataset | {"label": "table", "in_parts": True, "scale": scale}],
        "kernels": [
            {"family": "gaussian", "gammas": {"base": 4, "from": -4, "to": -2}}
        ],
        "learners": [
            {"name": name, "params": METRIC if name == "rfm" else {}}
            for name in learners
        ],
        "statistics": {"sample": "auto"},
        "predictor": {"name": "nystroem", "n_components": landmarks, "tol": 1e-4},
        "protocol": {
            "split": {
                "train": rows * 9 // 10 - rows // 1000,
                "validation": rows // 1000,
                "test": rows // 10,
            },
            "grid": [1024.0],
        },
        "dask": {"scheduler": SCHEDULER, "timeout": 120},
    }


def numbers_alone(rng: np.random.Generator, n: int) -> dict[str, Any]:
    """Return twenty columns of numbers, and the target y."""
    X, y = friedman(rng, n, 15)
    return {**{f"x{j + 1}": X[:, j] for j in range(20)}, "y": y}


def mixed(rng: np.random.Generator, n: int) -> dict[str, Any]:
    """Return twenty columns, two of levels, one of dates and two with gaps among them, and the target y."""
    columns = numbers_alone(rng, n)
    site, customer = rng.integers(0, 12, n), np.minimum(rng.zipf(1.3, n), 50_000)
    day = np.datetime64("2022-01-01") + rng.integers(0, 1000, n)
    columns["y"] = columns["y"] + np.sin(site) + np.cos(customer)
    gaps = {
        name: pa.array(
            np.where(rng.random(n) < 0.02, np.nan, columns[name]), from_pandas=True
        )
        for name in GAPPY
    }
    levels = {
        "x18": np.char.add("site ", site.astype(str)),
        "x19": np.char.add("customer ", customer.astype(str)),
    }
    return columns | gaps | levels | {"x20": day}


def write_table(
    folder: Path, columns: Columns, rows: int, parts: int, first_seed: int
) -> int:
    """Write rows into files of several row groups, unless they are there; return their bytes."""
    folder.mkdir(parents=True, exist_ok=True)
    for i in range(parts):
        path, n = folder / f"{i:05d}.parquet", rows // parts
        if not path.exists():
            table = pa.table(columns(np.random.default_rng([first_seed, i]), n))
            pq.write_table(
                table, path.with_suffix(".new"), row_group_size=-(-n // GROUPS)
            )
            path.with_suffix(".new").rename(path)
    return sum(path.stat().st_size for path in folder.glob("*.parquet"))


@contextmanager
def network() -> Iterator[None]:
    """Give each worker a network of its own, joined to this machine by a bridge."""

    def ip(*words: str) -> None:
        subprocess.run(["ip", *words], check=True)

    def down() -> None:
        for name in WORKERS:
            subprocess.run(
                ["ip", "netns", "del", name], check=False, stderr=subprocess.DEVNULL
            )
        subprocess.run(
            ["ip", "link", "del", BRIDGE], check=False, stderr=subprocess.DEVNULL
        )

    down()  # what a run that was killed has left
    try:
        ip("link", "add", BRIDGE, "type", "bridge")
        ip("addr", "add", f"{HOST}/24", "dev", BRIDGE)
        ip("link", "set", BRIDGE, "up")
        for i, name in enumerate(WORKERS):
            ip("netns", "add", name)
            ip(
                "link",
                "add",
                f"lk{i}",
                "type",
                "veth",
                "peer",
                "name",
                "eth0",
                "netns",
                name,
            )
            ip("link", "set", f"lk{i}", "master", BRIDGE, "up")
            inside = ("netns", "exec", name, "ip")
            ip(*inside, "addr", "add", f"10.77.0.{i + 2}/24", "dev", "eth0")
            ip(*inside, "link", "set", "eth0", "up")
            ip(*inside, "link", "set", "lo", "up")
        yield
    finally:
        down()


def received_and_sent(i: int) -> np.ndarray:
    """Return the bytes that a worker has received and sent."""
    counts = Path(f"/sys/class/net/lk{i}/statistics")
    return np.array(
        [int((counts / name).read_text()) for name in ("tx_bytes", "rx_bytes")]
    )


@contextmanager
def process(
    command: Sequence[str], log: Path, **env: str
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process while the block lasts."""
    with (
        log.open("wb") as said,
        subprocess.Popen(
            command, env=os.environ | ENVIRONMENT | env, stdout=said, stderr=said
        ) as started,
    ):
        try:
            yield started
        finally:
            started.terminate()
            try:
                started.wait(20)
            except subprocess.TimeoutExpired:
                started.kill()


def worker_of(nanny: int) -> psutil.Process | None:
    """Return the process in which a worker runs; None while there is none."""
    children = psutil.Process(nanny).children()
    of = [
        child
        for child in children
        if "resource_tracker" not in " ".join(child.cmdline())
    ]
    return of[0] if of else None


class Watch(threading.Thread):
    """Notes the most memory of processes, and may kill one worker after the other."""

    def __init__(
        self, named: dict[str, int], nannies: Sequence[int], kill_every: float
    ) -> None:
        super().__init__(daemon=True)
        self.named, self._nannies, self._every = named, nannies, kill_every
        self.most: dict[str, int] = {}
        self.killed = 0
        self.ended = threading.Event()

    def run(self) -> None:
        """Look until `ended`."""
        turns, next_kill = (
            itertools.cycle(self._nannies),
            time.monotonic() + self._every,
        )
        while not self.ended.wait(SECONDS):
            of_workers = {
                f"worker {i}": worker_of(nanny) for i, nanny in enumerate(self._nannies)
            }
            for name, pid in (
                *self.named.items(),
                *((n, w.pid) for n, w in of_workers.items() if w is not None),
            ):
                try:
                    self.most[name] = max(
                        self.most.get(name, 0), psutil.Process(pid).memory_info().rss
                    )
                except psutil.NoSuchProcess:
                    continue
            if self._every and time.monotonic() > next_kill:
                victim = worker_of(next(turns))
                if victim is not None:
                    victim.send_signal(signal.SIGKILL)
                    self.killed += 1
                next_kill = time.monotonic() + self._every


def command(
    words: Sequence[str], folder: Path, watch: Watch, name: str
) -> dict[str, Any]:
    """Run a command of a user; return its seconds and the bytes of each worker."""
    before, started = (
        [received_and_sent(i) for i in range(len(WORKERS))],
        time.monotonic(),
    )
    home = {"LEARNKERNELS_HOME": str(folder / "state"), "HOME": str(folder / "home")}
    (folder / "home").mkdir(exist_ok=True)
    with (folder / f"{name}.log").open("wb") as said:
        client = subprocess.Popen(
            [str(BIN / "learnkernels"), *words],
            cwd=folder,
            env=os.environ | ENVIRONMENT | home,
            stdout=said,
            stderr=subprocess.STDOUT,
        )
        watch.named[f"client, {name}"] = client.pid
        rc = client.wait()
    del watch.named[f"client, {name}"]
    if rc:
        raise SystemExit(
            f"{name} ended with {rc}: {(folder / f'{name}.log').read_text()[-2000:]}"
        )
    moved = [received_and_sent(i) - before[i] for i in range(len(WORKERS))]
    return {
        "command": name,
        "seconds": round(time.monotonic() - started, 1),
        "received": [int(of[0]) for of in moved],
        "sent": [int(of[1]) for of in moved],
    }


def put(folder: Path, prefix: str) -> None:
    """Send files to the server of objects."""
    from learnkernels.tasks.data.locations import locate, upload

    for path in sorted(folder.glob("*.parquet")):
        upload(path, locate(f"s3://rows/{prefix}/{path.name}"))


@contextmanager
def cluster(
    folder: Path, data: Path, memory: str, kill_every: float
) -> Iterator[Watch]:
    """Start server of objects, scheduler and workers, and watch them while the block lasts."""
    with ExitStack() as stack:
        stack.enter_context(network())
        moto = [str(BIN / "moto_server"), "-H", HOST, "-p", "9000"]
        server = stack.enter_context(process(moto, folder / "objects.log"))
        dask = [
            str(BIN / "dask"),
            "scheduler",
            "--host",
            HOST,
            "--port",
            "8786",
            "--no-dashboard",
        ]
        scheduler = stack.enter_context(process(dask, folder / "scheduler.log"))
        time.sleep(5)
        import boto3

        boto3.client("s3", endpoint_url=OBJECTS).create_bucket(Bucket="rows")
        put(data / "table", "table")
        put(data / "new", "new")
        nannies = []
        for name in WORKERS:
            (own := folder / name).mkdir(exist_ok=True)
            words = [
                str(BIN / "dask"),
                "worker",
                SCHEDULER,
                "--nthreads",
                "1",
                "--memory-limit",
                memory,
            ]
            words += ["--no-dashboard", "--local-directory", str(own)]
            within = ["ip", "netns", "exec", name, *words]
            nannies.append(
                stack.enter_context(
                    process(within, folder / f"{name}.log", TMPDIR=str(own))
                ).pid
            )
        watch = Watch(
            {"scheduler": scheduler.pid, "server of objects": server.pid},
            nannies,
            kill_every,
        )
        watch.start()
        try:
            yield watch
        finally:
            watch.ended.set()
            watch.join()


def numbers_of(folder: Path, commands: Collection[str]) -> dict[str, float | str]:
    """Return the error of each learner, and a digest of the predictions."""
    found: dict[str, float | str] = {}
    if "compare" in commands:
        table = max(folder.glob("results/cluster/*/folds.parquet"))
        found |= {
            f"error of {row['learner']}": row["error"]
            for row in pq.read_table(table).to_pylist()
        }
    if "predict" in commands:
        from learnkernels.tasks.data.locations import locate

        place = locate("s3://rows/scored")
        scored = pq.read_table(
            place.path, filesystem=place.filesystem, columns=[ID, "prediction"]
        )
        found["digest of predictions"] = digest_of(scored)
    return found


def digest_of(scored: pa.Table) -> str:
    """Return a digest of ids and predictions, whatever their order."""
    ordered = scored.sort_by([(ID, "ascending"), ("prediction", "ascending")])
    digest = hashlib.sha256()
    for name in (ID, "prediction"):
        digest.update(ordered.column(name).to_numpy().tobytes())
    return digest.hexdigest()


def require_same(numbers: dict[str, float | str], other: Path) -> None:
    """Exit if numbers differ from another run's."""
    theirs = json.loads((other / "cluster.json").read_text())["numbers"]
    differing = [name for name, value in numbers.items() if theirs.get(name) != value]
    if differing:
        raise SystemExit(f"error: Not as in {other}: {', '.join(differing)}.")
    sys.stdout.write(f"the same numbers as in {other}\n")


def main() -> None:
    """Measure, and write `cluster.json` into the folder."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--landmarks", type=int, default=2000)
    parser.add_argument("--memory", default="1.5GiB", help="limit of each worker")
    parser.add_argument(
        "--kill-every", type=float, default=0, help="seconds; 0 for never"
    )
    parser.add_argument(
        "--data", type=Path, help="folder of the rows; below the folder by default"
    )
    parser.add_argument("--learners", nargs="+", default=["alignf", "rfm"])
    parser.add_argument(
        "--commands",
        nargs="+",
        choices=COMMANDS,
        default=COMMANDS,
        help="all by default",
    )
    parser.add_argument(
        "--mixed", action="store_true", help="a table with levels, dates and gaps"
    )
    parser.add_argument(
        "--same-as", type=Path, help="folder of a run whose numbers this must have"
    )
    asked = parser.parse_args()
    folder = asked.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    os.environ |= ENVIRONMENT
    data = (asked.data or folder / "data").resolve()
    columns = mixed if asked.mixed else numbers_alone
    stored = write_table(data / "table", columns, asked.rows, PARTS, 0)
    write_table(data / "new", columns, asked.rows // 10, NEW_PARTS, 1)
    config = config_of(
        asked.rows,
        asked.landmarks,
        asked.learners,
        "standard" if asked.mixed else "none",
    )
    (folder / "cluster.yaml").write_text(yaml.safe_dump(config))
    scoring = [
        "predict",
        "--model",
        "cluster/1",
        "--input",
        "s3://rows/new/",
        "--output",
        "s3://rows/scored/",
    ]
    commands = {
        "compare": ["compare", "cluster.yaml", "--verbose"],
        "train": [
            "train",
            "cluster.yaml",
            "--learner",
            asked.learners[0],
            "--model",
            "cluster",
            "--verbose",
        ],
        "predict": [*scoring, "--id", ID, "--scheduler", SCHEDULER],
    }
    with cluster(folder, data, asked.memory, asked.kill_every) as watch:
        measured = [
            command(commands[name], folder, watch, name) for name in asked.commands
        ]
        numbers = numbers_of(folder, asked.commands)
    found = {
        "rows": asked.rows,
        "bytes of the table": stored,
        "commands": measured,
        "most memory in MiB": {
            name: round(of / 2**20) for name, of in watch.most.items()
        },
        "workers killed": watch.killed,
        "numbers": numbers,
    }
    (folder / "cluster.json").write_text(json.dumps(found, indent=1))
    sys.stdout.write(f"{json.dumps(found, indent=1)}\n")
    if asked.same_as is not None:
        require_same(numbers, asked.same_as)


if __name__ == "__main__":
    main()
