"""Who may use a server on loopback: its own pages, and programs that know the key of the folder.

Every page that a browser shows may ask servers of this machine, and so may every user of it. Three questions are asked
of each request, before the application sees it: by which name the server was called, whether a page of another place
asks, and for the key. Programs send it as the password of HTTP's basic authentication, or in the first message of a web
socket, as Prefect's do; a browser as a cookie, which it is given when the page is opened once with ``?key=...``.
"""

from __future__ import annotations

import base64
import hmac
import json
import re
from collections.abc import Awaitable, Callable, Iterable, Mapping, MutableMapping
from http.cookies import CookieError, SimpleCookie
from typing import Any
from urllib.parse import parse_qsl, quote, urlencode

Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Message, Receive, Send], Awaitable[None]]

COOKIE = "learnkernels"

OPEN_PATHS = ("/health", "/api/health")
"""What tells whether a server answers, and nothing else."""

KEPT_TO_ITSELF = {
    "content-security-policy": "default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; object-src 'none'; "
    "base-uri 'self'; form-action 'self'; frame-ancestors 'self'",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "SAMEORIGIN",
}
"""What browsers are told of each answer: no other place shows, embeds or reads it, and it loads nothing from others."""

NO_KEY = "the key of the working folder is missing: open the address that 'learnkernels ui' or 'up' printed."


class Guard:
    """An application behind the three questions.

    Parameters
    ----------
    application : callable
        An ASGI application.
    port : int
        Where it listens on loopback.
    key : str, optional
        ``user:key``; without, the application asks who calls.
    hosts : iterable of str
        Further names by which it may be called, as a proxy in front of it does.
    """

    def __init__(self, application: Application, port: int, key: str | None, hosts: Iterable[str] = ()) -> None:
        self._application = application
        self._home = f"127.0.0.1:{port}"
        self._hosts = {self._home, f"localhost:{port}", *hosts}
        self._key = None if key is None else key.rpartition(":")[2]

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        """Hand a request on, or refuse it."""
        if scope["type"] not in ("http", "websocket"):
            return await self._application(scope, receive, send)
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if reason := self._stranger(scope, headers):
            return await _refuse(scope, send, 403, reason)
        if scope["type"] == "websocket":
            socket = (receive, send) if self._known(headers) else self._asking_first(receive, send)
            return await self._application(scope, *socket)
        # Pages ask for data by the number, and a cookie holds for the name that it was given by.
        query = dict(parse_qsl(scope.get("query_string", b"").decode("latin-1"), keep_blank_values=True))
        if headers["host"] != self._home and headers["host"].startswith("localhost") and _followed(scope, headers):
            return await _answer(send, 303, {"location": f"http://{self._home}{_address(scope, query)}"}, "")
        if self._key is not None and "key" in query:
            return await self._let_in(scope, send, query)
        if scope["path"] not in OPEN_PATHS and not self._known(headers):
            return await _refuse(scope, send, 401, NO_KEY)
        return await self._application(scope, receive, _keeping_to_itself(send))

    def _stranger(self, scope: Message, headers: Mapping[str, str]) -> str | None:
        """Return why a request comes from another place, if it does."""
        if headers.get("host") not in self._hosts:
            return "this server is not called by that name."
        foreign = "origin" in headers and re.sub("^https?://", "", headers["origin"]) not in self._hosts
        foreign |= headers.get("sec-fetch-site", "none") not in ("same-origin", "none") and not _followed(
            scope, headers
        )
        return "pages of other places cannot use this server." if foreign else None

    def _known(self, headers: Mapping[str, str]) -> bool:
        """Return whether headers hold the key."""
        if self._key is None:
            return True
        scheme, _, given = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "basic":
            try:
                given = base64.b64decode(given, validate=True).decode("utf-8")
            except ValueError:
                return False
        return self._is_key(given) or self._is_key(_cookie(headers.get("cookie", "")))

    def _is_key(self, given: object) -> bool:
        """Return whether a password, with or without its user before it, is the key."""
        if self._key is None or not isinstance(given, str):
            return False
        return hmac.compare_digest(given.rpartition(":")[2].encode(), self._key.encode())

    async def _let_in(self, scope: Message, send: Send, query: dict[str, str]) -> None:
        """Give a browser that was told the key its cookie, and send it on to the page without the key."""
        if not self._is_key(query.pop("key")):
            return await _refuse(scope, send, 401, NO_KEY)
        headers = {
            "location": _address(scope, query),
            "set-cookie": f"{COOKIE}={self._key}; Path=/; HttpOnly; SameSite=Strict",
            "cache-control": "no-store",
        }
        await _answer(send, 303, headers, "")

    def _asking_first(self, receive: Receive, send: Send) -> tuple[Receive, Send]:
        """Return the two ends of a web socket on which nothing is said before its first message holds the key."""
        state = "asking"

        async def first(*_: object) -> Message:
            nonlocal state
            message = await receive()
            if state == "asking" and message["type"] == "websocket.receive":
                if not self._is_key(_token(message.get("text"))):
                    state = "closed"
                    await send({"type": "websocket.close", "code": 1008, "reason": NO_KEY})
                    return {"type": "websocket.disconnect", "code": 1008}
                state = "open"
            return message

        async def then(message: Message) -> None:
            if state == "open" or (state == "asking" and message["type"] != "websocket.send"):
                await send(message)

        return first, then


def _address(scope: Message, query: Mapping[str, str]) -> str:
    """Return the address of a page on the server that was asked for it."""
    return f"/{quote(scope['path'].lstrip('/'))}" + (f"?{urlencode(query)}" if query else "")


def _followed(scope: Message, headers: Mapping[str, str]) -> bool:
    """Return whether a person has followed a link, so that no page learns of the answer."""
    opened = scope.get("method"), headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")
    return opened == ("GET", "navigate", "document")


def _cookie(text: str) -> str | None:
    try:
        found = SimpleCookie(text).get(COOKIE)
    except CookieError:
        return None
    return None if found is None else found.value


def _token(text: str | None) -> object:
    try:
        message = json.loads(text or "")
    except (ValueError, RecursionError):
        return None
    return message.get("token") if isinstance(message, dict) else None


def _keeping_to_itself(send: Send) -> Send:
    """Return a `send` that tells browsers to let no other page have the answer."""

    async def kept(message: Message) -> None:
        if message["type"] == "http.response.start":
            dropped = tuple(KEPT_TO_ITSELF)
            headers = [
                (name, value)
                for name, value in message.get("headers", ())
                if not (lower := name.lower().decode("latin-1")).startswith("access-control-") and lower not in dropped
            ]
            message = {**message, "headers": [*headers, *_encoded(KEPT_TO_ITSELF)]}
        await send(message)

    return kept


async def _refuse(scope: Message, send: Send, status: int, reason: str) -> None:
    if scope["type"] == "websocket":
        await send({"type": "websocket.close", "code": 1008, "reason": reason})  # the handshake is answered by 403
    else:
        await _answer(send, status, {"www-authenticate": "Bearer"} if status == 401 else {}, f"{reason}\n")


async def _answer(send: Send, status: int, headers: Mapping[str, str], text: str) -> None:
    all_headers = {"content-type": "text/plain; charset=utf-8", **KEPT_TO_ITSELF, **headers}
    await send({"type": "http.response.start", "status": status, "headers": _encoded(all_headers)})
    await send({"type": "http.response.body", "body": text.encode()})


def _encoded(headers: Mapping[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in headers.items()]
