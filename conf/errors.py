"""Errors in the user's input, and parts of their messages."""

from __future__ import annotations

import errno
import re
import reprlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import unquote

from learnkernels.kernels.registry import did_you_mean as did_you_mean

LONGEST = 400

MOST_SHOWN = 60


class InputError(ValueError):
    """Error in the user's input; commands print its message without a traceback.

    The message is one line of at most `LONGEST` characters, without passwords.
    """

    def __init__(self, sentence: object) -> None:
        super().__init__(cut(one_line(without_passwords(str(sentence))), LONGEST))


@contextmanager
def input_errors(where: object) -> Iterator[None]:
    """Turn ValueErrors of the context into an `InputError` that begins with `where`."""
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
"""Advice for lasting errors of the operating system."""


def one_line(text: str) -> str:
    """Return a text as one line, with unprintable characters escaped."""
    return "".join(map(_printable, " ".join(text.split())))


def _printable(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode()


def cut(text: str, length: int) -> str:
    """Shorten a text to `length` characters by leaving out its middle."""
    if len(text) <= length:
        return text
    end = (length - 5) // 2
    return f"{text[: length - 5 - end]} ... {text[-end:]}"


def short(value: object, show: Callable[[str], str] = repr) -> str:
    """Return a value as short text for a message; `show` formats texts."""
    if isinstance(value, str):
        return show(cut(one_line(value), MOST_SHOWN))
    if isinstance(value, int) and value.bit_length() > 8 * MOST_SHOWN:
        return f"a whole number of {value.bit_length()} bits"  # Python limits decimal digits
    beginning = reprlib.Repr()  # without visiting all of the value
    beginning.maxstring = beginning.maxother = beginning.maxlong = MOST_SHOWN
    return cut(one_line(beginning.repr(value)), MOST_SHOWN)


def option(name: str, by_command: bool, value: object = None) -> str:
    """Return an option as typed in a command (``--name``) or in Python (``name=``)."""
    if by_command and value is None:
        return f"--{name}"
    if by_command:
        return f"--{name} {short(value, str)}"
    if value is None:
        return f"{name}="
    return f"{name}={short(value)}"


def require_configured(name: str, names: Sequence[str], where: str) -> None:
    """Raise InputError, with similar names, if `name` is not in `names`."""
    if name not in names:
        valid = ", ".join(names)
        raise InputError(
            f"{where}: {did_you_mean(name, names)}the configuration has {valid}; name one of them."
        )


def listed(
    names: Sequence[object], limit: int = 12, show: Callable[[str], str] = repr
) -> str:
    """Return names as text for a message, separated by commas; count omitted names."""
    quoted: list[str] = []
    for name in names[:limit]:
        quoted.append(short(str(name), show))
        if sum(map(len, quoted)) > LONGEST // 3:
            break
    text = ", ".join(quoted)
    if len(quoted) < len(names):
        text += f" and {len(names) - len(quoted)} more"
    return text


_WEB = r"(?:https?|wss?|tcp|tls)://"

CREDENTIALS = re.compile(
    rf"(?<![\w+.-])(?:(?P<web>{_WEB})(?:[^\s/@]*@(?:[^\s/]*@)?|[^\s/:@]*:(?!\d{{1,5}}(?:[/?#\s]|$))\S*@)"
    rf"|(?P<other>(?!{_WEB})[\w+.-]+://)(?:[^\s/:@]*:\S*@|[^\s/@]*@))",
    re.IGNORECASE,
)
"""Scheme, user and password of an address; passwords may have slashes."""

SETTING = re.compile(
    r"(?P<name>[\w.%+-]+)(?P<is>\s?=\s?)(?P<value>'[^']*'|\"[^\"]*\"|[^\s&]+)"
)

SECRET = re.compile(
    r"passw|pwd|token|secret|credential|signature|api_?key|access_?key|sslkey|odbc_connect",
    re.IGNORECASE,
)
"""Parts of names of secret settings."""


def without_passwords(text: str) -> str:
    return SETTING.sub(_without_secret, CREDENTIALS.sub(_scheme, text))


def _scheme(credentials: re.Match[str]) -> str:
    return credentials["web"] or credentials["other"]


def _without_secret(setting: re.Match[str]) -> str:
    if SECRET.search(unquote(setting["name"])):
        return f"{setting['name']}{setting['is']}***"
    return setting[0]
