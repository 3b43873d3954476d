"""What stands against a GPU: only this boot's news, counted, and with the class that is to be believed."""

from collections.abc import Iterable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.judge.standing_xids import (
    action_class,
    address_of,
    addresses_of,
    unplaced,
    with_xids,
    without_xids,
)
from reclaimerd.model.fault import FaultClass, KernelNews, StandingXid, XidEntry, XidLine
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import RecoveryAction, Snapshot
from tests.builders import BOOT, GPU_A, GPU_B, MONO, WALL, a_gpu, a_snapshot

PCI_A, PCI_B = "0000:00:00.0", "0000:01:00.0"
PLACES = {PCI_A: GPU_A, PCI_B: GPU_B}
CHANGED = "GPU recovery action changed from 0x{0:x} ({1}) to 0x{2:x} ({3})"
CATALOGUE = {
    code: XidEntry(code, fault, "NAME", "source")
    for code, fault in {
        31: FaultClass.APPLICATION,
        45: FaultClass.IGNORE,
        48: FaultClass.RESET,
        62: FaultClass.RESET,
        63: FaultClass.IGNORE,
        64: FaultClass.RESET,
        79: FaultClass.LOST,
        109: FaultClass.RESET,
        149: FaultClass.UNKNOWN,
        154: FaultClass.UNKNOWN,
    }.items()
}


def a_line(seq: int, code: int, pci: str = PCI_A, text: str = "x", at: float = MONO) -> XidLine:
    """Return one line of the log."""
    return XidLine(seq, at, pci, code, text, pid_hint=1)


def a_look(*lines: XidLine, last: int | None = None, **overrides: object) -> Snapshot:
    """Return a look with these news of the kernel, at both GPUs."""
    newest = max((line.seq for line in lines), default=None) if last is None else last
    snapshot = a_snapshot(
        gpus=(a_gpu(), a_gpu(GPU_B)), kernel_news=KernelNews(lines, newest), processes=(), holders=()
    )
    return replace(snapshot, **overrides)  # type: ignore[arg-type] # any field of a snapshot


def a_ledger(*xids: StandingXid, seq: int | None = 0, boot_id: str = BOOT) -> Ledger:
    """Return a ledger that has read to this record."""
    return Ledger(xids=xids, kernel_seq=seq, kernel_boot=boot_id)


def classes(xids: Iterable[StandingXid]) -> dict[int, FaultClass]:
    """Return each code's class."""
    return {xid.code: xid.fault for xid in xids}


def folded(*lines: XidLine) -> dict[int, FaultClass]:
    """Return what stands after one look with these lines."""
    return classes(with_xids(a_ledger(), a_look(*lines), CATALOGUE, PLACES)[0].xids)


def test_a_line_stands_against_its_gpu_from_its_own_time_on() -> None:
    """By the catalogue's class, at the wall-clock time of the kernel's stamp."""
    ledger, new = with_xids(a_ledger(), a_look(a_line(7, 48, PCI_B, at=MONO - 3)), CATALOGUE, PLACES)
    assert new == (StandingXid(GPU_B, BOOT, 48, FaultClass.RESET, 7, WALL - 3, 1, "x"),)
    assert ledger.xids == new
    assert (ledger.kernel_seq, ledger.kernel_boot) == (7, BOOT)


def test_a_stamp_from_the_future_is_now() -> None:
    """The kernel's clock may run ahead of ours by some milliseconds."""
    _, (xid,) = with_xids(a_ledger(), a_look(a_line(7, 48, at=MONO + 5)), CATALOGUE, PLACES)
    assert xid.at == WALL


def test_lines_are_counted_and_told_once() -> None:
    """The newest line's number and text stay; a second line of one code is no news."""
    first, _ = with_xids(a_ledger(), a_look(a_line(1, 31), a_line(2, 31)), CATALOGUE, PLACES)
    second, new = with_xids(first, a_look(a_line(3, 31, text="y")), CATALOGUE, PLACES)
    (xid,) = second.xids
    assert (xid.count, xid.seq, xid.text, new) == (3, 3, "y", ())


def test_c05_a_stale_line_never_counts() -> None:
    """C05: lines that were read before, and all that stood in another boot, are gone."""
    look = a_look(a_line(4, 45), a_line(5, 48), a_line(6, 62), last=6)
    assert classes(with_xids(a_ledger(seq=5), look, CATALOGUE, PLACES)[0].xids) == {62: FaultClass.RESET}
    old = StandingXid(GPU_A, "another-boot", 79, FaultClass.LOST, 9, WALL)
    after, new = with_xids(a_ledger(old, seq=900, boot_id="another-boot"), look, CATALOGUE, PLACES)
    assert 79 not in classes(after.xids)
    assert [xid.code for xid in new] == [45, 48, 62]
    assert (after.kernel_seq, after.kernel_boot) == (6, BOOT)


def test_a_look_without_news_keeps_the_place_in_the_log() -> None:
    """No number read is no number lost."""
    ledger, new = with_xids(a_ledger(seq=5), a_look(), CATALOGUE, PLACES)
    assert (ledger.kernel_seq, new) == (5, ())
    fresh, _ = with_xids(Ledger(), a_look(), CATALOGUE, PLACES)
    assert (fresh.kernel_seq, fresh.kernel_boot) == (None, BOOT)


def test_a_code_that_nobody_knows_is_unknown() -> None:
    """Fail closed: it stands above a reset."""
    assert folded(a_line(1, 9999)) == {9999: FaultClass.UNKNOWN}


@pytest.mark.parametrize("retirement", [63, 64])
def test_a_double_bit_error_with_a_retirement_asks_for_a_drain_first(retirement: int) -> None:
    """The vendor's workflow for 48: alone a reset, with 63 or 64 on the same GPU drain and reset."""
    assert folded(a_line(1, 48))[48] is FaultClass.RESET
    assert folded(a_line(1, 48), a_line(2, retirement))[48] is FaultClass.DRAIN_AND_RESET
    assert folded(a_line(1, 48), a_line(2, retirement, PCI_B))[48] is FaultClass.RESET


@pytest.mark.parametrize(
    ("action", "fault"),
    [
        (Known(RecoveryAction.NONE), FaultClass.IGNORE),
        (Known(RecoveryAction.GPU_RESET), FaultClass.IGNORE),
        (Unreadable("silent"), FaultClass.UNKNOWN),
        (Absent("before R565"), FaultClass.UNKNOWN),
    ],
)
def test_nvlink_faults_follow_the_recovery_action(action: Reading[RecoveryAction], fault: FaultClass) -> None:
    """Where the driver says itself what it asks for their own line counts for nothing, else it is unknown."""
    look = a_look(a_line(1, 149), gpus=(a_gpu(recovery_action=action),))
    ledger, new = with_xids(a_ledger(), look, CATALOGUE, PLACES)
    assert classes(ledger.xids) == {149: fault}
    assert len(new) == 1
    _, again = with_xids(ledger, replace(look, kernel_news=KernelNews()), CATALOGUE, PLACES)
    assert again == ()


def test_what_follows_the_action_is_no_news_when_that_changes() -> None:
    """A reading that fails makes the class unknown, and tells nothing of the log."""
    ledger, _ = with_xids(a_ledger(), a_look(a_line(1, 149)), CATALOGUE, PLACES)
    blind = a_look(gpus=(a_gpu(recovery_action=Unreadable("silent")),))
    after, new = with_xids(ledger, blind, CATALOGUE, PLACES)
    assert (classes(after.xids), new) == ({149: FaultClass.UNKNOWN}, ())


@pytest.mark.parametrize(
    ("number", "words", "fault"),
    [
        (0, "None", FaultClass.NONE),
        (1, "GPU Reset Required", FaultClass.RESET),
        (2, "Node Reboot Required", FaultClass.REBOOT),
        (3, "Drain P2P", FaultClass.OTHER),
        (4, "Drain and Reset", FaultClass.DRAIN_AND_RESET),
        (5, "Recover IMEX Domain", FaultClass.OTHER),
        (6, "Something New", FaultClass.REBOOT),
        (7, "Something New", FaultClass.REBOOT),
        (8, "Something New", FaultClass.UNKNOWN),
        (1, "Something New", FaultClass.UNKNOWN),
        (8, "GPU Reset Required", FaultClass.UNKNOWN),
        (1, "Node Reboot Required", FaultClass.REBOOT),
        (2, "None", FaultClass.REBOOT),
    ],
)
def test_xid_154_says_what_it_asks_for(number: int, words: str, fault: FaultClass) -> None:
    """By number and words; of two that differ the graver, and what nobody knows is unknown."""
    assert action_class(CHANGED.format(0, "None", number, words)) is fault


@pytest.mark.parametrize("text", ["", "GPU recovery action changed", "GPU recovery action changed to 0x1"])
def test_another_text_of_154_is_unknown(text: str) -> None:
    """A form that we don't know asks for no reset."""
    assert action_class(text) is FaultClass.UNKNOWN


def test_a_name_before_the_text_of_154_changes_nothing() -> None:
    """The driver's own words come last."""
    name = "pid=1, name=to 0x0 (None), "
    assert action_class(name + CHANGED.format(0, "None", 2, "Node Reboot Required")) is FaultClass.REBOOT


@given(st.text(max_size=15))
def test_no_name_makes_154_milder(name: str) -> None:
    """Fifteen characters are too few for the driver's sentence."""
    text = f"pid=1, name={name}, " + CHANGED.format(0, "None", 2, "Node Reboot Required")
    assert action_class(text) is FaultClass.REBOOT


def test_c43_a_display_fault_asks_for_a_reset_and_for_nobodys_end() -> None:
    """C43: 62, 154 and 109 blame a GPU; `(udev-worker)` and its pid stand nowhere but in a text."""
    reset = CHANGED.format(0, "None", 1, "GPU Reset Required")
    named = "pid=619, name=(udev-worker), channel 0x00000001, errorString CTX SWITCH TIMEOUT, Info 0x4000"
    lines = (
        a_line(1, 62, text="32344000 0000b670"),
        a_line(2, 154, text=reset),
        a_line(3, 109, text=named),
    )
    ledger, new = with_xids(a_ledger(), a_look(*lines), CATALOGUE, PLACES)
    assert classes(ledger.xids) == dict.fromkeys((62, 154, 109), FaultClass.RESET)
    assert {xid.gpu for xid in new} == {GPU_A}


def test_154_is_what_its_newest_line_says() -> None:
    """A milder action takes the place of a graver, a graver one is news, and `None` ends it."""
    reset = a_line(1, 154, text=CHANGED.format(0, "None", 1, "GPU Reset Required"))
    reboot = a_line(2, 154, text=CHANGED.format(1, "GPU Reset Required", 2, "Node Reboot Required"))
    none = a_line(3, 154, text=CHANGED.format(2, "Node Reboot Required", 0, "None"))
    first, _ = with_xids(a_ledger(), a_look(reset), CATALOGUE, PLACES)
    second, graver = with_xids(first, a_look(reboot), CATALOGUE, PLACES)
    assert [xid.fault for xid in graver] == [FaultClass.REBOOT]
    third, _ = with_xids(second, a_look(none), CATALOGUE, PLACES)
    assert third.xids == ()


def test_a_line_of_a_gpu_that_nobody_saw_yet_waits_under_its_address() -> None:
    """A driver that is silent at our start hides the UUIDs: the fault is not lost, and is told once."""
    blind = a_look(a_line(1, 48), a_line(2, 48), gpus=())
    ledger, new = with_xids(a_ledger(), blind, CATALOGUE, {})
    assert [xid.gpu for xid in new] == [unplaced(PCI_A)]
    seen, again = with_xids(ledger, a_look(a_line(3, 48)), CATALOGUE, PLACES)
    assert [(xid.gpu, xid.count) for xid in seen.xids] == [(GPU_A, 3)]
    assert again == ()


def test_the_place_of_a_gpu_that_is_gone_is_remembered() -> None:
    """Lost GPUs are not listed any more, and their Xids must still be theirs."""
    places = addresses_of(a_look(), {})
    assert places == PLACES
    assert addresses_of(a_look(gpus=()), places) == PLACES


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("0000:3b:00.0", "0000:3b:00.0"),
        ("00010000:01:00.0", "10000:01:00.0"),
    ],
)
def test_each_form_of_an_address_is_one(text: str, address: str) -> None:
    """NVML's eight digits and the kernel's four name one place."""
    assert address_of(text) == address


def test_a_verified_reset_clears_its_gpus_alone() -> None:
    """Nothing else of the ledger changes."""
    ledger, _ = with_xids(a_ledger(), a_look(a_line(1, 48), a_line(2, 48, PCI_B)), CATALOGUE, PLACES)
    after = without_xids(ledger, (GPU_A,))
    assert [xid.gpu for xid in after.xids] == [GPU_B]
    assert replace(after, xids=ledger.xids) == ledger
