"""What a release needs says one thing everywhere: versions, requirements, and the commands of its workflow."""

import re

import yaml

from dev.tools.distributions import ROOT, disagreements, version
from learnkernels.kernels import NUMERICS_VERSION
from tests.unit.test_architecture import PROJECT

RECIPE = (ROOT / "packaging" / "conda" / "meta.yaml").read_text(encoding="utf-8")
CITATION = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
EXTRAS = PROJECT["project"]["optional-dependencies"]


IN_DEVELOPMENT = version().endswith(".dev0")


def test_a_tag_is_that_of_the_version_everywhere():
    lacking = ["docs/changes.md"] if IN_DEVELOPMENT else []
    assert [
        sentence.split()[0] for sentence in disagreements(f"v{version()}")
    ] == lacking
    assert len(disagreements("v99.0.0")) == 3
    assert f'set version = "{version()}"' in RECIPE


def test_the_newest_section_of_the_changelog_is_the_text_of_its_release():
    log = (ROOT / "docs" / "changes.md").read_text(encoding="utf-8")
    dates = {
        found[1]: found[2]
        for found in re.finditer(r"^## \[(\d\S*)\] - (\d{4}-\d\d-\d\d)$", log, re.M)
    }
    newest, before, *_ = dates
    assert sorted(dates.values(), reverse=True) == [*dates.values()]
    if not IN_DEVELOPMENT:
        assert newest == version()
        assert CITATION["date-released"].isoformat() == dates[newest]
    text = log.split(f"## [{newest}]")[1].split(f"## [{before}]")[0]
    titles = re.findall(r"^### (.+)$", text, re.M)
    assert titles[0] == f"Coming from {before}"
    assert {"Added", "Changed", "Fixed", "Numerics"} <= set(titles)
    assert (
        f"`NUMERICS_VERSION` is {NUMERICS_VERSION}"
        in log.split("## [Unreleased]")[1].split(f"## [{before}]")[0]
    )


def test_the_citation_has_what_its_format_asks_for():
    assert {"cff-version", "message", "title", "authors"} <= set(CITATION)
    assert CITATION["license"] == PROJECT["project"]["license"]
    for reference in CITATION["references"]:
        assert {"type", "title", "authors", "year"} <= set(reference)


def test_the_recipe_requires_what_the_project_requires():
    listed = set(re.findall(r"^        - ([\w.-]+) ([<>=,.\d]+)$", RECIPE, re.M))
    built_by = {(name, bound) for name, bound in listed if name == "setuptools"}
    assert {f"{name}{bound}" for name, bound in built_by} == set(
        PROJECT["build-system"]["requires"]
    )
    needed = [*PROJECT["project"]["dependencies"], *EXTRAS["pipeline"]]
    wanted = {
        (found[1], found[2])
        for one in needed
        if (found := re.match(r"([\w.-]+)(?:\[\w+\])?(.*)", one))
    }
    assert listed - built_by == wanted | {
        ("python", PROJECT["project"]["requires-python"])
    }


def test_the_workflow_runs_targets_that_are_there_and_releases_what_was_tried():
    jobs = yaml.safe_load(
        (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    )["jobs"]
    steps = [
        step["run"] for job in jobs.values() for step in job["steps"] if "run" in step
    ]
    targets = {line.split()[1] for line in steps if line.startswith("make ")}
    assert targets == {"test", "test-system", "dist", "docs"}
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    assert targets <= set(re.findall(r"^([a-z-]+):.*\n\t", makefile, re.M))
    assert (jobs["try"]["needs"], set(jobs["release"]["needs"])) == (
        "build",
        {"check", "try"},
    )
    assert jobs["release"]["if"] == "github.ref_type == 'tag'"


def test_pushes_are_linted_and_tested_on_every_supported_python_and_with_the_lowest_versions():
    workflow = yaml.safe_load(
        (ROOT / ".github" / "workflows" / "test.yml").read_text(encoding="utf-8")
    )
    # YAML reads the key `on` as a truth value
    assert {"push", "pull_request"} <= set(workflow[True])
    jobs = workflow["jobs"]
    commands = {
        name: "\n".join(step.get("run", "") for step in job["steps"])
        for name, job in jobs.items()
    }
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"make ([a-z-]+)", "\n".join(commands.values()))
    assert targets == ["lint", "test-unit"]
    assert set(targets) <= set(re.findall(r"^([a-z-]+):.*\n\t", makefile, re.M))
    pythons = jobs["unit"]["strategy"]["matrix"]["python"]
    assert f">={pythons[0]}" == PROJECT["project"]["requires-python"]
    assert pythons == ["3.11", "3.12", "3.13"]
    assert "--resolution lowest-direct" in commands["lowest"]


def test_hooks_need_no_environment_of_this_folder_and_have_the_version_of_the_constraints():
    text = (ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8")
    assert ".venv" not in text
    ruff, local = yaml.safe_load(text)["repos"]
    pins = (
        (ROOT / "packaging" / "constraints.txt")
        .read_text(encoding="utf-8")
        .splitlines()
    )
    assert f"ruff=={ruff['rev'].removeprefix('v')}" in pins
    assert [hook["entry"].split()[0] for hook in local["hooks"]] == ["mypy"]
