"""The documentation site builds without a warning, shows every public name, and needs no network to be read."""

import ast
import inspect
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import learnkernels
from docs.site_parts import PARTS
from learnkernels.conf.schema import CompareConfig
from learnkernels.kernels import families, learners, predictors

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("docs", "README.md", ".github", "CITATION.cff")
MADE = ("gallery", "guide", "__pycache__")
EXECUTED = {"features_for_others": "gallery", "2_combination": "guide"}


class Page(HTMLParser):
    """Identifiers, links, formulas and the text of a page."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.formulas = 0
        self.text = ""
        self.html = file.read_text(encoding="utf-8")
        self.feed(self.html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids |= {values["id"]} if values.get("id") else set()
        self.links += [values[name] for name in ("href", "src") if values.get(name)]
        self.formulas += tag == "math"

    def handle_data(self, data: str) -> None:
        self.text += data


Pages = dict[str, Page]


@pytest.mark.slow(30)
def test_the_site_is_whole_and_fetches_nothing_from_the_network(tmp_path: Path):
    site = built(tmp_path)
    # Templates of the theme
    files = [
        file for file in sorted(site.rglob("*.html")) if "_static" not in file.parts
    ]
    pages = {file.relative_to(site).as_posix(): Page(file) for file in files}
    require_every_source(pages)
    require_what_was_executed(pages)
    require_every_public_name_and_key(pages)
    require_formulas(pages)
    assert broken_links(site, pages) == []
    assert fetched(site) == []
    search = (site / "searchindex.js").read_text(encoding="utf-8")
    names = [*learnkernels.__all__, "limits", "gallery/nightly", "guide/1_alignment"]
    assert [name for name in names if name not in search] == []


def built(folder: Path) -> Path:
    """The site in its small form: two scripts are executed, and all are by tests/system/test_examples.py."""
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(
                ROOT / name, folder / name, ignore=shutil.ignore_patterns(*MADE)
            )
        else:
            shutil.copy(ROOT / name, folder / name)
    shutil.copy(ROOT / "pyproject.toml", folder)
    small = rf"sphinx_gallery_conf.filename_pattern=({'|'.join(EXECUTED)})\.py$"
    options = ["-W", "--keep-going", "-q", "-b", "html", "-D", small]
    command = [sys.executable, "-m", "sphinx", *options, "docs", "html"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    return folder / "html"


def require_every_source(pages: Pages) -> None:
    """Every page of Markdown, example and chapter has its page."""
    docs = ROOT / "docs"
    for source in [
        path
        for folder in (".", "reference", "reproduction")
        for path in (docs / folder).glob("*.md")
    ]:
        assert source.relative_to(docs).with_suffix(".html").as_posix() in pages
    for folder, scripts in (
        ("gallery", ROOT / "docs" / "examples"),
        ("guide", docs / "chapters"),
    ):
        for script in scripts.glob("*.py"):
            title = str(
                ast.get_docstring(ast.parse(script.read_text(encoding="utf-8")))
            ).split("\n")[0]
            assert title in pages[f"{folder}/{script.stem}.html"].text
            assert f"{script.stem}.html" in pages[f"{folder}/index.html"].links


def require_what_was_executed(pages: Pages) -> None:
    """What is executed shows its figures and what it printed."""
    for name, folder in EXECUTED.items():
        page = pages[f"{folder}/{name}.html"]
        assert [
            link
            for link in page.links
            if f"sphx_glr_{name}_" in link and link.endswith(".png")
        ]
        assert "sphx-glr-script-out" in page.html
    assert re.search(r"alignf +alignment 0\.6", pages["guide/2_combination.html"].text)


def require_every_public_name_and_key(pages: Pages) -> None:
    """Every public name, family, learner and predictor has an entry, and every key of a configuration its row."""
    ids = {name for page in pages.values() for name in page.ids}
    assert {f"learnkernels.{name}" for name in learnkernels.__all__} <= ids
    assert [
        name
        for name in learnkernels.__all__
        if name not in pages["reference/index.html"].text
    ] == []
    for room in (families, learners, predictors):
        # Tables are told in words
        public = {name for name in room.__all__ if not name.isupper()}
        assert {
            name
            for name in public
            if not ids & {f"{room.__name__}.{name}", f"learnkernels.{name}"}
        } == set()
    of_models = {
        f"learnkernels.kernels.model.Model{name}" for name in ("", ".save", ".load")
    }
    assert of_models | {"learnkernels.KernelLearningClassifier.fit"} <= ids
    # What scikit-learn adds to every estimator is left out.
    assert [name for name in ids if re.search(r"set_\w+_request", name)] == []
    text = pages["reference/keys.html"].text
    schema = CompareConfig.model_json_schema()
    assert set(PARTS) <= {"CompareConfig", *schema["$defs"]}
    keys = {
        key
        for part in [schema, *schema["$defs"].values()]
        for key in part["properties"]
    }
    assert {key for key in keys if key not in text} == set()
    assert "a uniform sample of 8,192 rows" in text


def require_formulas(pages: Pages) -> None:
    """Formulas are shown as such."""
    shown = sum(
        page.formulas for name, page in pages.items() if name.startswith("reference/")
    )
    written = [
        inspect.getdoc(getattr(learnkernels, name)) or ""
        for name in learnkernels.__all__
    ]
    assert (
        shown
        >= sum(len(re.findall(r"\.\. math::|:math:`", text)) for text in written)
        > 10
    )
    for name, page in pages.items():
        if not name.startswith("_modules"):
            assert (
                re.findall(r"math::|:math:|\\(?:frac|sum|mu|lVert|top)\b", page.html)
                == []
            ), name


def broken_links(site: Path, pages: Pages) -> list[str]:
    """The links within the site that lead nowhere."""
    followed, broken = 0, []
    for name, page in pages.items():
        here = (site / name).resolve()
        for link in page.links:
            path, fragment = urldefrag(re.sub(r"\?[^#]*", "", unquote(link)))
            if re.match(r"\w+:", link) or link.startswith("#"):
                continue
            target = (here.parent / path).resolve() if path else here
            known = (
                pages.get(target.relative_to(site.resolve()).as_posix())
                if target.exists()
                else None
            )
            unknown = (
                fragment and known is not None and not path.endswith("genindex.html")
            )
            if not target.exists() or (unknown and fragment not in known.ids):
                broken.append(f"{name}: {link}")
            followed += 1
    assert followed > 1000
    return broken


def fetched(site: Path) -> list[str]:
    """What pages and styles fetch from the network."""
    element = r"<(?:script|img|iframe|source)\b[^>]*\bsrc=.(?:https?:)?//[^>]*|<link\b[^>]*\bhref=.(?:https?:)?//[^>]*"
    pattern = re.compile(rf"{element}|@import[^;]*//|url\(.?(?:https?:)?//[^)]*")
    found = []
    for file in [*site.rglob("*.html"), *site.rglob("*.css")]:
        text = re.sub(r"/\*.*?\*/", "", file.read_text(encoding="utf-8"), flags=re.S)
        found += [f"{file.name}: {one}" for one in pattern.findall(text)]
    return found
