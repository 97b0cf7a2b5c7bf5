"""Reading the items of the papers, a YAML file each beside this one, and refusing what does not fit together."""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import get_args

from pydantic import ValidationError

from learnkernels.conf.errors import InputError, did_you_mean
from learnkernels.conf.loading import describe
from learnkernels.conf.papers.catalogue import CATALOGUE, PAPERS, read_item
from learnkernels.conf.papers.item import Paper, PaperItem, panel
from learnkernels.conf.schema import GRID_SEARCH_TITLE, CompareConfig

INHERITED = ("study", "figure", "choices", "quick")
"""Keys that an item takes from the one it is the same as."""


def item_names(folder: Path = PAPERS) -> list[str]:
    """Return the names of all items in the order of the papers.

    Raises
    ------
    InputError
        There is no such folder.
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: there is no such folder of items (seen from {Path.cwd()}).")
    papers = [paper.replace(" ", "").lower() for paper in get_args(Paper)]

    def order(name: str) -> tuple[int, list[tuple[bool, float, str]]]:
        paper = name.partition("-")[0]
        words = [(bool(word.isdigit()), float(word) if word.isdigit() else 0.0, word) for word in _WORDS.findall(name)]
        return (papers.index(paper) if paper in papers else len(papers), words)

    return sorted((path.stem for path in folder.glob("*.yaml") if path.name != CATALOGUE), key=order)


_WORDS = re.compile(r"\d+|\D+")


def choose_items(names: Sequence[str], folder: Path = PAPERS, quick: bool = False) -> list[PaperItem]:
    """Return the named items, or all, in the order of the papers; of the reduced forms all that there are.

    ``ITEM.READING`` names another reading of an item, which comes after the items.

    Raises
    ------
    InputError
        There is no item of that name, or none in reduced form, or `load_item` refuses one, named or not: a report has
        them all.
    """
    known = item_names(folder)
    others = [name for name in names if name not in known and name.rpartition(".")[0] in known]
    for name in names:
        _require_known(name, [*known, *others])
    all_of_them = [load_item(name, folder) for name in known]
    items = [item for item in all_of_them if not names or item.name in names]
    items += [load_item(name.rpartition(".")[0], folder).as_reading(name.rpartition(".")[2]) for name in others]
    for item in items:
        if quick and names and item.quick is None:
            raise InputError(f"{item.name} has no reduced form; leave --quick out.")
    return [item for item in items if not quick or item.quick is not None]


def _require_known(name: str, known: Sequence[str]) -> None:
    if name not in known:
        hint = did_you_mean(name, known)
        raise InputError(f"there is no item {name!r}; {hint}learnkernels papers --list shows them all.")


def load_item(name: str, folder: Path = PAPERS) -> PaperItem:
    """Return an item, checked as far as can be without its data.

    Parameters
    ----------
    name : str
        Of the file, without ``.yaml``.
    folder : Path
        Where items and catalogue lie.

    Raises
    ------
    InputError
        There is no such item, its file cannot be read, or the schema refuses it.
    """
    _require_known(name, item_names(folder))
    path = folder / f"{name}.yaml"
    data = read_item(path)
    other = data.get("same_as")
    if other is not None:
        _require_known(str(other), item_names(folder))
        origin = read_item(folder / f"{other}.yaml")
        if other == name or "same_as" in origin:
            raise InputError(f"{path}: same_as must name an item that stands for itself, got {other!r}.")
        data = {**{key: origin[key] for key in INHERITED if key in origin}, **data}
    try:
        item = PaperItem.model_validate(data)
    except ValidationError as error:
        raise InputError(f"{path}: {describe(error, data)}") from None
    if item.name != name:
        raise InputError(f"{path}: name must be that of the file, {name!r}, got {item.name!r}.")
    parts = item.comparisons(".", False, folder)
    for reading in item.readings:
        item.as_reading(reading).comparisons(".", False, folder)
    if item.quick is not None:
        item.comparisons(".", True, folder)
    _require_distinct(parts, path)
    if parts:
        _require_titles(item, parts, path)
    return item


def _require_distinct(parts: Sequence[CompareConfig], path: Path) -> None:
    """Refuse two parts that measure the same learner on data sets of one name; their trials could not be told apart."""
    seen: set[tuple[str, str]] = set()
    for part in parts:
        titles = [learner.title for learner in part.learners] + ([GRID_SEARCH_TITLE] if part.baseline else [])
        for pair in itertools.product((dataset.label for dataset in part.datasets), titles):
            if pair in seen:
                raise InputError(f"{path}: study.parts: {pair[1]} on {pair[0]} is in two parts; give one a 'label'.")
            seen.add(pair)


def _require_titles(item: PaperItem, parts: Sequence[CompareConfig], path: Path) -> None:
    """Refuse a printed cell or a claim on a learner or data set that the study has not."""
    learners = {learner.title for part in parts for learner in part.learners} | {GRID_SEARCH_TITLE}
    datasets = {dataset.label for part in parts for dataset in part.datasets}
    panels = datasets | {panel(dataset)[0] for dataset in datasets}
    named: list[tuple[str, str | None, set[str]]] = []
    for i, cell in enumerate(item.printed):
        if cell.measures():
            named += [
                (f"printed.{i}.learner", cell.learner, learners),
                (f"printed.{i}.dataset", cell.dataset, datasets),
            ]
    for i, claim in enumerate(item.claims):
        if claim.value is None:
            named += [(f"claims.{i}.better", claim.better, learners), (f"claims.{i}.than", claim.than, learners)]
            named += [(f"claims.{i}.on", one, panels) for one in claim.on]
    named += [("figure.learners", one, learners) for one in item.figure.learners]
    if item.quick:
        named += [("quick.learners", one, learners) for one in item.quick.learners or ()]
        named += [("quick.datasets", one, datasets) for one in item.quick.datasets or ()]
        for i, check in enumerate(item.quick.checks):
            named += [(f"quick.checks.{i}.learner", check.learner, learners)]
            named += [(f"quick.checks.{i}.dataset", check.dataset, datasets)]
    for where, name, known in named:
        if name is not None and name not in known:
            hint = did_you_mean(name, sorted(known))
            raise InputError(f"{path}: {where}: {name!r} is not in the study; {hint}it has {', '.join(sorted(known))}.")
