"""Tries of running commands: kills, signals, two and three at once, damaged state, servers that are killed."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from pathlib import Path
from random import Random

import psutil

from dev.tools.chaos.commands import COMMANDS, SERVERS, differing, numbers
from dev.tools.chaos.journal import Attempt
from dev.tools.chaos.lane import UP, Ended, Lane, Running, states
from dev.tools.mutations import mutated
from dev.tools.waiting import within
from learnkernels.tasks.operate.servers import free_port

QUICK = tuple(command for command in COMMANDS if command not in SERVERS)
START_CPU = 0.1
"""Seconds of computing after which Python has come to the program that it starts."""

STOPPING = 10.0
"""Seconds within which a signal ends a command, on a machine that has a core for each process that computes."""


def kills(lane: Lane, attempt: Attempt, random: Random) -> None:
    """Kill a command at a random moment; the same command again must succeed with the numbers of an undisturbed run."""
    command, state, forked, shared = _drawn(random, 1 / 12)
    if command in SERVERS:
        _killed_servers(lane, attempt, random, command)
        return
    lane.know(command)
    lane.reset(state)
    moment = random.uniform(0, _duration(lane, command, state, forked, shared))
    attempt.case = f"{command}, {state} folder, {_how(forked, shared)}, killed after {moment:.1f} s"
    running = lane.start(COMMANDS[command], forked=forked, shared=shared)
    _sleep_until(running, moment)
    attempt.tries = int(not running.ended())
    running.kill()
    again = lane.start(COMMANDS[command], forked=forked, shared=shared)
    ended = again.wait(lane.limit(command))
    judge(lane, attempt, command, ended, must_succeed=True)
    if forked and not ended.fault(command):  # as busy as the machine is now
        lane.seconds[command] = (lane.seconds[command] + ended.seconds) / 2
    # Prefect marks a killed run after 150 seconds without heartbeats, for which
    # tests/system/test_killed.py waits.
    _require_closed(lane, attempt, 5.0, of_prefect=False)
    _afterwards(lane, attempt, running, again)
    _end(
        attempt,
        "as if never killed" if attempt.tries else "ended before, and is no try",
    )


def _killed_servers(lane: Lane, attempt: Attempt, random: Random, command: str) -> None:
    lane.reset(random.choice(["prepared", "prepared", "fresh"]))
    arguments = _with_ports(command)
    moment = random.uniform(0, 30)
    attempt.case = f"{command}, killed after {moment:.1f} s"
    running = lane.start(arguments, forked=False, shared=False)
    _sleep_until(running, moment)
    running.kill()
    again = lane.start(arguments, forked=False, shared=False)
    came_up = within(lambda: again.ended() or UP in again.printed(), 180, 0.2)
    if not came_up or again.ended():
        attempt.failed("does not come up again", again.wait(0).said)
    again.signal_group(signal.SIGINT)
    ended = again.wait(60)
    if ended.code is None or "Traceback" in ended.err:
        attempt.failed("hangs" if ended.code is None else "traceback", ended.said)
    _afterwards(lane, attempt, running, again)
    _end(attempt, "as if never killed")


def signals(lane: Lane, attempt: Attempt, random: Random) -> None:
    """Send SIGINT or SIGTERM to the process group: the exit code says which, one sentence, and nothing goes on."""
    command, state, forked, shared = _drawn(random, 1 / 6)
    forked = forked and command not in SERVERS
    number = random.choice([signal.SIGINT, signal.SIGTERM])
    lane.know(command)
    lane.reset(state)
    arguments = _with_ports(command) if command in SERVERS else COMMANDS[command]
    most = (
        25.0 if command in SERVERS else _duration(lane, command, state, forked, shared)
    )
    moment = random.uniform(0, most)
    attempt.case = f"{command}, {state} folder, {_how(forked, shared)}, {number.name} after {moment:.1f} s"
    lane.forget_running()
    running = lane.start(arguments, forked=forked, shared=shared or command in SERVERS)
    if not forked:
        within(lambda: running.ended() or _computed(running.pid) >= START_CPU, 30, 0.01)
    _sleep_until(running, moment)
    if running.ended():
        ended = running.wait(0)
        if fault := ended.fault(command):
            attempt.failed(fault, ended.said)
        _afterwards(lane, attempt, running)
        attempt.tries = 0
        _end(attempt, "ended before, and is no try")
        return
    running.signal_group(number)
    sent = time.monotonic()
    ended = running.wait(HANGS)
    took = time.monotonic() - sent
    attempt.figures["seconds from signal to end"] = round(took, 2)
    _judge_stopped(attempt, ended, number)
    crowd = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    if ended.code is not None and took > STOPPING * crowd:
        attempt.failed(
            "takes more than 10 s to end",
            f"{took:.1f} s, load {os.getloadavg()[0]:.1f}",
        )
    _require_closed(lane, attempt, 10.0)
    _afterwards(lane, attempt, running)
    _end(
        attempt,
        f"{number.name}: {ended.code}"
        if ended.code
        else f"{number.name} came when the work was done",
    )


HANGS = 60.0


def _judge_stopped(attempt: Attempt, ended: Ended, number: signal.Signals) -> None:
    """Note what is wrong with the end of a command that was told to stop."""
    if ended.code is None:
        attempt.failed("hangs", ended.said)
    elif "Traceback" in ended.err + ended.out:
        attempt.failed("traceback", ended.said)
    elif ended.code == 0:
        pass  # it had done its work
    elif ended.code != 128 + number:
        attempt.failed(f"exit code {ended.code} after {number.name}", ended.said)
    elif not ended.last or len(ended.last) > 400:
        attempt.failed("no sentence", ended.said)
    elif fault := [
        text
        for text in ("Exception ignored", "| ERROR ", "| CRITICAL ")
        if text in ended.err
    ]:
        attempt.failed("noise", f"{fault[0]}: {ended.said}")


def pairs(lane: Lane, attempt: Attempt, random: Random) -> None:
    """Run two or three commands at once in one folder: each succeeds with its numbers or says one sentence."""
    n = 3 if random.random() < 1 / 6 else 2
    first = random.choice(QUICK)
    same = random.random() < 0.4
    chosen = [first] + [first if same else random.choice(QUICK) for _ in range(n - 1)]
    possible = set.intersection(*(set(states(command)) for command in chosen))
    state = random.choice(
        sorted(possible - {"fresh"}) * 3 + sorted(possible & {"fresh"})
    )
    forked = random.random() < 0.8
    offsets = sorted(random.choice([0.0, random.uniform(0, 2)]) for _ in chosen)
    attempt.case = f"{' and '.join(chosen)}, {state} folder, {_how(forked, True)}"
    lane.know(*chosen)
    lane.reset(state)
    started, begun = time.monotonic(), []
    for command, offset in zip(chosen, offsets, strict=True):
        time.sleep(max(0.0, started + offset - time.monotonic()))
        begun.append(lane.start(COMMANDS[command], forked=forked))
    fine = [
        judge(
            lane,
            attempt,
            command,
            running.wait(n * lane.limit(command)),
            outputs=chosen.count(command) == 1,
        )
        for command, running in zip(chosen, begun, strict=True)
    ]
    _afterwards(lane, attempt, *begun)
    _end(
        attempt,
        "all succeed"
        if all(fine)
        else "one says a sentence"
        if any(fine)
        else "each says a sentence",
    )


def damage(lane: Lane, attempt: Attempt, random: Random) -> None:
    """Damage files of the state and run a command: it gives its numbers, or says one sentence."""
    command = random.choice([command for command in QUICK if command != "deploy"])
    lane.know(command)
    lane.reset("prepared")
    files = state_files(lane.work)
    attempt.tries = random.choice((1, 2, 4, 6))
    damaged = {}
    for _ in range(attempt.tries):
        path = random.choice(files[random.choice(sorted(files))])
        if path not in damaged:
            damaged[path] = _damage(lane.work / path, random)
    attempt.tries = len(damaged)
    attempt.case = f"{command} after {', '.join(f'{path} was {how[0]}' for path, how in damaged.items())}"
    ended = lane.start(COMMANDS[command]).wait(lane.limit(command))
    fine = judge(lane, attempt, command, ended)
    if attempt.failures and len(damaged) > 1:
        _single_out(lane, attempt, command, damaged)
    _end(attempt, "the numbers" if fine else "one sentence")


def _single_out(
    lane: Lane,
    attempt: Attempt,
    command: str,
    damaged: dict[str, tuple[str, bytes | None]],
) -> None:
    """Say which of the damaged files it was, if one alone will do."""
    for path, (how, content) in damaged.items():
        lane.reset("prepared")
        if content is None:
            (lane.work / path).unlink()
        else:
            (lane.work / path).write_bytes(content)
        alone = Attempt(
            attempt.kind,
            attempt.number,
            attempt.seed,
            case=f"{command} after {path} was {how}",
        )
        judge(
            lane,
            alone,
            command,
            lane.start(COMMANDS[command]).wait(lane.limit(command)),
        )
        if alone.failures:
            attempt.failures[:] = alone.failures
            return


def state_files(work: Path) -> dict[str, list[str]]:
    """Return the files of the state, by the folder that holds them, and the database and files of MLflow."""
    found: dict[str, list[str]] = {"mlflow.db": ["mlflow.db"]}
    for top in (".learnkernels", "mlartifacts"):
        for path in sorted((work / top).rglob("*")):
            if path.is_file() and not path.is_symlink():
                inside = path.relative_to(work).parts
                depth = 3 if top == ".learnkernels" else 1
                found.setdefault(
                    "/".join(inside[: min(depth, len(inside) - 1)]), []
                ).append("/".join(inside))
    return found


def _damage(path: Path, random: Random) -> tuple[str, bytes | None]:
    """Damage a file, and return how, with its content from then on."""
    how = random.choice(
        (
            "changed",
            "changed",
            "changed",
            "cut off",
            "emptied",
            "filled with zeros",
            "removed",
        )
    )
    before = path.read_bytes()
    if how == "removed":
        path.unlink()
        return how, None
    content = {
        "changed": lambda: mutated(before, random),
        "cut off": lambda: before[: random.randrange(max(1, len(before)))],
        "emptied": lambda: b"",
        "filled with zeros": lambda: bytes(len(before)),
    }[how]()
    path.write_bytes(content)
    return how, content


def servers(lane: Lane, attempt: Attempt, random: Random) -> None:
    """Kill a child of `up`: it ends and says so; started again, a command gives its numbers, and Ctrl-C ends all."""
    lane.know("compare")
    lane.reset("prepared")
    arguments = _with_ports("up")
    up = lane.start(arguments, forked=False, shared=False)
    if not within(lambda: up.ended() or UP in up.printed(), 180, 0.2) or up.ended():
        attempt.failed("does not come up", up.wait(0).said, "up")
        _afterwards(lane, attempt, up)
        return
    children = {
        name: child
        for child in psutil.Process(up.pid).children()
        if (name := _service(child))
    }
    name = random.choice(sorted(children))
    attempt.case = f"{name} of up killed"
    children[name].kill()
    ended = up.wait(60)
    if ended.code != 2 or "has stopped by itself" not in ended.err:
        attempt.failed("hangs" if ended.code is None else "does not say so", ended.said)
    again = lane.start(arguments, forked=False, shared=False)  # as systemd does
    if (
        not within(lambda: again.ended() or UP in again.printed(), 180, 0.2)
        or again.ended()
    ):
        attempt.failed("does not come up again", again.wait(0).said)
    else:
        ended = lane.start(COMMANDS["compare"], forked=False, shared=False).wait(
            lane.limit("compare") * 2
        )
        judge(lane, attempt, "compare", ended, must_succeed=True)
    again.signal_group(signal.SIGINT)
    ended = again.wait(60)
    if ended.code is None:
        attempt.failed("hangs", ended.said)
    _afterwards(lane, attempt, up, again)
    _end(attempt, "ends, and comes back")


def _service(child: psutil.Process) -> str:
    """Return the name of a child of `up`."""
    with suppress(psutil.Error):
        words = {Path(word).name for word in child.cmdline()}
        for name, word in {
            "the worker": "worker",
            "MLflow": "mlflow",
            "Prefect": "prefect",
        }.items():
            if word in words:
                return name
    return ""


# What all have in common


def judge(
    lane: Lane,
    attempt: Attempt,
    command: str,
    ended: Ended,
    *,
    must_succeed: bool = False,
    outputs: bool = True,
) -> bool:
    """Note what is wrong with the end of a command, and return whether it has given its numbers."""
    if fault := ended.fault(command):
        attempt.failed(fault, ended.said)
        return False
    if ended.code != 0:
        if must_succeed:
            attempt.failed("the same command again fails", ended.said)
        return False
    try:
        found = (
            numbers(command, lane.work, ended.out)
            if outputs or command != "gram"
            else {}
        )
    except (OSError, ValueError, IndexError, KeyError) as error:
        attempt.failed("its results cannot be read", f"{error!r} {ended.said}")
        return False
    expected = lane.expected[command] if found or outputs else {}
    if wrong := differing(found, expected):
        attempt.failed("other numbers", f"{', '.join(wrong)}: {ended.said}")
        return False
    return True


def _drawn(random: Random, of_servers: float) -> tuple[str, str, bool, bool]:
    """Return a command, a state, whether it is forked, and whether it takes the lane's Prefect server."""
    command = (
        random.choice(SERVERS) if random.random() < of_servers else random.choice(QUICK)
    )
    state = random.choice(states(command))
    forked = random.random() < 0.6
    shared = forked or random.random() < 0.5 or command == "deploy"
    return command, state, forked, shared


def _duration(
    lane: Lane, command: str, state: str, forked: bool, shared: bool
) -> float:
    """Return about how long a command takes, for moments to lie anywhere in it."""
    crowd = max(1.0, os.getloadavg()[0] / (os.cpu_count() or 1))
    seconds = lane.seconds[command] * (0.5 if state == "prepared" else 1.1)
    seconds += (
        (0 if forked else 4 * crowd)
        + (0 if shared else 6 * crowd)
        + (8 * crowd if state == "fresh" else 0)
    )
    return seconds


def _how(forked: bool, shared: bool) -> str:
    return f"{'forked' if forked else 'from Python'}{'' if shared else ', own server'}"


def _with_ports(command: str) -> tuple[str, ...]:
    return (
        command,
        "--prefect-port",
        str(free_port()),
        "--mlflow-port",
        str(free_port()),
    )


def _computed(pid: int) -> float:
    with suppress(psutil.Error):
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)
    return START_CPU


def _sleep_until(running: Running, moment: float) -> None:
    begun = time.monotonic()
    while time.monotonic() - begun < moment and not running.ended():
        time.sleep(min(0.02, moment))


def _require_closed(
    lane: Lane, attempt: Attempt, seconds: float, *, of_prefect: bool = True
) -> None:
    """Note the runs that MLflow, and Prefect, believe to be in progress after some seconds."""
    looks = {"MLflow": lane.running_in_mlflow}
    if of_prefect:
        looks["Prefect"] = lane.running_in_prefect
    within(lambda: not any(look() for look in looks.values()), seconds, 0.2)
    for name, look in looks.items():
        if found := look():
            attempt.failed(f"{name} says that an ended run goes on", "; ".join(found))
    lane.forget_running()


def _afterwards(lane: Lane, attempt: Attempt, *tried: Running) -> None:
    """Note what goes on after a try, and what was written outside."""
    for running in tried:
        if left := lane.left(running.marker):
            attempt.failed("a process goes on", "; ".join(left))
    if outside := lane.outside():
        attempt.failed("something written outside the folder", ", ".join(outside))
    for running in tried:
        if not attempt.failures:
            running.out.unlink(missing_ok=True)
            running.err.unlink(missing_ok=True)


def _end(attempt: Attempt, how: str) -> None:
    if not attempt.failures and not attempt.skipped:
        attempt.ended(how)
