"""Names of Prefect runs; parallel and cached steps."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from prefect import State, Task, runtime
from prefect.cache_policies import NO_CACHE
from prefect.context import TagsContext
from prefect.futures import PrefectFuture, as_completed
from prefect.states import Completed
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner
from prefect.utilities.annotations import quote
from prefect.utilities.engine import get_state_for_result
from pydantic import BaseModel

from learnkernels.conf.schema import MOST_AT_ONCE

from .signals import stoppable

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K")

THREADS: TaskRunner[Any] = ThreadPoolTaskRunner(max_workers=MOST_AT_ONCE)
"""Task runner of flows; `side_by_side` limits the number of running steps."""


def run_name(pattern: str) -> Callable[[], str]:
    """Return a function by which a Prefect flow names its runs."""

    def name() -> str:
        values = {}
        for parameter, value in runtime.flow_run.parameters.items():
            values[parameter] = _name_or_value(value)
        return f"{pattern.format(**values)}-{runtime.flow_run.scheduled_start_time:%Y%m%d-%H%M%S}"

    return name


def _name_or_value(value: object) -> object:
    if isinstance(value, BaseModel):
        return getattr(value, "name", value)
    if isinstance(value, dict):
        return value.get("name", value)
    return value


def by_deployment() -> bool:
    return runtime.deployment.id is not None


def file_name(name: str) -> str:
    """Percent-encode special characters in the name of a file or folder."""
    return re.sub(r"[^\w .-]|^\.+$", _percent_encoded, name)[:100]


def _percent_encoded(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode())


def new_run_id() -> str:
    """Return a new run name that sorts by time."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


class Step(Task[P, R]):
    """Prefect task whose call returns a plain value, even if it skips computation.

    Runs have no tags, whose concurrency slots are slow if SQLite is locked.
    """

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task in this thread; return its value or state."""
        with TagsContext(current_tags=set()):
            outcome: Any = super().__call__(
                *map(_opaque, args), **_options(args, kwargs)
            )
        if isinstance(outcome, State) and not kwargs.get("return_state"):
            return outcome.result()
        return outcome

    def submit(self, *args: Any, **kwargs: Any) -> Any:
        with TagsContext(current_tags=set()):
            return super().submit(*map(_opaque, args), **_options(args, kwargs))


def _opaque(argument: Any) -> Any:
    """Hide an argument from Prefect's detection of dependencies, unless it is a future."""
    return argument if isinstance(argument, PrefectFuture) else quote(argument)


def _options(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments and options; the call waits for steps of its arguments."""
    options = {}
    for name, value in kwargs.items():
        is_option = name in ("wait_for", "return_state")
        options[name] = value if is_option else _opaque(value)
    arguments = [
        *args,
        *(value for name, value in kwargs.items() if name != "return_state"),
    ]
    sources: list[Any] = []
    for argument in arguments:
        values = argument if isinstance(argument, list | tuple) else [argument]
        sources += [value for value in values if isinstance(value, PrefectFuture)]
        sources += _states_of_results(values)
    if sources:
        options["wait_for"] = sources
    return options


def _states_of_results(values: Iterable[Any]) -> list[State]:
    states = []
    for value in values:
        if not (is_dataclass(value) or isinstance(value, Path)):
            continue
        linked = get_state_for_result(value)
        if linked is not None:
            # Prefect drops data of states, but waits only for states with data
            states.append(linked[0].model_copy(update={"data": True}))
    return states


def from_store(value: R) -> R:
    """Mark a value as read from disk, so that Prefect shows *Cached*."""
    if runtime.task_run.id is None:
        return value
    return cast(
        R,
        Completed(
            name="Cached", message="The store had the result of this step.", data=value
        ),
    )


def step(name: str, **options: Any) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Return a decorator that makes a function a Prefect task without Prefect's cache."""

    def decorate(function: Callable[P, R]) -> Task[P, R]:
        return Step(
            stoppable()(function),
            task_run_name=name,
            cache_policy=NO_CACHE,
            **options,
        )

    return decorate


def side_by_side(
    submissions: Iterator[tuple[K, PrefectFuture[R]]], at_once: int
) -> Iterator[tuple[K, R]]:
    """Run at most `at_once` Prefect tasks at a time; yield values as they end.

    `submissions` submits a step, with any key, per item.
    """
    running: dict[PrefectFuture[R], K] = {}
    for key, future in submissions:
        running[future] = key
        if len(running) >= at_once:
            yield _first_to_end(running)
    while running:
        yield _first_to_end(running)


def _first_to_end(running: dict[PrefectFuture[R], K]) -> tuple[K, R]:
    future = next(as_completed(list(running)))
    return running.pop(future), future.result()
