"""Claims about signals, on real children."""

import asyncio
import errno
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from reclaimerd.act.signals import SignalOrder, send
from reclaimerd.model.identity import ProcessRef
from reclaimerd.model.incident import OutcomeKind, TargetOutcome
from reclaimerd.model.ports import LastLook, LookAgainPort, NoLongerRight, StillRight
from reclaimerd.model.step import Step
from tests.act.children import (
    BOUND_SECONDS,
    IGNORES,
    LAST_WORD,
    OBEYS,
    Child,
    answering,
    child,
    children,
    look_at_ticks,
    program,
    stop,
)
from tests.builders import BOOT, a_ref, a_step

TERM = SignalOrder(signal.SIGTERM)
KILL = SignalOrder(signal.SIGKILL)
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to change uid or make a namespace")
pytestmark = pytest.mark.process


def _send(
    refs: Sequence[ProcessRef],
    order: SignalOrder,
    look_again: LookAgainPort = look_at_ticks,
) -> tuple[TargetOutcome, ...]:
    """Send, and return what came of each."""
    return asyncio.run(send(a_step(), refs, order, look_again=look_again, boot_id=BOOT))


def _recorded(target: Child, log: Path) -> list[str]:
    """Return what a recording child got: our last word is taken after all that was sent before it."""
    os.kill(target.process.pid, LAST_WORD)
    assert target.end() == 0
    return log.read_text().split()


def test_one_that_obeys_dies_of_sigterm() -> None:
    """SIGTERM reaches the process, and the outcome says SENT."""
    with child(*OBEYS) as target:
        assert _send([target.ref], TERM) == (TargetOutcome(target.ref, OutcomeKind.SENT, "SIGTERM"),)
        assert target.end() == -signal.SIGTERM


def test_one_that_ignores_sigterm_dies_of_sigkill() -> None:
    """SIGTERM to a stubborn process is SENT and changes nothing; SIGKILL ends it."""
    with child(*IGNORES) as target:
        assert _send([target.ref], TERM)[0].kind is OutcomeKind.SENT
        assert target.alive()
        assert _send([target.ref], KILL)[0].kind is OutcomeKind.SENT
        assert target.end() == -signal.SIGKILL


def test_a_stopped_one_dies_of_sigterm_when_resumed() -> None:
    """SIGCONT after SIGTERM lets a stopped process take it: it dies of SIGTERM."""
    with child(*OBEYS) as target:
        stop(target)
        (outcome,) = _send([target.ref], SignalOrder(signal.SIGTERM, resume=True))
        assert outcome == TargetOutcome(target.ref, OutcomeKind.SENT, "SIGTERM and SIGCONT")
        assert target.end() == -signal.SIGTERM


def test_without_resume_a_stopped_one_stays_stopped() -> None:
    """No SIGCONT goes out unless it is ordered: SIGTERM pends and the process stays stopped."""
    with child(*OBEYS) as target:
        stop(target)
        assert _send([target.ref], TERM)[0].kind is OutcomeKind.SENT
        status = Path(f"/proc/{target.process.pid}/status").read_text()
        pending = next(line for line in status.splitlines() if line.startswith("ShdPnd:"))
        assert int(pending.split()[1], 16) & 1 << (signal.SIGTERM - 1)
        assert "State:\tT" in status


def test_one_that_exits_between_look_and_signal_is_already_gone() -> None:
    """A process that ends and is reaped after the last look is ALREADY_GONE."""
    with child(*OBEYS) as target:
        look = answering(StillRight(), target.end_now)
        assert _send([target.ref], KILL, look)[0].kind is OutcomeKind.ALREADY_GONE
        assert target.end() == -signal.SIGTERM


def test_a_dead_one_that_nobody_reaped_is_already_gone() -> None:
    """A zombie takes a signal without an error, and still the outcome is ALREADY_GONE, not SENT."""
    with child(*OBEYS) as target:
        os.kill(target.process.pid, signal.SIGTERM)
        target.wait_dead()
        os.kill(target.process.pid, 0)
        assert _send([target.ref], KILL)[0].kind is OutcomeKind.ALREADY_GONE


def test_one_that_was_reaped_is_already_gone() -> None:
    """No such process: ALREADY_GONE, and nobody is looked at."""
    with child(*OBEYS) as target:
        target.end_now()
        looks: list[str] = []
        look = answering(StillRight(), lambda: looks.append("looked"))
        assert _send([target.ref], KILL, look)[0].kind is OutcomeKind.ALREADY_GONE
        assert looks == []


def test_another_start_time_is_another_process() -> None:
    """The same pid with other start ticks is IDENTITY_CHANGED, and it gets nothing."""
    with child(*OBEYS) as target:
        other = ProcessRef(BOOT, target.ref.pid, target.ref.start_ticks - 1)
        assert _send([other], KILL)[0].kind is OutcomeKind.IDENTITY_CHANGED
        assert target.alive()


def test_a_ref_of_another_boot_is_not_looked_at() -> None:
    """A process of another boot can't be this one: IDENTITY_CHANGED, whatever the look would say."""
    with child(*OBEYS) as target:
        other = ProcessRef("another-boot", target.ref.pid, target.ref.start_ticks)
        assert _send([other], KILL, answering(StillRight()))[0].kind is OutcomeKind.IDENTITY_CHANGED
        assert target.alive()


@pytest.mark.root
@NEEDS_ROOT
@pytest.mark.parametrize(
    ("when", "kind"),
    [("before", OutcomeKind.IDENTITY_CHANGED), ("between", OutcomeKind.ALREADY_GONE)],
)
def test_a_stranger_under_a_used_pid_lives(tmp_path: Path, when: str, kind: OutcomeKind) -> None:
    """Whoever takes the target's PID before or after pidfd_open lives on and gets no signal at all."""
    log = tmp_path / "signals"
    log.touch()
    argv = ("/usr/bin/unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    run = subprocess.run(
        (*argv, *program("reuse", when, str(log))),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.stdout.split() == [f"{kind}|True|True|True"], run.stderr
    assert log.read_text() == ""


@pytest.mark.root
@NEEDS_ROOT
def test_no_permission_is_said_with_its_mend() -> None:
    """EPERM is NOT_PERMITTED with a sentence that says who we are and how to mend it; nothing arrives."""
    with child(*OBEYS) as target:
        argv = program("unprivileged", str(target.ref.pid), "65534")
        out = subprocess.run(argv, capture_output=True, text=True, timeout=BOUND_SECONDS, check=True).stdout
        kind, _, detail = out.partition("|")
        assert kind == OutcomeKind.NOT_PERMITTED
        assert f"uid 65534 send SIGTERM to {target.ref}" in detail
        assert "CAP_KILL" in detail
        assert target.alive()


def test_a_dry_run_sends_nothing(tmp_path: Path) -> None:
    """A child that records every signal got none from a dry run, and SIGTERM, SIGCONT from the real one."""
    log = tmp_path / "signals"
    with child(*program("record", str(log))) as target:
        for number in (signal.SIGTERM, signal.SIGKILL):
            (outcome,) = _send([target.ref], SignalOrder(number, resume=True, dry_run=True))
            assert outcome.kind is OutcomeKind.DRY_RUN
            assert number.name in outcome.detail
        assert _recorded(target, log) == []
    with child(*program("record", str(log))) as target:
        _send([target.ref], SignalOrder(signal.SIGTERM, resume=True))
        assert sorted(_recorded(target, log)) == ["SIGCONT", "SIGTERM"]


@pytest.mark.parametrize(
    ("look", "kind"),
    [
        (NoLongerRight("another program", changed=True), OutcomeKind.IDENTITY_CHANGED),
        (NoLongerRight("/run/reclaimerd/HOLD exists"), OutcomeKind.WITHHELD),
    ],
)
def test_a_last_look_that_says_no_sends_nothing(
    tmp_path: Path,
    look: NoLongerRight,
    kind: OutcomeKind,
) -> None:
    """Changed is IDENTITY_CHANGED, any other no is WITHHELD, each with the look's words; nothing arrives."""
    log = tmp_path / "signals"
    with child(*program("record", str(log))) as target:
        assert _send([target.ref], TERM, answering(look)) == (TargetOutcome(target.ref, kind, look.why),)
        assert _recorded(target, log) == []


def test_a_look_that_breaks_off_sends_nothing_and_hides_no_other() -> None:
    """A bug in one look is FAILED for that target alone; the other is signalled all the same."""
    with children(2, *OBEYS) as (first, second):

        async def broken(step: Step, ref: ProcessRef) -> LastLook:
            if ref == first.ref:
                raise RuntimeError("worker gone")
            return await look_at_ticks(step, ref)

        outcomes = _send([first.ref, second.ref], TERM, broken)
        assert [outcome.kind for outcome in outcomes] == [OutcomeKind.FAILED, OutcomeKind.SENT]
        assert "worker gone" in outcomes[0].detail
        assert second.end() == -signal.SIGTERM
        assert first.alive()


@pytest.mark.parametrize("pid", [1, 0, -1, -1000])
def test_a_group_and_init_cannot_be_expressed(pid: int) -> None:
    """Pid 1, 0 and below raise, and the good target beside them gets nothing either."""
    with child(*OBEYS) as target:
        with pytest.raises(ValueError, match="group, everyone, or init"):
            _send([target.ref, a_ref(pid)], KILL)
        assert target.alive()


def test_we_never_signal_ourselves() -> None:
    """Our own pid raises."""
    with pytest.raises(ValueError, match="our own"):
        _send([a_ref(os.getpid())], TERM)


def test_signals_keep_the_given_order_and_come_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first target is signalled first, one named twice gets one signal, and no descriptor stays."""
    sent: list[int] = []
    real = signal.pidfd_send_signal

    def spy(pidfd: int, number: int) -> None:
        line = Path(f"/proc/self/fdinfo/{pidfd}").read_text()
        sent.append(int(line.partition("Pid:")[2].split()[0]))
        real(pidfd, number)

    monkeypatch.setattr(signal, "pidfd_send_signal", spy)
    with children(40, *OBEYS) as targets:
        before = len(list(Path("/proc/self/fd").iterdir()))
        refs = [target.ref for target in reversed(targets)]
        outcomes = _send([*refs, refs[0]], KILL)
        assert [outcome.ref for outcome in outcomes] == refs
        assert sent == [ref.pid for ref in refs]
        assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_looks_go_side_by_side_and_the_last_look_comes_before_the_signal() -> None:
    """All targets of a chunk are looked at together, and nobody is signalled before those looks ended."""
    with children(3, *OBEYS) as targets:
        looking = 0
        most = 0

        async def look(step: Step, ref: ProcessRef) -> LastLook:
            nonlocal looking, most
            looking += 1
            most = max(most, looking)
            await asyncio.sleep(0.02)
            assert all(target.alive() for target in targets)
            looking -= 1
            return await look_at_ticks(step, ref)

        outcomes = _send([target.ref for target in targets], KILL, look)
        assert {outcome.kind for outcome in outcomes} == {OutcomeKind.SENT}
        assert most == 3


@pytest.mark.parametrize("number", [errno.EINVAL, errno.ENOENT, errno.ESRCH])
def test_a_pid_that_is_only_a_groups_or_a_threads_name_is_no_process(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Up to Linux 6.15 pidfd_open says EINVAL of a reaped leader whose process group lives on."""

    def no_leader(pid: int) -> int:
        raise OSError(number, os.strerror(number), pid)

    monkeypatch.setattr(os, "pidfd_open", no_leader)
    looks: list[str] = []
    look = answering(StillRight(), lambda: looks.append("looked"))
    (outcome,) = _send([a_ref(4_000_001)], KILL, look)
    assert (outcome.kind, outcome.detail) == (OutcomeKind.ALREADY_GONE, "no such process")
    assert looks == []


def test_out_of_descriptors_is_a_failure_and_sends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """When no pidfd can be opened that target FAILED: a bare pid is never signalled instead."""

    def no_descriptor(_pid: int) -> int:
        raise OSError(24, "Too many open files")

    with child(*OBEYS) as target:
        monkeypatch.setattr(os, "pidfd_open", no_descriptor)
        (outcome,) = _send([target.ref], KILL)
        monkeypatch.undo()
        assert outcome.kind is OutcomeKind.FAILED
        assert "Too many open files" in outcome.detail
        assert target.alive()
