"""Shell commands, Python blocks and files that a Markdown page shows, to run them."""

import ast
import re
from pathlib import Path

import numpy as np

BASH = re.compile(r"^[ ]*```bash[^\n]*\n(.*?)^[ ]*```[ ]*$", re.DOTALL | re.MULTILINE)
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(
    r"^```(?:python|yaml)\n# (\S+\.(?:py|yaml))\n(.*?)^```", re.DOTALL | re.MULTILINE
)
CLAIM = re.compile(r"  # (\d+\.\d+|array\(.*\))$")
"""Comment with the value of its line: a number with decimals, or an array."""


def commands(page: Path) -> list[str]:
    """Return the command lines of all bash blocks of a page, in order.

    Continued lines are joined, comments and empty lines dropped, and blanks outside of
    quotes reduced to one.
    """
    return [command for lines in by_section(page).values() for command in lines]


def by_section(page: Path) -> dict[str, list[str]]:
    """Return the commands below each heading; those before the first have the key ""."""
    text = page.read_text(encoding="utf-8")
    # Comments of a bash block are no headings
    without_blocks = BASH.sub(lambda block: re.sub(r"[^\n]", " ", block.group()), text)
    headings = [(0, "")]
    for heading in HEADING.finditer(without_blocks):
        headings.append((heading.start(), heading.group(1)))
    sections: dict[str, list[str]] = {}
    for block in BASH.finditer(text):
        title = [name for start, name in headings if start <= block.start()][-1]
        sections.setdefault(title, []).extend(_lines(block.group(1)))
    return sections


def not_covered(page: Path, executed: list[str]) -> list[str]:
    """Return the commands of a page that were not executed."""
    executed_lines = {line for command in executed for line in _lines(command)}
    return [command for command in commands(page) if command not in executed_lines]


def _lines(block: str) -> list[str]:
    joined = block.replace("\\\n", " ").splitlines()
    return [command for line in joined if (command := _without_comment(line))]


def _without_comment(line: str) -> str:
    """Return a line without its comment, and with single blanks outside of quotes."""
    parts = re.findall(
        r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\s+#.*$|^#.*$|\s+|[^\s'\"]+|['\"]", line
    )
    code_parts = [
        " " if part.isspace() else part
        for part in parts
        if not part.lstrip().startswith("#")
    ]
    return "".join(code_parts).strip()


def python_blocks(page: Path) -> list[str]:
    """Return the Python blocks of a page, except files, which begin with their name."""
    blocks = PYTHON.findall(page.read_text(encoding="utf-8"))
    return [block for block in blocks if not re.match(r"# \S+\.py\n", block)]


def files_of(page: Path) -> dict[str, str]:
    """Return the files that a page shows in full, by name."""
    return dict(FILE.findall(page.read_text(encoding="utf-8")))


def check(block: str) -> int:
    """Run a block, compare each line with its claim, and return the number of claims."""
    names: dict[str, object] = {}
    lines = block.splitlines()
    n_claims = 0
    for node in ast.parse(block).body:
        source = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        claim = CLAIM.search(source)
        if not isinstance(node, ast.Expr) or claim is None:
            exec(source, names)
            continue
        value = eval(source, names)
        claimed = eval(claim.group(1), {"array": np.array})
        decimals = max(map(len, re.findall(r"\.(\d+)", claim.group(1))))
        np.testing.assert_allclose(value, claimed, atol=0.51 * 0.1**decimals)
        n_claims += 1
    return n_claims
