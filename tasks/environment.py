"""State folder, and environment variables of libraries and servers."""

from __future__ import annotations

import codecs
import errno
import gc
import io
import json
import os
import re
import secrets
import shutil
import sqlite3
import stat
import sys
import tempfile
import traceback
import urllib.request
import warnings
from contextlib import suppress
from datetime import datetime
from http.client import HTTPException
from importlib.util import find_spec
from pathlib import Path
from unicodedata import normalize
from urllib.parse import quote

from learnkernels.conf.errors import (
    SECRET,
    WAYS_OUT,
    InputError,
    cut,
    one_line,
    short,
    without_passwords,
)

STATE_DIR = ".learnkernels"
"""Folder in the working directory for everything that can be recomputed."""

QUIET = {
    "DO_NOT_TRACK": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "4",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_CLIENT_MAX_RETRIES": "4",
    "PREFECT_CLI_PROMPT": "false",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    "MLFLOW_UV_AUTO_DETECT": "false",
}
"""Default environment variables: no telemetry, no pickle, no prompts."""

PIPELINE = (
    "boto3", "botocore", "charset_normalizer", "dask", "distributed", "httpx", "jinja2", "matplotlib", "mlflow",
    "pandas", "prefect", "psutil", "pyarrow", "pydantic", "rich", "sqlalchemy", "typer", "yaml",
)  # fmt: skip
"""Packages of `learnkernels[pipeline]` that `conf`, `tasks` and `flows` import."""

OF_PYTHON = {"PYTHONSAFEPATH": "1", "PYTHONUTF8": "1"}
"""Variables that keep the working directory off the path, and set UTF-8."""

PREFECT_DATABASE = "PREFECT_SERVER_DATABASE_CONNECTION_URL"

PLAIN = {
    "±": "+-",
    "–": "-",
    "—": "-",
    "·": "-",
    "×": "x",
    "→": "->",
    "≤": "<=",
    "≥": ">=",
    "ß": "ss",
}
PLAIN |= {"‘": "'", "’": "'", "“": '"', "”": '"', "─": "-", "│": "|"}
"""Replacements for characters that an encoding lacks."""

AS_SHOWN = "learnkernels.shown"
"""Name of the codec error handler that applies `PLAIN`."""

LEAST_ROOM = 16 << 20
"""Free bytes that new databases need; with less, a Prefect server hangs."""

COLLECT_AFTER = (50_000, 20, 50)


def lacking_libraries(what: str) -> str:
    """Return a message about missing optional packages; empty if none is missing."""
    lacking = [name for name in PIPELINE if find_spec(name) is None]
    if not lacking:
        return ""
    return (
        f"{what} runs on libraries that are not installed ({', '.join(lacking)}); "
        "install them with: pip install 'learnkernels[pipeline]'"
    )


def collect_seldom() -> None:
    """Run garbage collection less often, for a faster start."""
    gc.set_threshold(*COLLECT_AFTER)


def prepare_python() -> None:
    """Make this process and its children independent of locale and current directory."""
    os.environ |= OF_PYTHON
    # Without compilation, a pass takes hundreds of times as long
    os.environ.pop("NUMBA_DISABLE_JIT", None)
    codecs.register_error(AS_SHOWN, _replace_characters)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=AS_SHOWN)
    if "error" in os.environ.get("PYTHONWARNINGS", ""):
        del os.environ["PYTHONWARNINGS"]
        filters = [entry for entry in warnings.filters if entry[0] != "error"]
        warnings.filters[:] = filters  # type: ignore[index]
        # Resets Python's cache of filters
        warnings.simplefilter("default", append=True)


def _replace_characters(error: UnicodeError) -> tuple[str, int]:
    """Replace characters that cannot be encoded: a codec error handler."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    replacements = []
    for character in error.object[error.start : error.end]:
        without_accent = normalize("NFKD", character).encode("ascii", "ignore").decode()
        replacements.append(PLAIN.get(character) or without_accent or "?")
    return "".join(replacements), error.end


def state_dir() -> Path:
    """Return the folder of caches and databases: LEARNKERNELS_HOME, or `.learnkernels`."""
    return Path(os.environ.get("LEARNKERNELS_HOME") or STATE_DIR).absolute()


def prepare_environment() -> Path:
    """Set environment variables for this process and its children; return the state folder.

    Call it before Prefect, MLflow, Dask or matplotlib are imported. The user's
    variables stay. InputError if folder or database cannot be used.
    """
    _require_drivers()
    state = state_dir()
    homes = _folders_of_libraries(state)
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)
        for folder in homes.values():
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        way = WAYS_OUT.get(error.errno or 0, "give another place")
        raise InputError(
            f"{state}: cannot be made ({error.strerror}); {way} in LEARNKERNELS_HOME."
        ) from None
    _require_places()
    if not os.access(state, os.W_OK):
        raise InputError(
            f"{state}: cannot be written to; {WAYS_OUT[errno.EACCES]} in LEARNKERNELS_HOME."
        )
    free = shutil.disk_usage(state).free
    if free < LEAST_ROOM:
        raise InputError(
            f"{state}: {free >> 20} MiB of its disk are free, and the databases of a run need {LEAST_ROOM >> 20}; "
            "free up disk space, or give another place in LEARNKERNELS_HOME."
        )
    if not os.path.isdir(os.environ.get("TMPDIR", "")):
        os.environ["TMPDIR"] = str(homes["TMPDIR"])
    for key, value in (QUIET | homes).items():
        os.environ.setdefault(key, str(value))
    # Figures are files; a notebook sets its own backend
    os.environ["MPLBACKEND"] = "Agg"
    os.environ.setdefault("MLFLOW_TRACKING_URI", sqlite_url(Path.cwd() / "mlflow.db"))
    # These characters would end the address of Prefect's default
    if set(str(state)) & set("?#%"):
        database = sqlite_url(state / "prefect" / "prefect.db", "sqlite+aiosqlite")
        os.environ.setdefault(PREFECT_DATABASE, database)
    _bypass_proxies_on_loopback()
    show_key()
    return state


def _bypass_proxies_on_loopback() -> None:
    """Exempt this machine from proxies; unset unusable SOCKS proxies."""
    schemes = {"http", "https"}
    if find_spec("socksio") is not None:
        schemes |= {"socks5", "socks5h"}
    for name, address in list(os.environ.items()):
        is_proxy = name.lower().endswith("_proxy") and name.lower() != "no_proxy"
        if (
            is_proxy
            and "://" in address
            and address.partition("://")[0].lower() not in schemes
        ):
            del os.environ[name]  # clients refuse to start with it
    if not urllib.request.getproxies_environment():
        return
    hosts = []
    for name in ("no_proxy", "NO_PROXY"):
        hosts += [host.strip() for host in os.environ.get(name, "").split(",")]
    if "*" in hosts:  # exempts all hosts, if the only entry
        return
    loopback = ("localhost", "127.0.0.1", "::1")
    exempt = ",".join(host for host in dict.fromkeys([*hosts, *loopback]) if host)
    os.environ |= {"no_proxy": exempt, "NO_PROXY": exempt}


def _require_places() -> None:
    for name in (
        "SSL_CERT_FILE",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "PREFECT_HOME",
        "DASK_TEMPORARY_DIRECTORY",
    ):
        place = os.environ.get(name)
        if not place:
            continue
        try:
            if name.endswith(("HOME", "DIRECTORY")):
                Path(place).mkdir(parents=True, exist_ok=True)
            os.stat(place)
        except OSError as error:
            raise InputError(
                f"{name} is {short(place)} in the environment, which cannot be used ({error.strerror}); correct "
                "it, or unset it."
            ) from None


def _require_drivers() -> None:
    mlflow_store = os.environ.get("MLFLOW_TRACKING_URI", "")
    if (
        re.match(r"postgresql(\+psycopg2)?:", mlflow_store)
        and find_spec("psycopg2") is None
    ):
        raise InputError(
            "MLFLOW_TRACKING_URI is a database of PostgreSQL, for which MLflow needs the package psycopg2-binary; "
            "install it: pip install 'psycopg2-binary>=2.9,<3'."
        )
    database = os.environ.get(PREFECT_DATABASE, "")
    if re.match(r"postgres(ql)?(\+(?!asyncpg:)\w+)?:", database):
        raise InputError(
            f"{PREFECT_DATABASE} begins with {database.partition(':')[0]}:, and Prefect speaks to PostgreSQL through "
            "asyncpg; begin it with postgresql+asyncpg://."
        )


def sqlite_url(path: Path, driver: str = "sqlite", folder: Path | None = None) -> str:
    """Return the SQLAlchemy address of an SQLite file, for processes in `folder`."""
    name = str(path.absolute())
    reserved = set("?#%")
    if reserved & set(name):
        # Only parents of the folder may have these characters
        name = os.path.relpath(name, folder)
    if reserved & set(name):
        return f"{driver}:///file:{quote(name)}?uri=true"
    return f"{driver}:///{name}"


def _folders_of_libraries(state: Path) -> dict[str, Path]:
    return {
        "PREFECT_HOME": state / "prefect",
        "DASK_CONFIG": state / "dask",
        "DASK_TEMPORARY_DIRECTORY": state / "dask" / "spill",
        "MPLCONFIGDIR": state / "matplotlib",
        "TMPDIR": state / "tmp",
    }


def scheduled_settings() -> dict[str, str]:
    """Return the environment variables that a scheduled Prefect run needs.

    Addresses are left out, as they may contain passwords.
    """
    names = (
        *OF_PYTHON,
        *QUIET,
        *_folders_of_libraries(state_dir()),
        "MPLBACKEND",
        "LEARNKERNELS_HOME",
    )
    return {name: os.environ[name] for name in names if name in os.environ}


def explain(error: Exception) -> tuple[bool, str]:
    """Return whether the machine or a setting caused an error, and a message.

    Tracebacks of other errors go to `errors.log` in the state folder.
    """
    cause: BaseException | None = error
    while cause is not None:
        sentence = _of_the_machine(cause) or of_the_environment(cause)
        if sentence is not None:
            return True, sentence
        cause = cause.__cause__ or cause.__context__
    with suppress(OSError):
        # A server may have failed, with an error that is unknown here
        if shutil.disk_usage(state_dir()).free < 1 << 20:
            return True, f"{state_dir()}: its disk is full; {WAYS_OUT[errno.ENOSPC]}."
    summary = f"unexpected internal error: {_summarize(error)}"
    log = state_dir() / "errors.log"
    try:
        _append_traceback(log, error)
    except OSError as log_error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return (
            False,
            f"{summary}, at line {frame.lineno} of {frame.filename} ({log_error.strerror}).",
        )
    return False, f"{summary}; the end of {log} has its traceback, for a bug report."


def _append_traceback(log: Path, error: Exception) -> None:
    log.parent.mkdir(parents=True, exist_ok=True)
    trace = without_passwords("".join(traceback.format_exception(error)))
    with open(
        os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        "a",
        encoding="utf-8",
    ) as file:
        file.write(
            f"{datetime.now().astimezone().isoformat()} {' '.join(sys.argv[:2])}\n{trace}\n"
        )


def _summarize(error: BaseException) -> str:
    return f"{type(error).__name__}: {cut(one_line(without_passwords(str(error))), 160)}".rstrip(
        ".: "
    )


def of_the_environment(error: BaseException) -> str | None:
    """Return a sentence on the environment variable that caused an error, or None."""
    libraries = "(PREFECT|MLFLOW|DASK|NUMBA|OMP|OPENBLAS|MKL|ARROW|LOKY|AWS|SCIPY|SKLEARN|SSL|REQUESTS)_"
    for name, value in os.environ.items():
        if not re.match(libraries, name) or name in (
            "PREFECT_API_URL",
            "MLFLOW_TRACKING_URI",
        ):
            continue
        if QUIET.get(name) != value and _mentions(error, name, value):
            shown_value = "a secret"
            if not SECRET.search(name) and "AUTH_STRING" not in name:
                shown_value = short(without_passwords(value))
            return f"{name} is {shown_value} in the environment ({_summarize(error)}); correct it, or unset it."
    return None


def _mentions(error: BaseException, name: str, value: str) -> bool:
    text = str(error).lower()
    if name.lower() in text or (value and repr(value.lower()) in text):
        return True
    file = str(getattr(error, "filename", None) or "")
    return len(file) > 1 and file in value


def _of_the_machine(error: BaseException) -> str | None:
    """Describe an error of disk, permissions or memory; else None."""
    if isinstance(error, MemoryError):
        return "there is not enough memory; give fewer rows or kernels, or close other programs."
    reason = str(error)
    advice = None
    if isinstance(error, OSError):
        reason = error.strerror or reason
        advice = WAYS_OUT.get(error.errno or 0)
        if re.fullmatch(r"\d+ requested and \d+ written", reason):  # NumPy's message
            reason = os.strerror(errno.ENOSPC)
            advice = WAYS_OUT[errno.ENOSPC]
    elif isinstance(error, sqlite3.OperationalError):
        advice = _advice_for_sqlite(reason)
    if advice is None:
        return None
    file = getattr(error, "filename", None)
    if not file:
        file = f"a file below {Path.cwd()}"
        if not state_dir().is_relative_to(Path.cwd()):
            file += f" or {state_dir()}"
    return f"{file}: {one_line(reason)}; {advice}."


def _advice_for_sqlite(reason: str) -> str | None:
    if "locked" in reason:
        return "wait for the process that uses it, or end it; nothing is damaged"
    if re.search("is full|I/O error", reason):
        return WAYS_OUT[errno.ENOSPC]
    if re.search("readonly|unable to open", reason):
        return WAYS_OUT[errno.EACCES]
    return None


def key_file() -> Path:
    """Return the file with this folder's access key to its servers, ``user:key``."""
    return state_dir() / "key"


def folder_key() -> str:
    """Return the access key of this folder's servers; create a missing one."""
    path = key_file()
    if not os.path.lexists(path):
        _create_key(path)
    key = ""
    try:
        with open(
            os.open(path, os.O_RDONLY | os.O_NOFOLLOW),
            encoding="ascii",
            errors="replace",
        ) as file:
            status = os.fstat(file.fileno())
            key = file.read(200)
    except OSError:  # a link, or a file of another user
        status = path.lstat()
    is_private = (
        status.st_uid == os.getuid() and not stat.S_IMODE(status.st_mode) & 0o077
    )
    if not is_private or not re.fullmatch(r"[\w-]+:[\w-]{16,}", key):
        raise InputError(
            f"{path}: is no key that this user alone can read; remove it and mlflow-users.db, and new ones are made."
        )
    return key


def _create_key(path: Path) -> None:
    """Write a new private key, unless another process is first."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".key-")
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(f"learnkernels:{secrets.token_urlsafe(32)}")
        file.flush()
        os.fsync(file.fileno())
    with suppress(FileExistsError):
        os.link(temporary, path)
    os.unlink(temporary)


def show_key() -> None:
    """Set environment variables by which clients log in to this folder's servers.

    Other servers do not get the key. Call again after a change of PREFECT_API_URL or
    MLFLOW_TRACKING_URI.
    """
    servers = noted_servers()
    user, _, key = folder_key().partition(":")
    # Prefect's own settings may name another server
    if os.environ.get("PREFECT_API_URL", "") == servers.get("prefect_api"):
        show_prefect_key()
    if (
        os.environ.get("MLFLOW_TRACKING_URI") == servers.get("mlflow", "")
        and "MLFLOW_TRACKING_TOKEN" not in os.environ
    ):
        os.environ.setdefault("MLFLOW_TRACKING_USERNAME", user)
        os.environ.setdefault("MLFLOW_TRACKING_PASSWORD", key)


def show_prefect_key() -> None:
    """Let clients log in to this folder's Prefect server."""
    login = os.environ.get("PREFECT_SERVER_API_AUTH_STRING") or folder_key()
    os.environ.setdefault("PREFECT_API_AUTH_STRING", login)


def use_running_prefect() -> None:
    """Let PREFECT_API_URL, if unset, name this folder's running server."""
    if "PREFECT_API_URL" not in os.environ and (
        address := running_server("prefect_api")
    ):
        os.environ["PREFECT_API_URL"] = address
        show_prefect_key()


def servers_note() -> Path:
    """Return the file in which Prefect and MLflow servers of this folder record addresses."""
    return state_dir() / "ui.json"


def running_server(name: str) -> str | None:
    """Return the address of a server of this folder, if it answers."""
    address = noted_servers().get(name)
    if address is None or not answers(f"{address}/health"):
        return None
    return address


def noted_servers() -> dict[str, str]:
    """Return noted addresses if their command is running here."""
    from .processes.owner import Owner  # Its psutil belongs to the extra `pipeline`

    try:
        note: dict[str, str] = json.loads(servers_note().read_text(encoding="utf-8"))
        owner = Owner.read(note.pop("owner"))
    except (OSError, ValueError, LookupError, AttributeError, TypeError):
        return {}
    if owner is None or not owner.here or owner.gone:
        return {}
    return note


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (OSError, ValueError, HTTPException):
        return False
