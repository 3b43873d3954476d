"""The simulated host as the vendor's library and /proc would show it, in the model's words. Pure."""

from reclaimerd.model.kernel import KernelLook
from reclaimerd.model.process import PF_EXITING, NodeHolding, ProcessLook, ProcessReading, ScanResult, ScanRow
from reclaimerd.model.reading import Known, Unreadable
from reclaimerd.model.snapshot import GpuReading
from tests.builders import a_gpu, a_process, a_row, a_task, a_workload
from tests.judge.kernel_builders import EXIT, a_ktask
from tests.machine.world import Card, Phase, Proc, World

IN_DRIVER = f"nvidia_close/nvidia __fput task_work_run {EXIT}"
"""Where an exit hangs that the driver holds up."""


def gpu_of(card: Card, world: World) -> GpuReading:
    """Return what NVML says of one GPU: a row for each context, under its owner's pid, dead or not."""
    contexts = [one for one in world.contexts if one.gpu == card.uuid]
    rows = [a_row(one.owner.pid, one.used) for one in contexts if one.used]
    used = card.ghost + sum(one.used for one in contexts)
    return a_gpu(card.uuid, used=used, processes=rows, persistence=Known(value=card.persistence))


def look_of(proc: Proc, world: World) -> ProcessLook:
    """Return what the procfs worker says: a task in the exit path shows no descriptor."""
    gpus = {one.gpu for one in world.contexts if proc.ref in one.holders and proc.phase is Phase.ALIVE}
    devices = [gpu_of(world.cards[gpu], world).device for gpu in sorted(gpus)]
    return ProcessLook(reading_of(proc, world), Known(tuple(NodeHolding(device) for device in devices)))


def reading_of(proc: Proc, world: World) -> ProcessReading:
    """Return one process as /proc has it."""
    pid = proc.ref.pid
    match proc.phase:
        case Phase.ALIVE:
            task = a_task(pid)
        case Phase.EXITING:
            task = a_task(pid, "D", PF_EXITING)
        case _:
            task = a_task(pid, "Z", PF_EXITING)
    return a_process(
        pid,
        proc.ref.start_ticks,
        ref=proc.ref,
        ppid=proc.ppid,
        uids=(proc.uid,) * 4,
        tasks=(task,),
        age_seconds=world.mono - proc.born,
        exe_file=Known(proc.exe),
        cgroup=f"0::/system.slice/{proc.unit}",
        workload=a_workload(proc.unit),
    )


def kernel_look_of(proc: Proc, now: float) -> KernelLook:
    """Return one process as the kernel shows it: one that hangs stands in the driver's close."""
    pid = proc.ref.pid
    if proc.phase is Phase.ALIVE:
        task = a_ktask(pid)
    else:
        state = "D" if proc.phase is Phase.EXITING else "Z"
        task = a_ktask(pid, state, PF_EXITING, IN_DRIVER if proc.sticks else EXIT)
    return KernelLook(
        ref=proc.ref,
        ppid=proc.ppid,
        comm="python3",
        tasks=(task,),
        task_count=1,
        dumping_core=False,
        tracer_pid=0,
        ns_pids=(pid,),
        resident_bytes=0,
        frozen=Known(value=False),
        freezer="",
        written_bytes=Known(0),
        cgroup_bytes=Unreadable("not simulated"),
        at=now,
    )


def scan_of(world: World) -> ScanResult:
    """Return what a search of all descriptors finds."""
    rows = []
    for proc in world.procs.values():
        nodes = look_of(proc, world).nodes
        if isinstance(nodes, Known) and nodes.value:
            rows.append(ScanRow(proc.ref.pid, proc.ref.start_ticks, nodes.value))
    return ScanResult(tuple(rows), (), len(world.procs))
