"""Published experiments on the real files: the papers' items in reduced form, and every learner on one data set."""

import re
import shutil
from pathlib import Path

import pytest

from learnkernels.reproduction.flow import papers
from learnkernels.reproduction.item import PAPERS, item_names, load_item

pytestmark = pytest.mark.usefixtures("prefect_server", "working_folder")

LONG = ("nips2009-figure2", "uai2009-figure1")
"""Items whose reduced form repeats twice; here once."""


@pytest.mark.slow(120)
def test_the_reduced_forms_have_the_numbers_they_should(shared_data: Path):
    """Every cell of `checks` in its interval."""
    reduced = [name for name in item_names() if load_item(name).quick is not None]
    assert len(reduced) >= 10
    items = Path(shutil.copytree(PAPERS, "items"))
    for name in LONG:
        text, n = re.subn(
            r'^(  set: .*repeats"?): 2',
            r"\1: 1",
            (items / f"{name}.yaml").read_text(),
            flags=re.M,
        )
        assert n == 1
        (items / f"{name}.yaml").write_text(text)
    done = papers([], str(items), str(shared_data), True, "quick.md")
    assert [one["item"] for one in done["outcomes"]] == reduced
    assert {
        one["item"]: one["reason"]
        for one in done["outcomes"]
        if one["status"] != "done"
    } == {}
    assert [sentence for one in done["outcomes"] for sentence in one["failing"]] == []
    for name in reduced:
        assert Path("results", "papers-quick", name, "result.json").is_file()
        page = Path("quick", f"{name}.md")
        shown = re.findall(r"!\[[^\]]*\]\(([^)]+)\)", page.read_text(encoding="utf-8"))
        assert shown
        assert [path for path in shown if not (page.parent / path).is_file()] == []
