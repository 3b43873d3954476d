"""What cgroup files say: frozen, freezing, thawed, unknown; and whose memory figure counts."""

from pathlib import Path

import pytest

from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.observe import cgroup_state
from reclaimerd.observe.cgroup_state import read_cgroup_bytes, read_freezer

V1 = Known("6:freezer:/jobs/a\n4:memory:/jobs/a\n0::/\n")
V2 = Known("0::/system.slice/a.service\n")
THAWED: Reading[bool] = Known(value=False)


@pytest.fixture
def hierarchies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Lay the hierarchies out below a folder: `freezer`, `memory`, and `unified` for version 2."""

    def root(controllers: str) -> Path:
        place = tmp_path / (controllers or "unified")
        if not place.exists():
            raise FileNotFoundError(controllers)
        return place

    monkeypatch.setattr(cgroup_state, "cgroup_root", root)
    return tmp_path


def put(path: Path, text: str) -> None:
    """Write one file and the folders above it; each cgroup folder has its list of members."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    (path.parent / "cgroup.procs").touch()


@pytest.mark.parametrize(
    ("state", "seen", "expected"),
    [
        ("FROZEN\n", "", Known(value=True)),
        ("FREEZING\n", "refrigerated", Known(value=True)),
        ("FREEZING\n", "", THAWED),
        ("THAWED\n", "", THAWED),
    ],
)
def test_v1_says_frozen_and_while_it_freezes_only_the_tasks_tell(
    hierarchies: Path, state: str, seen: str, expected: Reading[bool]
) -> None:
    """One member in the kernel keeps the whole cgroup FREEZING: that member is not frozen, others are."""
    put(hierarchies / "freezer/jobs/a/freezer.state", state)
    (hierarchies / "unified").mkdir()
    where, frozen = read_freezer(V1, refrigerated=seen == "refrigerated")
    assert frozen == expected
    assert where == ("v1 /jobs/a" if frozen == Known(value=True) else "")


def test_v2_says_frozen_in_its_events(hierarchies: Path) -> None:
    """cgroup.events decides: it also tells of a cgroup above that was frozen."""
    events = hierarchies / "unified/system.slice/a.service/cgroup.events"
    put(events, "populated 1\nfrozen 0\n")
    assert read_freezer(V2, refrigerated=False) == ("", THAWED)
    put(events, "populated 1\nfrozen 1\n")
    assert read_freezer(V2, refrigerated=False) == ("v2 /system.slice/a.service", Known(value=True))


def test_what_can_not_be_read_is_unknown_and_never_thawed(hierarchies: Path) -> None:
    """A path outside our view, or a file that is missing, is unreadable; nothing mounted is absent."""
    assert isinstance(read_freezer(V2, refrigerated=False)[1], Absent)
    (hierarchies / "unified").mkdir()
    assert isinstance(read_freezer(V2, refrigerated=False)[1], Unreadable)
    assert isinstance(read_freezer(Known("0::/../../other\n"), refrigerated=False)[1], Unreadable)
    gone = Unreadable("permission denied")
    assert read_freezer(gone, refrigerated=False) == ("", gone)
    assert read_freezer(Known("0::/\n"), refrigerated=False) == ("", THAWED)
    assert read_freezer(Known("0::/a (deleted)\n"), refrigerated=False) == ("", THAWED)


def test_memory_is_its_own_cgroups_or_the_next_above_or_the_hosts(hierarchies: Path, tmp_path: Path) -> None:
    """v1 has its own file; v2 counts where it is switched on; the root has no figure but the host's."""
    put(hierarchies / "memory/jobs/a/memory.usage_in_bytes", "4096\n")
    assert read_cgroup_bytes(V1, tmp_path) == Known(4096)
    put(hierarchies / "unified/system.slice/memory.current", "8192\n")
    put(hierarchies / "unified/system.slice/a.service/cgroup.events", "frozen 0\n")
    assert read_cgroup_bytes(V2, tmp_path) == Known(8192)
    put(hierarchies / "unified/cgroup.procs", "")
    assert isinstance(read_cgroup_bytes(Known("0::/\n"), tmp_path), Unreadable)
    (tmp_path / "meminfo").write_text("MemTotal:  100 kB\nMemFree:  40 kB\nHugePages_Total: 0\n")
    assert read_cgroup_bytes(Known("0::/\n"), tmp_path) == Known(60 * 1024)
    (tmp_path / "meminfo").write_text("\n")
    assert isinstance(read_cgroup_bytes(Known("0::/\n"), tmp_path), Absent)
    assert isinstance(read_cgroup_bytes(Unreadable("no"), tmp_path), Unreadable)
