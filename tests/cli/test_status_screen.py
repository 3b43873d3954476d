"""What `status` tells on one screen of 80 columns and 24 lines."""

import time
from typing import Any

import pytest

from reclaimerd import __version__
from reclaimerd.cli.render import show
from reclaimerd.cli.report import status_blocks
from reclaimerd.cli.status_text import last_act_line

NOW = time.time()
ACT: dict[str, Any] = {
    "at": NOW - 125,
    "stage": "sigterm",
    "outcome": "sent",
    "incident": "inc-6a1b2c3d-0f1e2d3c",
    "pid": 4242,
    "gpus": ["GPU-a"],
    "actor": "rule login-cap",
    "dry_run": False,
    "end": "",
}
BUSY: dict[str, Any] = {
    "version": __version__,
    "pid": 812,
    "mode": "enforce",
    "source": "daemon",
    "rules": 5,
    "enforcing": 2,
    "policy": "/etc/reclaimerd/reclaimerd.toml",
    "staged": [{"rule": "login-cap", "percent": 5.0, "enforces_here": True, "mode": "enforce"}],
    "driver": {"state": "responsive", "text": "responsive", "since_seconds": 3, "version": "595.45.04"},
    "gpus": [
        {
            "uuid": f"GPU-{n}{n}{n}{n}1111-2222-3333-4444-55555555555{n}",
            "index": n,
            "name": "NVIDIA H200",
            "pci": f"00000000:{n}B:00.0",
            "used_bytes": 80 * 2**30,
            "total_bytes": 2**37,
            "utilisation_percent": 97,
            "holders": 2,
            "recovery_action": "none",
        }
        for n in range(8)
    ],
    "budget": {"workloads_left_today": 2, "resets_left_today": 4, "drains_left_today": 1},
    "last_act": ACT,
    "incidents": [
        {
            "id": f"inc-6a1b2c3d-0f1e2d3{n}",
            "pid": 4242 + n,
            "stage": "sigterm",
            "target": "/opt/conda/bin/python train.py --config big.yaml",
            "since_seconds": 40,
            "gpus": [f"GPU-{n}"],
        }
        for n in range(3)
    ],
    "attention": ["incident inc-6a1b2c3d-0f1e2d3c (pid 777) was handed over: to a person"],
}


def test_one_screen(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """8 GPUs and 3 incidents with all that an operator asks first, and room for the prompt below."""
    monkeypatch.setenv("COLUMNS", "80")
    show(status_blocks(BUSY))
    lines = capsys.readouterr().out.splitlines()
    assert sum(1 + (len(line) - 1) // 80 for line in lines) <= 23
    told = "\n".join(lines)
    assert lines[0].startswith("ATTENTION: incident inc-6a1b2c3d-0f1e2d3c")
    for text in (
        "mode enforce",
        "5 rules, 2 may enforce here",
        "rule login-cap: enforces here: 5 % of hosts enforce",
        "driver: responsive, version 595.45.04",
        "budget left today: 2 workloads, 4 resets, 1 drain requests",
        "last act: sigterm to pid 4242 for rule login-cap: sent, ",
        "inc-6a1b2c3d-0f1e2d32",
    ):
        assert text in told
    assert sum(line.startswith(f"{n} ") for n in range(8) for line in lines) == 8


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"end": "reclaimed"}, "s ago); inc-6a1b2c3d-0f1e2d3c, reclaimed"),
        (
            {"pid": 0, "stage": "reset", "outcome": "reset_done"},
            "reset of GPU-a for rule login-cap: reset_done,",
        ),
        ({"pid": 0, "gpus": [], "stage": "drain"}, "drain of this node for rule login-cap: sent,"),
        ({"dry_run": True, "outcome": "none yet"}, ": none yet (dry run), "),
        ({"dry_run": True, "outcome": "dry_run"}, ": dry_run, "),
    ],
)
def test_the_last_act(changes: dict[str, Any], told: str) -> None:
    """To whom, for whom, what came of it, and whether it was a rehearsal."""
    assert told in last_act_line({**ACT, **changes})


def test_no_act_and_an_older_daemon() -> None:
    """None is said to be none; a daemon that does not know the field says nothing of it."""
    assert last_act_line(None) == "last act: none is known"
    older = {key: value for key, value in BUSY.items() if key not in ("last_act", "enforcing")}
    told = [block for block in status_blocks(older) if isinstance(block, str)]
    assert not [line for line in told if "last act" in line or "may enforce" in line]
