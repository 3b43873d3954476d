"""How a command gets its answer: the daemon's socket, or for root the same engine in the foreground.

May not print a result. The foreground engine is imported only when it is needed.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from reclaimerd.cli.http_socket import (
    SILENT_SECONDS,
    Interrupted,
    NoAnswer,
    OnLine,
    Reply,
    Request,
    ask_daemon,
)
from reclaimerd.cli.render import say
from reclaimerd.errors import ExitCode, ReclaimerdError

HTTP_ERROR = 400
CODE_OF_STATUS = {
    400: ExitCode.USAGE,
    403: ExitCode.NOT_ALLOWED,
    404: ExitCode.NO_TARGET,
    409: ExitCode.REFUSED,
    422: ExitCode.USAGE,
    503: ExitCode.REFUSED,
}
ASK_AGAIN = 503
"""The daemon could not tell who calls, did nothing, and may be asked again."""
AGAIN_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Settings:
    """Where the daemon, its state and its records are, and how to answer."""

    config: Path | None
    state_dir: Path
    log_dir: Path
    socket: Path
    simulate: Path | None
    takeover: bool = False
    as_json: bool = False


class DaemonSaidNoError(ReclaimerdError):
    """The engine answered with an error of its own."""

    def __init__(self, message: str, mend: str, exit_code: ExitCode, faults: tuple[str, ...] = ()) -> None:
        super().__init__(message, mend)
        self.exit_code = exit_code
        self.faults = faults


class NoDaemonError(ReclaimerdError):
    """Nobody answers, and the caller is not root."""

    exit_code = ExitCode.NO_DAEMON


def request(settings: Settings, asked: Request, on_line: OnLine | None = None) -> Reply:
    """Return the answer of the daemon, or without one of the engine in the foreground.

    With `on_line` each line of a stream is handed over as it comes. Raises ReclaimerdError (with
    the exit code that the engine named) and Interrupted.
    """
    answer = _ask(settings.socket, asked, on_line)
    if isinstance(answer, NoAnswer):
        answer = _without_daemon(settings, asked, answer, on_line)
    if answer.status >= HTTP_ERROR:
        raise _refusal(answer)
    return answer


def ask_running(socket: Path, asked: Request) -> Reply:
    """Return the answer of the daemon that runs, and of nobody else.

    Raises NoDaemonError when none answers, and other ReclaimerdErrors as `request` does.
    """
    answer = _ask(socket, asked, None)
    if isinstance(answer, NoAnswer):
        raise NoDaemonError(f"{answer.why} ({socket})", "start it: systemctl start reclaimerd")
    if answer.status >= HTTP_ERROR:
        raise _refusal(answer)
    return answer


def _ask(socket: Path, asked: Request, on_line: OnLine | None) -> Reply | NoAnswer:
    """Return the daemon's answer; while it can't tell who we are, ask again for a short time."""
    until = time.monotonic() + SILENT_SECONDS
    while True:
        answer = ask_daemon(socket, asked, on_line)
        if isinstance(answer, NoAnswer) or answer.status != ASK_AGAIN or time.monotonic() >= until:
            return answer
        time.sleep(AGAIN_SECONDS)


def exit_code_of(value: object, otherwise: ExitCode) -> ExitCode:
    """Return the exit code that an answer names, or the other one when it names none of ours."""
    try:
        return ExitCode(value) if isinstance(value, int) else otherwise
    except ValueError:
        return otherwise


def _refusal(answer: Reply) -> DaemonSaidNoError:
    otherwise = CODE_OF_STATUS.get(answer.status, ExitCode.INTERNAL)
    return DaemonSaidNoError(
        str(answer.body.get("error") or f"the daemon answered with HTTP status {answer.status}"),
        str(answer.body.get("mend") or ""),
        exit_code_of(answer.body.get("exit_code"), otherwise),
        tuple(str(fault) for fault in answer.body.get("faults") or ()),
    )


def _without_daemon(settings: Settings, asked: Request, missing: NoAnswer, on_line: OnLine | None) -> Reply:
    """Ask the engine in the foreground, where the caller may; else say what to do."""
    where = f"{missing.why} ({settings.socket})"
    if missing.sent and asked.acts:
        where += ", and the request was sent: it may still be carried out"
    if os.geteuid() != 0 and settings.simulate is None:
        mend = "start it (systemctl start reclaimerd), or run this as root, which works without a daemon"
        raise NoDaemonError(where, mend)
    if missing.sent:
        say(f"reclaimctl: {where}; going on in the foreground", to_stderr=True)
    # The engine is heavy, and seldom needed when a daemon runs.
    from reclaimerd.daemon.foreground import ForegroundOptions  # noqa: PLC0415
    from reclaimerd.daemon.foreground import request as foreground_request  # noqa: PLC0415

    options = ForegroundOptions(
        config=settings.config,
        state_dir=settings.state_dir,
        log_dir=settings.log_dir,
        socket=settings.socket,
        simulate=settings.simulate,
        takeover=settings.takeover,
    )
    try:
        answer = foreground_request(options, asked.method, asked.path, asked.query, asked.body, on_line)
    except KeyboardInterrupt:
        text = "interrupted: no further step is taken; what was sent stays sent (reclaimctl incidents)"
        raise Interrupted(text if asked.acts else "interrupted") from None
    return Reply(answer.status, answer.body)
