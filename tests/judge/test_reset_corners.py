"""Corners of the reset's gate that a changed line would pass through unseen: each stands for such a change.

What they were found by, and which changes nothing notices because they change nothing: docs/mutation.md.
"""

from reclaimerd.judge.reset_gate import last_reasons, reset_reasons
from reclaimerd.model.reading import Known
from reclaimerd.model.reset_facts import DisplayClient, Generation, NvLinks
from reclaimerd.model.snapshot import Snapshot
from reclaimerd.model.step import Reason, ReasonKind
from tests.builders import GPU_A, GPU_B, a_busy_snapshot, a_gpu, a_process, a_ref, a_snapshot, a_task
from tests.judge.kernel_builders import a_ktask, a_look
from tests.judge.reset_builders import GPU_C, asking, gpu_facts, ready, with_facts, with_kernel


def ask(snapshot: Snapshot) -> tuple[Reason, ...]:
    """Return the gate's reasons for GPU A, with nobody as the target."""
    return reset_reasons(GPU_A, frozenset(), asking(snapshot))


def test_a_living_holder_that_waits_in_the_driver_has_both_reasons() -> None:
    """Ending it is no mend where it waits in the driver: only a reason of its exit says that already."""
    waits = a_process(tasks=(a_task(100, "D"),))
    look = a_look(100, a_ktask(100, "D", frames="rm_ioctl/nvidia"))
    held = ready(a_busy_snapshot(waits, kernel={100: look}))
    both = [ReasonKind.HOLDERS, ReasonKind.DRIVER_BLOCKED]
    found = [one for one in ask(held) if one.processes == (a_ref(),)]
    assert [one.kind for one in found] == both
    assert "reboot of the node" in found[1].mend
    last = last_reasons((GPU_A,), asking(held))
    assert [one.kind for one in last if one.processes == (a_ref(),)] == both


def test_a_display_of_another_gpu_that_was_seen_is_no_reason() -> None:
    """Both GPUs are in the look; the console stands on the other, which keeps it."""
    seen = a_snapshot(gpus=(a_gpu(), a_gpu(GPU_B)))
    there = with_kernel(seen, displays=(DisplayClient("0000:01:00.0", "card1-DP-1 is connected"),))
    assert ask(there) == ()
    assert last_reasons((GPU_A,), asking(there)) == ()
    (reason,) = reset_reasons(GPU_B, frozenset(), asking(there))
    assert (reason.kind, reason.gpu) == (ReasonKind.KERNEL_CLIENT, GPU_B)


def test_a_gpu_is_not_told_to_go_together_with_itself() -> None:
    """The sentence names the others alone, each of them."""
    links = Known(NvLinks(2, ("0000:01:00.0", "0000:02:00.0")))
    joined = tuple(
        gpu_facts(uuid, index, generation=Known(Generation.BEFORE_AMPERE), links=links)
        for index, uuid in enumerate((GPU_A, GPU_B, GPU_C))
    )
    (reason,) = ask(with_facts(*joined))
    assert reason.kind is ReasonKind.PEERS
    assert reason.text.startswith(f"{GPU_A} can only be reset together with {GPU_B}, {GPU_C}: ")
