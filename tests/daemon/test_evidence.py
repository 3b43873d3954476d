"""Evidence of one process: what is in it, what never is, and that it ends in time and in size."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from reclaimerd.config.signatures import load_signatures
from reclaimerd.daemon.evidence import Evidence, EvidencePorts, collect, near
from reclaimerd.daemon.evidence_pages import as_json, as_text
from reclaimerd.errors import NoTargetError
from reclaimerd.model.kernel import KernelLook
from reclaimerd.model.process import PF_EXITING, ProcessReading
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.observe.answers import Gone, UnreadableProcess
from reclaimerd.observe.kernel_log import KernelLog, LogLine
from reclaimerd.observe.kernel_looks import KernelAnswer
from tests.builders import MONO, WALL, a_process
from tests.judge.kernel_builders import EXIT, a_ktask, a_look, exiting

CLOSE = f"schedule down_write os_acquire_rwlock_write/nvidia nvidia_close/nvidia __fput {EXIT}"
DRIVER = {"state": "unresponsive", "text": "driver unresponsive", "version": "580.1", "holders": []}


@dataclass(slots=True)
class World:
    """A host with some processes; time passes only where somebody sleeps."""

    answers: Mapping[int, KernelAnswer]
    process: ProcessReading | str = "not read"
    log: KernelLog = field(default_factory=lambda: KernelLog(()))
    children: Sequence[int] = ()
    hangs: bool = False
    now: float = MONO
    slept: list[float] = field(default_factory=list)

    async def looks(self, pids: Sequence[int]) -> Mapping[int, KernelAnswer]:
        """Return looks as of now."""
        return {pid: self._now(self.answers.get(pid, Gone())) for pid in pids}

    def _now(self, answer: KernelAnswer) -> KernelAnswer:
        return replace(answer, at=self.now) if isinstance(answer, KernelLook) else answer

    async def read_process(self, _pid: int) -> ProcessReading | str:
        """Return the process, or never."""
        if self.hangs:
            await asyncio.Event().wait()
        return self.process

    async def read_log(self) -> KernelLog:
        """Return the log."""
        return self.log

    async def read_children(self, _pid: int) -> Sequence[int]:
        """Return the descendants."""
        return self.children

    async def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.slept.append(seconds)
        self.now += seconds

    def ports(self) -> EvidencePorts:
        """Return the world as ports."""
        return EvidencePorts(
            self.looks, self.read_process, self.read_children, self.read_log, lambda: DRIVER,
            signatures=load_signatures(), clock=lambda: self.now, wall=lambda: WALL, sleep=self.sleep,
        )  # fmt: skip


def collected(world: World, pid: int = 100, seconds: float = 10.0) -> Evidence:
    """Collect evidence in this world."""
    return asyncio.run(collect(pid, world.ports(), seconds=seconds))


def page_of(world: World, pid: int = 100) -> dict[str, Any]:
    """Return evidence as JSON, through a JSON text."""
    return dict(json.loads(json.dumps(as_json(collected(world, pid)))))


def test_a_stuck_exit_is_sampled_longer_and_judged_with_words() -> None:
    """Without a verdict of the engine's: several samples, its signature, the lock, and what helps."""
    world = World({100: exiting(100, CLOSE)})
    page = page_of(world)
    assert page["leaving"] == "stuck_blocked"
    assert page["fault_domain"] == "driver"
    assert "SIGKILL cannot help" in page["plight"]
    assert len(page["tasks"][0]["samples"]) > 4
    assert page["locks"] == ["task 100 waits for the lock os_acquire_rwlock_write [nvidia]"]
    assert sum(world.slept) < 8


def test_a_healthy_process_is_sampled_for_a_second_and_nothing_is_said_of_it() -> None:
    """Four samples, no verdict."""
    world = World({100: a_look(100)})
    page = page_of(world)
    assert page["plight"] == ""
    assert len(page["tasks"][0]["samples"]) == 4
    assert 0.9 < sum(world.slept) < 1.1


def test_a_stack_that_stays_is_written_once_and_uncertain_frames_are_marked() -> None:
    """The first sample has the frames, the others say that they are the same."""
    page = page_of(World({100: exiting(100, f"?schedule {CLOSE}")}))
    first, second = page["tasks"][0]["samples"][:2]
    assert first["stack"][0] == "? schedule"
    assert second["same_stack"] is True


def test_parents_tracer_and_children_are_in_the_chain() -> None:
    """Who waits and who is waited for, each with its role and where it sleeps."""
    world = World(
        {
            100: exiting(100, CLOSE, tracer_pid=70),
            70: a_look(70),
            50: a_look(50, a_ktask(50, "S", wchan="do_wait"), ppid=1),
            1: a_look(1, ppid=0),
            101: exiting(101, CLOSE, ppid=100),
        },
        children=(101, 102),
    )
    chain = [(one["role"], one["pid"]) for one in page_of(world)["wait_chain"]]
    assert chain == [("tracer", 70), ("parent", 50), ("parent", 1), ("child", 101)]
    texts = {one["pid"]: one["text"] for one in page_of(world)["wait_chain"]}
    assert texts[50] == "running (state S), in do_wait"
    assert texts[101].startswith("exiting (state D)")


def test_the_command_line_comes_as_its_reader_masked_it_and_no_environment_is_there() -> None:
    """The page has the masked arguments and no field for an environment."""
    reading = a_process(100, cmdline=Known(("python", "--token=***")))
    page = page_of(World({100: exiting(100, CLOSE)}, process=reading))
    assert page["process"]["command"] == "python --token=***"
    assert "environ" not in json.dumps(page)


def test_another_process_under_the_same_pid_lends_nothing() -> None:
    """The command line of who has the pid now is not put on the one that was looked at."""
    page = page_of(World({100: exiting(100, CLOSE)}, process=a_process(100, 2, cmdline=Known(("other",)))))
    assert "command" not in page["process"]
    assert any("another process" in line for line in page["missing"])


def test_what_hangs_is_named_and_the_rest_comes_in_time() -> None:
    """A reader that never answers costs its share of the time, and evidence comes without it."""
    world = World({100: a_look(100)}, hangs=True)

    async def timed() -> tuple[Evidence, float]:
        loop = asyncio.get_running_loop()
        began = loop.time()
        made = await collect(100, world.ports(), seconds=1.2)
        return made, loop.time() - began

    made, took = asyncio.run(timed())
    assert took < 3
    assert made.process is None
    assert any(line.startswith("the process: it took longer") for line in made.missing)


def test_a_process_that_ends_meanwhile_leaves_what_was_seen() -> None:
    """Samples so far are evidence, and it is said why there are no more."""
    world = World({100: exiting(100, CLOSE)})
    answers = dict(world.answers)

    async def sleep(seconds: float) -> None:
        world.now += seconds
        world.answers = {100: Gone()}

    world.answers = answers
    made = asyncio.run(collect(100, replace(world.ports(), sleep=sleep)))
    assert len(made.looks) == 1
    assert "further samples: the process ended meanwhile" in made.missing


@pytest.mark.parametrize(
    ("answer", "why"), [(Gone(), "no process 100"), (UnreadableProcess("it hangs"), "it hangs")]
)
def test_no_process_or_an_unreadable_one_is_an_error_with_the_reason(answer: KernelAnswer, why: str) -> None:
    """Never an empty page."""
    with pytest.raises(NoTargetError, match=why):
        collected(World({100: answer}))


def test_stacks_that_can_not_be_read_are_missing_with_the_reason_and_r_names_the_way_out() -> None:
    """No right and no stack in R are two different things, and both are said."""
    denied = exiting(100, CLOSE)
    denied = replace(denied, tasks=(replace(denied.tasks[0], frames=Unreadable("permission denied")),))
    assert "kernel stacks: permission denied" in page_of(World({100: denied}))["missing"]
    running = page_of(World({100: exiting(100, "", "R")}))
    assert any("`reclaimctl evidence 100 --perf`" in line for line in running["missing"])


def test_kernel_lines_near_the_time_are_kept_and_older_ones_only_about_this_process() -> None:
    """Half an hour, and any report that names one of its tasks."""
    look = replace(a_look(100), at=10_000.0)
    old = "INFO: task python:{} blocked for more than 120 seconds."
    lines = [
        LogLine(100.0, "hung_task", old.format(100)),
        LogLine(101.0, "hung_task", old.format(999)),
        LogLine(102.0, "nvidia", "NVRM: old"),
        LogLine(9_990.0, "nvidia", "NVRM: new"),
    ]
    assert [line.at for line in near(lines, look)] == [100.0, 9_990.0]


@pytest.mark.slow
def test_a_page_is_cut_to_its_size_by_whole_tasks_and_lines_and_says_so() -> None:
    """Hundreds of deep stacks do not make a report that nobody can attach."""
    deep = " ".join(f"function_with_a_rather_long_name_{number}/nvidia" for number in range(60))
    tasks = tuple(a_ktask(100 + number, "D", 4, f"{deep} {number}", wchan="w") for number in range(200))
    log = KernelLog(tuple(LogLine(MONO, "nvidia", "x" * 1000) for _ in range(200)))
    made = collected(World({100: a_look(100, *tasks)}, log=log))
    page = as_json(made, most_bytes=64 << 10)
    assert len(json.dumps(page, separators=(",", ":"))) <= 64 << 10
    assert any("more tasks" in line for line in page["missing"])
    assert any("older kernel lines" in line for line in page["missing"])
    assert len(as_json(made)["tasks"]) == 64


def test_the_init_of_a_namespace_is_told_with_the_member_it_waits_for() -> None:
    """Its members are looked at too: the verdict names the one, and takes its mend."""
    waiting = a_ktask(300, "S", PF_EXITING, f"do_wait zap_pid_ns_processes {EXIT}")
    init = a_look(300, waiting, ns_pids=(300, 1))
    member = a_look(301, a_ktask(301, "D", PF_EXITING, CLOSE), ppid=300, ns_pids=(301, 2))
    page = page_of(World({300: init, 301: member}, children=(301,)), 300)
    assert "reboot the node" in page["plight"]
    assert f"it waits for {member.ref}" in page["plight"]


def test_a_dead_process_is_not_called_healthy() -> None:
    """Who reads `nothing` would look for a process that runs."""
    text = as_text(page_of(World({100: a_look(100, a_ktask(100, "Z"))})))
    assert "verdict: dead: it holds nothing, and its parent 50 has not reaped it yet" in text


def test_tasks_beyond_the_bound_of_a_look_are_counted_and_said_to_be_missing() -> None:
    """Who reads the report must not take the 256 that were looked at for all."""
    page = page_of(World({100: replace(exiting(100, CLOSE), task_count=1000)}))
    assert page["process"]["threads"] == 1000
    assert "999 more tasks" in page["missing"]


def test_the_text_has_every_part_and_the_verdict_first() -> None:
    """What a person reads: verdict, process, driver, tasks, waits, log, and what is missing."""
    world = World(
        {100: exiting(100, CLOSE)}, log=KernelLog((LogLine(MONO, "nvidia", "NVRM: Xid"),), "only the newest")
    )
    text = as_text(page_of(world))
    assert (
        text.index("verdict: exiting") < text.index("PROCESS") < text.index("TASKS") < text.index("NOT HERE")
    )
    for part in (
        "nvidia_close [nvidia]",
        "driver unresponsive",
        "NVRM: Xid",
        "only the newest",
        "the same stack",
    ):
        assert part in text
