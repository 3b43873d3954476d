"""A recorded look comes back as it was; what is no such file, damaged or newer is a clear fault."""

import json
from dataclasses import replace
from typing import Any

import pytest

from reclaimerd.daemon.recorded_look import (
    FORMAT,
    VERSION,
    RecordedLook,
    SnapshotFileError,
    look_of,
    read_recorded,
    recorded,
)
from reclaimerd.errors import ExitCode
from reclaimerd.judge.protections import program_globs
from reclaimerd.model.allocation import SlurmJob, SlurmView
from reclaimerd.model.fault import FaultClass, KernelNews, StandingXid, XidLine
from reclaimerd.model.identity import FileIdentity
from reclaimerd.model.process import Connection, ProgramSigns
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.snapshot import DeadListing, HiddenListing, Snapshot
from tests.builders import (
    BOOT,
    GPU_A,
    GPU_B,
    NOT_LISTED,
    OURS,
    WALL,
    a_busy_snapshot,
    a_holder,
    a_process,
    a_ref,
)
from tests.judge.kernel_builders import a_ktask
from tests.judge.kernel_builders import a_look as a_kernel_look

XID = StandingXid(GPU_A, BOOT, 48, FaultClass.RESET, 7, WALL, text="double bit error")


def a_look() -> Snapshot:
    """Return a look that has something of everything."""
    reading = a_process(cmdline=Known(("python3", "--token=***", "\udcff")))
    look = a_busy_snapshot(reading)
    return replace(
        look,
        holders=(*look.holders, a_holder(200, GPU_B, used_bytes=NOT_LISTED, listed=False, heir_of=a_ref(7))),
        unreadable={200: "its tasks hang"},
        dead_listings=(DeadListing(GPU_A, 7, Unreadable("gone"), a_ref(7)),),
        exited=frozenset({a_ref(7), a_ref(8)}),
        baselines={GPU_A: 5},
        host_files={FileIdentity(1, 7): "/usr/bin/python3", FileIdentity(1, 8): "/usr/bin/Xorg"},
        gpus=(look.gpus[0], replace(look.gpus[1], memory=Absent("passthrough"))),
        signs={
            a_ref(): ProgramSigns(
                Known(5), Unreadable("too large"), Known((Connection("203.0.113.9", 3333),)), ("bash",)
            ),
            a_ref(8): ProgramSigns(Absent("none"), Known("ab" * 32), Known(())),
        },
        hidden=(HiddenListing(GPU_B, 9, Known(5), "/proc has no entry for it"),),
        kernel_news=KernelNews(xids=(XidLine(7, 1.5, "0000:3b:00.0", 48, "DBE"),), last_seq=7),
    )


def written(look: Snapshot | None = None) -> dict[str, Any]:
    """Return the look as it stands in a file."""
    wire = recorded(a_look() if look is None else look, OURS, program_globs(), (XID,))
    found = json.loads(json.dumps(wire))
    assert isinstance(found, dict)
    return found


def back(found: object) -> RecordedLook:
    """Return the look of a file's text."""
    return read_recorded(json.dumps(found).encode(), "look.json")


def test_a_look_comes_back_as_it_was() -> None:
    """Every value, readings that are unknown with them; a name's odd bytes come escaped."""
    found = back(written())
    plain = a_process(cmdline=Known(("python3", "--token=***", "\\udcff")))
    assert found.look == replace(a_look(), processes={100: plain})
    assert (found.ours, found.programs, found.xids) == (OURS, program_globs(), (XID,))
    assert look_of(written(), "the daemon") == found


def test_a_file_from_before_there_were_signs_is_read() -> None:
    """An older program wrote none of them, nor who was hidden."""
    older = written()
    del older["signs"]
    for name in ("signs", "hidden", "slurm", "cluster"):
        older["snapshot"].pop(name, None)
    found = back(older).look
    assert (found.signs, found.hidden) == ({}, ())


def test_what_slurm_says_is_in_the_file() -> None:
    """Jobs, the map and who is gone: a rule about jobs can be tried on it."""
    jobs = (SlurmJob("5", "RUNNING", gpu_indices=(0,), uid=1001), SlurmJob("6", "CANCELLED", ended_at=1.5))
    view = SlurmView(1.0, WALL, jobs, ((0, 1), (1, 0)), 30.0, 60.0, "", ("7",))
    look = replace(a_look(), slurm=Known(view))
    assert back(written(look)).look.slurm == Known(view)


def test_what_belongs_to_more_looks_than_one_is_left_out() -> None:
    """The kernel's own look stays; what the mind made of it over several looks is not kept."""
    look = replace(a_look(), kernel={100: a_kernel_look(100, a_ktask())})
    assert back(written(look)).look.kernel == look.kernel
    assert written(look)["snapshot"]["plights"] == {}


def test_the_file_holds_no_environment() -> None:
    """No key of it is one, and what was masked stays masked."""
    text = json.dumps(written())
    assert "environ" not in text
    assert "--token=***" in text


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "no JSON"),
        (b"{", "no JSON"),
        (b"\xff\xfe", "no JSON"),
        (b"[" * 100_000, "nested too deep"),
        (b"[]", "no snapshot of reclaimerd"),
        (b'{"format": "other"}', "no snapshot of reclaimerd"),
        (b'{"at": NaN}', "NaN is no number"),
    ],
)
def test_what_is_no_snapshot_is_a_clear_fault(content: bytes, what: str) -> None:
    """It names the file and what is wrong, with exit 2; never a traceback."""
    with pytest.raises(SnapshotFileError, match=what) as raised:
        read_recorded(content, "look.json")
    assert "look.json" in str(raised.value)
    assert raised.value.exit_code is ExitCode.USAGE
    assert raised.value.mend


@pytest.mark.parametrize(
    ("version", "what"), [(VERSION + 1, "has format version 2, and this program knows 1")]
)
def test_a_newer_file_names_both_versions_and_its_maker(version: int, what: str) -> None:
    """Who reads it learns which reclaimctl to use."""
    with pytest.raises(SnapshotFileError, match=what) as raised:
        back({**written(), "version": version, "made_by": "9.9"})
    assert "9.9" in raised.value.mend


@pytest.mark.parametrize("version", [None, "1", True, 1.5])
def test_without_a_version_it_is_damaged(version: object) -> None:
    """A version that is no number is none."""
    with pytest.raises(SnapshotFileError, match="no format version"):
        back({"format": FORMAT, "version": version})


def test_a_damaged_file_says_where() -> None:
    """A part that is missing or of another kind is named, and nothing of the content is repeated."""
    whole = written()
    without = {key: value for key, value in whole.items() if key != "host_files"}
    with pytest.raises(SnapshotFileError, match=r"damaged.*host_files"):
        back(without)
    torn = {**whole, "snapshot": {**whole["snapshot"], "holders": [{"secret": "word"}]}}
    with pytest.raises(SnapshotFileError, match=r"snapshot\.holders") as raised:
        back(torn)
    assert "word" not in str(raised.value)
