"""Processes of other uids and groups that call on a control socket: one child for many calls."""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

_CHILD = """
import json, os, socket, sys, time
path, uid, groups = sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3])
asked = json.loads(sys.stdin.read())
if uid:
    os.setgroups(groups)
    os.setresgid(65533, 65533, 65533)
    os.setresuid(uid, uid, uid)
def call(request):
    channel = socket.socket(socket.AF_UNIX)
    channel.settimeout(30)
    answer = b""
    try:
        channel.connect(path)
        channel.sendall(request.encode("latin-1"))
        while True:
            piece = channel.recv(65536)
            answer += piece
            while answer.startswith(b"HTTP/1.1 102"):
                answer = answer.partition(b"\\r\\n\\r\\n")[2]
            if not piece or b'"event": "result"' in answer:
                break
    except OSError as error:
        answer = answer or b"cut " + type(error).__name__.encode()
    finally:
        channel.close()
    return answer.decode("latin-1")
print(json.dumps([call(request) for request in asked]))
"""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who calls: uid 0 stays what we are."""

    uid: int = 0
    groups: tuple[int, ...] = field(default=())

    def call(self, socket: Path, requests: Sequence[str], *, seconds: float = 120.0) -> list[str]:
        """Make each call on a connection of its own; return the answers, `cut ...` where none came."""
        argv = [sys.executable, "-I", "-S", "-c", _CHILD, str(socket), str(self.uid), json.dumps(self.groups)]
        told = subprocess.run(
            argv, input=json.dumps(requests), capture_output=True, text=True, timeout=seconds, check=True
        )
        return [str(one) for one in json.loads(told.stdout)]

    def statuses(self, socket: Path, requests: Sequence[str]) -> list[int]:
        """Return the status of each answer, 0 where none came."""
        return [status_of(one) for one in self.call(socket, requests)]


def status_of(answer: str) -> int:
    """Return the status of an answer, 0 for none."""
    words = answer.split(" ", 2)
    return int(words[1]) if answer.startswith("HTTP/1.1 ") else 0


def request(method: str, path: str, body: object = None) -> str:
    """Return one request as it goes over the wire."""
    content = "" if body is None else json.dumps(body)
    return f"{method} {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(content)}\r\n\r\n{content}"
