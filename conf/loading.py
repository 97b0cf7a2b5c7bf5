"""Reading a configuration: YAML file, `key=value` changes, and one sentence where something is wrong."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml
from pydantic import ValidationError

from learnkernels.conf.errors import InputError
from learnkernels.conf.schema import CompareConfig, DatasetConfig


def load_config(path: Path, changes: Sequence[str] = ()) -> CompareConfig:
    """Return the configuration of a YAML file.

    Parameters
    ----------
    path : Path
        The file.
    changes : sequence of str
        ``key=value`` with a dotted key, such as ``protocol.folds=10`` or ``datasets.0.scale=unit``; the value is YAML.

    Returns
    -------
    config : CompareConfig

    Raises
    ------
    InputError
        The file cannot be read or is not YAML, a change does not fit, or the schema refuses it.
    """
    data = _read(path)
    for change in changes:
        _apply(data, change)
    try:
        return CompareConfig.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{path}: {describe(error, data)}") from None


def is_remote(path: str) -> bool:
    """Return whether a path is an object on a server, ``s3://bucket/key``, and not a file of this machine."""
    return path[:5].lower() == "s3://"


def existing_file(dataset: DatasetConfig, data_dir: str) -> str:
    """Return where the file of a data set lies: a path, or ``s3://bucket/key``, for which no server is asked yet.

    Raises
    ------
    InputError
        There is no such file on this machine.
    """
    path = str(dataset.path)
    if is_remote(path):
        return path
    if is_remote(data_dir):
        return f"{data_dir.rstrip('/')}/{path}"
    local = Path(data_dir) / path
    if not local.is_file():
        raise InputError(
            f"data set {dataset.label}: there is no file {local} (seen from {Path.cwd()}); correct 'path' or "
            "'data_dir'."
        )
    return str(local)


def describe(error: ValidationError, data: Any) -> str:
    """Return the first complaint of a validation as one sentence, and how many more there are."""
    complaints = error.errors(include_url=False)
    # A list whose entry is refused is reported as too short as well.
    inner = [c for c in complaints if c["type"] != "too_short" or len(complaints) == 1]
    complaints = inner or complaints[:1]
    first = complaints[0]
    where = ".".join(_location(first["loc"], data, first["type"] == "missing"))
    what = first["msg"].removeprefix("Value error, ")
    context = first.get("ctx", {})
    if first["type"] == "union_tag_invalid" and not context["tag"]:
        what = f"needs 'family', one of {context['expected_tags']}"
    elif first["type"] in ("literal_error", "union_tag_invalid"):
        valid = str(context.get("expected") or context.get("expected_tags"))
        given = context.get("tag") or first["input"]
        close = difflib.get_close_matches(str(given), valid.replace("'", "").replace(" or ", ", ").split(", "), n=1)
        what = f"{given!r} is not valid{f', did you mean {close[0]!r}?' if close else ';'} expected {valid}"
    elif first["type"] == "missing":
        what = "is required and missing"
    elif "input" in first and isinstance(first["input"], str | int | float):
        what = f"{what}, got {first['input']!r}" if "got" not in what else what
    more = f" (and {len(complaints) - 1} more)" if len(complaints) > 1 else ""
    return f"{where}: {what}{more}." if where else f"{what}{more}."


def _location(loc: tuple[int | str, ...], data: Any, missing: bool) -> list[str]:
    """Return the path of a complaint as the user wrote it, without the names of union members."""
    path = []
    for depth, part in enumerate(loc):
        inside = (isinstance(data, dict) and part in data) or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        )
        if inside:
            data = data[part]
        elif not (missing and depth == len(loc) - 1):
            continue
        path.append(str(part))
    return path


def _read(path: Path) -> dict[str, Any]:
    return read_yaml(path, "keys such as name, datasets, kernels, learners;", "; give the path of a YAML configuration")


def read_yaml(
    path: Path, expected: str, advice: str = "", loader: type[yaml.SafeLoader] = yaml.SafeLoader
) -> dict[str, Any]:
    """Return the mapping of a YAML file.

    Parameters
    ----------
    path : Path
        The file.
    expected : str
        What it must hold, for a sentence.
    advice : str
        What to do about a file that cannot be read.
    loader : type
        How YAML is understood; a safe one.

    Raises
    ------
    InputError
        The file cannot be read, is not YAML, or holds no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8 text"
        raise InputError(f"{path}: cannot be read ({reason}){advice}.") from None
    try:
        data = yaml.load(text, loader)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise InputError(f"{path}: is not valid YAML{where} ({getattr(error, 'problem', error)}).") from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: must hold {expected} got {type(data).__name__}.")
    return data


def _apply(data: dict[str, Any], change: str) -> None:
    key, equals, text = change.partition("=")
    if not equals or not all(key.strip().split(".")):
        raise InputError(f"--set {change}: expected key=value, such as protocol.folds=10.")
    try:
        value = yaml.safe_load(text)
    except yaml.YAMLError:
        raise InputError(f"--set {change}: the value is not valid YAML.") from None
    set_key(data, key.strip(), value, f"--set {change}")


def set_key(data: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Set a dotted key, such as ``datasets.0.scale``, in nested mappings and lists; mappings that lack are made.

    Raises
    ------
    InputError
        A list has no such entry, or a single value is in the way; `where` begins the sentence.
    """
    place: Any = data
    *above, last = key.split(".")
    for depth, part in enumerate(above):
        index = _index(place, part, key.split(".")[:depth], where)
        if isinstance(place, dict) and place.get(index) is None:
            place[index] = {}
        place = place[index]
    place[_index(place, last, above, where)] = value


def _index(place: Any, part: str, above: Sequence[str], where: str) -> Any:
    """Return what a part of a dotted key is in a mapping or list."""
    if isinstance(place, dict):
        return part
    if not isinstance(place, list):
        raise InputError(f"{where}: {'.'.join(above)} is a single value, it has no {part!r}.")
    if not part.isdecimal() or int(part) >= len(place):
        raise InputError(f"{where}: {'.'.join(above)} holds entries 0 to {len(place) - 1}, got {part!r}.")
    return int(part)
