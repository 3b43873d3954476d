"""A GPU is verified only when each thing is as it must be; what can't be compared is a fault by name."""

from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.judge.reset_plan import verified
from reclaimerd.model.fault import FaultClass, KernelNews, StandingXid, XidLine
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.reset_facts import ErrorCounters
from reclaimerd.model.reset_run import ResetRun
from reclaimerd.model.snapshot import GpuMemory, RecoveryAction, ScanCoverage, Snapshot
from tests.builders import BOOT, GIB, GPU_A, GPU_B, WALL, a_gpu, a_holder, a_ref, a_row, a_snapshot
from tests.judge.reset_builders import a_run, before, gpu_facts, kernel_facts, ready, with_facts

MIB = 1024**2


def faults(
    snapshot: Snapshot | None = None, run: ResetRun | None = None, ledger: Ledger | None = None
) -> tuple[str, ...]:
    """Return what is not as it must be."""
    return verified(run or a_run(), snapshot or ready(), ledger or Ledger())


def one(snapshot: Snapshot | None = None, run: ResetRun | None = None, ledger: Ledger | None = None) -> str:
    """Return the only fault."""
    (text,) = faults(snapshot, run, ledger)
    return text


def gpu(**fields: Any) -> Snapshot:
    """Return a look whose GPU A differs."""
    rows = fields.pop("processes", ())
    seen = replace(a_gpu(**fields), processes=rows if isinstance(rows, Unreadable) else Known(tuple(rows)))
    return ready(a_snapshot(gpus=(seen,)))


def test_as_it_must_be() -> None:
    """Back, empty, asking for nothing, its counters as before; a new index is no matter."""
    assert faults() == ()
    assert faults(gpu(index=5)) == ()
    assert faults(gpu(recovery_action=Absent("older driver"))) == ()


def test_not_back_under_its_uuid() -> None:
    """Another GPU in its place is not the one that was reset."""
    assert "did not come back" in one(ready(a_snapshot(gpus=(a_gpu(GPU_B),))))


def test_not_on_pci() -> None:
    """NVML may still list what the kernel has lost; no word of the kernel is no proof."""
    assert "is not there" in one(ready(kernel=Known(kernel_facts(()))))
    assert "was not read" in one(ready(kernel=Unreadable("hung")))
    found = faults(a_snapshot())
    assert any("PCI device" in text for text in found)
    assert any("counters were not read" in text for text in found)


@pytest.mark.parametrize(
    ("used", "baseline", "well"),
    [
        (409 * MIB, 0, True),
        (410 * MIB, 0, False),
        (GIB, GIB, True),
        (410 * MIB, None, False),
        (0, None, True),
    ],
)
def test_memory_at_the_baseline(used: int, baseline: int | None, *, well: bool) -> None:
    """At most 64 MiB or 0.5 % over it; one that was never seen is zero."""
    run = a_run(before=(before(baseline_bytes=baseline),))
    found = faults(gpu(memory=Known(GpuMemory(80 * GIB, used, 0))), run)
    assert (found == ()) is well


@pytest.mark.parametrize("field", ["memory", "processes", "recovery_action"])
def test_what_can_not_be_read_is_not_verified(field: str) -> None:
    """Each by its name."""
    assert "can't be" in one(gpu(**{field: Unreadable("timeout")}))


def test_somebody_on_it() -> None:
    """A holder by any sign, or a row of NVML's; one proven gone is nobody."""
    held = a_snapshot(holders=[a_holder(listed=False)])
    assert "pid 100" in one(ready(held))
    assert faults(ready(replace(held, exited=frozenset({a_ref()})))) == ()
    assert "pid 7" in one(gpu(processes=[a_row(7, used=0)]))


@pytest.mark.parametrize("action", [RecoveryAction.GPU_RESET, RecoveryAction.NODE_REBOOT])
def test_it_still_asks_for_something(action: RecoveryAction) -> None:
    """Even for a reset: the one that was made did not mend it."""
    assert str(action) in one(gpu(recovery_action=Known(action)))


def a_xid(**overrides: Any) -> Ledger:
    """Return a ledger with an Xid after the reset."""
    xid = StandingXid(GPU_A, BOOT, 79, FaultClass.LOST, seq=501, at=WALL)
    return Ledger(xids=(replace(xid, **overrides),))


def test_a_new_xid() -> None:
    """Any class counts; one from before, of another GPU or another boot does not."""
    assert "Xid 79" in one(ledger=a_xid())
    for old in ({"seq": 500}, {"gpu": GPU_B}, {"boot_id": "earlier"}):
        assert faults(ledger=a_xid(**old)) == ()


def test_a_new_xid_that_is_not_in_the_ledger_yet() -> None:
    """The look's own news count, by PCI address in whichever form."""
    line = XidLine(501, 1.0, "0000:00:00.0", 48, "text")
    news = KernelNews((line,), last_seq=501)
    assert "Xid 48" in one(replace(ready(), kernel_news=news))
    old = KernelNews((replace(line, seq=500), replace(line, pci="0000:77:00.0")), last_seq=501)
    assert faults(replace(ready(), kernel_news=old)) == ()


def test_a_log_that_is_not_read_to_its_end_is_a_fault() -> None:
    """The Xid may stand in the rest; the next look has it."""
    assert (
        one(replace(ready(), kernel_news=KernelNews(more=True)))
        == "the kernel's log is not read to its end yet"
    )


def test_a_gap_in_the_kernel_log_is_a_fault() -> None:
    """Nobody knows what was in it."""
    assert "may have been missed" in one(replace(ready(), kernel_news=KernelNews(gap="12 records lost")))


def test_a_log_that_was_not_read_before() -> None:
    """Readable now and not before: old and new can't be told apart. Never readable: time decides."""
    run = a_run(kernel_seq=None)
    assert "before the reset is not known" in one(replace(ready(), kernel_news=KernelNews(last_seq=9)), run)
    assert faults(run=run) == ()
    assert "Xid 79" in one(run=run, ledger=a_xid(seq=1))
    assert faults(run=run, ledger=a_xid(seq=1, at=WALL - 31)) == ()
    assert "Xid 79" in one(run=replace(run, tool_at=None), ledger=a_xid(seq=1, at=WALL - 31))
    line = XidLine(3, 1.0, "0000:00:00.0", 48, "text")
    found = faults(replace(ready(), kernel_news=KernelNews((line,))), run)
    assert len(found) == 2


GOOD = ErrorCounters(Known(0), Known(0), Known(value=False))


@pytest.mark.parametrize(
    ("field", "worse", "same"),
    [("uncorrected_ecc", 1, 0), ("remapped_rows", 2, 0), ("remap_failed", True, False)],
)
def test_counters(field: str, worse: Any, same: Any) -> None:
    """Risen, unreadable after, or not read before: a fault. Not offered after: none."""
    kept = before(pci_address="0000:00:00.0")

    def after(reading: Any, **was: Any) -> tuple[str, ...]:
        snapshot = with_facts(gpu_facts(counters=replace(GOOD, **{field: reading})))
        return faults(snapshot, a_run(before=(replace(kept, **was),)))

    assert after(Known(same)) == ()
    assert "rose from 0" in after(Known(worse))[0]
    assert "can't be compared" in after(Unreadable("x"))[0]
    assert "not read before" in after(Known(same), **{field: None})[0]
    assert after(Absent("no ECC"), **{field: None}) == ()


def test_the_look_itself_must_be_whole() -> None:
    """No full scan, a gap in it, or somebody unreadable: nobody knows who holds the GPU."""
    scan = ScanCoverage(None, full_now=False, skipped=("pid 9",))
    found = faults(ready(a_snapshot(scan=scan, unreadable={12: "hung"})))
    assert len(found) == 3


def test_every_gpu_of_the_run_must_have_its_before() -> None:
    """A run that does not say what was before can't be verified, and none at all never is."""
    assert "not known for each" in faults(run=a_run(before=()))[0]
    assert "not known for each" in faults(run=a_run(gpus=(), before=()))[0]
    both = ready(a_snapshot(gpus=(a_gpu(), a_gpu(GPU_B))))
    assert faults(both, a_run(GPU_A, GPU_B)) == ()
    assert all(GPU_B in text for text in faults(ready(), a_run(GPU_A, GPU_B)))
