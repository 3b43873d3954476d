"""One host for the golden screens: the daemon's answers as it gave them, a log, a policy, and each call."""

from pathlib import Path
from typing import Any

from reclaimerd import __version__
from reclaimerd.model.audit_record import AuditEntry, RecordKind, RuleTally, Tally
from reclaimerd.model.policy import AuditSettings
from reclaimerd.model.step import ReasonKind
from reclaimerd.record.audit import Audit
from tests.builders import BOOT
from tests.judge.rollout_builders import PROOF, Written, came_of_it, ended, opened, planned, refused, whom

NOW = 1_800_000_000.0
DAY = 86400.0
SOMEBODY = 3_000_000_001
"""A uid that no machine has a name for."""
UUIDS = ("GPU-5c1f0b6e-0000-4000-8000-00000000000a", "GPU-7d2e1c7f-0000-4000-8000-00000000000b")
DRIVER = {
    "state": "responsive",
    "text": "responsive",
    "since_seconds": 3,
    "version": "595.45.04",
    "evidence": "",
}
COMMAND = "python -m trainer.run --config /srv/projects/vision/größe-large.toml --epochs 400 "
COMMAND += "--resume checkpoint-0113 --名前 実験"
GIB = 2**30


def a_gpu(index: int, used: int | None, **more: Any) -> dict[str, Any]:
    """Return one GPU of `status`."""
    gpu = {
        "uuid": UUIDS[index],
        "index": index,
        "name": "NVIDIA H200 NVL",
        "pci": f"0000:{index + 6:02}:00.0",
    }
    figures = {
        "used_bytes": used,
        "total_bytes": 141 * GIB,
        "utilisation_percent": None if used is None else 97,
    }
    return {**gpu, **figures, "holders": 2, "recovery_action": "none", "note": ""} | more


def a_row(pid: int, **more: Any) -> dict[str, Any]:
    """Return one holder of `ps`."""
    row = {"gpu": UUIDS[0], "gpu_index": 0, "pid": pid, "ref": f"{pid}@{pid}77", "uid": SOMEBODY}
    figures = {"used_bytes": 40 * GIB, "share_percent": 28, "utilisation_percent": 97, "age_seconds": 187_200}
    words = {"state": "running", "workload": "ml/vision-large-7f9c/trainer", "allocation": "allowed"}
    told = {
        "verdict": "watch",
        "verdict_text": "watch",
        "comm": "python",
        "command": COMMAND,
        "how": "listed",
    }
    return {**row, **figures, **words, **told, "note": ""} | more


AN_INCIDENT = {
    "id": "inc-6a1b2c3d-0f1e2d",
    "opened_at": NOW - 3700,
    "ended_at": None,
    "stage": "sigterm",
    "end": "",
    "pid": 4242,
    "ref": "4242@424277",
    "actor": "rule over-cap",
    "reason": "holds 40.0 GiB, more than 20.0 GiB on " + UUIDS[0],
    "gpus": list(UUIDS),
    "dry_run": False,
}
CLOSE = "reclaimctl breaker close --reason TEXT"
STATUS: dict[str, Any] = {
    "version": __version__,
    "pid": 812,
    "mode": "enforce",
    "dry_run": False,
    "simulated": False,
    "source": "daemon",
    "policy": "/etc/reclaimerd/reclaimerd.toml",
    "rules": 2,
    "enforcing": 1,
    "driver": DRIVER,
    "paused": {"by": "root", "reason": "upgrade", "since": NOW - 90.0, "until": NOW + 7110.0},
    "suspended": [],
    "hold": "/run/reclaimerd/HOLD",
    "breaker": {"reason": "3 workloads in one pass", "since": NOW - 40.0},
    "settling_seconds_left": 12.0,
    "record_fault": "",
    "attention": [
        f"the breaker tripped (3 workloads in one pass); a person looks and closes it: {CLOSE}",
        "/run/reclaimerd/HOLD stops every act by rule",
    ],
    "budget": {"workloads_left_today": 3, "resets_left_today": 2, "drains_left_today": 1},
    "last_act": {
        "at": NOW - 4,
        "stage": "sigterm",
        "outcome": "sent",
        "incident": "inc-6a1b2c3d-0f1e2d",
        "pid": 4242,
        "gpus": list(UUIDS),
        "actor": "rule over-cap",
    },
    "gpus": [
        a_gpu(0, 48 * GIB),
        a_gpu(1, None, note="MIG mode: it is watched and never reset, and nobody is idle"),
    ],
    "incidents": [{**AN_INCIDENT, "since_seconds": 4, "target": COMMAND, "follows": "SIGKILL in 26s"}],
    "skipped": ["pid 9: descriptors: permission denied"],
    "last_pass": {"at": NOW - 1, "seconds": 0.01},
}
PS = {
    "driver": DRIVER,
    "rows": [
        a_row(4242, verdict="reclaim", verdict_text="over-cap", how="heir"),
        a_row(
            77,
            uid=0,
            used_bytes=None,
            share_percent=None,
            workload="",
            command="/usr/bin/dcgm",
            allocation="",
        ),
    ],
    "dead": [{"gpu": UUIDS[1], "pid": 77, "used_bytes": GIB, "holders": ["78@5"]}],
    "skipped": [],
}
PROCESS = {
    "process": {
        "ref": "4242@424277",
        "uids": [SOMEBODY] * 4,
        "comm": "python",
        "command": COMMAND,
        "exe": "/usr/bin/python3.11",
        "cgroup": "0::/kubepods.slice/kubepods-pod1b4e28ba_2fa1_11d2_883f_0016d3cca427.slice/cri-0a.scope",
        "state": "S",
        "state_text": "sleeping",
        "age_seconds": 187_200,
        "tasks": [{"tid": 4242, "state": "S", "exiting": False}],
    },
    "gpus": [{"gpu": UUIDS[0], "used_bytes": 40 * GIB, "how": "listed+node"}],
    "verdict": {
        "ruling": "reclaim",
        "rule": "over-cap",
        "reasons": [{"rule": "over-cap", "ruling": "reclaim", "text": AN_INCIDENT["reason"]}],
    },
    "incident": AN_INCIDENT["id"],
}
EXPLAIN_PID = {
    "ref": "4242@424277",
    "process": {"uids": [SOMEBODY] * 4, "command": COMMAND, "workload": "ml/vision-large-7f9c/trainer"},
    "gpus": [{"gpu": UUIDS[0], "gpu_index": 0, "used_bytes": 40 * GIB, "how": "listed+node", "note": ""}],
    "verdict": {"ruling": "reclaim", "rule": "over-cap"},
    "rules": [
        {
            "rule": "over-cap",
            "kind": "memory",
            "standing": "holds",
            "text": AN_INCIDENT["reason"],
            "held": {"since": NOW - 300, "readings": 150, "seconds_left": 0, "readings_left": 0},
            "mode": "enforce",
            "own_mode": "enforce",
            "action": "reclaim",
            "scope": "process",
            "stages": [{"stage": "sigterm", "after_seconds": 0}, {"stage": "sigkill", "after_seconds": 300}],
            "gates": {
                "stage": "sigterm",
                "permitted": False,
                "reasons": [{"kind": "pause", "text": "paused by root", "mend": "reclaimctl resume"}],
            },
        }
    ],
}
EXPLAIN_RESET = {
    "gpu": UUIDS[0],
    "gpus": list(UUIDS),
    "permitted": False,
    "reasons": [
        {"kind": "holders", "text": "pid 4242 holds it", "mend": "end it, or ask its owner", "pids": [4242]},
        {"kind": "exit_path", "text": "a task is in the exit path", "mend": "", "pids": [8]},
    ],
    "steps": ["persistence mode off", "nvidia-smi --gpu-reset"],
    "runnable": {"ok": False, "text": "no /usr/bin/nvidia-smi"},
}
ENDED = {
    **AN_INCIDENT,
    "id": "inc-6a1b0000-aa1e2d",
    "stage": "reclaimed",
    "end": "reclaimed",
    "dry_run": True,
}
RULES = {
    "rules": [
        {
            "name": "over-cap",
            "kind": "memory",
            "mode": "enforce",
            "effective_mode": "observe",
            "holds_for": 1,
            "last_opened_at": NOW - 3700,
            "suspended": {"by": "root", "until": NOW + 60, "reason": "course today"},
        },
        {"name": "quiet", "kind": "age", "mode": "observe", "effective_mode": "observe", "holds_for": None},
    ]
}
ANSWERS: dict[str, dict[str, Any]] = {
    "GET /v1/status": STATUS,
    "GET /v1/ps": PS,
    "GET /v1/processes/4242": PROCESS,
    "GET /v1/explain/pid/4242": EXPLAIN_PID,
    "GET /v1/explain/reset": EXPLAIN_RESET,
    "GET /v1/incidents": {"incidents": [AN_INCIDENT, ENDED]},
    "GET /v1/incidents/inc-6a1b2c3d-0f1e2d": {
        "incident": {**AN_INCIDENT, "target": COMMAND},
        "timeline": [
            {"at": NOW - 3700, "kind": "incident_opened", "text": AN_INCIDENT["reason"]},
            {"at": NOW - 3699, "kind": "outcome", "text": "sigterm sent: SIGTERM and SIGCONT"},
        ],
    },
    "GET /v1/rules": RULES,
}
CALLS: dict[str, list[str]] = {
    "audit list": ["audit", "list"],
    "audit show": ["audit", "show", "inc-3"],
    "audit stats": ["audit", "stats"],
    "error call": ["inspect", "everybody"],
    "error gpu": ["explain", "reset", "--gpu", "7"],
    "error policy": ["policy", "check", "{folder}/policy.toml.bad"],
    "explain pid": ["explain", "pid", "4242"],
    "explain reset": ["explain", "reset", "--gpu", UUIDS[0]],
    "incidents": ["incidents"],
    "incidents show": ["incidents", "show", "inc-6a1b2c3d-0f1e2d"],
    "inspect": ["inspect", "4242"],
    "policy check": ["policy", "check", "{folder}/policy.toml"],
    "ps": ["ps"],
    "rollout report": ["rollout", "report"],
    "rules list": ["rules", "list"],
    "status": ["status"],
    "version": ["version"],
    "why": ["why", "--pid", "300", "--state-dir", "{folder}"],
    "why nothing": ["why", "--job", "4711", "--state-dir", "{folder}"],
}
POLICY = f"""\
[daemon]
mode = "dry-run"

[[rule]]
name = "over-cap"
above = "8GiB"
mode = "dry-run"
match.uid = ["{SOMEBODY}-{SOMEBODY + 9}"]

[[rule]]
name = "quiet"
kind = "age"
older_than = "30d"
"""


def write_policy(path: Path) -> None:
    """Write a policy, and beside it one with faults."""
    path.write_text(POLICY, encoding="utf-8")
    path.with_name(f"{path.name}.bad").write_text('[daemon]\nmode = "on"\nspeed = 3\n', encoding="utf-8")


def write_log(folder: Path) -> None:
    """Write a week as the daemon writes it: who would be taken, whom a gate stops, who ends in the grace."""
    first, second, third = (whom(pid, SOMEBODY + pid // 100) for pid in (100, 200, 300))
    tally = Tally(NOW - 5 * DAY, 900, "digest", (RuleTally("over-cap", looks=200, undetermined=3, spared=4),))
    written: list[Written] = [
        opened(NOW - 6 * DAY, first),
        came_of_it(NOW - 6 * DAY, target=first),
        planned(NOW - 6 * DAY, "sigkill", "all", target=first),
        ended(NOW - 6 * DAY, target=first),
        opened(NOW - 5 * DAY, second, "inc-2"),
        refused(NOW - 5 * DAY, ReasonKind.LOOKS_PROTECTED, target=second, incident="inc-2"),
        opened(NOW - 4 * DAY, third, "inc-3"),
        came_of_it(NOW - 4 * DAY, target=third, incident="inc-3"),
        ended(NOW - 4 * DAY + 60, proof=PROOF, target=third, incident="inc-3"),
        (NOW - DAY, AuditEntry(RecordKind.TALLY, tally=tally)),
    ]
    audit = Audit.open(folder, boot_id=BOOT, settings=AuditSettings(), anchor=None)
    for at, entry in written:
        audit.append([entry], wall=at, mono=1.0)
    audit.close()
