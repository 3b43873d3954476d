"""What the rules say of real CUDA processes: caps, growth, idle and busy, signs, and what a look costs.

The eyes and the judge alone: nothing is signalled by them, nothing is reset, no setting is changed, and
only our own children end. Each test prints one line of figures (`pytest -s`).
"""

import asyncio
import hashlib
import socket
import statistics
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial, wraps
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.judge.trend import trend_of
from reclaimerd.model.policy import Policy, Rule, RuleKind, Selector, Threshold
from reclaimerd.model.process import Connection
from reclaimerd.model.reading import Known
from reclaimerd.model.snapshot import NOT_ASKED, GpuMemory
from reclaimerd.model.verdict import Ruling
from reclaimerd.observe import nvml_quirks
from reclaimerd.observe.answers import Answered
from reclaimerd.observe.nvml import RealNvml
from tests.gpu.cuda import cuda_process
from tests.gpu.watching import Judged, tell, watched_until, watcher

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.root,
    pytest.mark.skipif(not Path("/dev/nvidiactl").exists(), reason="no NVIDIA GPU here"),
]
MIB, GIB = 1024**2, 1024**3
IDLE_PERCENT = 3.0
SOON = Rule("soon", for_seconds=3.0, readings=3, large_jobs=True)
"""Short; where the processes belong is another test's matter, so large workloads are not left alone."""
CAP = replace(SOON, name="cap", above=Threshold(above_bytes=8 * GIB))
GROWTH = replace(
    SOON,
    name="growth",
    kind=RuleKind.MEMORY_GROWTH,
    growth_bytes_per_second=4.0 * MIB,
    window_seconds=30.0,
)
IDLE = replace(SOON, name="idle", kind=RuleKind.IDLE, idle_percent=IDLE_PERCENT, window_seconds=15.0)
AGE = replace(SOON, name="age", kind=RuleKind.AGE, older_than_seconds=1.0)
SAMPLES = "nvmlDeviceGetProcessUtilization"


def policy_of(*rules: Rule) -> Policy:
    """Return a policy of these rules that looks once a second."""
    return Policy(interval_seconds=1.0, rules=rules)


def ruling(judged: Judged, pid: int) -> Ruling | None:
    """Return the ruling on one process."""
    verdict = judged.verdict(pid)
    return None if verdict is None else verdict.ruling


def said(judged: Judged, pid: int, rule: str) -> str:
    """Return what a rule says of a process in words; "" when it says nothing."""
    reason = judged.reason(pid, rule)
    return "" if reason is None else reason.text


def reclaims(pid: int, looks: list[Judged]) -> bool:
    """Tell whether the last look's ruling on a process is RECLAIM."""
    return ruling(looks[-1], pid) is Ruling.RECLAIM


def used_of(judged: Judged, pid: int) -> int:
    """Return the bytes that the driver lists for a process, which must be known."""
    used = judged.used(pid)
    assert isinstance(used, Known), used
    return used.value


def first_gpu() -> tuple[GpuMemory, str]:
    """Return the memory and the model of the first GPU."""
    gpu = watched_until(bool, policy_of(), 30.0)[0].snapshot.gpus[0]
    assert isinstance(gpu.memory, Known)
    return gpu.memory.value, gpu.name


@pytest.mark.parametrize("unit", ["bytes", "percent"])
def test_a_cap(unit: str) -> None:
    """Over the cap: watched while it is short, then to be reclaimed, by figures; under it: only watched."""
    whole, name = first_gpu()
    share = 100.0 * 8 * GIB / whole.total_bytes
    above = Threshold(above_bytes=8 * GIB) if unit == "bytes" else Threshold(above_percent=share)
    rules = policy_of(replace(CAP, above=above))
    with cuda_process("--gib", "10") as over, cuda_process("--gib", "2") as under:
        looks = watched_until(partial(reclaims, over.pid), rules, 30.0)
    *before, last = looks
    assert before
    assert {ruling(one, over.pid) for one in before} == {Ruling.WATCH}
    assert {ruling(one, under.pid) for one in looks} == {Ruling.WATCH}
    assert all(one.held_by("cap") == {over.pid} for one in looks)
    reason = last.reason(over.pid, "cap")
    assert reason is not None
    assert reason.sustained_seconds >= SOON.for_seconds
    assert reason.gpus == (last.snapshot.gpus[0].uuid,)
    held = used_of(last, over.pid)
    assert 10 * GIB <= held < 12 * GIB
    assert reason.text.startswith(f"holds {held / GIB:.1f} GiB, more than ")
    texts = {"over": reason.text, "under": said(last, under.pid, "cap")}
    tell(f"cap in {unit}", gpu=name, held_seconds=round(reason.sustained_seconds, 1), **texts)


def test_growth(tmp_path: Path) -> None:
    """A leak of 16 MiB/s holds; a jump, a warm-up and a flat process never do, however steep they were."""
    begin = tmp_path / "begin"
    kinds = {
        "leak": ("--step-mib", "4", "--step-every", "0.25", "--steps", "400"),
        "jump": ("--step-mib", "2048", "--step-every", "15"),
        "warm-up": ("--step-mib", "64", "--step-every", "0.25", "--steps", "48"),
        "flat": (),
    }
    with ExitStack() as stack:
        pids = {
            name: stack.enter_context(cuda_process("--gib", "1", *words, "--begin", str(begin))).pid
            for name, words in kinds.items()
        }

        def enough(looks: list[Judged]) -> bool:
            watched_for = looks[-1].snapshot.at - looks[0].snapshot.at
            return watched_for >= 42.0 and reclaims(pids["leak"], looks)

        begin.touch()
        looks = watched_until(enough, policy_of(GROWTH), 70.0)
    held = [one for one in looks if one.held_by("growth")]
    assert all(one.held_by("growth") == {pids["leak"]} for one in held)
    rose = {name: (used_of(looks[-1], pid) - used_of(looks[0], pid)) / MIB for name, pid in pids.items()}
    assert rose["jump"] >= 2000
    assert rose["warm-up"] >= 1500
    assert rose["flat"] == 0
    assert {ruling(looks[-1], pids[name]) for name in ("jump", "warm-up", "flat")} == {Ruling.WATCH}
    for name in ("jump", "warm-up"):  # by the slope alone each would have held
        assert any("not steadily" in said(one, pids[name], "growth") for one in looks)
    last = looks[-1]
    key = (last.ref(pids["leak"]), last.snapshot.gpus[0].uuid, GROWTH.window_seconds)
    trend = trend_of(last.evaluation.past.series[key], 4.0 * MIB)
    assert trend is not None
    assert 14 <= trend.bytes_per_second / MIB <= 18
    tell(
        "growth",
        first_held_after_seconds=round(held[0].snapshot.at - looks[0].snapshot.at, 1),
        looks=len(looks),
        rose_mib={name: round(mib) for name, mib in rose.items()},
        texts={name: said(held[0], pid, "growth") for name, pid in pids.items()},
    )


def shares_of(looks: list[Judged], pid: int) -> list[int | str]:
    """Return what a process used of its GPU in each look: a percentage, or why there is none."""
    found: list[int | str] = []
    for one in looks:
        rows = one.snapshot.gpus[0].processes
        for row in rows.value if isinstance(rows, Known) else ():
            if row.pid == pid:
                share = row.sm_percent
                found.append(share.value if isinstance(share, Known) else share.why)
    return found


def test_idle_and_busy() -> None:
    """Memory held and no work over the window is idle; kernels without an end are not, nor with rests."""
    with (
        cuda_process("--gib", "4", "--spin", "60") as busy,
        cuda_process("--gib", "4", "--spin", "1", "--rest", "4") as bursts,
        cuda_process("--gib", "4") as idle,
    ):
        looks = watched_until(partial(reclaims, idle.pid), policy_of(IDLE), 60.0)
    assert all(one.held_by("idle") <= {idle.pid} for one in looks)
    last = looks[-1]
    children = {"busy": busy, "bursts": bursts, "idle": idle}
    shares = {name: shares_of(looks, one.pid) for name, one in children.items()}
    known = {name: [one for one in found if isinstance(one, int)] for name, found in shares.items()}
    assert statistics.median(known["busy"]) > IDLE_PERCENT
    assert max(known["bursts"]) > IDLE_PERCENT
    assert max(known["idle"][-10:]) <= IDLE_PERCENT
    for one in (busy, bursts):
        assert ruling(last, one.pid) is Ruling.WATCH
        assert said(last, one.pid, "idle").startswith("used ")
    tell(
        "idle and busy",
        reclaim_after_seconds=round(last.snapshot.at - looks[0].snapshot.at, 1),
        shares=shares,
        texts={name: said(last, one.pid, "idle") for name, one in children.items()},
    )


def counted(monkeypatch: pytest.MonkeyPatch) -> "Counter[str]":
    """Count each call of NVML from now on, by its name."""
    module, calls = nvml_quirks.load_pynvml(), Counter[str]()

    def counting(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(call)
        def counts(*args: Any) -> Any:
            calls[name] += 1
            return call(*args)

        return counts

    for name, call in vars(module).copy().items():
        if name.startswith("nvml") and callable(call) and not isinstance(call, type):
            monkeypatch.setattr(module, name, counting(name, call))
    return calls


def test_calls_of_a_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless asked for, no sample is read; when asked, once or twice for each GPU, and nothing else is."""
    calls = counted(monkeypatch)
    port = RealNvml()
    try:
        with cuda_process("--gib", "1"):
            gpus = len(port.read_host().gpus)
            found = {}
            for asked in (False, True):
                calls.clear()
                port.read_host(utilisation=asked)
                found[asked] = Counter(calls)
    finally:
        port.close()
    assert found[False].total() > 0
    assert found[False][SAMPLES] == 0
    assert gpus <= found[True][SAMPLES] <= 2 * gpus
    assert set(found[True]) - set(found[False]) == {SAMPLES}
    tell("calls of a look", gpus=gpus, without=found[False].total(), with_samples=found[True].total())


async def _timed(rules: Policy, rounds: int) -> tuple[list[float], list[float], list[Judged]]:
    """Return how long the driver's worker and whole looks took, in ms, and the looks."""
    async with watcher(rules) as eyes:
        await eyes.look()  # the first one fills caches and searches the host
        args = {"utilisation": True} if eyes.wanted().utilisation else None
        asked, looks = [], []
        for _ in range(rounds):
            began = time.monotonic()
            answer = await eyes.nvml.ask("host", args)
            asked.append(1000 * (time.monotonic() - began))
            assert isinstance(answer, Answered), answer
            looks.append(await eyes.look())
    return asked, [1000 * one.seconds for one in looks], looks


def test_cost_of_samples() -> None:
    """Rules of memory, growth and age have no samples read, an idle rule has; a look stays below a second."""
    plain, idle = policy_of(CAP, GROWTH, AGE), policy_of(CAP, GROWTH, AGE, IDLE)
    with cuda_process("--gib", "1", "--spin", "60"), cuda_process("--gib", "1") as one:
        runs = {asked: asyncio.run(_timed(rules, 40)) for asked, rules in ((False, plain), (True, idle))}
    figures = {}
    for asked, (worker, whole, looks) in runs.items():
        rows = looks[-1].snapshot.gpus[0].processes
        assert isinstance(rows, Known)
        assert one.pid in {row.pid for row in rows.value}
        assert all((row.sm_percent == NOT_ASKED) is not asked for row in rows.value)
        figures[asked] = (statistics.median(worker), statistics.median(whole))
        assert max(figures[asked]) < 1000
    tell(
        "cost of samples",
        worker_ms={"without": round(figures[False][0], 2), "with": round(figures[True][0], 2)},
        look_ms={"without": round(figures[False][1], 2), "with": round(figures[True][1], 2)},
        ratio=round(figures[True][0] / figures[False][0], 2),
    )


def test_signs_of_a_cuda_process() -> None:
    """Hash, input and output, and connections are read as they are, and a rule may name the hash."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with cuda_process("--gib", "1", "--connect", str(port)) as one:
            digest = hashlib.sha256(Path(f"/proc/{one.pid}/exe").read_bytes()).hexdigest()
            above = Threshold(above_bytes=1)
            own = replace(CAP, name="own", above=above, match=Selector(sha256=(digest,)))
            other = replace(CAP, name="other", above=above, match=Selector(sha256=("0" * 64,)))
            looks = watched_until(partial(reclaims, one.pid), policy_of(own, other), 30.0)
    last = looks[-1]
    signs = last.snapshot.signs[last.ref(one.pid)]
    assert signs.sha256 == Known(digest)
    assert signs.connections == Known((Connection("127.0.0.1", port),))
    assert isinstance(signs.io_bytes, Known)
    assert signs.io_bytes.value > MIB
    assert signs.ancestors
    assert last.held_by("own") == {one.pid}
    assert last.held_by("other") == set()
    tell(
        "signs",
        sha256=digest[:12],
        io_mib=round(signs.io_bytes.value / MIB, 1),
        ancestors=signs.ancestors,
        looks=len(looks),
    )
