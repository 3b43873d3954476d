"""A really unkillable task: judged by its stack, kept as evidence, drained for, and noticed when it dies."""

import hashlib
import json

import pytest

from reclaimerd.simulation.raw_fuse import RawFuse, why_unavailable
from tests.e2e.rig import is_alive, rule, simulated_host
from tests.rigs.simulated import wait_until

pytestmark = [
    pytest.mark.process,
    pytest.mark.root,
    pytest.mark.skipif(bool(why_unavailable()), reason=f"no raw FUSE: {why_unavailable()}"),
]
SHORT = {"ladder": {"sigterm": "500ms", "sigkill": "500ms", "exit_grace": "1s", "proof": "1s"}}
ALL_DOMAINS = {"fault_domains": ["driver", "hardware", "workload", "unknown"]}


def test_from_the_verdict_to_the_late_release() -> None:
    """TERM, KILL, no reset, a drain with the place in the kernel, evidence by digest, and the late death."""
    stages = ["sigterm", "sigkill", "reset", "drain"]
    with RawFuse(withhold="flush") as fuse:
        climbing = rule(stages=stages, grace="500ms", sigkill="500ms")
        with simulated_host(climbing, tables={**SHORT, "drain": ALL_DOMAINS}) as rig:
            pid = rig.launch("--stuck-on", str(fuse.path("stuck"))).pid
            rig.start_daemon()
            ended = rig.wait_record("incident_ended", pid=pid, seconds=30)
            assert ended["end"] == "handed_over to scheduler", rig.story()
            (request,) = [json.loads(one.read_text()) for one in (rig.state / "drain").glob("*.json")]
            assert "fuse" in request["reason"].lower()
            wait_until(lambda: bool(rig.records("note", pid=pid)), "evidence is on record")
            (note,) = [one for one in rig.records("note", pid=pid) if "evidence" in one]
            digest, name = note["evidence"]
            kept = (rig.state / "evidence" / name).read_bytes()
            assert digest == f"sha256:{hashlib.sha256(kept).hexdigest()}"
            assert b"fuse_flush" in kept
            told = rig.ctl("inspect", str(pid), "--json").answer["plight"]
            assert told["leaving"] == "stuck_blocked"
            assert told["fault_domain"] == "workload"
            assert is_alive(pid)
            fuse.release()
            late = rig.wait_record("late_release", pid=pid)
            assert "gone" in late["reason"]
            assert len(rig.records("late_release", pid=pid)) == 1


@pytest.mark.slow
def test_the_shipped_domains_drain_nobody_for_a_users_file_system() -> None:
    """Any user can make such a task: it goes to a person, and no node is taken out of service for it."""
    with RawFuse(withhold="flush") as fuse:
        climbing = rule(stages=["sigterm", "sigkill", "drain"], grace="500ms", sigkill="500ms")
        shipped = {"fault_domains": ["driver", "hardware"]}
        with simulated_host(climbing, tables={**SHORT, "drain": shipped}) as rig:
            pid = rig.launch("--stuck-on", str(fuse.path("stuck"))).pid
            rig.start_daemon()
            ended = rig.wait_record("incident_ended", pid=pid, seconds=30)
            assert ended["end"] == "handed_over to person", rig.story()
            assert not (rig.state / "drain").exists()
            (refused,) = [one for one in rig.records("refused", pid=pid) if one["action"] == "drain"]
            assert [one["kind"] for one in refused["refusals"]] == ["no_drain_reason"]
            assert "workload" in refused["reason"]
