"""Runs and their steps in Prefect: their names, their states, and how many steps run at once."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ParamSpec, TypeVar, cast

from prefect import State, Task, runtime
from prefect.cache_policies import NO_CACHE
from prefect.futures import PrefectFuture, as_completed
from prefect.states import Completed
from prefect.task_runners import TaskRunner, ThreadPoolTaskRunner
from prefect.utilities.annotations import quote
from prefect.utilities.engine import get_state_for_result
from pydantic import BaseModel

from learnkernels.conf.schema import MOST_AT_ONCE

from .stopping import stoppable

P = ParamSpec("P")
R = TypeVar("R")
K = TypeVar("K")

THREADS: TaskRunner[Any] = ThreadPoolTaskRunner(max_workers=MOST_AT_ONCE)
"""The task runner of flows whose steps may run at once; `side_by_side` submits no more than are to run."""


def run_name(pattern: str) -> Callable[[], str]:
    """Return what names the runs of a flow.

    Parameters
    ----------
    pattern : str
        With the flow's parameters in braces, such as ``train-{model}``; of a configuration its `name`. The time that
        the run was scheduled for follows.
    """

    def name() -> str:
        of = {key: _named(value) for key, value in runtime.flow_run.parameters.items()}
        return f"{pattern.format(**of)}-{runtime.flow_run.scheduled_start_time:%Y%m%d-%H%M%S}"

    return name


def _named(value: object) -> object:
    """Return a parameter, or the name of one that has a name: a configuration, or what Prefect keeps of it."""
    if isinstance(value, BaseModel):
        return getattr(value, "name", value)
    return value.get("name", value) if isinstance(value, dict) else value


def by_deployment() -> bool:
    """Return whether a deployment has started this run, so that a message names no options of a command."""
    return runtime.deployment.id is not None


def file_name(name: str) -> str:
    """Return a name as that of one file or folder, which leads nowhere else: what stands out is percent-encoded."""

    def encoded(found: re.Match[str]) -> str:
        return "".join(f"%{byte:02X}" for byte in found[0].encode())

    return re.sub(r"[^\w .-]|^\.+$", encoded, name)[:100]


def new_run_id() -> str:
    """Return a name for a run that sorts by time."""
    return f"{datetime.now(UTC):%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"


class Step(Task[P, R]):
    """A Prefect task that may end as *Cached*, and whose caller is given the value in any case.

    Parameters
    ----------
    fn : callable
        What it runs.
    **options
        Of `prefect.task`.
    """

    def __init__(self, fn: Callable[P, R], **options: Any) -> None:
        super().__init__(fn, **options)
        self._options = options

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the task in this thread and return its value, or its state where `return_state` requests that."""
        outcome: Any = super().__call__(*map(_opaque, args), **_options(args, kwargs))
        if isinstance(outcome, State) and not kwargs.get("return_state"):
            return outcome.result()
        return outcome

    def submit(self, *args: Any, **kwargs: Any) -> Any:
        """Submit the task to the task runner of the flow, and return a future."""
        return super().submit(*map(_opaque, args), **_options(args, kwargs))

    def with_options(self, **options: Any) -> Task[P, R]:
        """Return the same step with other options."""
        return Step(self.fn, **self._options | options)


OF_PREFECT = ("wait_for", "return_state")
"""Options of a call that are no arguments of the task."""


def _opaque(argument: Any) -> Any:
    """Return an argument such that Prefect does not look into it.

    It would take each text that an earlier step also had in its result, such as the name of a data set, for a
    dependency on that step.
    """
    return argument if isinstance(argument, PrefectFuture) else quote(argument)


def _options(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the named arguments and options of a call, which waits for the steps whose results are arguments.

    `wait_for` may hold such results, too.
    """
    options = {name: value if name in OF_PREFECT else _opaque(value) for name, value in kwargs.items()}
    arguments = [*args, *(value for name, value in kwargs.items() if name != "return_state")]
    sources: list[Any] = []
    for argument in arguments:
        values = argument if isinstance(argument, list | tuple) else [argument]
        sources += [value for value in values if isinstance(value, PrefectFuture)]
        linked = [get_state_for_result(value) for value in values if is_dataclass(value) or isinstance(value, Path)]
        # Prefect keeps states without their data, and waits only for states that have some.
        sources += [found[0].model_copy(update={"data": True}) for found in linked if found is not None]
    if sources:
        options["wait_for"] = sources
    return options


def from_store(value: R) -> R:
    """Return a value of a step that the store had, such that Prefect shows the step as *Cached*.

    Outside of a Prefect run, this is the value itself.
    """
    if runtime.task_run.id is None:
        return value
    return cast(R, Completed(name="Cached", message="The store had the result of this step.", data=value))


def step(name: str, **options: Any) -> Callable[[Callable[P, R]], Task[P, R]]:
    """Return a decorator for Prefect tasks without persisted results: expensive ones are in the store.

    Parameters
    ----------
    name : str
        Of its runs, with the arguments in braces.
    **options
        Of `prefect.task`.
    """

    def decorate(function: Callable[P, R]) -> Task[P, R]:
        return Step(stoppable()(function), task_run_name=name, cache_policy=NO_CACHE, tags=["learnkernels"], **options)

    return decorate


def side_by_side(submissions: Iterator[tuple[K, PrefectFuture[R]]], at_once: int) -> Iterator[tuple[K, R]]:
    """Give the values of submitted steps as they end; the next step is submitted when fewer than `at_once` run.

    Parameters
    ----------
    submissions : iterator of (object, PrefectFuture)
        Submits the next step when the next item is requested. The object says which step it is.
    at_once : int
        Most steps that run at the same time. With 1, they end in their order.
    """
    running: dict[PrefectFuture[R], K] = {}
    for key, future in submissions:
        running[future] = key
        if len(running) >= at_once:
            yield _first_to_end(running)
    while running:
        yield _first_to_end(running)


def _first_to_end(running: dict[PrefectFuture[R], K]) -> tuple[K, R]:
    """Wait for a step, take it out of those that run, and return what it is and its value; raises its error."""
    future = next(as_completed(list(running)))
    return running.pop(future), future.result()
