"""A drain request as tests of its targets need it."""

from dataclasses import replace
from typing import Any

from reclaimerd.model.drain import DrainCode, DrainRequest
from reclaimerd.model.identity import IncidentId
from tests.builders import GPU_A


def a_request(incident: str = "inc-1", **overrides: Any) -> DrainRequest:
    """Return a request of one incident; overrides are fields of it."""
    request = DrainRequest(
        host="node-7",
        incident=IncidentId(incident),
        code=DrainCode.STUCK_EXIT,
        reason="pid 41: stuck in uvm_release",
        gpus=(GPU_A,),
        pids=(41, 42),
        evidence=("pid 41: uvm_release for 300 s",),
        asked_at=1_700_000_000.25,
        runbook="docs/runbooks/drain_requested.md",
        since_at=1_699_999_400.0,
        tried=("sigkill after 30 s: sent",),
        mend="reboot the node",
        pod=("team", "train-0", "u-1"),
    )
    return replace(request, **overrides)
