"""Tables and links in Markdown, as reports, notes and artifacts have them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence


def markdown_table(rows: Sequence[Mapping[str, object]]) -> list[str]:
    """Return the lines of a table, one a row; a column that a row lacks is empty there."""
    columns = list(dict.fromkeys(key for row in rows for key in row))
    cells = [[_cell(row.get(column, "")) for column in columns] for row in rows]
    return [f"| {' | '.join(line)} |" for line in (map(_cell, columns), ["---"] * len(columns), *cells)]


def _cell(value: object) -> str:
    """Return a value as a cell holds it: a bar in it is no border, and a line break no new row."""
    return re.sub(r"(?<!\\)\|", r"\|", "<br>".join(str(value).splitlines()))


def link_list(links: Mapping[str, str]) -> list[str]:
    """Return a list of places, addresses as links and paths as they are."""
    return [
        f"- [{name}]({place})" if place.startswith("http") else f"- {name}: `{place}`" for name, place in links.items()
    ]


def inline_links(links: Mapping[str, str]) -> str:
    """Return links in one line."""
    return " · ".join(f"[{name}]({place})" for name, place in links.items())
