"""Stacks and log lines in every form that kernels write them, and in every form that an enemy may."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.host.kernel_text import (
    MOST_FRAMES,
    HungTask,
    LogRecord,
    parse_hung_task,
    parse_record,
    parse_stack,
    parse_switches,
    topic_of,
)
from reclaimerd.model.kernel import Frame


@pytest.mark.parametrize(
    ("line", "frame"),
    [
        ("[<0>] do_exit+0x1f/0x9c0", Frame("do_exit")),
        ("[<0>] nvidia_close+0x10/0x20 [nvidia]", Frame("nvidia_close", "nvidia")),
        ("[<ffffffffc33d41c2>] uvm_spin_loop+0xb2/0xe0 [nvidia_uvm]", Frame("uvm_spin_loop", "nvidia_uvm")),
        ("[<0>] ? os_schedule+0x5/0x10 [nvidia]", Frame("os_schedule", "nvidia", reliable=False)),
        ("? schedule+0x1/0x2", Frame("schedule", "", reliable=False)),
        ("[<0>] uvm_release.isra.0+0x1/0x2 [nvidia_uvm]", Frame("uvm_release.isra.0", "nvidia_uvm")),
        ("[<0>] _nv051482rm+0x1/0x2 [nvidia 1234abcd]", Frame("_nv051482rm", "nvidia")),
        ("uvm_va_space_destroy", Frame("uvm_va_space_destroy")),
        ("[<0>] 0xffffffffc0123456", Frame("0xffffffffc0123456", "", reliable=False)),
    ],
)
def test_each_form_of_a_line_is_one_frame(line: str, frame: Frame) -> None:
    """Addresses hidden or shown, modules, suffixes of the compiler, uncertain frames: each is one frame."""
    assert parse_stack(line + "\n") == (frame,)


def test_c01_a_stack_with_addresses_keeps_its_order_and_its_modules() -> None:
    """C01: old kernels write the address and end with -1; the innermost frame stays first."""
    names = ("uvm_spin_loop", "wait_for_entry_with_spin", "uvm_tracker_wait_for_entry", "uvm_ioctl")
    text = "".join(f"[<ffffffffc33d4{i:03x}>] {one}+0xb2/0xe0 [nvidia_uvm]\n" for i, one in enumerate(names))
    frames = parse_stack(text + "[<ffffffffffffffff>] 0xffffffffffffffff\n")
    assert frames == tuple(Frame(one, "nvidia_uvm") for one in names)


def test_an_empty_stack_and_garbage_are_no_frames_and_a_deep_one_is_cut() -> None:
    """A task in R shows nothing; what is no frame is left out; no stack is deeper than the kernel's own."""
    assert parse_stack("") == ()
    assert parse_stack("[<0>]\n\n  \n[nvidia]\nnot a frame at all\n") == ()
    assert len(parse_stack("[<0>] f+0x1/0x2\n" * 500)) == MOST_FRAMES


@given(st.text(max_size=400))
def test_no_text_makes_the_stack_parser_raise_or_print_controls(text: str) -> None:
    """Whatever stands there: frames that can be shown, or none."""
    for frame in parse_stack(text):
        assert str(frame).isprintable()


def test_switches_are_the_last_lines_and_a_name_does_not_move_them() -> None:
    """The counts come from the end of status; a process's name can't bring its own."""
    name = "x\\nvoluntary_ctxt_switches:\t9"
    text = f"Name:\t{name}\nvoluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t158\n"
    assert parse_switches(text) == (7, 158)
    assert parse_switches("Name:\tx\n") == (0, 0)


def test_c03_hung_task_lines_are_read_from_the_right() -> None:
    """C03: a comm with brackets and a colon does not shift the pid."""
    first = "[  721.028170] INFO: task nvc:[driver]:5403 blocked for more than 120 seconds."
    second = "[  721.031434] INFO: task nvc:[driver]:6067 blocked for more than 120 seconds."
    assert parse_hung_task(first) == HungTask("nvc:[driver]", 5403, 120)
    assert parse_hung_task(second) == HungTask("nvc:[driver]", 6067, 120)


@pytest.mark.parametrize(
    ("comm", "pid"),
    [("a b", 7), (") Z 1", 8), ("x:1 blocked", 9), ("task y:2", 10), ("", 11), (":", 12)],
)
def test_no_name_changes_the_pid_of_a_hung_task(comm: str, pid: int) -> None:
    """A name may hold colons, blanks and the line's own words: the pid is the last one."""
    found = parse_hung_task(f"INFO: task {comm}:{pid} blocked for more than 245 seconds.")
    assert found == HungTask(comm, pid, 245)


def test_newer_forms_of_the_line_are_known_and_others_are_none() -> None:
    """Newer kernels add why it waits; any other line names no task."""
    newer = "INFO: task dd:42 blocked in I/O wait for more than 122 seconds."
    assert parse_hung_task(newer) == HungTask("dd", 42, 122)
    for line in (
        "INFO: task dd:42 exited",
        "task dd:42 blocked",
        "INFO: task dd:x blocked for more than 1 seconds.",
    ):
        assert parse_hung_task(line) is None


def test_a_record_has_a_head_and_its_dictionary_is_left_out() -> None:
    """Level, facility, sequence and stamp come from the head; escapes are undone and made printable."""
    record = parse_record("6,100,2500000,-;NVRM: Xid\\x1b[31m 79\n SUBSYSTEM=pci\n DEVICE=+pci:0\n")
    assert record == LogRecord(100, 2.5, 6, from_kernel=True, text="NVRM: Xid\\x1b[31m 79")
    assert parse_record("nonsense") is None


def test_what_a_program_wrote_into_the_log_is_not_the_kernels() -> None:
    """Facility 1 (user): a workload can't frame another with a line of its own."""
    record = parse_record("12,7,1,-;INFO: task python:1 blocked for more than 120 seconds.")
    assert record is not None
    assert not record.from_kernel


@pytest.mark.parametrize(
    ("line", "topic"),
    [
        ("INFO: task python:1 blocked for more than 120 seconds.", "hung_task"),
        ("NVRM: Xid (PCI:0000:61:00): 119, pid=977823, name=nvidia-smi, Timeout waiting for RPC", "nvidia"),
        ("nvidia-modeset: ERROR: GPU:0: Idling display engine timed out", "nvidia"),
        ("BUG: unable to handle page fault for address: 0", "trouble"),
        ("watchdog: BUG: soft lockup - CPU#3 stuck for 26s! [UVM global queue:1234]", "trouble"),
        ("INFO: task python:1 is blocked on a mutex likely owned by task python:2.", "trouble"),
        ("eth0: link up", ""),
    ],
)
def test_lines_are_sorted_by_what_they_speak_of(line: str, topic: str) -> None:
    """Stuck tasks, the driver, the kernel's own faults, and the rest."""
    assert topic_of(line) == topic
