"""The facts for a reset joined from scripted workers: what fails is unreadable, alone and in words."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from reclaimerd.host.wire import to_wire
from reclaimerd.model.identity import DeviceNumber, GpuUuid
from reclaimerd.model.reading import Known, Reading, Unreadable
from reclaimerd.model.reset_facts import BusyThread, KernelFacts, ResetFacts, UnitFacts
from reclaimerd.observe.answers import Answer, Answered, Failed, Silent, SilentCause
from reclaimerd.observe.driver_grip import CLOSED_WHY
from reclaimerd.observe.kernel_facts import KernelAnswer
from reclaimerd.observe.nvml_reset import blind_facts
from reclaimerd.observe.probe import Probe
from reclaimerd.observe.reset_eyes import HostHands, ResetEyes, Scope
from reclaimerd.observe.units import NoSystemd, UnitReader
from tests.builders import GPU_A, GPU_B, MONO

SCOPE = Scope(("0000:3b:00.0",), (DeviceNumber(195, 0), DeviceNumber(195, 255)))
THREAD = BusyThread(60, "nv_queue", "nvidia_close_deferred [nvidia]")
OTHER = BusyThread(61, "nv_queue", "rm_shutdown_adapter [nvidia]")
QUIET = KernelFacts((), (), (), (), (), Known(0))


class Scripted:
    """A probe that answers each operation from a list, the last one for ever."""

    def __init__(self, **answers: Sequence[Answer]) -> None:
        self.answers = {op: list(each) for op, each in answers.items()}
        self.asked: list[tuple[str, Mapping[str, object]]] = []

    async def ask(
        self, op: str, args: Mapping[str, object] | None = None, *, answer_within: float | None = None
    ) -> Answer:
        """Return the next answer to this."""
        del answer_within
        self.asked.append((op, args or {}))
        left = self.answers[op]
        return left.pop(0) if len(left) > 1 else left[0]


class ScriptedUnits:
    """Units that were read, or not."""

    def __init__(self, answer: Reading[UnitFacts] | NoSystemd) -> None:
        self.answer = answer
        self.names: Sequence[str] = ()

    async def read(self, names: Sequence[str]) -> Reading[UnitFacts] | NoSystemd:
        """Return the answer, and note who was asked for."""
        self.names = names
        return self.answer


def answered(*parts: Any) -> Answered:
    """Return a whole answer."""
    return Answered(parts, MONO, MONO)


def kernel(facts: KernelFacts = QUIET) -> Answered:
    """Return the procfs worker's answer."""
    return answered({"kernel_facts": to_wire(KernelAnswer(facts))})


def threads(*busy: BusyThread, skipped: Sequence[str] = ()) -> Answered:
    """Return the procfs worker's second look at threads."""
    return answered({"busy": to_wire(busy), "skipped": list(skipped)})


class Rig:
    """Eyes over scripts; a whole host, until the test says otherwise."""

    def __init__(self, simulate: Path | None = None) -> None:
        blind = [to_wire(blind_facts(uuid, "0000:3b:00.0", "x")) for uuid in (GPU_A, GPU_B)]
        self.nvml = Scripted(reset_facts=[answered(*blind)])
        self.procfs = Scripted(kernel_facts=[kernel()])
        self.units = ScriptedUnits(Known(UnitFacts((), fabric_manager=True)))
        self.slept: list[float] = []
        self.hands = HostHands(
            ours=lambda: (901, 902),
            stop_units=lambda: ("nvidia-dcgm.service",),
            tool_fault=lambda: "no such program",
            simulate=simulate,
        )

    async def sleep(self, seconds: float) -> None:
        """Note the wait."""
        self.slept.append(seconds)

    def read(self, scope: Scope = SCOPE) -> ResetFacts:
        """Return the facts."""
        eyes = ResetEyes(
            cast("Probe", self.nvml),
            cast("Probe", self.procfs),
            cast("UnitReader", self.units),
            self.hands,
            self.sleep,
        )
        return asyncio.run(eyes.read(MONO, scope))

    def kernel(self, scope: Scope = SCOPE) -> KernelFacts:
        """Return the kernel's facts, which must be known."""
        found = self.read(scope).kernel
        assert isinstance(found, Known), found
        return found.value


def test_the_three_come_together_with_their_time_and_the_tool() -> None:
    """Every GPU, the kernel's view of what the sampler knows, the policy's units."""
    rig = Rig()
    facts = rig.read()
    assert facts.at == MONO
    assert facts.gpu(GPU_B) == blind_facts(GPU_B, "0000:3b:00.0", "x")
    assert facts.gpu(GpuUuid("GPU-none")) is None
    assert facts.kernel == Known(QUIET)
    assert facts.units == Known(UnitFacts((), fabric_manager=True))
    assert (facts.tool_fault, facts.notes) == ("no such program", ())
    assert rig.units.names == ("nvidia-dcgm.service",)
    assert rig.procfs.asked == [
        (
            "kernel_facts",
            {
                "addresses": ["0000:3b:00.0"],
                "devices": [[195, 0], [195, 255]],
                "ours": [901, 902],
                "root": None,
                "sys_root": "/sys",
            },
        )
    ]
    assert rig.slept == []


def test_without_the_driver_nvml_is_not_asked_and_the_rest_is() -> None:
    """Our worker must not be started just before a reset."""
    rig = Rig()
    facts = rig.read(replace(SCOPE, without_driver=True))
    assert facts.gpus == Unreadable(CLOSED_WHY)
    assert facts.gpu(GPU_A) is None
    assert rig.nvml.asked == []
    assert facts.kernel == Known(QUIET)


@pytest.mark.parametrize(
    "answer",
    [
        Silent("driver unresponsive: no answer", MONO),
        Silent(CLOSED_WHY, MONO, cause=SilentCause.CLOSED),
        Failed("driver_absent", "no NVIDIA driver"),
        answered({"uuid": 1}),
    ],
)
def test_an_nvml_that_says_nothing_hides_neither_kernel_nor_units(answer: Answer) -> None:
    """Silent, closed, absent, nonsense: unreadable with a reason, and alone."""
    rig = Rig()
    rig.nvml.answers["reset_facts"] = [answer]
    facts = rig.read()
    assert isinstance(facts.gpus, Unreadable)
    assert facts.gpus.why
    assert isinstance(facts.kernel, Known)
    assert isinstance(facts.units, Known)


@pytest.mark.parametrize(
    "answer",
    [
        Silent("no answer", MONO),
        Failed("stuck", "pid 7 made the worker hang"),
        answered(),
        answered({"kernel_facts": {"facts": 1}}),
    ],
)
def test_a_kernel_that_was_not_read_is_unreadable(answer: Answer) -> None:
    """No answer, an empty one, another shape: never "nothing there"."""
    rig = Rig()
    rig.procfs.answers["kernel_facts"] = [answer]
    facts = rig.read()
    assert isinstance(facts.kernel, Unreadable)
    assert isinstance(facts.gpus, Known)


def test_a_thread_is_busy_when_three_looks_find_it_so() -> None:
    """200 ms apart; one that is idle in the second look drops out, one that stays is told."""
    rig = Rig()
    rig.procfs.answers["kernel_facts"] = [kernel(replace(QUIET, busy_threads=(THREAD, OTHER)))]
    rig.procfs.answers["kernel_threads"] = [threads(THREAD), threads(THREAD)]
    assert rig.kernel().busy_threads == (THREAD,)
    assert rig.slept == [0.2, 0.2]
    assert [args for op, args in rig.procfs.asked if op == "kernel_threads"] == [
        {"pids": [60, 61]},
        {"pids": [60]},
    ]


def test_a_thread_that_was_busy_once_is_not_busy() -> None:
    """A close in passing: gone in the second look, and no third is needed."""
    rig = Rig()
    rig.procfs.answers["kernel_facts"] = [kernel(replace(QUIET, busy_threads=(THREAD,)))]
    rig.procfs.answers["kernel_threads"] = [threads(skipped=("kernel thread 9: odd",))]
    found = rig.kernel()
    assert found.busy_threads == ()
    assert found.skipped == ("kernel thread 9: odd",)
    assert rig.slept == [0.2]


@pytest.mark.parametrize(
    "answer", [Silent("no answer", MONO), answered({"busy": 1, "skipped": []}), answered()]
)
def test_a_thread_that_could_not_be_looked_at_again_stays_busy(answer: Answer) -> None:
    """Unknown is not idle; and it is said."""
    rig = Rig()
    rig.procfs.answers["kernel_facts"] = [kernel(replace(QUIET, busy_threads=(THREAD,)))]
    rig.procfs.answers["kernel_threads"] = [answer]
    found = rig.kernel()
    assert found.busy_threads == (THREAD,)
    assert found.skipped


def test_without_systemd_a_scheduler_s_agent_shows_in_the_process_table() -> None:
    """No unit, and whoever runs is named; with no table there is no answer."""
    rig = Rig()
    rig.units.answer = NoSystemd()
    told = KernelAnswer(QUIET, ("kubelet",), ("0000:3b:00.0: the PCI device is gone",))
    rig.procfs.answers["kernel_facts"] = [answered({"kernel_facts": to_wire(told)})]
    facts = rig.read()
    assert facts.units == Known(UnitFacts((), schedulers=("kubelet",)))
    assert facts.notes == (
        "0000:3b:00.0: the PCI device is gone",
        "there is no systemd here: nothing is a unit",
    )
    rig.procfs.answers["kernel_facts"] = [Silent("no answer", MONO)]
    assert isinstance(rig.read().units, Unreadable)


@pytest.mark.parametrize(
    ("by_unit", "told"), [((), ("kubelet",)), (("slurmd.service",), ("slurmd.service",))]
)
def test_an_agent_under_no_usual_unit_counts_too(by_unit: tuple[str, ...], told: tuple[str, ...]) -> None:
    """A kubelet in a container, or under another unit's name, gives this host work all the same."""
    rig = Rig()
    rig.units.answer = Known(UnitFacts((), schedulers=by_unit))
    rig.procfs.answers["kernel_facts"] = [
        answered({"kernel_facts": to_wire(KernelAnswer(QUIET, ("kubelet",)))})
    ]
    assert rig.read().units == Known(UnitFacts((), schedulers=told))


def test_a_simulated_host_never_answers_with_this_machine_s_devices(tmp_path: Path) -> None:
    """Its own sys if it has one, else none at all."""
    rig = Rig(simulate=tmp_path)
    rig.read(replace(SCOPE, simulated_root=7))
    (tmp_path / "sys").mkdir()
    rig.read(replace(SCOPE, simulated_root=7))
    assert [args["sys_root"] for _, args in rig.procfs.asked] == [None, str(tmp_path / "sys")]
    assert [args["root"] for _, args in rig.procfs.asked] == [7, 7]
