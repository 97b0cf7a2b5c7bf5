"""Read configurations: YAML, changes of keys, and messages for mistakes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import ValidationError
from yaml.composer import ComposerError
from yaml.constructor import ConstructorError

from . import files
from .errors import InputError, did_you_mean, one_line, short
from .schema import CompareConfig, DatasetConfig

Model = TypeVar("Model")

DEEPEST = 50

MOST_NODES = 100_000
"""Largest number of values and keys; aliases count at each use."""

MOST_BYTES = 4 << 20

WORDS = {
    "bool_parsing": "must be true or false",
    "bool_type": "must be true or false",
    "dict_type": "must be a mapping of keys to values",
    "float_parsing": "must be a number",
    "float_type": "must be a number",
    "greater_than": "must be above {gt:g}",
    "greater_than_equal": "must be at least {ge:g}",
    "int_from_float": "must be a whole number",
    "int_parsing": "must be a whole number",
    "int_type": "must be a whole number",
    "less_than": "must be below {lt:g}",
    "less_than_equal": "must be at most {le:g}",
    "list_type": "must be a list",
    "string_type": "must be text, in quotes where YAML takes it for something else",
    "too_short": "must be a list of {min_length} or more",
    "tuple_type": "must be a list",
}


class Loader(yaml.SafeLoader):
    """YAML loader that refuses deep nesting and aliases that expand too far."""

    def __init__(self, stream: Any) -> None:
        super().__init__(stream)
        self._depth = 0
        self._size: dict[int, int] = {}  # of each node and its descendants

    def compose_node(self, parent: Any, index: Any) -> Any:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        mark: Any = event.start_mark
        if self._depth == DEEPEST:
            raise ComposerError(
                None,
                None,
                f"lists and mappings go more than {DEEPEST} levels deep",
                mark,
            )
        self._depth += 1
        node: Any = super().compose_node(parent, index)
        self._depth -= 1
        if isinstance(event, yaml.AliasEvent):
            if id(node) not in self._size:
                raise ComposerError(None, None, "an alias contains itself", mark)
            return node
        if isinstance(node, yaml.MappingNode):
            _require_different_keys(node)
        sizes = [self._size[id(part)] for part in _parts(node)]
        size = 1 + sum(sizes)
        self._size[id(node)] = size
        if size > MOST_NODES:
            raise ComposerError(
                None, None, f"there are more than {MOST_NODES:,} values and keys", mark
            )
        return node

    def construct_object(self, node: Any, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, ArithmeticError, AttributeError, TypeError):
            kind = node.tag.rpartition(":")[2]
            raise ConstructorError(
                None, None, f"{short(node.value)} is no {kind}", node.start_mark
            ) from None


def _require_different_keys(node: yaml.MappingNode) -> None:
    first_lines: dict[tuple[str, str], int] = {}
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode) or key.value == "<<":
            continue
        mark: Any = key.start_mark
        name = (key.tag, key.value)
        if name in first_lines:
            raise ComposerError(
                None,
                None,
                f"key {short(key.value)} is there twice, first in line {first_lines[name]}",
                mark,
            )
        first_lines[name] = mark.line + 1


def _parts(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    if isinstance(node, yaml.CollectionNode):
        return list(node.value)
    return []


def load_config(path: Path, changes: Sequence[str] = ()) -> CompareConfig:
    """Read a YAML file, apply changes of keys, and return the configuration.

    `path` may name a bundled configuration. `changes` are ``key=value`` with dotted
    keys and YAML values, such as ``protocol.folds=10``.
    """
    path = resolve_bundled(path)
    if files.ending_of(str(path)) in files.ENDINGS:
        raise InputError(
            f"{path}: is a data file, and this command needs a configuration; make one with 'learnkernels init {path} "
            "--target COLUMN'."
        )
    meant = did_you_mean(str(path), shipped())
    advice = f"; {meant}give the path of a YAML configuration, or a bundled one: {', '.join(shipped())}"
    data = read_yaml(path, "keys such as name, datasets, kernels, learners;", advice)
    return config_of(data, path, changes)


@cache
def shipped() -> dict[str, Path]:
    """Return the paths of the YAML configurations in this package, by name."""
    folder = Path(__file__).parent
    return {
        path.stem: path
        for path in sorted([*folder.glob("*.yaml"), *folder.glob("examples/*.yaml")])
    }


def resolve_bundled(path: Path) -> Path:
    """Return the package's configuration of this name, else the path unchanged."""
    bundled = shipped().get(str(path))
    if bundled is None or path.exists():
        return path
    return bundled


def config_of_text(text: str, path: Path, changes: Sequence[str] = ()) -> CompareConfig:
    """Return the configuration in a YAML text; see `load_config`."""
    return config_of(yaml.load(text, Loader), path, changes)


def config_of(data: Any, where: object, changes: Sequence[str] = ()) -> CompareConfig:
    """Return the validated configuration in a mapping; `where` begins error messages."""
    for change in changes:
        _apply_change(data, change)
    return validated(CompareConfig.model_validate, data, where)


def existing_files(dataset: DatasetConfig, data_dir: str) -> list[str]:
    """Return the addresses of a data set's files, after checks.

    InputError if a local file is missing, an ending is unknown, files differ in format
    or are named twice.
    """
    where = f"data set {dataset.label}"
    addresses: list[str] = []
    members: list[str] = []
    files.require_place(data_dir)
    for path in dataset.paths:
        files.require_place(path)
        address = _address(path, data_dir)
        addresses.append(address)
        if files.is_remote(address):
            members.append(address)
        else:
            members += _local_files(address, path, where)
    for member in members:
        if not files.is_remote(member) or (
            len(members) == 1 and not files.is_pattern(member)
        ):
            _require_ending(member, where)
    files.require_once(members, where)
    endings = sorted(
        {files.ending_of(member) for member in members if not files.is_pattern(member)}
    )
    if len(endings) > 1:
        raise InputError(
            f"{where}: 'path' names files of several formats ({', '.join(endings)}); give those of one."
        )
    return addresses


def _address(path: str, data_dir: str) -> str:
    if files.is_remote(path):
        return path
    if files.is_remote(data_dir):
        return f"{data_dir.rstrip('/')}/{path}"
    return str(Path(data_dir) / path)


def _local_files(address: str, path: str, where: str) -> list[str]:
    try:
        members = files.files_of(address)
    except InputError as error:
        raise InputError(f"{where}: {error}") from None
    if members is None:
        _require_ending(path, where)
        raise InputError(
            f"{where}: there is no file {address} (seen from {Path.cwd()}); correct 'path' or 'data_dir'."
        )
    return members


def _require_ending(path: str, where: str) -> None:
    if files.ending_of(path) not in (*files.ENDINGS, files.ARRAYS[0]):
        raise InputError(
            f"{where}: cannot read {Path(path).name}; supported endings: {', '.join(files.ENDINGS)}, .npz, and of "
            f"compressed texts {', '.join(files.COMPRESSIONS)}."
        )


def validated(validate: Callable[[Any], Model], data: Any, where: object) -> Model:
    """Return `validate(data)`; raise InputError with pydantic's first error."""
    try:
        return validate(data)
    except ValidationError as error:
        raise InputError(f"{where}: {describe(error, data)}") from None


def describe(error: ValidationError, data: Any) -> str:
    """Return pydantic's first validation error as a sentence; count the others."""
    complaints = error.errors(include_url=False)
    # A refused entry also makes its list too short
    inner = [
        complaint
        for complaint in complaints
        if complaint["type"] != "too_short" or len(complaints) == 1
    ]
    complaints = inner or complaints[:1]
    first = complaints[0]
    sentence = _message_of_complaint(first)
    where = ".".join(_location(first["loc"], data, first["type"] == "missing"))
    if where:
        sentence = f"{where}: {sentence}"
    if len(complaints) > 1:
        sentence += f" (and {len(complaints) - 1} more)"
    return f"{sentence}."


def _message_of_complaint(complaint: Mapping[str, Any]) -> str:
    kind = complaint["type"]
    context = complaint.get("ctx", {})
    if kind == "missing":
        return "is required and missing"
    if kind == "union_tag_invalid" and not context["tag"]:
        return f"needs 'family', one of {context['expected_tags']}"
    if kind in ("literal_error", "union_tag_invalid"):
        valid = str(context.get("expected") or context.get("expected_tags"))
        value = context.get("tag") or complaint["input"]
        close = did_you_mean(
            value, valid.replace("'", "").replace(" or ", ", ").split(", ")
        )
        if close:
            return f"{short(value)} is not valid, {close}expected {valid}"
        return f"{short(value)} is not valid; expected {valid}"
    if kind in WORDS:
        return f"{WORDS[kind].format_map(context)}, got {short(complaint['input'])}"
    sentence = complaint["msg"].removeprefix("Value error, ")
    if isinstance(complaint.get("input"), str | int | float) and "got" not in sentence:
        sentence += f", got {short(complaint['input'])}"
    return sentence


def _location(loc: tuple[int | str, ...], data: Any, missing: bool) -> list[str]:
    """Return the path of a complaint, without names of union members."""
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


def read_yaml(
    path: Path, expected: str, advice: str = "", loader: type[Loader] = Loader
) -> dict[str, Any]:
    """Read a mapping from a YAML file; InputError for other content."""
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        text = content.decode("utf-8-sig")
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", "not UTF-8 text")
        raise InputError(f"{path}: cannot be read ({reason}){advice}.") from None
    if len(content) > MOST_BYTES:
        raise InputError(
            f"{path}: cannot be read (more than {MOST_BYTES >> 20} MiB){advice}."
        )
    try:
        data = yaml.load(text, loader)
    except yaml.YAMLError as error:
        raise InputError(
            f"{path}: is not valid YAML{_yaml_complaint(error)}."
        ) from None
    if not isinstance(data, dict):
        raise InputError(f"{path}: must hold {expected} got {type(data).__name__}.")
    return data


def _yaml_complaint(error: yaml.YAMLError) -> str:
    mark = getattr(error, "problem_mark", None)
    where = ""
    if mark:
        where = f" at line {mark.line + 1}, column {mark.column + 1}"
    return f"{where} ({one_line(getattr(error, 'problem', None) or str(error))[:160]})"


def _apply_change(data: dict[str, Any], change: str) -> None:
    where = f"change {short(change)}"
    if not isinstance(change, str):
        raise InputError(f"{where}: expected a text, such as 'protocol.folds=10'.")
    key, equals, text = change.partition("=")
    if not equals or not all(key.strip().split(".")) or key.count(".") >= DEEPEST:
        raise InputError(f"{where}: expected key=value, such as protocol.folds=10.")
    try:
        value = yaml.load(text, Loader)
    except yaml.YAMLError as error:
        raise InputError(
            f"{where}: the value is not valid YAML{_yaml_complaint(error)}."
        ) from None
    set_key(data, key.strip(), value, where)


def set_key(data: dict[str, Any], key: str, value: Any, where: str) -> None:
    """Set a nested key of a configuration, such as ``datasets.0.scale``, in place.

    InputError if a list lacks the entry, or a parent is a single value.
    """
    place: Any = data
    *above, last = key.split(".")
    for depth, part in enumerate(above):
        index = _key_or_position(place, part, key.split(".")[:depth], where)
        if isinstance(place, dict) and place.get(index) is None:
            place[index] = {}
        place[index] = copy(place[index])  # YAML's aliases share it
        place = place[index]
    place[_key_or_position(place, last, above, where)] = value


def _key_or_position(place: Any, part: str, above: Sequence[str], where: str) -> Any:
    if isinstance(place, dict):
        return part
    if not isinstance(place, list):
        raise InputError(
            f"{where}: {'.'.join(above)} is a single value, it has no {short(part)}."
        )
    if not part.isdecimal() or len(part) > 9 or int(part) >= len(place):
        raise InputError(
            f"{where}: {'.'.join(above)} holds entries 0 to {len(place) - 1}, got {short(part)}."
        )
    return int(part)
