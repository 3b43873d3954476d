"""Commands that Slurm starts: `slurm-unkillable` and `healthcheck`. One line, an exit code, in 5 seconds.

They ask the daemon and nobody else: no engine is started in the foreground, which would look at a driver
that may hang. Slurm gives them no arguments and no PATH.
"""

import os
import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

import click

from reclaimerd.cli.client import HTTP_ERROR, Settings
from reclaimerd.cli.http_socket import Json, NoAnswer, Request, ask_daemon
from reclaimerd.cli.options import answers, common_options
from reclaimerd.cli.render import say, show_json
from reclaimerd.errors import ExitCode, ReclaimerdError

MOST_SECONDS = 4.5
"""From the first line of ours on; with the start of the interpreter it stays below 5 s."""
HEALTHY, NEEDS_A_PERSON, CANNOT_TELL = 0, 1, 2
"""What `healthcheck` exits with."""
_NUMBER = re.compile(r"[0-9]{1,10}", re.ASCII)


class OutOfTimeError(ReclaimerdError):
    """The daemon is there and did not answer in time."""


class NotSlurmError(ReclaimerdError):
    """The program was started by somebody who is not Slurm."""

    exit_code = ExitCode.USAGE


@contextmanager
def _at_most(seconds: float) -> Iterator[None]:
    """End the block with OutOfTimeError after so long, whatever it waits for."""

    def ring(_signal: int, _frame: FrameType | None) -> None:
        raise OutOfTimeError(f"the daemon did not answer within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)


def _ask(settings: Settings, asked: Request) -> Json | str:
    """Return the daemon's answer in time, or why there is none."""
    try:
        with _at_most(MOST_SECONDS):
            answer = ask_daemon(settings.socket, asked, None)
    except ReclaimerdError as error:
        return error.message
    if isinstance(answer, NoAnswer):
        return answer.why
    return answer.body if answer.status < HTTP_ERROR else str(answer.body.get("error") or answer.status)


def _id_of(*names: str) -> str:
    """Return the number that Slurm has put into the environment under one of these names."""
    found = next((value for name in names if (value := os.environ.get(name))), "")
    if not _NUMBER.fullmatch(found):
        mend = "this is for Slurm's UnkillableStepProgram, which sets it"
        raise NotSlurmError(f"{names[0]} is no number in the environment", mend)
    return found


@click.command("slurm-unkillable")
@common_options
@answers
def slurm_unkillable(settings: Settings) -> int:
    """Tell the daemon that Slurm can't end a job's step (Slurm's UnkillableStepProgram).

    The step is read from the environment. The daemon looks at the whole host at once and judges what is
    stuck by its policy. Exit code 0 also when no daemon answers: Slurm then drains the node by itself.
    """
    body: Json = {
        "job": _id_of("SLURM_JOB_ID", "SLURM_JOBID"),
        "step": _id_of("SLURM_STEP_ID", "SLURM_STEPID"),
    }
    answer = _ask(settings, Request("POST", "/v1/unkillable", body=body, acts=True))
    if isinstance(answer, str):
        say(f"reclaimctl: job {body['job']}, step {body['step']}: {answer}", to_stderr=True)
    elif settings.as_json:
        show_json(answer)
    else:
        say(unkillable_line(answer))
    return int(ExitCode.OK)


def unkillable_line(answer: Json) -> str:
    """Return what the daemon found, in one line."""
    where = f"step {answer.get('step')} of job {answer.get('job')}"
    if not answer.get("looked"):
        return f"{where}: the daemon was told; its look goes on"
    holders: list[Json] = list(answer.get("holders") or ())
    if not holders:
        return f"{where}: the daemon looked; no process of the job holds a GPU"
    told = (f"pid {one.get('pid')}: {one.get('text') or 'holds a GPU'}" for one in holders)
    return f"{where}: the daemon looked; {'; '.join(told)}"


@click.command()
@common_options
@answers
def healthcheck(settings: Settings) -> int:
    """Say in one line whether this host's GPUs need a person, and exit with 0, 1 or 2.

    0: nothing does. 1: something needs a person (what `status` says; also a drain request that stands, or a
    driver that does not answer). 2: that can't be told, because no daemon answers within 5 s.
    """
    code, text = health(_ask(settings, Request("GET", "/v1/status")))
    if settings.as_json:
        show_json({"exit_code": code, "text": text})
    else:
        say(text)
    return code


def health(answer: Json | str) -> tuple[int, str]:
    """Return the exit code and the line for what the daemon answered."""
    if isinstance(answer, str):
        return CANNOT_TELL, f"can't tell: {answer}"
    concerns = answer.get("attention")
    if not isinstance(concerns, list):
        return CANNOT_TELL, "can't tell: the daemon's answer has no list of concerns"
    if concerns:
        more = f" (and {len(concerns) - 1} more: reclaimctl status)" if len(concerns) > 1 else ""
        return NEEDS_A_PERSON, f"needs a person: {concerns[0]}{more}"
    driver = answer.get("driver")
    state = driver.get("state") if isinstance(driver, dict) else None
    if state not in ("responsive", "slow"):
        return CANNOT_TELL, f"can't tell: the driver is {state}"
    return HEALTHY, f"healthy: {len(answer.get('gpus') or ())} GPUs, the driver is {state}"
