"""The documentation site builds without a warning, shows every public name, and needs no network to be read."""

from __future__ import annotations

import ast
import inspect
import re
import shutil
import subprocess
import sys
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag

import pytest

import learnkernels
from docs.site_parts import PARTS, mathml
from learnkernels.conf.schema import CompareConfig
from learnkernels.kernels import families, learners, predictors

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("docs", "examples", "README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "CITATION.cff")
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


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site in its small form: two scripts are executed, and all are by tests/system/test_examples.py."""
    folder = tmp_path_factory.mktemp("site")
    for name in NEEDED:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns(*MADE))
        else:
            shutil.copy(ROOT / name, folder / name)
    shutil.copy(ROOT / "pyproject.toml", folder)
    small = rf"sphinx_gallery_conf.filename_pattern=({'|'.join(EXECUTED)})\.py$"
    options = ["-W", "--keep-going", "-q", "-b", "html", "-D", small]
    command = [sys.executable, "-m", "sphinx", *options, "docs", "html"]
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert (run.returncode, run.stderr) == (0, "")
    return folder / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[str, Page]:
    files = [file for file in sorted(site.rglob("*.html")) if "_static" not in file.parts]  # templates of the theme
    return {file.relative_to(site).as_posix(): Page(file) for file in files}


@pytest.mark.slow(40)
def test_every_page_is_in_the_tree(site: Path, pages: dict[str, Page]):
    for source in [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "reference").glob("*.md")]:
        assert source.relative_to(ROOT / "docs").with_suffix(".html").as_posix() in pages
    for folder, scripts in (("gallery", "examples"), ("guide", "docs/chapters")):
        for script in (ROOT / scripts).glob("*.py"):
            title = str(ast.get_docstring(ast.parse(script.read_text(encoding="utf-8")))).split("\n")[0]
            assert title in pages[f"{folder}/{script.stem}.html"].text
            assert f"{script.stem}.html" in pages[f"{folder}/index.html"].links


def test_what_is_executed_shows_its_figures_and_what_it_printed(site: Path, pages: dict[str, Page]):
    for name, folder in EXECUTED.items():
        page = pages[f"{folder}/{name}.html"]
        figures = [link for link in page.links if f"sphx_glr_{name}_" in link and link.endswith(".png")]
        assert figures
        assert "sphx-glr-script-out" in page.html
    assert re.search(r"alignf +alignment 0\.6", pages["guide/2_combination.html"].text)


def test_nothing_is_fetched_from_the_network(site: Path):
    for file in [*site.rglob("*.html"), *site.rglob("*.css")]:
        text = re.sub(r"/\*.*?\*/", "", file.read_text(encoding="utf-8"), flags=re.S)
        fetched = (
            r"<(?:script|img|iframe|source)\b[^>]*\bsrc=.(?:https?:)?//[^>]*|<link\b[^>]*\bhref=.(?:https?:)?//[^>]*"
        )
        assert re.findall(rf"{fetched}|@import[^;]*//|url\(.?(?:https?:)?//[^)]*", text) == [], file.name


def test_every_link_leads_somewhere(site: Path, pages: dict[str, Page]):
    followed = 0
    for name, page in pages.items():
        here = (site / name).resolve()
        for link in page.links:
            path, fragment = urldefrag(re.sub(r"\?[^#]*", "", unquote(link)))
            if re.match(r"\w+:", link) or link.startswith("#"):
                continue
            target = (here.parent / path).resolve() if path else here
            assert target.exists(), f"{name}: {link}"
            known = pages.get(target.relative_to(site.resolve()).as_posix())
            if fragment and known is not None and not path.endswith("genindex.html"):
                assert fragment in known.ids, f"{name}: {link}"
            followed += 1
    assert followed > 1000


def test_links_of_the_pages_lead_somewhere_where_nothing_is_built():
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]:
        for link in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            path, fragment = urldefrag(link)
            if re.match(r"https?:", link) or path.startswith(MADE) or path.endswith(".rst"):
                continue
            target = page.parent / path if path else page
            assert target.exists(), f"{page.name}: {link}"
            if fragment:
                text = target.read_text(encoding="utf-8")
                titles = [
                    re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-")
                    for one in re.findall(r"^#+ (.+)$", text, re.M)
                ]
                assert fragment in {*titles, *re.findall(r'<a id="([^"]+)"', text)}, f"{page.name}: {link}"


def test_every_public_name_family_learner_and_predictor_has_an_entry(pages: dict[str, Page]):
    ids = {name for page in pages.values() for name in page.ids}
    assert {f"learnkernels.{name}" for name in learnkernels.__all__} <= ids
    assert [name for name in learnkernels.__all__ if name not in pages["reference/index.html"].text] == []
    for room in (families, learners, predictors):
        public = {name for name in room.__all__ if not name.isupper()}  # tables are told in words
        assert {name for name in public if not ids & {f"{room.__name__}.{name}", f"learnkernels.{name}"}} == set()
    for name in ("Model", "load_model", "save_model"):
        assert f"learnkernels.kernels.persistence.model.{name}" in ids
    assert "learnkernels.KernelLearningClassifier.fit" in ids
    # What scikit-learn adds to every estimator is left out.
    assert [name for name in ids if re.search(r"set_\w+_request", name)] == []


def test_every_key_of_a_configuration_has_its_row(pages: dict[str, Page]):
    text = pages["reference/keys.html"].text
    schema = CompareConfig.model_json_schema()
    assert set(PARTS) <= {"CompareConfig", *schema["$defs"]}
    for part in [schema, *schema["$defs"].values()]:
        for key in part["properties"]:
            assert key in text
    assert "Half width of the confidence interval" in text


def public_docstrings() -> list[tuple[str, str | None]]:
    """Every exported function and class, and every public method and property that its class defines.

    A property without a docstring has its lines under Attributes in that of its class.
    """
    found = []
    for name in learnkernels.__all__:
        thing = getattr(learnkernels, name)
        if not callable(thing):
            continue
        found.append((name, inspect.getdoc(thing)))
        if inspect.isclass(thing):
            for member, value in vars(thing).items():
                defined = isinstance(value, property | classmethod | staticmethod) or inspect.isfunction(value)
                if defined and not member.startswith("_"):
                    own = inspect.getdoc(getattr(thing, member))
                    attributes = (inspect.getdoc(thing) or "").partition("Attributes\n----------\n")[2]
                    listed = re.search(rf"^(?:\w+, )*{member}\b.* : .*(?:\n\S.* : .*)*\n    \S.*", attributes, re.M)
                    found.append((f"{name}.{member}", own or (listed and listed[0])))
    return found


def test_no_docstring_of_a_public_name_is_empty():
    found = public_docstrings()
    assert len(found) > len(learnkernels.__all__)
    assert [name for name, text in found if not (text or "").strip()] == []


def test_formulas_are_shown_as_such(pages: dict[str, Page]):
    shown = sum(page.formulas for name, page in pages.items() if name.startswith("reference/"))
    written = [inspect.getdoc(getattr(learnkernels, name)) or "" for name in learnkernels.__all__]
    assert shown >= sum(len(re.findall(r"\.\. math::|:math:`", text)) for text in written) > 10
    for name, page in pages.items():
        if not name.startswith("_modules"):
            assert re.findall(r"math::|:math:|\\(?:frac|sum|mu|lVert|top)\b", page.html) == [], name


def test_the_search_knows_names_and_pages(site: Path):
    script = (site / "searchindex.js").read_text(encoding="utf-8")
    for name in [*learnkernels.__all__, "sharp-bits", "gallery/nightly", "guide/1_alignment"]:
        assert name in script


@pytest.mark.parametrize(
    ("latex", "expected"),
    [
        (r"\Big(\sum_k x\Big)", ">∑</mo>"),
        (r"a \dots b", "…"),
        (r"1 / \texttt{regularisation}", "regularisation"),
        (r"\big\lVert x \big\rVert", "‖"),
    ],
)
def test_a_formula_is_mathml(latex: str, expected: str):
    html = mathml(latex, block=False)
    assert html.startswith("<math")
    assert re.search(expected, html), html
    assert "\\" not in html


def test_make_builds_it_where_git_does_not_look():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(
        r"^docs: .*## .*\n\t@OPENBLAS_NUM_THREADS=1 \$\(BIN\)/python -m sphinx .* -W .* docs build/site$",
        makefile,
        re.M,
    )
    assert {"build/", "docs/gallery/", "docs/guide/"} <= set((ROOT / ".gitignore").read_text(encoding="utf-8").split())
    development = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["dev"]
    assert {re.match(r"[\w-]+", item).group() for item in development} >= {"sphinx", "sphinx-gallery", "myst-parser"}
