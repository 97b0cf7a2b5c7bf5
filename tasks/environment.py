"""Where this installation keeps its state, and the settings that keep its parts quiet, local and safe."""

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
from importlib.util import find_spec
from pathlib import Path
from unicodedata import normalize
from urllib.parse import quote

from learnkernels.conf.errors import WAYS_OUT, InputError, cut, one_line, short, without_passwords

STATE_DIR = ".learnkernels"
"""Folder below the working directory for everything that can be computed again."""

QUIET = {
    "DO_NOT_TRACK": "true",
    "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
    "MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "true",
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "4",
    "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false",
    "MLFLOW_LOGGING_LEVEL": "WARNING",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",  # which it draws where tqdm happens to be installed
    "MLFLOW_ALLOW_PICKLE_DESERIALIZATION": "false",
    "PREFECT_RESULTS_DEFAULT_SERIALIZER": "json",
    "PREFECT_SERVER_EPHEMERAL_STARTUP_TIMEOUT_SECONDS": "120",
    "PREFECT_CLIENT_MAX_RETRIES": "4",
    "PREFECT_CLI_PROMPT": "false",
    "PREFECT_FLOWS_HEARTBEAT_FREQUENCY": "30",
    "MLFLOW_UV_AUTO_DETECT": "false",
}
"""No telemetry, no pickle, no question in the middle of a run, half a minute for a lost server; the user's environment
overrides each."""

PIPELINE = (
    "boto3", "botocore", "charset_normalizer", "dask", "distributed", "httpx", "jinja2", "matplotlib", "mlflow",
    "pandas", "prefect", "psutil", "pyarrow", "pydantic", "rich", "sqlalchemy", "typer", "yaml",
)  # fmt: skip
"""What `conf`, `tasks` and `flows` import and `learnkernels[pipeline]` installs."""

OF_PYTHON = {"PYTHONSAFEPATH": "1", "PYTHONUTF8": "1"}
"""For child processes: no module of the working directory shadows another one, and text is UTF-8."""

OF_LIBRARIES = re.compile("(PREFECT|MLFLOW|DASK|NUMBA|OMP|OPENBLAS|MKL|ARROW|LOKY|AWS|SCIPY|SKLEARN|SSL|REQUESTS)_")
"""How names of variables begin by which libraries are set."""

KEY = re.compile(r"[\w-]+:[\w-]{16,}")
"""The key of the servers as it is written: user and password."""

PREFECT_DATABASE = "PREFECT_SERVER_DATABASE_CONNECTION_URL"

PLAIN = {"±": "+-", "–": "-", "—": "-", "·": "-", "×": "x", "→": "->", "≤": "<=", "≥": ">=", "ß": "ss"}
PLAIN |= {"‘": "'", "’": "'", "“": '"', "”": '"', "─": "-", "│": "|"}
"""Replacements for characters that a terminal or a file lacks; others lose their accents, or are a question mark."""

AS_SHOWN = "learnkernels.shown"
"""Name of the handler of errors that does so."""

LOOPBACK = ("localhost", "127.0.0.1", "::1")
"""Hosts that are this machine; no proxy stands before them."""

LEAST_ROOM = 16 << 20
"""Bytes that Prefect's and MLflow's databases need at first; a Prefect server that finds less hangs."""

FULL = 1 << 20
"""Bytes that are free on a disk that is as good as full."""

COLLECT_AFTER = (50_000, 20, 50)
"""Objects made, less those dropped, after which Python looks for unreachable ones, and rounds of that; see `gc`."""


def lacking_libraries(what: str) -> str:
    """Return a sentence about libraries that something runs on and that are not installed; empty if all are."""
    lacking = [name for name in PIPELINE if find_spec(name) is None]
    names = ", ".join(lacking)
    ways_out = "install them with: pip install 'learnkernels[pipeline]'"
    return f"{what} runs on libraries that are not installed ({names}); {ways_out}" if lacking else ""


def collect_seldom() -> None:
    """Have this process look for unreachable objects less often than Python does by itself.

    What libraries make when they are imported stays; looking through that is a fifth of a command's start.
    """
    gc.set_threshold(*COLLECT_AFTER)


def prepare_python() -> None:
    """Have this process, and those that it starts, run in any locale and folder; call at its beginning.

    Output replaces characters that its encoding lacks, where Python would raise. Warnings of libraries are no errors.
    """
    os.environ |= OF_PYTHON
    os.environ.pop("NUMBA_DISABLE_JIT", None)  # without a compiler, a pass takes hundreds of times as long
    codecs.register_error(AS_SHOWN, _shown)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=AS_SHOWN)
    if "error" in os.environ.get("PYTHONWARNINGS", ""):
        del os.environ["PYTHONWARNINGS"]
        warnings.filters[:] = [one for one in warnings.filters if one[0] != "error"]  # type: ignore[index]
        warnings.simplefilter("default", append=True)  # has Python take note of them


def _shown(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking = error.object[error.start : error.end]
    letters = (PLAIN.get(c) or normalize("NFKD", c).encode("ascii", "ignore").decode() or "?" for c in lacking)
    return "".join(letters), error.end


def state_dir() -> Path:
    """Return the state folder: LEARNKERNELS_HOME, or `.learnkernels` below the working directory."""
    return Path(os.environ.get("LEARNKERNELS_HOME") or STATE_DIR).absolute()


def prepare_environment() -> Path:
    """Set the environment of this process and its children, and return the state folder, made if missing.

    Must run before prefect, mlflow, dask or matplotlib are imported: they read it then. What the user has set
    stays, so a run goes to the Prefect server and the MLflow store of the usual environment variables.

    Raises
    ------
    InputError
        The folder cannot be written to, its disk is full, or a database that the environment names cannot be spoken to.
    """
    _require_drivers()
    state = state_dir()
    homes = _homes(state)
    try:
        state.mkdir(mode=0o700, parents=True, exist_ok=True)  # it is nobody else's business
        for folder in homes.values():
            folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        way = WAYS_OUT.get(error.errno or 0, "give another place")
        raise InputError(f"{state}: cannot be made ({error.strerror}); {way} in LEARNKERNELS_HOME.") from None
    _require_places()
    if not os.access(state, os.W_OK):
        raise InputError(f"{state}: cannot be written to; {WAYS_OUT[errno.EACCES]} in LEARNKERNELS_HOME.")
    if (free := shutil.disk_usage(state).free) < LEAST_ROOM:
        raise InputError(
            f"{state}: {free >> 20} MiB of its disk are free, and the databases of a run need {LEAST_ROOM >> 20}; "
            "free up disk space, or give another place in LEARNKERNELS_HOME."
        )
    if not os.path.isdir(os.environ.get("TMPDIR", "")):
        os.environ["TMPDIR"] = str(homes["TMPDIR"])
    for key, value in {**QUIET, **{key: str(folder) for key, folder in homes.items()}}.items():
        os.environ.setdefault(key, value)
    os.environ["MPLBACKEND"] = "Agg"  # figures are files; a notebook names a backend of its own
    os.environ.setdefault("MLFLOW_TRACKING_URI", sqlite_url(Path.cwd() / "mlflow.db"))
    if set(str(state)) & set("?#%"):  # Prefect's own default would end there
        database = sqlite_url(state / "prefect" / "prefect.db", "sqlite+aiosqlite")
        os.environ.setdefault(PREFECT_DATABASE, database)
    _bypass_proxies_on_loopback()
    show_key()
    return state


def _bypass_proxies_on_loopback() -> None:
    """Except this machine from proxies that the environment names; Prefect's client would look for its server there.

    Proxies that no client here speaks to, SOCKS without its package, are forgotten: clients refuse to start with them.
    """
    spoken = ("http", "https", *["socks5", "socks5h"] * (find_spec("socksio") is not None))
    for name in [name for name in os.environ if name.lower().endswith("_proxy") and name.lower() != "no_proxy"]:
        scheme, there, _ = os.environ[name].partition("://")
        if there and scheme.lower() not in spoken:
            del os.environ[name]
    if not urllib.request.getproxies_environment():
        return
    given = ",".join(os.environ.get(name, "") for name in ("no_proxy", "NO_PROXY"))
    hosts = [host.strip() for host in given.split(",") if host.strip()]
    if "*" not in hosts:  # which excepts every host, and only where it stands alone
        os.environ["no_proxy"] = os.environ["NO_PROXY"] = ",".join(dict.fromkeys([*hosts, *LOOPBACK]))


def _require_places() -> None:
    """Refuse files and folders of the environment that are not there, where libraries would fail later."""
    for name in ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "PREFECT_HOME", "DASK_TEMPORARY_DIRECTORY"):
        if place := os.environ.get(name):
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
    """Refuse databases of PostgreSQL for which a driver is missing, or not named."""
    mlflow, prefect = (os.environ.get(name, "") for name in ("MLFLOW_TRACKING_URI", PREFECT_DATABASE))
    if re.match(r"postgresql(\+psycopg2)?:", mlflow) and find_spec("psycopg2") is None:
        raise InputError(
            "MLFLOW_TRACKING_URI is a database of PostgreSQL, for which MLflow needs the package psycopg2-binary; "
            "install it: pip install 'psycopg2-binary>=2.9,<3'."
        )
    if re.match(r"postgres(ql)?(\+(?!asyncpg:)\w+)?:", prefect):
        raise InputError(
            f"{PREFECT_DATABASE} begins with {prefect.partition(':')[0]}:, and Prefect speaks to PostgreSQL through "
            "asyncpg; begin it with postgresql+asyncpg://."
        )


def sqlite_url(path: Path, driver: str = "sqlite", folder: Path | None = None) -> str:
    """Return the address of a database file, whatever characters its folder is named with.

    It is for processes that run in a folder, by default the working directory.
    """
    plain = str(path.absolute())
    if set(plain) & set("?#%"):
        plain = os.path.relpath(plain, folder)  # what is above the folder needs no name
    return f"{driver}:///file:{quote(plain)}?uri=true" if set(plain) & set("?#%") else f"{driver}:///{plain}"


def _homes(state: Path) -> dict[str, Path]:
    return {
        "PREFECT_HOME": state / "prefect",
        "DASK_CONFIG": state / "dask",
        "DASK_TEMPORARY_DIRECTORY": state / "dask" / "spill",
        "MPLCONFIGDIR": state / "matplotlib",
        "TMPDIR": state / "tmp",
    }


def scheduled_settings() -> dict[str, str]:
    """Return the settings that a scheduled run takes along wherever its worker was started; call after preparing.

    Not among them: addresses of servers and databases, which may hold passwords and are the worker's to know.
    """
    kept = (*OF_PYTHON, *QUIET, *_homes(state_dir()), "MPLBACKEND", "LEARNKERNELS_HOME")
    return {key: os.environ[key] for key in kept if key in os.environ}


def explain(error: Exception) -> tuple[bool, str]:
    """Return whether the environment is to blame for an unexpected error, and one sentence for the user.

    The traceback of any other error goes to `errors.log` in the state folder, which the sentence names.
    """
    one: BaseException | None = error
    while one is not None:
        if (said := _of_the_machine(one) or of_the_environment(one)) is not None:
            return True, said
        one = one.__cause__ or one.__context__
    with suppress(OSError):
        if shutil.disk_usage(state_dir()).free < FULL:  # what a server of ours met is not told here
            return True, f"{state_dir()}: its disk is full; {WAYS_OUT[errno.ENOSPC]}."
    what = f"unexpected internal error: {_what(error)}"
    log = state_dir() / "errors.log"
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), "a", encoding="utf-8") as file:
            trace = without_passwords("".join(traceback.format_exception(error)))
            file.write(f"{datetime.now().astimezone().isoformat()} {' '.join(sys.argv[:2])}\n{trace}\n")
    except OSError as failed:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        return False, f"{what}, at line {frame.lineno} of {frame.filename} ({failed.strerror})."
    return False, f"{what}; the end of {log} has its traceback, for a bug report."


def _what(error: BaseException) -> str:
    return f"{type(error).__name__}: {cut(one_line(without_passwords(str(error))), 160)}".rstrip(".: ")


def of_the_environment(error: BaseException) -> str | None:
    """Return a sentence about a setting of a library that an error speaks of, or None where there is none."""
    text, addresses = str(error).lower(), ("PREFECT_API_URL", "MLFLOW_TRACKING_URI")
    place = str(getattr(error, "filename", None) or "")
    for name, value in os.environ.items():
        spoken_of = (
            name.lower() in text or (value and repr(value.lower()) in text) or (len(place) > 1 and place in value)
        )
        if OF_LIBRARIES.match(name) and name not in addresses and QUIET.get(name) != value and spoken_of:
            given = short(without_passwords(value))
            return f"{name} is {given} in the environment ({_what(error)}); correct it, or unset it."
    return None


def _of_the_machine(error: BaseException) -> str | None:
    """Return a sentence about a disk, its permissions or memory, or None where an error is about something else."""
    if isinstance(error, MemoryError):
        return "there is not enough memory; give fewer rows or kernels, or close other programs."
    reason, way = str(error), None
    if isinstance(error, OSError):
        reason, way = error.strerror or reason, WAYS_OUT.get(error.errno or 0)
        if re.fullmatch(r"\d+ requested and \d+ written", reason):  # NumPy's words
            reason, way = os.strerror(errno.ENOSPC), WAYS_OUT[errno.ENOSPC]
    elif isinstance(error, sqlite3.OperationalError):
        full, refused = re.search("is full|I/O error", reason), re.search("readonly|unable to open", reason)
        way = WAYS_OUT[errno.ENOSPC if full else errno.EACCES] if full or refused else None
        if "locked" in reason:
            way = "wait for the process that uses it, or end it; nothing is damaged"
    if way is None:
        return None
    below = str(Path.cwd()) if state_dir().is_relative_to(Path.cwd()) else f"{Path.cwd()} or {state_dir()}"
    return f"{getattr(error, 'filename', None) or f'a file below {below}'}: {one_line(reason)}; {way}."


def key_file() -> Path:
    """Return where the key of this folder's servers lies: ``user:key``, as clients of Prefect take it."""
    return state_dir() / "key"


def folder_key() -> str:
    """Return the key that the servers of this folder require, made when it is first needed.

    Raises
    ------
    InputError
        Others may read or have written the file, or it holds no key.
    """
    path = key_file()
    if not os.path.lexists(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor, aside = tempfile.mkstemp(dir=path.parent, prefix=".key-")  # for this user alone
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(f"learnkernels:{secrets.token_urlsafe(32)}")
            file.flush()
            os.fsync(file.fileno())
        with suppress(FileExistsError):
            os.link(aside, path)  # whole, and of two processes at once the first one's
        os.unlink(aside)
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NOFOLLOW), encoding="ascii", errors="replace") as file:
            about, key = os.fstat(file.fileno()), file.read(200)
    except OSError:  # a link, another user's
        about, key = path.lstat(), ""
    if about.st_uid != os.getuid() or stat.S_IMODE(about.st_mode) & 0o077 or not KEY.fullmatch(key):
        raise InputError(f"{path}: is no key that this user alone can read; remove it, and a new one is made.")
    return key


def show_key() -> None:
    """Let clients of this process and its children show the key to servers of this folder, and to no others.

    What the user has set stays. Call again after PREFECT_API_URL or MLFLOW_TRACKING_URI has changed.
    """
    noted = _noted_servers()
    user, _, key = folder_key().partition(":")
    if os.environ.get("PREFECT_API_URL", noted.get("prefect_api")) == noted.get("prefect_api"):
        own = os.environ.get("PREFECT_SERVER_API_AUTH_STRING") or f"{user}:{key}"
        os.environ.setdefault("PREFECT_API_AUTH_STRING", own)
    if os.environ.get("MLFLOW_TRACKING_URI") == noted.get("mlflow", "") and "MLFLOW_TRACKING_TOKEN" not in os.environ:
        os.environ.setdefault("MLFLOW_TRACKING_USERNAME", user)
        os.environ.setdefault("MLFLOW_TRACKING_PASSWORD", key)


def servers_note() -> Path:
    """Return where `learnkernels ui` and `up` note the addresses of the servers that they have started."""
    return state_dir() / "ui.json"


def running_server(name: str) -> str | None:
    """Return the address of a server of this folder's `learnkernels ui` or `up`, if it answers."""
    address = _noted_servers().get(name)
    return address if address is not None and answers(f"{address}/health") else None


def _noted_servers() -> dict[str, str]:
    try:
        noted = json.loads(servers_note().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}  # there is none, or its note is damaged
    return {key: value for key, value in noted.items() if isinstance(value, str)} if isinstance(noted, dict) else {}


def answers(url: str) -> bool:
    """Return whether a page on a server of this folder can be had."""
    try:
        with urllib.request.urlopen(url, timeout=2) as response:
            return bool(response.status == 200)
    except (OSError, ValueError):
        return False
