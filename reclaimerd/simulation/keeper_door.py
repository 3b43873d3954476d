"""The keeper's door: a socket in the simulation's directory where the host's own tools ask it.

One request and one answer a connection, each a JSON line. Whoever can enter the directory (0700) may ask.
"""

import contextlib
import json
import os
import socket
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from reclaimerd.errors import DriverAbsentError

DOOR = "keeper.sock"
ASK_WITHIN_SECONDS = 1.0
"""How long the keeper waits for a caller's words; it serves nobody else meanwhile."""
ANSWER_WITHIN_SECONDS = 20.0
"""Above the keeper's own limits for a launch (15 s) and for an end (3 s)."""
REQUEST_BYTES = 65536


def open_door(directory: Path) -> socket.socket:
    """Return the listening socket."""
    door = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with _short_path(directory) as path:
        door.bind(path)
    door.listen()
    return door


@contextlib.contextmanager
def _short_path(directory: Path) -> Iterator[str]:
    """Give a path that fits sockaddr_un's 108 bytes, however deep the directory lies."""
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{descriptor}/{DOOR}"
    finally:
        os.close(descriptor)


def answer_at(door: socket.socket, answer: Callable[[Mapping[str, object]], Mapping[str, object]]) -> None:
    """Serve one caller; one that says nothing, or goes away, costs a second and nothing else."""
    caller, _ = door.accept()
    with caller, contextlib.suppress(OSError, ValueError):
        caller.settimeout(ASK_WITHIN_SECONDS)
        request = json.loads(_read_line(caller))
        reply = answer(request) if request.get("op") != "stop" else {"error": "only our controller may"}
        caller.sendall(json.dumps(reply).encode() + b"\n")


def ask_at_door(directory: Path, request: Mapping[str, object]) -> dict[str, object]:
    """Ask the keeper of a directory; raises DriverAbsentError when it gives no answer."""
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as caller, _short_path(directory) as path:
            caller.settimeout(ANSWER_WITHIN_SECONDS)
            caller.connect(path)
            caller.sendall(json.dumps(request).encode() + b"\n")
            return dict(json.loads(_read_line(caller)))
    except (OSError, ValueError) as error:
        raise DriverAbsentError(
            f"the keeper of the simulation in {directory} gave no answer: {error}", "start it again"
        ) from error


def _read_line(peer: socket.socket) -> bytes:
    text = b""
    while b"\n" not in text and len(text) < REQUEST_BYTES:
        chunk = peer.recv(REQUEST_BYTES)
        if not chunk:
            break
        text += chunk
    return text
