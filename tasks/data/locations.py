"""Local files and S3 objects; their errors, and atomic output."""

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

from learnkernels.conf.errors import (
    WAYS_OUT,
    InputError,
    cut,
    one_line,
    without_passwords,
)
from learnkernels.conf.files import compression_of, ending_of, is_remote, require_place

from ..store import atomic_path

if TYPE_CHECKING:
    # Dask workers read rows without Prefect
    from prefect.client.schemas.objects import (
        State,
    )

CONNECT_SECONDS = 3
REQUEST_SECONDS = 10

ATTEMPTS = 2

PART_BYTES = 10 * 2**20


FolderColumns = tuple[tuple[str, int | float | str | None, str], ...]
"""Name, value and pyarrow type of each column in folder names."""


@dataclass(frozen=True)
class Location:
    """Address of a local file, or of an object ``s3://bucket/key``.

    `text` is as the user wrote it; `path` is absolute, or ``bucket/key``;
    `folder_columns` have name, value and type.
    """

    text: str
    filesystem: Any
    path: str
    folder_columns: FolderColumns = ()

    @property
    def remote(self) -> bool:
        return is_remote(self.text)

    @property
    def name(self) -> str:
        return Path(self.path).name

    @property
    def suffix(self) -> str:
        """Ending of the file name, such as ``.csv``, even before ``.gz``."""
        return ending_of(self.name)

    @property
    def bucket(self) -> str:
        return self.path.partition("/")[0]

    def size(self) -> int:
        """Return the file's size in bytes; InputError for anything but a file."""
        info = self.info()
        if info.type == pyarrow.fs.FileType.File:
            return int(info.size)
        if info.type == pyarrow.fs.FileType.Directory:
            raise InputError(f"{self.text}: is a folder; give one file.")
        if self.remote:
            self.require_bucket()
            raise InputError(
                f"{self.text}: there is no such object in the bucket {self.bucket!r}; correct the key."
            )
        raise InputError(
            f"{self.text}: there is no such file (seen from {Path.cwd()}); correct the path."
        )

    def open_input(self) -> Any:
        self.size()  # InputError if there is no such file
        return self.filesystem.open_input_file(self.path)

    def open_text(self) -> Any:
        """Open the decompressed file as a pyarrow stream."""
        source = self.open_input()
        compression = compression_of(self.name)
        if compression is None:
            return source
        return pa.CompressedInputStream(source, compression)

    def require_bucket(self) -> None:
        """Raise InputError if the S3 bucket is missing or inaccessible."""
        with explained(self):
            if (
                self.filesystem.get_file_info(self.bucket).type
                == pyarrow.fs.FileType.NotFound
            ):
                raise InputError(
                    f"{self.text}: there is no bucket {self.bucket!r}{_server_phrase()}; correct or create it."
                )

    def is_same(self, other: Location) -> bool:
        if self.remote or other.remote:
            return self.remote and other.remote and self.path == other.path
        path = Path(self.path)
        other_path = Path(other.path)
        if path.exists() and other_path.exists():
            return path.samefile(other_path)
        return path.resolve() == other_path.resolve()

    def holds(self, file: Location) -> bool:
        """Whether a file is below this folder, also by links."""
        if self.remote or file.remote:
            both_remote = self.remote and file.remote
            return both_remote and file.path.startswith(f"{self.path}/")
        folder = Path(self.path)
        if not folder.exists():
            return False
        path = Path(file.path)
        parents = {*path.resolve().parents, *(path.parent.resolve() / "_").parents}
        return any(folder.samefile(parent) for parent in parents)

    def info(self) -> Any:
        """Return pyarrow's FileInfo: type, size and last change."""
        with explained(self):
            return self.filesystem.get_file_info(self.path)


def locate(text: str) -> Location:
    """Return the location of a path or ``s3://bucket/key``, without opening it.

    InputError for another kind, incomplete addresses, or credentials in them.
    """
    if not text:
        raise InputError("a path is empty; give a file, or s3://bucket/key.")
    require_place(text)
    if not is_remote(text):
        return Location(text, pyarrow.fs.LocalFileSystem(), str(Path(text).absolute()))
    bucket, _, key = text[len("s3://") :].partition("/")
    if not bucket or not key or any(part in ("", ".", "..") for part in key.split("/")):
        raise InputError(
            f"{text}: expected s3://bucket/key, such as s3://data/2026/rows.parquet."
        )
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
    return (
        os.environ.get("AWS_ENDPOINT_URL_S3")
        or os.environ.get("AWS_ENDPOINT_URL")
        or None
    )


def _server_phrase() -> str:
    endpoint = _endpoint()
    if endpoint is None:
        return ""
    return f" at {without_passwords(endpoint)}"


class TransferError(InputError, OSError):
    """Error of reading or writing data that may be temporary.

    As an `OSError` it makes a task retry; as an `InputError` it ends a command without
    a traceback.
    """


def failed_in_transfer(task: object, task_run: object, state: State[Any]) -> bool:
    """Return whether a Prefect task failed by a possibly temporary transfer error."""
    error = state.result(raise_on_failure=False)
    return isinstance(error, TransferError) or (
        isinstance(error, OSError) and error.errno not in (None, *WAYS_OUT)
    )


TRIED_AGAIN: dict[str, Any] = {
    "retries": 2, "retry_delay_seconds": 1, "retry_condition_fn": failed_in_transfer,
}  # fmt: skip


LIBSVM = (".libsvm", ".svm", ".svmlight")

UNREADABLE = (
    pa.ArrowException,
    ValueError,
    LookupError,
    ArithmeticError,
    MemoryError,
    RecursionError,
    SystemError,
)


@contextmanager
def transferring(
    location: Location, what: str = "read", called: str = ""
) -> Iterator[None]:
    """Turn errors of file systems and libraries within the context into InputError.

    `what` is "read" or "written"; `called` names the content in messages.
    """
    try:
        yield
    except InputError:
        raise
    except OSError as error:
        is_of_content = error.errno is None and "AWS Error" not in str(error)
        if what == "read" and is_of_content:
            raise _error_of_content(location, what, called, error) from error
        raise explanation(location, error) from error
    except UNREADABLE as error:
        if what != "read" and not isinstance(error, pa.ArrowException):
            raise
        raise _error_of_content(location, what, called, error) from error


def _error_of_content(
    location: Location, what: str, called: str, error: Exception
) -> InputError:
    advice = (
        "correct the file, or its ending" if what == "read" else "take another format"
    )
    reason = _reason(error)
    if isinstance(error, MemoryError):
        reason = "it states sizes for which there is no memory"
        advice = "correct the file, or take a smaller one"
    elif isinstance(error, UnicodeError):
        reason = "it holds text that is not UTF-8"
    kind = "LIBSVM text" if location.suffix in LIBSVM else location.suffix[1:]
    return InputError(
        f"{called or f'{location.text}:'} cannot be {what} as {kind} ({reason}); {advice}."
    )


@contextmanager
def explained(location: Location) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise explanation(location, error) from None


def explanation(location: Location, error: OSError) -> InputError:
    """Return the InputError for an OSError; a `TransferError` if possibly temporary."""
    reason = _reason(error)
    if not location.remote:
        if error.errno in WAYS_OUT:
            return InputError(f"{location.text}: {reason}; {WAYS_OUT[error.errno]}.")
        return TransferError(
            f"{location.text}: {reason}; check the path, its permissions and the space of its disk."
        )
    if isinstance(error, FileNotFoundError):
        return InputError(
            f"{location.text}: there is no such object any more; start again when it is back."
        )
    if error.errno is not None:
        return TransferError(
            f"{location.text}: {reason}; check the folder of temporary files, TMPDIR, and its space."
        )
    if re.search(r"NO_?SUCH_?BUCKET|Bucket '.*' not found", reason, re.IGNORECASE):
        return InputError(
            f"{location.text}: there is no bucket {location.bucket!r}{_server_phrase()}; correct or create it."
        )
    if re.search(
        r"ACCESS_?DENIED|INVALID_?ACCESS_?KEY|SIGNATURE|CREDENTIALS|TOKEN|status 40[13]",
        reason,
        re.IGNORECASE,
    ):
        return InputError(
            f"{location.text}: the server{_server_phrase()} refuses access; check AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY (or AWS_PROFILE), and what they are allowed to do."
        )
    if re.search(
        r"NETWORK_CONNECTION|Could not connect|Connect(ion)? .*(timeout|closed|reset|broken)",
        reason,
    ):
        return TransferError(
            f"{location.text}: the server{_server_phrase()} cannot be reached; check AWS_ENDPOINT_URL, "
            "the network, and that it runs."
        )
    return TransferError(
        f"{location.text}: {reason}; check the address, AWS_REGION and the server{_server_phrase()}."
    )


def _reason(error: Exception) -> str:
    text = getattr(error, "strerror", None) or str(error)
    if not text:
        return type(error).__name__
    return cut(one_line(str(text)).split(" (Request ID")[0].rstrip("."), 160)


@contextmanager
def written(location: Location, lasting: bool = True) -> Iterator[Path]:
    """Yield a temporary file that finally becomes the output, unless an error occurs.

    A `lasting` file survives a power cut. InputError if the location is a folder, or
    without its bucket; TransferError if the file cannot be written at present.
    """
    if not location.remote:
        path = Path(location.path)
        if path.is_dir():
            raise InputError(f"{location.text}: is a folder; give the name of a file.")
        with transferring(location, "written"), atomic_path(path, lasting) as temporary:
            yield temporary
        return
    location.require_bucket()
    with (
        transferring(location, "written"),
        tempfile.TemporaryDirectory(prefix="learnkernels-upload-") as folder,
    ):
        temporary = Path(folder) / location.name
        yield temporary
        upload(temporary, location)


def upload(path: Path, location: Location) -> None:
    """Upload a file to S3, visible there only when complete.

    pyarrow would complete a failed upload with the parts it has sent.
    """
    import boto3  # most runs write no object
    from boto3.exceptions import Boto3Error
    from boto3.s3.transfer import TransferConfig
    from botocore.config import Config
    from botocore.exceptions import BotoCoreError, ClientError

    endpoint = _endpoint()
    parts = TransferConfig(
        multipart_threshold=PART_BYTES,
        multipart_chunksize=PART_BYTES,
        max_concurrency=2,
    )
    try:
        client = boto3.session.Session().client(
            "s3",
            endpoint_url=endpoint,
            config=Config(
                connect_timeout=CONNECT_SECONDS,
                read_timeout=REQUEST_SECONDS,
                retries={"total_max_attempts": ATTEMPTS, "mode": "standard"},
                s3={"addressing_style": "path"} if endpoint else None,  # as in pyarrow
            ),
        )
        with closing(client), path.open("rb") as source:
            client.upload_fileobj(
                source, location.bucket, location.path.partition("/")[2], Config=parts
            )
    except (BotoCoreError, ClientError, Boto3Error, ValueError) as error:
        raise OSError(f"AWS Error: {error}") from None
