"""The machine's own signals from end to end, on a simulated host: an Xid, a fault rule, and what follows."""

import pytest

from reclaimerd.simulation.kernel_log import write_xid
from tests.e2e.reset_rig import DONE_SECONDS, TABLES, ResetRig, reset_host
from tests.e2e.rig import GPU_A, GPU_B, Table, is_alive
from tests.rigs.simulated import wait_until

pytestmark = [pytest.mark.process]
PCI_A = "0000:01:00.0"
RULE: Table = {
    "name": "gpu-fault",
    "kind": "fault",
    "xid_class": ["reset", "drain_and_reset", "reboot", "lost"],
    "for": "400ms",
    "mode": "enforce",
    "action": "reclaim",
    "stages": ["reset", "drain"],
}


def ends(host: ResetRig) -> list[str]:
    """Return how each incident ended."""
    return [str(one["end"]) for one in host.rig.records("incident_ended")]


def wait_end(host: ResetRig) -> str:
    """Wait for the first end of an incident, and return it."""
    wait_until(lambda: bool(ends(host)), f"an end: {host.rig.story()}", DONE_SECONDS)
    return ends(host)[0]


def test_an_xid_of_class_reset_leads_to_one_verified_reset() -> None:
    """The rule opens a GPU's incident, nobody holds it, it is reset once, and the Xid stands no more."""
    with reset_host() as host:
        host.rig.write_policy(RULE, **TABLES)
        host.rig.start_daemon()
        host.rig.passes(2)
        write_xid(host.rig.host, PCI_A, 119, "pid=1, name=(udev-worker), Timeout waiting for RPC")
        assert wait_end(host) == "reclaimed"
        assert [(line.gpu, line.over) for line in host.resets] == [(GPU_A, False)]
        host.wait_done()
        assert "Xid 119" in str(host.rig.records("xid")[0]["reason"])
        host.rig.passes(4)
        assert len(host.resets) == 1
        assert host.rig.ask("/v1/status")["xids"] == []
        host.as_before()


@pytest.mark.parametrize("code", [79])
def test_a_fault_that_a_reset_does_not_mend_leads_to_a_drain_request_alone(code: int) -> None:
    """Fallen off the bus: no reset is tried, one drain is asked for, nobody is touched."""
    with reset_host() as host:
        host.rig.write_policy(RULE, **TABLES)
        host.rig.start_daemon()
        pid, _ = host.rig.recorder("signals", gpu=GPU_B)
        host.rig.passes(2)
        write_xid(host.rig.host, PCI_A, code, "GPU has fallen off the bus.")
        assert wait_end(host).startswith("handed_over to scheduler"), host.rig.story()
        assert host.resets == ()
        assert host.jobs == ()
        assert is_alive(pid)


@pytest.mark.slow
def test_lines_from_before_our_start_never_act() -> None:
    """A log full of old Xids opens nothing: we read from its end on."""
    with reset_host() as host:
        for _ in range(3):
            write_xid(host.rig.host, PCI_A, 119, "old")
        host.rig.write_policy(RULE, **TABLES)
        host.rig.start_daemon()
        host.rig.passes(5)
        assert host.rig.records("xid") == []
        assert host.rig.records("incident_opened") == []
        assert host.resets == ()


@pytest.mark.slow
def test_a_line_that_came_while_we_were_down_is_read_once() -> None:
    """The stored place in the log counts over a restart: neither lost nor counted twice."""
    with reset_host() as host:
        host.rig.write_policy()
        daemon = host.rig.start_daemon()
        host.rig.passes(2)
        write_xid(host.rig.host, PCI_A, 31, "before the end")
        host.rig.wait_record("xid")
        daemon.stop()
        write_xid(host.rig.host, PCI_A, 119, "while we were down")
        host.rig.start_daemon()
        wait_until(lambda: len(host.rig.records("xid")) == 2, f"the second: {host.rig.story()}")
        host.rig.passes(3)
        told = [(one["code"], one["count"]) for one in host.rig.ask("/v1/status")["xids"]]
        assert sorted(told) == [(31, 1), (119, 1)]


@pytest.mark.slow
@pytest.mark.parametrize("together", [True, False])
def test_gpus_that_can_only_be_reset_together(*, together: bool) -> None:
    """Old NVLink peers: refused by name as shipped; with `peers = true` both go in one command."""
    with reset_host(tables={"reset": {"peers": together}}) as host:
        host.set_gpu(GPU_A, generation="before_ampere", peers=(GPU_B,))
        host.set_gpu(GPU_B, generation="before_ampere", peers=(GPU_A,))
        host.rig.start_daemon()
        ran = host.reset()
        if together:
            assert ran.code == 0, ran.out + ran.err + host.rig.story()
            assert {line.gpu for line in host.resets} == {GPU_A, GPU_B}
            assert len({line.pid for line in host.resets}) == 1
        else:
            assert ran.code == 3, ran.out
            assert "peers" in {reason["kind"] for reason in ran.answer["answer"]["reasons"]}
            assert host.resets == ()
        host.as_before()


@pytest.mark.slow
def test_holders_of_one_workload_are_told_to_go_before_the_reset() -> None:
    """With the signals listed: SIGTERM, SIGKILL to the holder, then one reset over nobody."""
    rule = {**RULE, "stages": ["sigterm", "sigkill", "reset", "drain"], "grace": "1s", "sigkill": "2s"}
    with reset_host() as host:
        host.rig.write_policy(rule, **TABLES)
        host.rig.start_daemon()
        holder = host.rig.launch("--ignore-term", gpu=GPU_A)
        host.rig.passes(2)
        write_xid(host.rig.host, PCI_A, 119, "told")
        assert wait_end(host) == "reclaimed", host.rig.story()
        assert not is_alive(holder.pid)
        acts = [str(one["action"]) for one in host.rig.records("intent")]
        assert acts == ["sigterm", "sigkill", "reset"]
        assert [(line.gpu, line.over) for line in host.resets] == [(GPU_A, False)]
        host.wait_done()
        host.as_before()


@pytest.mark.slow
def test_memory_that_nobody_holds_after_a_kill_comes_back_by_a_reset() -> None:
    """A process's own incident: it is gone, its memory leaked, the reset brings it back, proven."""
    cap: Table = {
        "name": "over-cap",
        "above": "4GiB",
        "for": "400ms",
        "readings": 2,
        "mode": "enforce",
        "action": "reclaim",
        "stages": ["sigterm", "sigkill", "reset", "drain"],
        "grace": "1s",
        "match.uid": ["0-4294967294"],
    }
    with reset_host() as host:
        host.rig.write_policy(cap, **TABLES)
        host.rig.start_daemon()
        host.rig.passes(2)
        holder = host.rig.launch("--ignore-term", "--leak", gpu=GPU_A)
        assert wait_end(host) == "reclaimed", host.rig.story()
        assert not is_alive(holder.pid)
        acts = [str(one["action"]) for one in host.rig.records("intent")]
        assert acts == ["sigterm", "sigkill", "reset"], host.rig.story()
        assert [(line.gpu, line.over) for line in host.resets] == [(GPU_A, False)]
        host.wait_done()
        host.as_before()
