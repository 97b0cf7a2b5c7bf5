"""What a release needs says one thing everywhere: versions, requirements, and the commands of its workflow."""

import re

import yaml

from learnkernels.kernels import NUMERICS_VERSION
from tests.unit.test_architecture import PROJECT
from tools.distributions import ROOT, disagreements, version

RECIPE = (ROOT / "recipe" / "meta.yaml").read_text(encoding="utf-8")
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]


IN_DEVELOPMENT = version().endswith(".dev0")


def test_a_tag_is_that_of_the_version_everywhere():
    lacking = ["CHANGELOG.md"] if IN_DEVELOPMENT else []
    assert [sentence.split()[0] for sentence in disagreements(f"v{version()}")] == lacking
    assert len(disagreements("v99.0.0")) == 3
    assert f'set version = "{version()}"' in RECIPE


def test_the_newest_section_of_the_changelog_is_the_text_of_its_release():
    log = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    dates = {found[1]: found[2] for found in re.finditer(r"^## \[(\d\S*)\] - (\d{4}-\d\d-\d\d)$", log, re.M)}
    newest, before, *_ = dates
    assert sorted(dates.values(), reverse=True) == [*dates.values()]
    if not IN_DEVELOPMENT:
        assert newest == version()
        assert CITATION["date-released"].isoformat() == dates[newest]
    text = log.split(f"## [{newest}]")[1].split(f"## [{before}]")[0]
    titles = re.findall(r"^### (.+)$", text, re.M)
    assert titles[0] == f"Coming from {before}"
    assert {"Added", "Changed", "Fixed", "Numerics"} <= set(titles)
    assert f"`NUMERICS_VERSION` is {NUMERICS_VERSION}" in log.split("## [Unreleased]")[1].split(f"## [{before}]")[0]


def test_the_citation_has_what_its_format_asks_for():
    assert {"cff-version", "message", "title", "authors"} <= set(CITATION)
    assert CITATION["license"] == PROJECT["project"]["license"]
    for reference in CITATION["references"]:
        assert {"type", "title", "authors", "year"} <= set(reference)


def test_the_recipe_requires_what_the_project_requires():
    listed = set(re.findall(r"^        - ([\w.-]+) ([<>=,.\d]+)$", RECIPE, re.M))
    built_by = {(name, bound) for name, bound in listed if name == "setuptools"}
    assert {f"{name}{bound}" for name, bound in built_by} == set(PROJECT["build-system"]["requires"])
    needed = [*PROJECT["project"]["dependencies"], *EXTRAS["pipeline"]]
    wanted = {(found[1], found[2]) for one in needed if (found := re.match(r"([\w.-]+)(?:\[\w+\])?(.*)", one))}
    assert listed - built_by == wanted | {("python", PROJECT["project"]["requires-python"])}


def test_the_workflow_runs_targets_that_are_there_and_releases_what_was_tried():
    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8"))["jobs"]
    steps = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    targets = {line.split()[1] for line in steps if line.startswith("make ")}
    assert targets == {"test", "test-system", "dist", "docs"}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets <= set(re.findall(r"^([a-z-]+):.*\n\t", makefile, re.M))
    assert (jobs["try"]["needs"], set(jobs["release"]["needs"])) == ("build", {"check", "try"})
    assert jobs["release"]["if"] == "github.ref_type == 'tag'"


def test_hooks_run_the_tools_of_the_environment():
    hooks = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))["repos"][0]["hooks"]
    tools = {hook["entry"].split()[0].removeprefix(".venv/bin/") for hook in hooks}
    assert tools == {"ruff", "mypy"} <= {re.match(r"[\w-]+", item).group() for item in EXTRAS["dev"]}
