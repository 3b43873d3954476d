"""The golden screens of hands and checks: answers, what `doctor` found, and each call.

`SERVERS` are answers that a call has for itself; `TYPED` what a person at the terminal answers.
"""

from typing import Any

from reclaimerd.cli.doctor_words import Finding, State
from tests.cli.canned import Answer
from tests.cli.golden_scene import ANSWERS, CLOSE, COMMAND, GIB, NOW, SOMEBODY, STATUS, UUIDS

INCIDENT = "inc-6a1b2c3d-0f1e2d"
FOUND = (
    Finding("driver", State.OK, "driver 595.45.04 answers; 535.113 is the oldest that will do"),
    Finding(
        "persistence",
        State.WARN,
        "GPU 1: persistence mode is off",
        "systemctl enable --now nvidia-persistenced",
    ),
    Finding(
        "proc",
        State.FAIL,
        "/proc is mounted with hidepid=2: processes of others can't be seen without CAP_SYS_PTRACE",
        "mount it anew without hidepid, or give the daemon that capability",
    ),
    Finding(
        "kubelet",
        State.UNKNOWN,
        "its child gave no answer within 20 s; pid 4711 hangs and was left behind",
        "run it again; then look at the kubelet's socket",
    ),
    Finding("policy", State.OK, "/etc/reclaimerd/reclaimerd.toml has no faults: mode enforce, 2 rules"),
    Finding("log-dir", State.OK, "/var/log/reclaimerd is 0750, 75.4 GiB free"),
)
BREAKERS = [
    {
        "scope": "host",
        "gpu": None,
        "open": True,
        "since": NOW - 40.0,
        "reason": "3 workloads in one pass",
        "closes": f"an administrator, who looked at what became due at once: {CLOSE}",
    },
    {
        "scope": "gpu",
        "gpu": UUIDS[0],
        "open": True,
        "since": NOW - 7200.0,
        "reason": "2 resets failed: it did not come back under its UUID within 60 s",
        "closes": "an administrator, who looked at the GPU: reclaimctl breaker close --reason TEXT --gpu "
        + UUIDS[0],
    },
    {"scope": "gpu", "gpu": UUIDS[1], "open": False, "since": None, "reason": "", "closes": ""},
]
FILE = f"/var/lib/reclaimerd/drain/{INCIDENT}.json"
BY_HAND = "by hand: root: fan of GPU 1 is loud"
DRAIN: dict[str, Any] = {
    "id": INCIDENT,
    "phase": "stands",
    "since": NOW - 4.0,
    "reason": BY_HAND,
    "mend": "move the work away; who asked for it says in the reason what follows",
    "slot": "3 of 8 nodes of the fleet are drained, 1 of them by us",
    "incidents": [{"id": INCIDENT, "reason": BY_HAND, "by_hand": True}],
    "targets": [
        {"name": "file", "state": "asked", "text": f"drain request written to {FILE}"},
        {
            "name": "slurm",
            "state": "failed",
            "text": "scontrol: no answer within 10 s",
            "retry_at": NOW + 30.0,
        },
        {"name": "kubernetes", "state": "waiting", "text": ""},
    ],
}
TAKEN_BACK = DRAIN | {
    "phase": "withdraw",
    "withdrawal": {"by": "operator root", "reason": "fan replaced", "at": NOW - 1.0},
}
REQUEST = f"""file: {FILE}:
{{
  "schema": 2,
  "id": "{INCIDENT}",
  "reason": "{BY_HAND}"
}}
"""
PAUSED = {"kind": "paused", "text": "paused by root: upgrade", "mend": "reclaimctl resume"}
BUDGET = {
    "kind": "budget",
    "text": "1 of 1 drain requests of the day are used",
    "mend": "wait until 2027-01-15 10:00",
}


def a_line(event: str, text: str, **more: Any) -> dict[str, Any]:
    """Return one line of progress."""
    return {"event": event, "pid": 0, "text": text, "at": NOW, **more}


def a_result(code: int, targets: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    """Return the last line."""
    return {"event": "result", "exit_code": code, "targets": targets, **more}


def a_target(pid: int, code: int, end: str, text: str, **more: Any) -> dict[str, Any]:
    """Return what became of one process."""
    row = {"pid": pid, "ref": f"{pid}@{pid}77", "exit_code": code, "end": end, "text": text}
    return row | {"incident": None, "stages": [], "tasks": [], "reasons": []} | more


DRAINED = (
    a_line("accepted", "1 target: a fresh look first"),
    a_line("opened", f"incident {INCIDENT}: this node", incident=INCIDENT, stage="drain"),
    a_line("waiting", "3 of 8 nodes of the fleet are drained", stage="drain", elapsed_seconds=0.0),
    a_line("step", f"file: drain request written to {FILE}", stage="drain", outcome="accepted"),
    a_result(0, [a_target(0, 0, "handed_over", "drain requested")], drain=DRAIN),
)
REFUSED = (
    a_line("declined", "the drain request is refused", stage="drain"),
    a_result(3, [a_target(0, 3, "", "the drain request is refused", reasons=[PAUSED, BUDGET])], drain=None),
)
REHEARSED = (
    a_line("opened", f"incident {INCIDENT}: this node", incident=INCIDENT, stage="drain"),
    a_line("step", f"would ask for a drain: {BY_HAND}\n{REQUEST}", stage="drain", outcome="dry_run"),
    a_line("ended", "dry run: nothing was sent", stage="stood_down"),
    a_result(0, [a_target(0, 0, "stood_down", "dry run: nothing was sent")], drain=None),
)
SLEEPS = {"tid": 5151, "state": "S", "exiting": False}
SHIELD = "protected by keep: its program /usr/bin/dcgm"

PROTECTED = {"kind": "protected", "text": SHIELD, "mend": "take it out of [protect]"}


def a_candidate(pid: int, gpu: int, **more: Any) -> dict[str, Any]:
    """Return one holder of one GPU."""
    row = {
        "pid": pid,
        "ref": f"{pid}@{pid}77",
        "uid": SOMEBODY,
        "comm": "python",
        "kind": "none",
        "names": {},
    }
    held = {"gpu": UUIDS[gpu], "gpu_index": gpu, "used_bytes": 40 * GIB, "how": "listed", "container_id": ""}
    return row | held | {"workload": "ml/vision-large-7f9c/trainer", "refused": None} | more


CANDIDATES = {
    "grace_seconds": 30.0,
    "require_reason": False,
    "driver": STATUS["driver"],
    "gpus": [
        {"uuid": uuid, "index": index, "name": "NVIDIA H200 NVL", "note": ""}
        for index, uuid in enumerate(UUIDS)
    ],
    "rows": [
        a_candidate(4242, 0),
        a_candidate(4242, 1),
        a_candidate(5151, 0, uid=SOMEBODY + 1, used_bytes=2 * GIB, workload="job 4711"),
        a_candidate(
            77, 0, uid=0, used_bytes=None, workload="", refused={"kind": "protected", "text": SHIELD}
        ),
    ],
    "skipped": [],
}
GONE = f"{UUIDS[0]}: 0 bytes over what others hold"
HOLDS = "the time that was given is up; 1 of 1 processes not gone"
KILLED = (
    a_line("accepted", "3 targets: a fresh look first", pid=None),
    a_line("declined", SHIELD, pid=77),
    a_line("opened", COMMAND, pid=4242, incident=INCIDENT, stage="sigterm"),
    a_line("opened", "python3 train.py", pid=5151, incident="inc-6a1b2c3d-0f1e2e", stage="sigterm"),
    a_line("step", "SIGTERM and SIGCONT", pid=4242, stage="sigterm", outcome="sent"),
    a_line("step", "SIGTERM and SIGCONT", pid=5151, stage="sigterm", outcome="sent"),
    a_line("waiting", "sleeping", pid=5151, stage="sigterm", elapsed_seconds=2.0),
    a_line("ended", GONE, pid=4242, stage="reclaimed"),
    a_line("ended", HOLDS, pid=5151, stage="handed_over"),
    a_result(
        3,
        [
            a_target(4242, 0, "reclaimed", GONE, incident=INCIDENT, stages=[{"stage": "sigterm"}]),
            a_target(
                5151,
                5,
                "handed_over",
                HOLDS,
                incident="inc-6a1b2c3d-0f1e2e",
                stages=[{"stage": "sigterm"}],
                tasks=[{"ref": "5151@515177", "text": "sleeping", "tasks": [SLEEPS]}],
            ),
            a_target(77, 3, "", SHIELD, reasons=[PROTECTED]),
        ],
    ),
)
ACCEPTED = (*KILLED[:4], a_result(0, [a_target(4242, 0, "", "", incident=INCIDENT)]))

SHARED: dict[str, Answer] = {name: Answer(body) for name, body in ANSWERS.items()} | {
    "GET /v1/breakers": Answer({"breakers": BREAKERS}),
    "GET /v1/reclaims/candidates": Answer(CANDIDATES),
    "POST /v1/breakers/close": Answer({}),
    "POST /v1/drain": Answer(lines=DRAINED),
    "POST /v1/reclaims": Answer(lines=KILLED),
    "POST /v1/undrain": Answer({"drain": TAKEN_BACK}),
}
SERVERS: dict[str, dict[str, Answer]] = {
    "drain refused": {"POST /v1/drain": Answer(lines=REFUSED)},
    "drain dry run": {"POST /v1/drain": Answer(lines=REHEARSED)},
    "kill no wait": {"POST /v1/reclaims": Answer(lines=ACCEPTED)},
    "undrain done": {"POST /v1/undrain": Answer({"drain": None})},
}
CALLS: dict[str, list[str]] = {
    "breaker": ["breaker"],
    "breaker close": ["breaker", "close", "--gpu", "0", "--reason", "cable changed"],
    "doctor": ["doctor"],
    "drain": ["drain", "--reason", "fan of GPU 1 is loud", "--yes"],
    "drain dry run": ["drain", "--reason", "fan of GPU 1 is loud", "--dry-run"],
    "drain refused": ["drain", "--reason", "fan of GPU 1 is loud", "--yes"],
    "error asked": ["kill", "--gpu", "0"],
    "help": ["--help"],
    "kill": ["kill", "--gpu", "0", "--yes", "--timeout", "2m"],
    "kill no wait": ["kill", "--gpu", "0", "--yes", "--no-wait"],
    "top once": ["top", "--once"],
    "undrain": ["undrain", "--incident", INCIDENT, "--reason", "fan replaced", "--no-wait"],
    "undrain done": ["undrain", "--incident", INCIDENT, "--reason", "fan replaced"],
}
AT_TERMINAL: dict[str, list[str]] = {
    "completion hint": ["completion", "bash"],
    "drain asked": ["drain", "--reason", "fan of GPU 1 is loud"],
    "kill asked": ["kill", "--gpu", "0", "--force"],
}
TYPED = {"drain asked": "n\n", "kill asked": "y\n"}
