"""The pinned set of packages really runs schedules: with some sets that pip accepts, no scheduled run is ever made."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import httpx

from tests.flows.test_cli import environment, ports  # noqa: F401
from tests.waiting import within

SERVED = """
from datetime import timedelta
from prefect import flow

@flow
def tick() -> int:
    return 1

if __name__ == "__main__":
    tick.serve(name="ticking", interval=timedelta(seconds=2), limit=1)
"""


def test_a_scheduled_run_appears_and_completes(tmp_path: Path, ports: tuple[int, int]):  # noqa: F811
    (tmp_path / "served.py").write_text(SERVED)
    (tmp_path / "home").mkdir()
    api = f"http://127.0.0.1:{ports[0]}/api"
    env = environment(tmp_path) | {
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "PREFECT_RUNNER_POLL_FREQUENCY": "1",
    }
    server = [sys.executable, "-m", "prefect", "server", "start", "--host", "127.0.0.1", "--port", str(ports[0])]
    processes = []
    with (tmp_path / "log").open("wb") as log:
        try:
            processes.append(subprocess.Popen(server, cwd=tmp_path, env=env, stdout=log, stderr=log))
            assert within(lambda: httpx.get(f"{api}/health").status_code == 200, 120), "no server"
            serving = [sys.executable, "served.py"]
            env["PREFECT_API_URL"] = api
            processes.append(subprocess.Popen(serving, cwd=tmp_path, env=env, stdout=log, stderr=log))
            assert within(lambda: any(_scheduled_and_completed(api)), 120), "no scheduled run"
        finally:
            for process in reversed(processes):
                process.send_signal(signal.SIGINT)
            for process in processes:
                try:
                    process.wait(timeout=30)
                except subprocess.TimeoutExpired:  # Prefect's own server of flows may wait for its runs; not asked here
                    process.kill()
                    process.wait()


def _scheduled_and_completed(api: str) -> list[bool]:
    runs = httpx.post(f"{api}/flow_runs/filter", json={}).json()
    return [run["auto_scheduled"] and run["state_type"] == "COMPLETED" for run in runs]
