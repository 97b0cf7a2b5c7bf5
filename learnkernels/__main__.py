"""The command `learnkernels`: that of `flows.cli`, where the libraries are installed that it runs on."""

import sys
from importlib.util import find_spec

from learnkernels.tasks.environment import collect_seldom, prepare_python
from learnkernels.tasks.stopping import orderly_end

PIPELINE = (
    *(
        "boto3",
        "botocore",
        "charset_normalizer",
        "dask",
        "distributed",
        "httpx",
        "jinja2",
        "matplotlib",
        "mlflow",
        "pandas",
    ),
    *("prefect", "psutil", "pyarrow", "pydantic", "rich", "sqlalchemy", "typer", "yaml"),
)
"""What `conf`, `tasks` and `flows` import and `learnkernels[pipeline]` installs."""

collect_seldom()  # here, as workers that a command starts import this file, too


def main() -> None:
    """Run the command, or say in one sentence what it lacks."""
    prepare_python()
    with orderly_end():
        lacking = [name for name in PIPELINE if find_spec(name) is None]
        if lacking:
            sys.exit(
                f"error: the command learnkernels runs on libraries that are not installed ({', '.join(lacking)}); "
                "install them with: pip install 'learnkernels[pipeline]'"
            )
        from learnkernels.flows.cli import app

        app()


if __name__ == "__main__":
    main()
