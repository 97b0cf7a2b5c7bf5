"""The error of a user's input, and what its sentences share."""

from __future__ import annotations

import errno
import re
import reprlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import unquote

from learnkernels.kernels.registry import did_you_mean as did_you_mean

LONGEST = 400
"""Characters of a sentence."""

MOST_SHOWN = 60
"""Characters of a value of the user's within a sentence."""


class InputError(ValueError):
    """Something that the user gave is wrong; the message is one sentence that says what, where and what to do.

    It is one line of at most `LONGEST` characters; of a longer one the beginning and the end stay. As it goes to
    terminals, logs, Prefect and MLflow, what looks like a password in it is left out.
    """

    def __init__(self, sentence: object) -> None:
        super().__init__(cut(one_line(without_passwords(str(sentence))), LONGEST))


@contextmanager
def input_errors(where: object) -> Iterator[None]:
    """Turn a ValueError into an `InputError` that begins with `where`; an `InputError` stays as it is."""
    try:
        yield
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"{where}: {error}") from None


WAYS_OUT = {
    errno.ENOSPC: "free up space on that disk",
    errno.EDQUOT: "free up disk space, or have the quota raised",
    errno.EFBIG: "raise the limit of a file's length (ulimit -f)",
    errno.EROFS: "give a place that can be written to",
    errno.EACCES: "change its permissions, or give another place",
    errno.EPERM: "change its permissions, or give another place",
    errno.EMFILE: "raise the limit of open files (ulimit -n)",
    errno.ENFILE: "raise the system's limit of open files",
    errno.ENAMETOOLONG: "shorten the name",
    errno.EISDIR: "give the name of a file",
    errno.ENOTDIR: "give a path whose folders are folders",
    errno.EEXIST: "give another name",
    errno.EIO: "check that disk",
}
"""What to do about an error of the operating system that does not go away by itself."""


def one_line(text: str) -> str:
    """Return a text as one line: runs of blanks and line ends as one blank, what cannot be printed as its escape."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in " ".join(text.split()))


def cut(text: str, most: int) -> str:
    """Return a text without its middle where it has more than so many characters."""
    if len(text) <= most:
        return text
    end = (most - 5) // 2
    return f"{text[: most - 5 - end]} ... {text[-end:]}"


def short(value: object, show: Callable[[str], str] = repr) -> str:
    """Return a value of any length for a sentence; a text is quoted unless `show` says otherwise."""
    if isinstance(value, str):
        return show(cut(one_line(value), MOST_SHOWN))
    if isinstance(value, int) and value.bit_length() > 8 * MOST_SHOWN:
        return f"a whole number of {value.bit_length()} bits"  # Python refuses to write longer ones in decimals
    beginning = reprlib.Repr()  # without going through all of the value
    beginning.maxstring = beginning.maxother = beginning.maxlong = MOST_SHOWN
    return cut(one_line(beginning.repr(value)), MOST_SHOWN)


def option(name: str, by_command: bool, value: object = None) -> str:
    """Return an option as a user of a command writes it, or of the Python function; with its value if there is one."""
    if by_command:
        return f"--{name}" if value is None else f"--{name} {short(value, str)}"
    return f"{name}=" if value is None else f"{name}={short(value)}"


def listed(names: Sequence[object], most: int = 12, show: Callable[[str], str] = repr) -> str:
    """Return names for a sentence, quoted unless `show` says otherwise, and counted where they are many or long."""
    shown: list[str] = []
    for name in names[:most]:
        shown.append(short(str(name), show))
        if sum(map(len, shown)) > LONGEST // 3:
            break
    more = f" and {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return ", ".join(shown) + more


_WEB = r"(?:https?|wss?|tcp|tls)://"

CREDENTIALS = re.compile(
    rf"(?<![\w+.-])(?:(?P<web>{_WEB})(?:[^\s/@]*@(?:[^\s/]*@)?|[^\s/:@]*:(?!\d{{1,5}}(?:[/?#\s]|$))\S*@)"
    rf"|(?P<other>(?!{_WEB})[\w+.-]+://)(?:[^\s/:@]*:\S*@|[^\s/@]*@))",
    re.IGNORECASE,
)
"""Scheme, user and password of an address. SQLAlchemy takes slashes in a password; on the web a number is a port."""

SETTING = re.compile(r"(?P<name>[\w.%+-]+)(?P<is>\s?=\s?)(?P<value>'[^']*'|\"[^\"]*\"|[^\s&]+)")
"""A setting in the query of an address, or in a list of settings as drivers of databases take it."""

SECRET = re.compile(
    r"passw|pwd|token|secret|credential|signature|api_?key|access_?key|sslkey|odbc_connect", re.IGNORECASE
)
"""Parts of names of settings that are not shown."""


def without_passwords(text: str) -> str:
    """Return a text, to be shown, whose addresses name no user and no password, and no setting that is a secret."""

    def hidden(setting: re.Match[str]) -> str:
        return f"{setting['name']}{setting['is']}***" if SECRET.search(unquote(setting["name"])) else setting[0]

    return SETTING.sub(hidden, CREDENTIALS.sub(lambda found: found["web"] or found["other"], text))
