"""Whose a drain in Slurm is, and how many of ours there are, by the texts that Slurm 22.05 printed."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.host.slurm_drain_text import (
    MarkRow,
    OurReason,
    parse_marks,
    parse_nodes,
    parse_ours,
    parse_stands,
    parse_total,
)

REASON = "reclaimerd: stuck_exit id=inc-6a0b1c-0d1e2f gpu=GPU-00000000 pids=41,42"
NODE = """\
NodeName=gpu01 Arch=x86_64 CoresPerSocket=1\x20
   CPUAlloc=0 CPUEfctv=4 CPUTot=4 CPULoad=9.42
   NodeAddr=127.0.0.1 NodeHostName=vm Version=22.05.8
   State={state} ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A
   Partitions=short,two\x20
   BootTime=1796023560 SlurmdStartTime=1796053343
{reason}
"""


def node(state: str, reason: str = "") -> str:
    """Return what `scontrol show node gpu01` prints."""
    return NODE.format(state=state, reason=f"   Reason={reason}" if reason else "")


def test_a_drain_of_ours_is_known_by_its_beginning_and_its_id() -> None:
    """State, reason, who and when are told; the id is the request's."""
    found = parse_stands(node("MIXED+DRAIN", f"{REASON} [root@1796052827]"), "gpu01")
    assert found is not None
    assert (found.drained, found.reason, found.by, found.at) == (True, REASON, "root", 1796052827.0)
    assert found.started_at == 1796053343.0
    assert found.ours == OurReason("stuck_exit", "inc-6a0b1c-0d1e2f")


@pytest.mark.parametrize(
    "reason",
    [
        "",
        "Kill task failed",
        f"see {REASON}",
        "reclaimerd: by hand",
        "reclaimerd: stuck_exit id=",
        "reclaimerd: STUCK id=inc-1",
        f"NHC: x [{REASON}]",
    ],
)
def test_any_other_reason_is_somebody_elses(reason: str) -> None:
    """Ours only begins so, with a code and an id."""
    found = parse_stands(node("IDLE+DRAIN", f"{reason} [ann@1796052827]" if reason else ""), "gpu01")
    assert found is not None
    assert found.reason == reason
    assert found.ours is None


def test_a_reason_may_hold_what_looks_like_its_end() -> None:
    """Who and when are the last words, whatever an administrator wrote before them."""
    found = parse_stands(node("DOWN*+DRAIN", "a [x@1] | b [ann@2026-11-30T15:17:41]"), "gpu01")
    assert found is not None
    assert (found.reason, found.by, found.at) == ("a [x@1] | b", "ann", None)
    assert found.words == {"DOWN", "DRAIN", "NOT_RESPONDING"}


@pytest.mark.parametrize("text", ["", "Node gpu01 not found", node("IDLE"), "NodeName=gpu02 State=IDLE"])
def test_another_node_is_not_this_one(text: str) -> None:
    """A name that only begins like another's, an empty answer, a node without a state: not known."""
    assert parse_stands(text, "gpu02") is None


def test_our_marks_are_counted_and_nobody_elses() -> None:
    """A dead node's drain counts; a node that is down and undrained does not, whatever reason it kept."""
    text = (
        f"1796052827|root|drained|gpu[01-03]|{REASON[:64]}\n"
        "1796052828|root|drained*|gpu07|reclaimerd: driver_unresponsive id=inc-6a0b1c-0d1e2f gpu=GPU-0000\n"
        f"1796052829|root|down*|gpu08|{REASON[:64]}\n"
        "1796052830|ann|drained|gpu09|maintenance | reclaimerd: stuck_exit id=x\n"
        "1796052831|root|maint|gpu10|reclaimerd: written by hand\n"
    )
    assert parse_marks(text) == (
        MarkRow("gpu[01-03]", "stuck_exit", 1796052827.0),
        MarkRow("gpu07", "driver_unresponsive", 1796052828.0),
        MarkRow("gpu10", "", 1796052831.0),
    )
    assert parse_marks("") == ()


@pytest.mark.parametrize("line", [f"Unknown|root|drained|gpu01|{REASON}", f"1|root|drained||{REASON}"])
def test_a_mark_that_can_not_be_read_is_no_count(line: str) -> None:
    """Without its time or its node nobody knows how many there are."""
    assert parse_marks(line) is None


@pytest.mark.parametrize(
    ("text", "count"), [("3\n", 3), ("3\n2\n", 5), ("", None), ("3K", None), ("-1", None)]
)
def test_how_many_nodes_there_are(text: str, count: int | None) -> None:
    """Only plain numbers count."""
    assert parse_total(text) == count


@pytest.mark.parametrize(
    ("text", "names"),
    [("gpu01\ngpu7\n", ("gpu01", "gpu7")), ("", None), ("gpu[01-02]", None), ("a;b", None)],
)
def test_only_plain_names_are_nodes(text: str, names: tuple[str, ...] | None) -> None:
    """A list, or anything else, is no node's name."""
    assert parse_nodes(text) == names


@given(st.text(alphabet=st.sampled_from("NodeName=gpu01 \n  State=Reason[]@|*reclaimerd: id=1")))
def test_no_text_makes_a_parser_raise(text: str) -> None:
    """Whatever is printed, there is an answer."""
    parse_stands(f"NodeName=gpu01 {text}", "gpu01")
    parse_marks(text)
    parse_total(text)
    parse_nodes(text)
    parse_ours(text)
