"""What a reset changes on the host besides the GPU: make it, and put it back to what it was.

Each change is on record before it is made, so a death of ours at any point leaves a record that says
what may have to be put back. What was not running before is never started.
"""

from typing import assert_never

from reclaimerd.daemon import entries
from reclaimerd.daemon.reset_book import Moved, RunBook, refused
from reclaimerd.daemon.reset_ledger import with_change
from reclaimerd.daemon.reset_verify import holders_of, whole_look
from reclaimerd.errors import ReclaimerdError
from reclaimerd.model.ports import ChangeFailed, ChangeMade
from reclaimerd.model.reading import Known
from reclaimerd.model.reset_run import Change, ChangeKind, ChangeState, ResetFact, ResetResult, ResetRun
from reclaimerd.model.snapshot import Snapshot

UNDO_TRIES = 3
_BETWEEN_TRIES_SECONDS = 1.0
_UNDO_ORDER = (ChangeKind.PERSISTENCE, ChangeKind.SETTING, ChangeKind.UNIT, ChangeKind.FENCE)
"""The reverse of making, but for the settings: without persistence mode the driver lets go of the GPU when
the tool that writes them ends, and forgets them again."""
_STOPPED = frozenset({"inactive", "failed"})
_UNWELL = frozenset({ResetResult.FAILED, ResetResult.NOT_VERIFIED, ResetResult.ABANDONED})
"""After these a job that lands on this host may land on a bad GPU."""
KEPT = "kept: the GPU is not well; release it by hand or by the drain's end"
_WORDS = {
    ChangeKind.FENCE: (
        "ask the scheduler to keep {0.name} free, and read it back",
        "let go of the scheduler's fence on {0.name}",
    ),
    ChangeKind.UNIT: ("stop {0.name}", "start {0.name} again"),
    ChangeKind.PERSISTENCE: ("persistence mode off on {0.name}", "persistence mode on again on {0.name}"),
    ChangeKind.SETTING: ("write {0.name} back afterwards", "write {0.name} back to {0.before}"),
}
"""What making a change is, and what putting it back is."""


def plan_lines(run: ResetRun) -> tuple[str, ...]:
    """Return everything that a reset will change, a line each, for the record before it begins."""
    lines = [f"{words_of(change)}; before: {change.before}" for change in run.changes]
    return (*lines, f"reset {', '.join(run.gpus)}")


def words_of(change: Change) -> str:
    """Return what making a change is, in words."""
    return _WORDS[change.kind][0].format(change)


def undone_words(change: Change) -> str:
    """Return what putting a change back is, in words."""
    return _WORDS[change.kind][1].format(change)


async def prepare(book: RunBook) -> Moved:
    """Put the whole intent on record; what can be known to fail fails here, before anything is changed."""
    fault = book.joints.tool.fault()
    if fault:
        return refused(f"the vendor's tool can't be run: {fault}")
    text = "a reset is about to be made; all that it will change stands here"
    return Moved(ResetFact.PREPARED, text, evidence=plan_lines(book.run))


async def ask_fence(book: RunBook) -> Moved:
    """Ask for the scheduler's fence, where there is a scheduler, and have it read back."""
    fences = _of_kind(book.run, ChangeKind.FENCE)
    for change in fences:
        failure = await _make(book, change)
        if failure:
            return refused(f"the scheduler's fence does not stand: {failure}")
    text = "the scheduler's fence stands" if fences else "no scheduler owns this host, so there is no fence"
    return Moved(ResetFact.FENCED, text)


async def stop_clients(book: RunBook) -> Moved:
    """Stop the clients that are ours to stop, after a look that finds nobody else.

    A refusal that can be known now costs nobody a restart; somebody who has stopped a client meanwhile
    keeps it stopped.
    """
    snapshot = await whole_look(book.joints)
    reasons = book.joints.gate_before(snapshot, book.run)
    if reasons:
        return refused("", reasons)
    book.known = holders_of(snapshot, book.run)
    await _note_settings(book)
    left = []
    for kind in (ChangeKind.UNIT, ChangeKind.PERSISTENCE):
        for change in _of_kind(book.run, kind):
            if change.state is ChangeState.PLANNED and _is_over(change, snapshot):
                left.append(f"{change.name}: is so already, and not by us")
                continue
            failure = await _make(book, change)
            if failure:
                return refused(f"{words_of(change)}: {failure}")
    return Moved(ResetFact.STOPPED, "the clients that were ours to stop are stopped", evidence=tuple(left))


async def restore(book: RunBook) -> Moved:
    """Put back everything that was changed, the last first; what can't be put back calls a person.

    The scheduler's fence stays where the GPU is not seen to be well, and a person is told once. In haste the
    units' starts are asked for before anything is waited for: a vendor's tool that hangs, or a unit that
    starts slowly, must not keep the next one down.
    """
    book.joints.grip.take_back()
    if book.in_haste:
        await _ask_starts(book)
    for kind in _UNDO_ORDER:
        for change in reversed(_of_kind(book.run, kind)):
            if change.state is not ChangeState.MADE:
                continue
            if kind is ChangeKind.FENCE and book.run.result in _UNWELL:
                await _keep_fence(book, change)
            else:
                await _undo(book, change)
    left = [change for change in book.run.changes if change.state is ChangeState.LEFT]
    text = _restored_text(left)
    evidence = tuple(f"{change.name} (before: {change.before}): {change.text}" for change in left)
    return Moved(ResetFact.RESTORED, text, evidence=evidence)


async def _ask_starts(book: RunBook) -> None:
    """Ask for all the units that were stopped, the last first; each is proven afterwards, as ever."""
    units = [one for one in reversed(_of_kind(book.run, ChangeKind.UNIT)) if one.state is ChangeState.MADE]
    if not units:
        return
    words = "start all that was stopped, without waiting"
    try:
        answer = await book.joints.clients.ask_starts(units)
    except Exception as error:  # noqa: BLE001  # each is started by itself afterwards
        answer = ChangeFailed(f"{type(error).__name__}: {error}")
    if isinstance(answer, ChangeFailed):
        await book.note(f"failed: {words}: {answer.why}")
    else:
        await book.note(f"{words}{_said(answer.text)}")


def _of_kind(run: ResetRun, kind: ChangeKind) -> tuple[Change, ...]:
    return tuple(change for change in run.changes if change.kind is kind)


async def _note_settings(book: RunBook) -> None:
    """Put on record that settings must be written back: from now on the driver may let go of the GPU."""
    run = book.run
    for change in _of_kind(run, ChangeKind.SETTING):
        run = with_change(run, change, ChangeState.MADE)
    if run != book.run:
        text = "from here on the driver may forget the settings of these GPUs"
        await book.intend(run, entries.reset_step(run, text))


async def _make(book: RunBook, change: Change) -> str:
    """Make one change, on record before it is made; return why it failed, or ""."""
    words = words_of(change)
    made = with_change(book.run, change, ChangeState.MADE)
    await book.intend(made, entries.reset_step(book.run, f"about to: {words}"))
    answer = await book.joints.clients.make(change)
    match answer:
        case ChangeMade(text=text):
            await book.note(f"done: {words}{_said(text)}")
            return ""
        case ChangeFailed(why=why):
            # It stays MADE: half of it may be done, and undoing what was not done does no harm.
            failed = with_change(book.run, change, ChangeState.MADE, why)
            await book.keep(failed, entries.reset_step(failed, f"failed: {words}: {why}"))
            return why
        case _:
            assert_never(answer)


async def _keep_fence(book: RunBook, change: Change) -> None:
    """Leave the fence as it stands, with one alarm; what is LEFT is not come back to."""
    run = with_change(book.run, change, ChangeState.LEFT, KEPT)
    text = f"the scheduler's fence on {change.name} is {KEPT}"
    await book.keep(run, entries.reset_step(run, text), entries.reset_alarm(run, text))


def _restored_text(left: list[Change]) -> str:
    if not left:
        return "everything that was changed is put back"
    if all(change.text == KEPT for change in left):
        return "everything that was changed is put back but the scheduler's fence, which is kept"
    return "not everything could be put back"


async def _undo(book: RunBook, change: Change) -> None:
    """Put one change back, trying again a bounded number of times; then it is left, with an alarm."""
    words = undone_words(change)
    why = ""
    for attempt in range(UNDO_TRIES):
        if attempt:
            await book.joints.sleep(_BETWEEN_TRIES_SECONDS)
        answer = await _undone(book, change)
        if isinstance(answer, ChangeMade):
            run = with_change(book.run, change, ChangeState.UNDONE)
            await book.keep(run, entries.reset_step(run, f"{words}{_said(answer.text)}"))
            return
        why = answer.why
    run = with_change(book.run, change, ChangeState.LEFT, why)
    text = f"could not be put back in {UNDO_TRIES} tries: {words} (before: {change.before}): {why}"
    await book.keep(run, entries.reset_step(run, text), entries.reset_alarm(run, text))


async def _undone(book: RunBook, change: Change) -> ChangeMade | ChangeFailed:
    try:
        return await book.joints.clients.undo(change)
    except ReclaimerdError as error:
        return ChangeFailed(str(error))
    except Exception as error:  # noqa: BLE001  # a bug in one undoing must not keep the others from being done
        return ChangeFailed(f"{type(error).__name__}: {error}")


def _said(text: str) -> str:
    return f" ({text})" if text else ""


def _is_over(change: Change, snapshot: Snapshot) -> bool:
    """Tell whether somebody else has made this change since it was planned: then it is not ours to undo."""
    if change.kind is ChangeKind.PERSISTENCE:
        gpu = next((gpu for gpu in snapshot.gpus if gpu.uuid == change.name), None)
        return gpu is not None and gpu.persistence == Known(value=False)
    facts = snapshot.reset_facts
    if facts is None or not isinstance(facts.units, Known):
        return False
    unit = facts.units.value.unit(change.name)
    return unit is not None and unit.active in _STOPPED
