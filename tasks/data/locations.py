"""Where data lie: a file on this machine, or an object `s3://bucket/key` of a server that speaks S3."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.fs

from learnkernels.conf.errors import WAYS_OUT, InputError, cut, one_line, without_passwords
from learnkernels.conf.files import compression_of, ending_of, is_remote, require_place

from ..store import atomic_path

if TYPE_CHECKING:
    from prefect.client.schemas.objects import State  # workers of Dask read rows without Prefect

CONNECT_SECONDS = 3
REQUEST_SECONDS = 10
"""How long a connection may take, and how long a server may stay silent during a request."""

ATTEMPTS = 2
"""How often a request is sent before it has failed; tasks try again after that."""

PART_BYTES = 10 * 2**20
"""What an upload sends at a time."""

FolderColumns = tuple[tuple[str, int | float | str | None, str], ...]
"""Names of columns, the one value of each, and what pyarrow calls its type."""


@dataclass(frozen=True)
class Location:
    """A file or an object: where pyarrow finds it, and what the user wrote.

    Attributes
    ----------
    text : str
        As given.
    filesystem : pyarrow.fs.FileSystem
    path : str
        Within the file system: absolute, or ``bucket/key``.
    folder_columns : tuple of (str, value, str)
        Columns of which all its rows have one value, which the names of its folders tell, and the types of these.
    """

    text: str
    filesystem: Any
    path: str
    folder_columns: FolderColumns = ()

    @property
    def remote(self) -> bool:
        """Whether it is an object on a server."""
        return is_remote(self.text)

    @property
    def name(self) -> str:
        """The last part of its path."""
        return Path(self.path).name

    @property
    def suffix(self) -> str:
        """The ending of its name, in lower case, with the dot; of a compressed text the one before."""
        return ending_of(self.name)

    @property
    def bucket(self) -> str:
        """Name of the bucket of an object."""
        return self.path.partition("/")[0]

    def size(self) -> int:
        """Return the size in bytes.

        Raises
        ------
        InputError
            There is no such file, object or bucket, or the server cannot be reached or refuses to say.
        """
        info = self.info()
        if info.type == pyarrow.fs.FileType.File:
            return int(info.size)
        if info.type == pyarrow.fs.FileType.Directory:
            raise InputError(f"{self.text}: is a folder; give one file.")
        if self.remote:
            self.require_bucket()
            raise InputError(f"{self.text}: there is no such object in the bucket {self.bucket!r}; correct the key.")
        raise InputError(f"{self.text}: there is no such file (seen from {Path.cwd()}); correct the path.")

    def open_input(self) -> Any:
        """Return the content as a pyarrow file that can be read at any place.

        Raises
        ------
        InputError
            As `size`.
        OSError
            The content cannot be read.
        """
        self.size()
        return self.filesystem.open_input_file(self.path)

    def open_text(self) -> Any:
        """Return the content as a pyarrow file that is read from its beginning, decompressed by the ending of its name.

        Raises
        ------
        InputError, OSError
            As `open_input`.
        """
        source, compression = self.open_input(), compression_of(self.name)
        return source if compression is None else pa.CompressedInputStream(source, compression)

    def require_bucket(self) -> None:
        """Refuse an object of a bucket that does not exist.

        Raises
        ------
        InputError
            There is no such bucket, or the server cannot be reached or refuses to say.
        """
        with explained(self):
            if self.filesystem.get_file_info(self.bucket).type == pyarrow.fs.FileType.NotFound:
                raise InputError(f"{self.text}: there is no bucket {self.bucket!r}{_server()}; correct or create it.")

    def is_same(self, other: Location) -> bool:
        """Return whether both are one file or object."""
        if self.remote or other.remote:
            return self.remote and other.remote and self.path == other.path
        ours, theirs = Path(self.path), Path(other.path)
        return ours.resolve() == theirs.resolve() or (ours.exists() and theirs.exists() and ours.samefile(theirs))

    def info(self) -> Any:
        """Return what the file system knows of it: what it is, its size, when it was last changed.

        Raises
        ------
        InputError
            The server cannot be reached or refuses to say.
        """
        with explained(self):
            return self.filesystem.get_file_info(self.path)


def locate(text: str) -> Location:
    """Return the location that a user names, without opening it.

    Parameters
    ----------
    text : str
        A path of this machine, or ``s3://bucket/key``. The server is that of AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL,
        or Amazon's; credentials are those of the usual variables, files and roles.

    Returns
    -------
    location : Location

    Raises
    ------
    InputError
        The address is of another kind, incomplete, or holds credentials.
    """
    if not text:
        raise InputError("a path is empty; give a file, or s3://bucket/key.")
    require_place(text)
    if not is_remote(text):
        return Location(text, pyarrow.fs.LocalFileSystem(), str(Path(text).absolute()))
    bucket, _, key = text[len("s3://") :].partition("/")
    if not bucket or not key or any(part in ("", ".", "..") for part in key.split("/")):
        raise InputError(f"{text}: expected s3://bucket/key, such as s3://data/2026/rows.parquet.")
    location = Location(text, None, f"{bucket}/{key}")
    with explained(location):
        return Location(text, _s3(bucket), location.path)


def _s3(bucket: str) -> Any:
    endpoint = _endpoint()
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION")
    if endpoint is None and region is None:
        region = pyarrow.fs.resolve_s3_region(bucket)
    try:
        return pyarrow.fs.S3FileSystem(
            endpoint_override=endpoint,
            region=region,
            connect_timeout=CONNECT_SECONDS,
            request_timeout=REQUEST_SECONDS,
            retry_strategy=pyarrow.fs.AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
            allow_delayed_open=True,
        )
    except ValueError as error:
        raise InputError(
            f"AWS_ENDPOINT_URL: {_reason(error)}; give an address such as http://127.0.0.1:9000."
        ) from None


def _endpoint() -> str | None:
    return os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or None


def _server() -> str:
    endpoint = _endpoint()
    return f" at {without_passwords(endpoint)}" if endpoint else ""


# Errors --------------------------------------------------------------------------------------------------------------


class TransferError(InputError, OSError):
    """Something could not be read or written, and may be the next time; the message is one sentence.

    As an `OSError` it lets a task try again, as an `InputError` it ends as a sentence and not as a traceback.
    """


def failed_in_transfer(task: object, task_run: object, state: State[Any]) -> bool:
    """Return whether a task run failed at reading or writing, which is worth another try; for `retry_condition_fn`."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, TransferError) or (isinstance(error, OSError) and error.errno not in (None, *WAYS_OUT))


TRIED_AGAIN: dict[str, Any] = {
    "retries": 2, "retry_delay_seconds": 1, "retry_condition_fn": failed_in_transfer,
}  # fmt: skip
"""Options of a task that reads or writes."""

LIBSVM = (".libsvm", ".svm", ".svmlight")
"""Endings of texts in LIBSVM's format."""

UNREADABLE = (
    pa.ArrowException, ValueError, LookupError, ArithmeticError, MemoryError, RecursionError, SystemError,
)  # fmt: skip
"""What libraries raise, in addition to OSError, at content that is damaged or not of its format."""


@contextmanager
def transferring(location: Location, what: str = "read", called: str = "") -> Iterator[None]:
    """Turn what a file system or a library complains about on the way into one sentence.

    Parameters
    ----------
    location : Location
        Where.
    what : {"read", "written"}
        Of what is read everything can be wrong: see `UNREADABLE`.
    called : str
        What the sentence names where the content is to blame; the place, by default.

    Raises
    ------
    InputError
        The content cannot be read, or the format cannot hold what is written.
    TransferError
        As `explanation`.
    """
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        # What pyarrow itself complains about while it reads is the content.
        if what == "read" and error.errno is None and "AWS Error" not in str(error):
            raise _unfit(location, what, called, error) from error
        raise explanation(location, error) from error
    except UNREADABLE as error:
        if what != "read" and not isinstance(error, pa.ArrowException):
            raise
        raise _unfit(location, what, called, error) from error


def _unfit(location: Location, what: str, called: str, error: Exception) -> InputError:
    advice = "correct the file, or its ending" if what == "read" else "take another format"
    if isinstance(error, MemoryError):
        reason, advice = "it states sizes for which there is no memory", "correct the file, or take a smaller one"
    elif isinstance(error, UnicodeError):
        reason = "it holds text that is not UTF-8"
    else:
        reason = _reason(error)
    kind = "LIBSVM text" if location.suffix in LIBSVM else location.suffix[1:]
    return InputError(f"{called or f'{location.text}:'} cannot be {what} as {kind} ({reason}); {advice}.")


@contextmanager
def explained(location: Location) -> Iterator[None]:
    """Turn what a file system complains about into one sentence, an `InputError`."""
    try:
        yield
    except OSError as error:
        raise explanation(location, error) from None


def explanation(location: Location, error: OSError) -> InputError:
    """Return what went wrong at a place as one sentence, and what to do; a `TransferError` where it may go away."""
    reason = _reason(error)
    if not location.remote:
        if error.errno in WAYS_OUT:
            return InputError(f"{location.text}: {reason}; {WAYS_OUT[error.errno]}.")
        return TransferError(f"{location.text}: {reason}; check the path, its permissions and the space of its disk.")
    if isinstance(error, FileNotFoundError):
        return InputError(f"{location.text}: there is no such object any more; start again when it is back.")
    if error.errno is not None:
        return TransferError(f"{location.text}: {reason}; check the folder of temporary files, TMPDIR, and its space.")
    if re.search(r"NO_?SUCH_?BUCKET|Bucket '.*' not found", reason, re.IGNORECASE):
        return InputError(f"{location.text}: there is no bucket {location.bucket!r}{_server()}; correct or create it.")
    if re.search(
        r"ACCESS_?DENIED|INVALID_?ACCESS_?KEY|SIGNATURE|CREDENTIALS|TOKEN|status 40[13]", reason, re.IGNORECASE
    ):
        return InputError(
            f"{location.text}: the server{_server()} refuses access; check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY "
            "(or AWS_PROFILE), and what they are allowed to do."
        )
    if re.search(r"NETWORK_CONNECTION|Could not connect|Connect(ion)? .*(timeout|closed|reset|broken)", reason):
        return TransferError(
            f"{location.text}: the server{_server()} cannot be reached; check AWS_ENDPOINT_URL, the network, and that "
            "it runs."
        )
    return TransferError(f"{location.text}: {reason}; check the address, AWS_REGION and the server{_server()}.")


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error)
    return cut(one_line(str(text)).split(" (Request ID")[0].rstrip("."), 160) if text else type(error).__name__


# Output --------------------------------------------------------------------------------------------------------------


@contextmanager
def written(location: Location, lasting: bool = True) -> Iterator[Path]:
    """Give a temporary file; when the block ends well, it becomes the file or the object, whole or not at all.

    Folders of a local file are made. A file on its way to a server is written to this machine first, and sent when it
    is complete; there must be room for it in the folder of temporary files. A local file outlasts a power cut if it is
    to be `lasting`.

    Raises
    ------
    InputError
        It is a folder, or its bucket does not exist.
    TransferError
        It cannot be written for now; nothing of it is visible.
    """
    if not location.remote:
        path = Path(location.path)
        if path.is_dir():
            raise InputError(f"{location.text}: is a folder; give the name of a file.")
        with transferring(location, "written"), atomic_path(path, lasting) as temporary:
            yield temporary
        return
    location.require_bucket()
    with transferring(location, "written"), tempfile.TemporaryDirectory(prefix="learnkernels-upload-") as folder:
        temporary = Path(folder) / location.name
        yield temporary
        upload(temporary, location)


def upload(path: Path, location: Location) -> None:
    """Send a file to a server, where it appears whole or not at all.

    Parameters
    ----------
    path : Path
        Is not changed meanwhile.
    location : Location
        An object.

    Raises
    ------
    OSError
        The file could not be read or sent.

    Notes
    -----
    By boto3, two parts at a time: after a failure, and after Ctrl-C, it takes the parts back that it has sent. pyarrow
    would complete an upload with what was sent until then.
    """
    import boto3  # here: most runs write no object
    from boto3.exceptions import Boto3Error
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    endpoint = _endpoint()
    parts = TransferConfig(multipart_threshold=PART_BYTES, multipart_chunksize=PART_BYTES, max_concurrency=2)
    try:
        client = boto3.session.Session().client(
            "s3",
            endpoint_url=endpoint,
            config=Config(
                connect_timeout=CONNECT_SECONDS,
                read_timeout=REQUEST_SECONDS,
                retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
                s3={"addressing_style": "path"} if endpoint else None,  # as pyarrow addresses a server of one's own
            ),
        )
        with closing(client), path.open("rb") as source:
            client.upload_fileobj(source, location.bucket, location.path.partition("/")[2], Config=parts)
    except (BotoCoreError, ClientError, Boto3Error, ValueError) as error:
        raise OSError(f"AWS Error: {error}") from None
