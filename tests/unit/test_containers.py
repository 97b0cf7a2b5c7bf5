"""The container files: what is published, which secrets are asked for, what an image is made of and has in it."""

import re
from typing import Any

import dask
import yaml

from dev.tools.distributions import FILES, FOLDERS
from learnkernels.conf.schema import DaskConfig
from learnkernels.tasks.environment import QUIET
from learnkernels.tasks.workers.cluster import SETTINGS as LOCAL
from tests.user import ROOT

TEXT = (ROOT / "packaging" / "compose.yaml").read_text(encoding="utf-8")
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load(TEXT)["services"]
CONTAINERFILE = (ROOT / "packaging" / "Containerfile").read_text(encoding="utf-8")
PAGE = (ROOT / "docs" / "stack.md").read_text(encoding="utf-8")
SETTINGS = {
    name: value
    for line in re.findall(r"^ENV (.*?[^\\])$", CONTAINERFILE, re.MULTILINE | re.DOTALL)
    for name, value in (one.split("=") for one in line.replace("\\\n", " ").split())
    if name != "LEARNKERNELS_HOME"
}
"""What an image has in its environment."""


def test_containers_publish_on_this_machine_alone_and_have_no_password_by_default():
    assert yaml.safe_load(TEXT)["networks"]["inner"] == {"internal": True}
    published = {
        name for name, container in SERVICES.items() if "outer" in container["networks"]
    }
    assert published == {"prefect", "mlflow"}
    for name, container in SERVICES.items():
        assert all(port.startswith("127.0.0.1:") for port in container.get("ports", []))
        assert ("ports" in container) == (name in published)
        for key, value in container.get("environment", {}).items():
            if re.search("PASSWORD|SECRET|AUTH_STR", key):
                assert re.search(r"\$\{[A-Z_]+:\?", value), key
        # Which ps shows
        assert not [word for word in container.get("command", []) if "PASSWORD" in word]
    (loop,) = re.findall(r"for name in ([A-Z ]+); do", PAGE)
    assert set(re.findall(r"\$\{([A-Z_]+)", TEXT)) == {
        f"{name}_PASSWORD" for name in loop.split()
    } | {"MLFLOW_SECRET"}


def test_images_are_of_one_version():
    named = [
        container["image"]
        for container in SERVICES.values()
        if "build" not in container
    ]
    named += re.findall(r"^FROM (\S+)", CONTAINERFILE, re.MULTILINE)
    assert len(named) == 4
    for image in named:
        assert re.fullmatch(
            r"[\w./-]+:(\d+\.\d+(\.\d+-slim-\w+)?|RELEASE\.[\dTZ-]+)", image
        ), image


def test_an_image_is_made_of_what_the_package_is_made_of_and_has_no_layer_of_it():
    ignored = (
        (ROOT / "packaging" / "Containerfile.dockerignore")
        .read_text(encoding="utf-8")
        .split("\n")
    )
    rules = [line for line in ignored if line and not line.startswith("#")]
    assert rules[0] == "*"
    assert {rule.removeprefix("!") for rule in rules if rule.startswith("!")} == {
        *FOLDERS,
        *FILES,
        "packaging/constraints.txt",
    }
    made, image = re.split(r"(?m)^FROM ", CONTAINERFILE)[1:]
    assert "COPY . " in made
    assert not re.search(r"^(COPY|ADD) ", image, re.MULTILINE)
    assert "--mount=type=bind,from=wheel" in image
    # Which the commands of pods would be arguments of
    assert not re.search("^ENTRYPOINT", CONTAINERFILE, re.MULTILINE)


def test_images_are_as_silent_as_the_command_and_have_the_settings_of_local_clusters():
    said = {name for name, value in SETTINGS.items() if QUIET.get(name) == value}
    assert {
        "DO_NOT_TRACK",
        "MLFLOW_DISABLE_TELEMETRY",
        "PREFECT_SERVER_ANALYTICS_ENABLED",
    } <= said
    assert "MLFLOW_SERVER_ENABLE_JOB_EXECUTION" in said
    read = dask.config.collect_env(SETTINGS)
    failures = LOCAL["distributed.scheduler.allowed-failures"]
    assert read == {
        "distributed": {
            "worker": {"memory": {"pause": False}},
            "scheduler": {"allowed_failures": failures},
        }
    }
    name = "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES"
    assert f"`{name}={failures}`" in PAGE


def test_a_table_lies_where_its_container_looks_and_goes_to_the_cluster():
    command = r'"\$PWD/table\.csv:(\S+)/table\.csv:ro" flows compare table\.csv (.*)'
    ((folder, changes),) = re.findall(command, PAGE.replace("\\\n", ""))
    assert re.search(r"^WORKDIR (\S+)$", CONTAINERFILE, re.MULTILINE)[1] == folder
    given = dict(
        change.removeprefix("dask.").split("=")
        for change in re.findall(r"--set (\S+)", changes)
    )
    assert (
        DaskConfig.model_validate(given).scheduler == SERVICES["worker"]["command"][1]
    )
    assert given["rows"].startswith("s3://rows/")
    assert SERVICES["flows"]["entrypoint"] == ["learnkernels"]


def test_flows_wait_until_servers_are_healthy():
    for name in ("flows", "prefect", "mlflow"):
        for other, on in SERVICES[name].get("depends_on", {}).items():
            healthy = "healthcheck" in SERVICES[other]
            assert on["condition"] == (
                "service_healthy" if healthy else "service_started"
            ), (name, other)
    assert "127.0.0.1" in SERVICES["database"]["healthcheck"]["test"]
