"""Which addresses count as running servers of a folder."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Thread

import pytest

from learnkernels.tasks import environment


@contextmanager
def saying(answer: bytes) -> Iterator[str]:
    """Give the address of a server that sends the same bytes to everyone."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer_once() -> None:
            peer, _ = server.accept()
            with peer:
                peer.recv(1000)
                peer.sendall(answer)

        thread = Thread(target=answer_once, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join(30)


@pytest.mark.parametrize(
    ("answer", "is_up"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\ntrue", True),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", False),
        (b"220 no web server\r\n", False),
        (b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 200 + b"\r\n", False),
        (b"HTTP/1.1 200 " + b"x" * 70_000 + b"\r\n\r\n", False),
        (b"", False),
    ],
    ids=["up", "busy", "other protocol", "many headers", "long line", "nothing"],
)
def test_a_port_of_another_program_is_no_running_server(answer: bytes, is_up: bool):
    with saying(answer) as address:
        assert environment.answers(f"{address}/health") is is_up
