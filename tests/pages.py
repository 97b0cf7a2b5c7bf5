"""What a Markdown file shows, so that a test can run it: Python with its claims, and files."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import numpy as np

PYTHON = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
FILE = re.compile(r"^```(?:python|yaml)\n# (\S+\.(?:py|yaml))\n(.*?)^```", re.DOTALL | re.MULTILINE)
CLAIM = re.compile(r"  # (\d+\.\d+|array\(.*\))$")
"""A comment that says what the line before it gives: a number with decimals, or an array of them."""


def python_blocks(page: Path) -> list[str]:
    """Return the blocks of Python of a page but those that are files, whose first line is their name."""
    blocks = PYTHON.findall(page.read_text(encoding="utf-8"))
    return [block for block in blocks if not re.match(r"# \S+\.py\n", block)]


def files_of(page: Path) -> dict[str, str]:
    """Return the files that a page shows in full, by their names."""
    return dict(FILE.findall(page.read_text(encoding="utf-8")))


def check(block: str) -> int:
    """Run a block, hold each claim against what its line gives, and return how many there were."""
    names: dict[str, object] = {}
    lines, checked = block.splitlines(), 0
    for node in ast.parse(block).body:
        source = "\n".join(lines[node.lineno - 1 : node.end_lineno])
        claim = CLAIM.search(source)
        if not isinstance(node, ast.Expr) or claim is None:
            exec(source, names)
            continue
        value, said = eval(source, names), eval(claim.group(1), {"array": np.array})
        np.testing.assert_allclose(value, said, atol=0.0051)  # told to two digits
        checked += 1
    return checked
