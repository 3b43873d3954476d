"""The parsers of /proc text, on real text and on hostile names."""

import os
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.host.proc_text import (
    MOST_GROUPS,
    CgroupLine,
    mask_secrets,
    parse_cgroup,
    parse_stat,
    parse_status,
    printable,
)

_REST = (
    "S 41 42 43 0 -1 4194304 1 2 3 4 111 22 0 0 20 0 7 0 987654 1 2 3 4 5 6 7 8 9 10 11 12 13 14 17 5 0 0"
    " 0 0 0 1 2 3 700 800 1 2 0"
)


@given(st.text(max_size=40))
def test_a_comm_of_any_text_moves_no_field(comm: str) -> None:
    """Spaces, brackets, newlines and `)` in a name change no other field."""
    stat = parse_stat(f"40 ({comm}) {_REST}\n")
    assert (stat.pid, stat.comm, stat.state, stat.ppid) == (40, comm, "S", 41)
    assert (stat.flags, stat.utime, stat.stime, stat.thread_count) == (4194304, 111, 22, 7)
    assert stat.start_ticks == 987654


def test_a_comm_that_imitates_a_whole_line_is_still_a_name() -> None:
    """A name that holds a complete fake ending is cut at the last bracket."""
    stat = parse_stat(f"40 (x) Z 1 0 0) {_REST}")
    assert stat.comm == "x) Z 1 0 0"
    assert stat.state == "S"


@given(st.text(max_size=300))
def test_no_text_breaks_the_parsers(text: str) -> None:
    """What is no stat or status text raises ValueError and nothing else; cgroup lines never raise."""
    for parse in (parse_stat, parse_status):
        try:
            parse(text)
        except ValueError as fault:
            assert str(fault).isprintable()  # noqa: PT017  # raising is allowed, not required
    parse_cgroup(text)


def test_our_own_files_are_read_as_the_system_says() -> None:
    """Real stat and status text of this process agree with os."""
    stat = parse_stat(Path("/proc/self/stat").read_text(encoding="utf-8"))
    status = parse_status(Path("/proc/self/status").read_text(encoding="utf-8"))
    assert (stat.pid, stat.ppid) == (os.getpid(), os.getppid())
    assert status.tgid == os.getpid()
    assert status.uids[:3] == os.getresuid()
    assert status.gids[:3] == os.getresgid()
    assert status.ns_pids[-1] == os.getpid()
    assert status.vm_rss_bytes is not None
    assert status.vm_rss_bytes > 1 << 20
    assert not status.kill_pending
    assert not status.core_dumping


def test_groups_and_parent_are_read_and_a_flood_of_groups_is_cut() -> None:
    """Ours as the system says; of 65,536 groups the lowest stay; a text without the line has none."""
    text = Path("/proc/self/status").read_text(encoding="utf-8")
    status = parse_status(text)
    assert (status.ppid, sorted(status.groups)) == (os.getppid(), sorted(os.getgroups()))
    head, line, tail = text.partition("\nGroups:")
    rest = tail[tail.index("\n") :]
    many = " ".join(map(str, range(65_536)))
    assert parse_status(f"{head}{line}\t{many} {rest}").groups == tuple(range(MOST_GROUPS))
    assert parse_status(head + rest).groups == ()


def test_a_status_without_memory_and_with_a_pending_kill_is_read_so() -> None:
    """An exiting task has no VmRSS (None, not 0); a pending SIGKILL is bit 8; NSpid lists both pids."""
    text = (
        "Name:\tx\nState:\tD\nTgid:\t490\nPid:\t490\nTracerPid:\t7\nUid:\t1\t2\t3\t4\nGid:\t5\t6\t7\t8\n"
        "NSpid:\t490\t1\nThreads:\t3\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n"
    )
    status = parse_status(text)
    assert status.vm_rss_bytes is None
    assert status.kill_pending
    assert status.ns_pids == (490, 1)
    assert (status.uids, status.threads, status.tracer_pid) == ((1, 2, 3, 4), 3, 7)


def test_cgroup_lines_keep_colons_and_name_the_hierarchy() -> None:
    """A path may hold colons; v2 has no controllers; a broken line is left out."""
    text = (
        "9:name=systemd:/a\n3:cpu,cpuacct:/b\nrubbish\n0::/system.slice/c.slice:cri-containerd:d (deleted)\n"
    )
    assert parse_cgroup(text) == (
        CgroupLine(9, "name=systemd", "/a"),
        CgroupLine(3, "cpu,cpuacct", "/b"),
        CgroupLine(0, "", "/system.slice/c.slice:cri-containerd:d (deleted)"),
    )


@given(st.text(max_size=60))
def test_nothing_unprintable_passes(text: str) -> None:
    """Whatever goes in, what comes out is plainly visible text and can be encoded."""
    shown = printable(text)
    assert shown.isprintable()
    shown.encode("utf-8")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain é", "plain é"),
        ("a\x1b[2Jb", "a\\x1b[2Jb"),
        ("a\nb\tc", "a\\x0ab\\x09c"),
        ("\u202egnp", "\\u202egnp"),
        ("\u200b\u2066", "\\u200b\\u2066"),
        (os.fsdecode(b"x\xff"), "x\\xff"),
        ("\U000e0041", "\\U000e0041"),
    ],
)
def test_controls_and_direction_marks_become_escapes(text: str, shown: str) -> None:
    """Escape sequences, line ends, bidirectional marks and bytes that are no UTF-8 are written out."""
    assert printable(text) == shown


@pytest.mark.parametrize(
    ("args", "masked"),
    [
        (("--token=abc",), ("--token=***",)),
        (("--password", "hunter2", "x"), ("--password", "***", "x")),
        (("password=a b c",), ("password=***",)),
        (("AWS_SECRET_ACCESS_KEY=zzz",), ("AWS_SECRET_ACCESS_KEY=***",)),
        (("AWS_SESSION=zzz",), ("AWS_SESSION=***",)),
        (("-H", "Authorization: Bearer abcdef"), ("-H", "Authorization: Bearer ***")),
        (("-H", "X-Api-Key: abc"), ("-H", "X-Api-Key: ***")),
        (("https://me:pw@host/x",), ("https://***@host/x",)),
        (("http://host/x?token=abc&y=1",), ("http://host/x?token=***&y=1",)),
        (("--api-key", "k"), ("--api-key", "***")),
        (('{"secret": "v", "n": 1}',), ('{"secret": ***, "n": 1}',)),
        (("sh", "-c", "HF_TOKEN=abc python t.py"), ("sh", "-c", "HF_TOKEN=***")),
        (("hf_abcdefghijklmnopqrst",), ("***",)),
        (("--tokenizer", "bert", "--max-tokens", "5"), ("--tokenizer", "bert", "--max-tokens", "5")),
        (("--token", "--verbose"), ("--token", "--verbose")),
    ],
)
def test_secrets_are_masked_and_names_are_kept(args: tuple[str, ...], masked: tuple[str, ...]) -> None:
    """Each known form loses its value and keeps its name; what only looks alike stays.

    An argument that begins with an assignment loses all that follows: a value may hold spaces.
    """
    assert mask_secrets(args) == masked


@given(
    st.text(alphabet=st.characters(min_codepoint=33, max_codepoint=126, exclude_characters="\"'"), min_size=1)
)
def test_a_password_given_by_assignment_never_shows(value: str) -> None:
    """No value of `--password=` survives, whatever it holds."""
    assert mask_secrets((f"--password={value}",)) == ("--password=***",)


@pytest.mark.parametrize(
    "piece", ["token", "token=", "a://", "AWS_", "authorization ", "'", "a.-", "bearer  "]
)
def test_no_argument_is_dear_to_mask(piece: str) -> None:
    """A hostile argument of the longest length that is read costs well under a second."""
    began = time.process_time()
    mask_secrets((piece * (16384 // len(piece)),))
    assert time.process_time() - began < 0.5
