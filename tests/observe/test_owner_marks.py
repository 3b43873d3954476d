"""The marks of units, asked of a `systemctl` that is a real program of the test's own, and of pods."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.host.child import Finished, Overran
from reclaimerd.model.allocation import ClusterView, PodState
from reclaimerd.model.policy import OwnerMarks
from reclaimerd.model.ports import Look
from reclaimerd.model.process import ProcessReading, Workload, WorkloadKind, WorkloadNames
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.observe import owner_marks as owner_marks_module
from reclaimerd.observe.owner_marks import AGAIN_SECONDS, MarkEyes, UnitMarks, parse_marks, unit_marks_of
from tests.builders import MONO, WALL, a_busy_snapshot, a_process

pytestmark = pytest.mark.process

PROGRAM = """#!/bin/sh
echo "$*" >> {folder}/asked
[ "$1 $2 $3" = "show -p Id,ControlGroup,Environment" ] || exit 9
shift 4
for unit in "$@"; do
    cat "{folder}/$unit" 2>/dev/null || printf 'Id=%s\\nControlGroup=\\nEnvironment=\\n' "$unit"
    echo
done
"""
U = "9a15d2b5-c152-46b9-96e0-d57032629e1f"


def in_unit(pid: int = 100, unit: str = "train.service", **parts: Any) -> ProcessReading:
    """Return a process in a unit of the system's manager."""
    path = f"/system.slice/{unit}"
    workload = Workload(WorkloadKind.UNIT, f"unit {unit}", path, unit=unit)
    return a_process(pid, workload=replace(workload, **parts))


class Host:
    """A folder of units, the program that shows them, whoever holds GPUs, and a clock."""

    def __init__(self, folder: Path, *readings: ProcessReading) -> None:
        self.folder, self.now = folder, MONO
        self.readings = readings
        self.cluster: Reading[ClusterView] = Absent("no cluster is asked")
        self.settings = OwnerMarks(users=("alice",))
        self.program = folder / "systemctl"
        self.program.write_text(PROGRAM.format(folder=folder), encoding="utf-8")
        self.program.chmod(0o755)
        self.units = UnitMarks(lambda: self.now, self.program, folder)
        self.eyes = MarkEyes(self, self.units, lambda: self.settings)

    def put(self, unit: str, environment: str, group: str | None = None) -> None:
        """Let systemd know this of a unit."""
        place = f"/system.slice/{unit}" if group is None else group
        text = f"Id={unit}\nControlGroup={place}\nEnvironment={environment}\n"
        (self.folder / unit).write_text(text, encoding="utf-8")

    def asked(self) -> list[str]:
        """Return the arguments of each question."""
        file = self.folder / "asked"
        return file.read_text(encoding="utf-8").splitlines() if file.exists() else []

    async def sample(self, _look: Look) -> Snapshot:
        """Return a look with these holders."""
        return replace(a_busy_snapshot(*self.readings, at=self.now), cluster=self.cluster)

    async def look(self, look: Look | None = None) -> dict[int, str]:
        """Look once, wait until nobody is asked any more, and return who bears which mark."""
        snapshot = await self.eyes.sample(look or Look())
        if self.units._task is not None:
            await self.units._task
        names = {pid: one.workload.names for pid, one in snapshot.processes.items()}
        return {pid: one.spare_mark for pid, one in names.items() if one is not None and one.spare_mark}

    async def knows(self) -> list[int]:
        """Return of whom it is known whether they bear a mark."""
        await self.look()
        snapshot = await self.eyes.sample(Look())
        named = {pid: one.workload.names for pid, one in snapshot.processes.items()}
        return [pid for pid, one in named.items() if one is not None and one.mark_known]


def test_a_units_mark_is_what_systemd_knows(tmp_path: Path) -> None:
    """The variable that its unit file sets; nothing else of the environment is kept anywhere."""
    host = Host(tmp_path, in_unit(), in_unit(200, "other.service"))
    host.put("train.service", 'TOKEN=hush "RECLAIMERD_SPARE=till friday"')
    host.put("other.service", "TOKEN=hush")
    assert asyncio.run(host.look()) == {100: "till friday"}
    assert host.asked() == ["show -p Id,ControlGroup,Environment -- other.service train.service"]
    assert "hush" not in repr(host.units._known._values)


def test_units_are_asked_for_once_a_minute_and_nobody_waits_but_the_first(tmp_path: Path) -> None:
    """A mark that was set or taken away meanwhile is seen after a minute."""
    host = Host(tmp_path, in_unit())

    async def scene() -> None:
        assert await host.look() == {}
        host.put("train.service", "RECLAIMERD_SPARE=yes")
        host.now += AGAIN_SECONDS - 1
        assert await host.look() == {}
        assert len(host.asked()) == 1
        host.now += 1
        assert await host.look() == {}, "asked beside the pass"
        assert await host.look() == {100: "yes"}
        assert len(host.asked()) == 2

    asyncio.run(scene())


@pytest.mark.parametrize(
    "reading",
    [
        in_unit(trusted=False),
        in_unit(kind=WorkloadKind.SESSION),
        in_unit(unit=""),
        in_unit(path="/system.slice/outer.slice"),
        in_unit(unit="-x.service"),
    ],
)
def test_only_a_proven_unit_is_asked_for(tmp_path: Path, reading: ProcessReading) -> None:
    """No untrusted path, no session, nothing that is no unit's own directory."""
    host = Host(tmp_path, reading)
    host.put("train.service", "RECLAIMERD_SPARE=yes")
    assert asyncio.run(host.look()) == {}
    assert host.asked() == []


def test_a_unit_of_that_name_elsewhere_has_no_say(tmp_path: Path) -> None:
    """The manager must name the very cgroup in which the process is."""
    host = Host(tmp_path, in_unit())
    host.put("train.service", "RECLAIMERD_SPARE=yes", "/other.slice/train.service")
    assert asyncio.run(host.look()) == {}
    assert asyncio.run(host.knows()) == [], "what systemd says is of no help here"


def test_without_a_listed_user_nobody_is_asked(tmp_path: Path) -> None:
    """No user's marks count: nobody is asked; nor is anybody before a reset, or where there is no systemd."""
    host = Host(tmp_path, in_unit())
    host.put("train.service", "RECLAIMERD_SPARE=yes")
    host.settings = OwnerMarks(namespaces=("ml",))
    asyncio.run(host.look())
    host.settings = OwnerMarks(users=("alice",))
    asyncio.run(host.look(Look(reset=True)))
    asyncio.run(host.look(Look(without_driver=True)))
    host.units._booted = tmp_path / "nothing"
    asyncio.run(host.look())
    assert host.asked() == []


def test_a_systemd_that_gives_no_answer_takes_no_mark_away(tmp_path: Path) -> None:
    """A mark only spares: it stays while systemd fails, and a failure makes none."""
    host = Host(tmp_path, in_unit())
    host.put("train.service", "RECLAIMERD_SPARE=yes")

    async def scene() -> None:
        await host.look()
        host.program.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
        host.now += AGAIN_SECONDS
        await host.look()
        assert await host.look() == {100: "yes"}
        host.program.unlink()
        host.now += AGAIN_SECONDS
        await host.look()
        assert await host.look() == {100: "yes"}

    asyncio.run(scene())
    folder = tmp_path / "another"
    folder.mkdir()
    fresh = Host(folder, in_unit())
    fresh.program.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
    assert asyncio.run(fresh.look()) == {}
    assert asyncio.run(fresh.knows()) == []


def test_a_unit_without_a_mark_is_known_to_have_none(tmp_path: Path) -> None:
    """Nobody has to doubt it: systemd was asked, and said so; but not for as long as it then is silent."""
    host = Host(tmp_path, in_unit())
    host.put("train.service", "TOKEN=hush")

    async def scene() -> None:
        assert await host.look() == {}
        assert await host.knows() == [100]
        host.program.write_text("#!/bin/sh\nexit 1\n", encoding="utf-8")
        host.now += AGAIN_SECONDS
        assert await host.knows() == []

    asyncio.run(scene())


def test_a_systemctl_that_nothing_ends_is_started_once(tmp_path: Path) -> None:
    """While the first one lives no other is started, and no pass waits."""
    started: list[Sequence[str]] = []

    class Living:
        code: int | None = None

    async def run(argv: Sequence[str], *, deadline_seconds: float) -> Finished | Overran:
        assert deadline_seconds == owner_marks_module.ASK_SECONDS
        started.append(argv)
        child: Any = Living()
        return Overran(1, gone=False, out="", err="", child=child)

    host = Host(tmp_path, in_unit())
    host.units._run = run

    async def scene() -> None:
        for _ in range(3):
            assert await host.look() == {}
            host.now += AGAIN_SECONDS

    asyncio.run(scene())
    assert len(started) == 1


def test_marks_are_read_unit_by_unit() -> None:
    """One block for each; a unit that is not there has no place."""
    text = (
        "Id=a.service\nControlGroup=/a\nEnvironment=RECLAIMERD_SPARE=yes\n\n"
        "Id=b.service\nControlGroup=/b\nEnvironment=\n\n"
        "Id=c.service\nControlGroup=\n"
    )
    marks = {("a.service", "/a"): "yes", ("b.service", "/b"): "", ("c.service", ""): ""}
    assert parse_marks(text) == marks
    assert parse_marks("") == {}


def test_a_pods_mark_outlives_a_cluster_that_is_away(tmp_path: Path) -> None:
    """What the cluster said last stays while it fails; where no cluster is asked there is none."""
    names = WorkloadNames(pod_uid=U)
    workload = Workload(WorkloadKind.POD, "pod", f"/kubepods/pod{U}", names=names)
    host = Host(tmp_path, a_process(100, workload=workload))
    pod = PodState(U, "ml", "train-0", "Running", annotations=(("reclaimerd.io/spare", "yes"),))

    async def scene() -> None:
        host.cluster = Unreadable("the cluster has not answered yet")
        assert await host.look() == {}
        host.cluster = Known(ClusterView(MONO, WALL, (pod,)))
        assert await host.look() == {100: "yes"}
        host.cluster = Unreadable("away")
        assert await host.look() == {100: "yes"}
        host.cluster = Absent("no cluster is asked")
        assert await host.look() == {}

    asyncio.run(scene())


def test_a_simulated_host_has_a_systemctl_of_its_own(tmp_path: Path) -> None:
    """Its directory's program, and this machine's own only where nothing is simulated."""
    assert unit_marks_of(lambda: MONO, tmp_path)._systemctl == tmp_path / "systemctl"
    assert unit_marks_of(lambda: MONO, None)._systemctl == Path("/usr/bin/systemctl")
