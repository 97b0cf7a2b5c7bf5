"""The catalogue of the data sets of the papers: as files, and on OpenML where it has them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from pydantic import Field, ValidationError

from learnkernels.conf.errors import InputError, did_you_mean
from learnkernels.conf.loading import Loader, describe, read_yaml
from learnkernels.conf.schema import Strict

PAPERS = Path(__file__).resolve().parent
"""Where the items lie."""

CATALOGUE = "datasets.yaml"


class SetConfig(Strict):
    """A data set of the catalogue: the keys of its file, and those of its place on OpenML where it has one."""

    file: dict[str, Any] = Field(description="Keys of the data set where it is read from a file.")
    openml: dict[str, Any] | None = Field(None, description="Keys where it is fetched; without them it cannot be.")


class Catalogue(Strict):
    """The data sets of the papers: as files, and on OpenML where it has them."""

    data_dir: str = Field(description="Folder of the files; relative to the working folder.")
    sets: dict[str, SetConfig] = Field(description="Name -> where it is.")

    def dataset(self, entry: Mapping[str, Any], openml: bool) -> dict[str, Any]:
        """Return the keys of a data set for an entry ``{use: NAME, ...}``, whose other keys go first.

        Raises
        ------
        InputError
            There is no such set in the catalogue, or none of it on OpenML.
        """
        name = str(entry["use"])
        if name not in self.sets:
            raise InputError(
                f"there is no data set {name!r} in the catalogue; {did_you_mean(name, self.sets)}known: "
                f"{', '.join(self.sets)}."
            )
        lies = self.sets[name]
        if openml and lies.openml is None and lies.file.get("source") == "file":
            raise NotOnOpenML(
                f"data set {name} is not on OpenML; give the folder that has {lies.file.get('path')} as --data-dir."
            )
        keys = lies.openml if openml and lies.openml is not None else lies.file
        given = {key: value for key, value in entry.items() if key != "use"}
        if "name" in given:
            given = {"label": given.pop("name"), **given}  # `name` is that of the source
        return merged({"label": name, **keys}, given)


class NotOnOpenML(InputError):
    """A data set is needed from OpenML, which has not got it."""


def load_catalogue(folder: Path = PAPERS) -> Catalogue:
    """Return the catalogue of a folder of items.

    Raises
    ------
    InputError
        The file cannot be read, or the schema refuses it.
    """
    path = folder / CATALOGUE
    data = read_item(path)
    try:
        return Catalogue.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{path}: {describe(error, data)}") from None


def data_folder(given: str | None, folder: Path = PAPERS) -> str | None:
    """Return the folder of the data files: the given one, that of the catalogue, or None where that does not exist.

    Raises
    ------
    InputError
        The given folder does not exist.
    """
    if given is not None and not Path(given).is_dir():
        raise InputError(f"--data-dir {given}: there is no such folder (seen from {Path.cwd()}).")
    usual = given or load_catalogue(folder).data_dir
    return usual if Path(usual).is_dir() else None


class _Loader(Loader):
    """YAML in which `on` is a word, and true and false alone are truth values."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, words) for tag, words in resolvers if tag != "tag:yaml.org,2002:bool" or first in "tTfF"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def read_item(path: Path) -> dict[str, Any]:
    """Return what a YAML file of items or of their data sets holds."""
    return read_yaml(path, "keys and values,", loader=_Loader)


def merged(shared: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """Return shared keys under those of a part, also within mappings."""
    whole = dict(shared)
    for key, value in part.items():
        below = whole.get(key)
        whole[key] = merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return whole
