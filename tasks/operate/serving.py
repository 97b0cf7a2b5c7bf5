"""A server of a working folder as a process of its own: Prefect's or MLflow's application behind a guard.

    python -m learnkernels.tasks.operate.serving prefect PORT
    python -m learnkernels.tasks.operate.serving mlflow PORT
    python -m learnkernels.tasks.operate.serving worker ARGUMENTS_OF_PREFECT_WORKER_START

Each ends with the process that started it: where its standard input is a pipe, when nothing holds the other end.
"""

from __future__ import annotations

import asyncio
import os
import stat
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from socket import socket
from typing import TYPE_CHECKING

import psutil

from learnkernels.conf.errors import InputError
from learnkernels.tasks.environment import collect_seldom, folder_key, prepare_environment, prepare_python, told
from learnkernels.tasks.evidence.databases import prepare_mlflow, prepare_prefect
from learnkernels.tasks.operate.children import LOOPBACK, send
from learnkernels.tasks.operate.guard import Application, Guard

if TYPE_CHECKING:
    from sqlalchemy.ext.asyncio import AsyncSession, AsyncSessionTransaction

GRACE_SECONDS = 5
"""How long requests may take to end once the server is to."""

FIRST = (("POST", "/api/flow_runs/filter"), ("GET", "/api/csrf-token"))
"""What a command asks a Prefect server first, asked while it still imports; what has not met a request is not made yet.

Where Prefect asks for a password, the answer is that it is missing.
"""

END_SECONDS = 10.0
"""How long a process may take to end after the one that started it; then it is cut off."""


def watch_parent() -> None:
    """End this process when the one that started it has ended: the system closes its end of our input then."""
    if stat.S_ISFIFO(os.fstat(0).st_mode):
        threading.Thread(target=_wait_for_end, name="parent", daemon=True).start()


def _wait_for_end() -> None:
    while os.read(0, 1024):
        pass
    send((psutil.Process(), *psutil.Process().children()), psutil.Process.terminate)  # runs of a worker, too
    time.sleep(END_SECONDS)
    send(psutil.Process().children(recursive=True), psutil.Process.kill)
    os._exit(1)


def further_hosts() -> list[str]:
    """Return the names by which a proxy calls the servers: LEARNKERNELS_HOSTS, with commas between them."""
    return [name for name in os.environ.get("LEARNKERNELS_HOSTS", "").split(",") if name]


def prefect_application() -> Application:
    """Return Prefect's interface, pages and services, as `prefect server start` does."""
    from prefect.server.api.server import create_app

    write_in_turn()
    return create_app(final=True)


def write_in_turn() -> None:
    """Let Prefect's transactions on SQLite take its lock when they begin, and so wait for each other.

    One that reads first and writes later is refused at once, as "database is locked", where another has written
    meanwhile; Prefect has no setting for that. What is read beside a transaction while it lasts, as the status of a
    work queue is, must not ask for the lock that this one holds.
    """
    from prefect.server.database.configurations import SQLITE_BEGIN_MODE, AioSqliteConfiguration

    begin = AioSqliteConfiguration.begin_transaction

    @asynccontextmanager
    async def in_turn(
        self: AioSqliteConfiguration, session: AsyncSession, with_for_update: bool = False
    ) -> AsyncIterator[AsyncSessionTransaction]:
        outermost = SQLITE_BEGIN_MODE.get() is None
        async with begin(self, session, with_for_update=outermost or with_for_update) as transaction:
            await session.connection()  # takes the lock
            token = SQLITE_BEGIN_MODE.set("DEFERRED")
            try:
                yield transaction
            finally:
                SQLITE_BEGIN_MODE.reset(token)

    AioSqliteConfiguration.begin_transaction = in_turn  # type: ignore[method-assign]


def mlflow_application() -> Application:
    """Return MLflow's interface and pages over the store of MLFLOW_BACKEND_STORE_URI, as `mlflow server` does.

    That one hands its options to further processes in the environment, where the application looks for them; here they
    stay in one process, which takes half the memory and starts in half the time.
    """
    from mlflow.server import constants

    store, artifacts = os.environ["MLFLOW_BACKEND_STORE_URI"], "mlflow-artifacts:/"
    os.environ |= {
        constants.BACKEND_STORE_URI_ENV_VAR: store,
        constants.REGISTRY_STORE_URI_ENV_VAR: store,
        constants.ARTIFACT_ROOT_ENV_VAR: artifacts,
        constants.SERVE_ARTIFACTS_ENV_VAR: "true",
        constants.ARTIFACTS_DESTINATION_ENV_VAR: (Path.cwd() / "mlartifacts").as_uri(),
        "_MLFLOW_SERVER_BOOT_ID": os.urandom(16).hex(),
        "_MLFLOW_SGI_NAME": "uvicorn",
    }
    for names, scheme in (("MLFLOW_SERVER_ALLOWED_HOSTS", ""), ("MLFLOW_SERVER_CORS_ALLOWED_ORIGINS", "https://")):
        if hosts := [f"{scheme}{name}" for name in further_hosts()]:
            os.environ.setdefault(names, ",".join(["127.0.0.1:*", "localhost:*", *hosts]))
    from mlflow.server.fastapi_app import app
    from mlflow.server.handlers import initialize_backend_stores

    initialize_backend_stores(store, store, artifacts)
    application: Application = app
    return application


def serve(application: Application, port: int, key: str | None, first: Sequence[tuple[str, str]] = ()) -> None:
    """Serve an application behind the guard until a signal ends it; it sends itself the requests `first` at once."""
    import uvicorn
    from uvicorn.main import STARTUP_FAILURE  # type: ignore[attr-defined]

    config = uvicorn.Config(
        Guard(application, port, key, further_hosts()),
        host=LOOPBACK,
        port=port,
        access_log=False,  # an address may hold the key
        log_level="warning",
        timeout_graceful_shutdown=GRACE_SECONDS,
    )

    class Server(uvicorn.Server):
        async def startup(self, sockets: list[socket] | None = None) -> None:
            await super().startup(sockets)
            if first:
                self.asking = asyncio.create_task(_ask(application, first))

        async def shutdown(self, sockets: list[socket] | None = None) -> None:
            if self.server_state.connections or self.server_state.tasks:
                await super().shutdown(sockets)
            else:  # which would wait a tenth of a second for nobody, and so would the command that waits for its server
                for one in self.servers:
                    one.close()
                await self.lifespan.shutdown()

    server = Server(config)
    with suppress(KeyboardInterrupt):
        server.run()
    if not server.started:
        sys.exit(STARTUP_FAILURE)


async def _ask(application: Application, requests: Sequence[tuple[str, str]]) -> None:
    """Send an application its first requests, for which it sets up what all others use."""
    import httpx

    with suppress(Exception):  # who asks next is told what is wrong
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(application), base_url=f"http://{LOOPBACK}"
        ) as client:
            for method, path in requests:
                await client.request(method, path, json={"limit": 1})


def main(what: str, *arguments: str) -> None:
    """Run one part of `learnkernels ui` or `up`, or the Prefect server of one command."""
    watch_parent()
    collect_seldom()
    prepare_python()
    try:
        prepare_environment()
        _run(what, *arguments)
    except Exception as error:  # the last line of the log, which who started it looks for
        sys.exit(f"error: {error if isinstance(error, InputError) else told(error)[1]}")


def _run(what: str, *arguments: str) -> None:
    if what == "worker":
        from prefect.cli import app

        sys.argv = ["prefect", "worker", "start", *arguments]
        app()
    elif what == "prefect":
        own = os.environ.get("PREFECT_SERVER_API_AUTH_STRING")  # then Prefect asks for it
        # Looked through here, one server at a time; Prefect would do it again, and two at once may meet.
        os.environ.setdefault("PREFECT_SERVER_DATABASE_MIGRATE_ON_START", "false")
        prepare_prefect()
        serve(prefect_application(), int(arguments[0]), None if own else folder_key(), FIRST)
    else:
        prepare_mlflow(os.environ["MLFLOW_BACKEND_STORE_URI"])
        serve(mlflow_application(), int(arguments[0]), folder_key())


if __name__ == "__main__":
    main(*sys.argv[1:])
