"""Find the files of a path: a file, a folder or a pattern, local or on S3."""

from __future__ import annotations

import glob
import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import unquote

from .errors import InputError, listed

ENDINGS = (".parquet", ".csv", ".arrow", ".feather", ".libsvm", ".svm", ".svmlight")

COMPRESSIONS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
"""Names of compressions in pyarrow, by ending."""

COMPRESSIBLE = (".csv", ".libsvm", ".svm", ".svmlight")
"""Endings of text files, which may be compressed."""

UNREAD_TABLES = (
    ".tsv", ".tab", ".xlsx", ".xls", ".xlsm", ".xlsb", ".ods", ".json", ".jsonl", ".ndjson", ".orc", ".avro", ".pq",
    ".parq", ".ipc", ".arrows", ".sas7bdat", ".xpt", ".dta", ".sav", ".h5", ".hdf5", ".arff", ".pkl", ".pickle", ".rds",
    ".rdata", ".zip", ".gz", ".bz2", ".xz", ".zst", ".lz4", ".tar", ".tgz", ".7z", ".rar",
)  # fmt: skip
"""Endings of unreadable files that likely hold rows: refused next to tables."""

CHECKSUMS = (".crc", ".md5", ".sha1", ".sha256", ".sha512", ".asc", ".sig")
"""Second endings of files without rows."""

ARRAYS = (".npz", ".npy")

WILDCARD = re.compile(r"[*?\[]")

HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
"""Missing value in the name of a folder."""


def ending_of(path: str) -> str:
    """Return a file name's extension in lower case, ``.csv`` for ``t.csv.gz``."""
    name = PurePosixPath(path)
    last = name.suffix.lower()
    inner = PurePosixPath(name.stem).suffix.lower()
    if last in COMPRESSIONS and inner in COMPRESSIBLE:
        return inner
    return last


def compression_of(path: str) -> str | None:
    """Return pyarrow's name of a file's compression; None if uncompressed."""
    last = PurePosixPath(path).suffix.lower()
    if ending_of(path) == last:
        return None
    return COMPRESSIONS.get(last)


def is_remote(path: str) -> bool:
    return path[:5].lower() == "s3://"


def require_place(path: str) -> None:
    """Raise InputError if an address is neither local nor on S3, or has credentials.

    The message omits the credentials.
    """
    scheme = re.match(r"([A-Za-z][A-Za-z0-9+.-]+)://", path)
    if scheme is not None and not is_remote(path):
        raise InputError(
            f"{scheme[1]}://...: files are those of local paths and of s3://bucket/key; download what lies elsewhere "
            "first, and give its path."
        )
    if is_remote(path) and {"@", ":"} & {*path[5:].partition("/")[0]}:
        raise InputError(
            "s3://...: an address holds a bucket and a key alone; give credentials in AWS_ACCESS_KEY_ID and "
            "AWS_SECRET_ACCESS_KEY or a profile, and the server in AWS_ENDPOINT_URL."
        )


def is_pattern(path: str) -> bool:
    """Return whether an address has wildcards."""
    return WILDCARD.search(path) is not None or path.endswith("/")


def files_of(path: str) -> list[str] | None:
    """Return the table files that a file, folder or pattern names; None if missing.

    Names are sorted. Patterns have ``*`` and ``**``. InputError for no table, several
    formats, copies, or unreadable tables.
    """
    if Path(path).is_file():
        return [path]
    if Path(path).is_dir():
        below = [str(file) for file in Path(path).rglob("*") if file.is_file()]
        return chosen(below, path)
    if WILDCARD.search(path):
        matches = [
            match for match in glob.glob(path, recursive=True) if Path(match).is_file()
        ]
        return chosen(matches, path)
    return None


def chosen(files: Sequence[str], path: str, within: str | None = None) -> list[str]:
    """Return the table files among `files`, sorted by name; refuse mixed formats.

    Names that begin with a dot or an underscore are skipped. Only names below `within`
    count, by default the part of `path` before a wildcard.
    """
    if within is None:
        within = path
    above = len(PurePosixPath(WILDCARD.split(within)[0]).parts)
    visible = []
    for file in sorted(files):
        below = PurePosixPath(file).parts[above:] or (PurePosixPath(file).name,)
        if not any(part[0] in "._" for part in below):
            visible.append(file)
    tables = [file for file in visible if ending_of(file) in ENDINGS]
    unread = [PurePosixPath(file).name for file in visible if _is_unread_table(file)]
    if not tables:
        way_out = "correct the path"
        if unread:
            way_out = f"convert {listed(unread)}"
        raise InputError(
            f"{path}: holds no table, whose endings are {', '.join(ENDINGS)}; {way_out}."
        )
    endings = sorted({ending_of(file) for file in tables})
    if len(endings) > 1:
        raise InputError(
            f"{path}: holds files of several formats ({', '.join(endings)}), which may be copies of each other; give a "
            f"pattern such as *{endings[0]}."
        )
    if unread:
        raise InputError(
            f"{path}: holds {listed(unread)}, which cannot be read, next to {PurePosixPath(tables[0]).name}; convert "
            f"or remove it, or give a pattern such as *{endings[0]}."
        )
    _require_no_copies(tables, path)
    return tables


def _is_unread_table(file: str) -> bool:
    if ending_of(file) in ENDINGS:
        return False
    suffixes = [suffix.lower() for suffix in PurePosixPath(file).suffixes]
    if not suffixes or suffixes[-1] in CHECKSUMS:
        return False
    return suffixes[-1] in UNREAD_TABLES or any(
        suffix in ENDINGS for suffix in suffixes
    )


def _require_no_copies(tables: Sequence[str], path: str) -> None:
    """Raise InputError for a table with and without compression."""
    seen: dict[str, str] = {}
    for file in tables:
        plain = file
        if compression_of(file) is not None:
            plain = str(PurePosixPath(file).with_suffix(""))
        if plain in seen:
            names = PurePosixPath(seen[plain]).name, PurePosixPath(file).name
            raise InputError(
                f"{path}: holds {listed(names)}, which look like copies of each other; remove one."
            )
        seen[plain] = file


def columns_in_folders(file: str, above: str = "") -> dict[str, str | None]:
    """Return the columns and values in a file's folder names, such as ``year=2024``."""
    folders = PurePosixPath(file).parts[:-1]
    if above:
        folders = folders[len(PurePosixPath(above).parts) :]
    columns: dict[str, str | None] = {}
    for folder in folders:
        pair = re.fullmatch("([^=]+)=(.*)", folder)
        if pair is None:
            continue
        value = unquote(pair[2])
        columns[unquote(pair[1])] = value
        if value in (HIVE_NULL, ""):
            columns[unquote(pair[1])] = None
    return columns


def folder_of(path: str) -> str:
    """Return an address if it is a folder, else the folder above file or pattern.

    Names of folders below it may be columns.
    """
    before_wildcard = WILDCARD.split(path)[0]
    if before_wildcard == path and Path(path).is_dir():
        return path
    return before_wildcard.rpartition("/")[0]


def matching(files: Sequence[str], pattern: str) -> list[str]:
    """Return the file names that match a pattern, in which only ``**`` matches ``/``."""
    forms = {"**/": "(?:.*/)?", "*": "[^/]*", "?": "[^/]"}
    parts = re.split(r"(\*\*/|\*|\?)", pattern)
    expression = re.compile("".join(forms.get(part, re.escape(part)) for part in parts))
    return [file for file in files if expression.fullmatch(file)]


def require_once(files: Sequence[str], where: str) -> None:
    twice = [file for file in dict.fromkeys(files) if list(files).count(file) > 1]
    if twice:
        raise InputError(
            f"{where}: {listed(twice)} is in 'path' more than once; name each file once."
        )
