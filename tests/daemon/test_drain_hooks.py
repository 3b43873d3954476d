"""Claims about which hooks the wiring builds from a policy, and that nothing of theirs runs before."""

from pathlib import Path
from typing import Any, cast

import pytest

from reclaimerd.act.drain_command import DrainCommand
from reclaimerd.act.drain_unit import DrainUnit
from reclaimerd.act.drain_webhook import DrainWebhook
from reclaimerd.daemon.engine import Paths
from reclaimerd.daemon.wiring_drain import REPORTS, DrainHands
from reclaimerd.daemon.wiring_hands import HandParts
from reclaimerd.model.drain_policy import CommandTarget, DrainSettings, UnitTarget, WebhookTarget
from reclaimerd.model.drain_ports import DrainTargetPort
from reclaimerd.model.policy import Policy
from tests.builders import BOOT

HOOKS = DrainSettings(
    webhook=WebhookTarget("https://fleet.example.org/drain"),
    command=CommandTarget("/usr/local/sbin/drain"),
    unit=UnitTarget("x.target"),
)


def hands_of(tmp_path: Path, drain: DrainSettings, simulate: Path | None = None) -> DrainHands:
    """Return the hands of one policy; nothing else of a host is there."""
    policy = Policy(drain=drain)
    nothing = cast("Any", None)
    paths = Paths(tmp_path / "state", tmp_path / "log", tmp_path / "socket", simulate=simulate)
    return DrainHands(HandParts(paths, BOOT, lambda: policy, nothing, nothing, nothing, None))


def test_each_hook_that_the_policy_names_is_asked(tmp_path: Path) -> None:
    """And without its table none of them is; all need a place in the fleet's count."""
    assert list(hands_of(tmp_path, DrainSettings()).targets()) == ["file"]
    targets = hands_of(tmp_path, HOOKS).targets()
    assert list(targets) == ["file", "webhook", "command", "unit"]
    assert {name for name in targets if name in REPORTS} == {"file"}
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize(
    ("simulate", "systemctl"), [(None, "/usr/bin/systemctl"), (Path("/sim"), "/sim/systemctl")]
)
def test_each_has_the_policy_s_values(tmp_path: Path, simulate: Path | None, systemctl: str) -> None:
    """On a simulated host its own systemctl is asked, and never this machine's."""
    targets = hands_of(tmp_path, HOOKS, simulate).targets()
    webhook, command, unit = (_bare(targets[name]) for name in ("webhook", "command", "unit"))
    assert isinstance(webhook, DrainWebhook)
    assert webhook.settings == HOOKS.webhook
    assert isinstance(command, DrainCommand)
    assert (command.settings, command.any_owner) == (HOOKS.command, simulate is not None)
    assert isinstance(unit, DrainUnit)
    assert (unit.settings, unit.systemctl, unit.any_owner) == (HOOKS.unit, systemctl, simulate is not None)
    assert (unit.mark.path, unit.mark.boot_id) == (tmp_path / "state" / "drain-unit.json", BOOT)


def _bare(target: DrainTargetPort) -> object:
    return target
