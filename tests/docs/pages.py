"""What the pages of several schedulers are held to alike."""

import re
from pathlib import Path

from reclaimerd.cli.main import run
from reclaimerd.model.drain_policy import FleetSettings


def assert_policy_is_one(page: str, folder: Path, fleet: FleetSettings, *lines: str) -> None:
    """Assert that the page's policy loads without a fault, and names the fleet's defaults and `lines`."""
    (text,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    path = folder / "policy.toml"
    path.write_text(text)
    assert run(["config", "check", str(path)]) == 0
    for line in (
        f"nodes = {fleet.nodes}",
        f"percent = {fleet.percent}",
        f"same_code_nodes = {fleet.same_code_nodes}",
        f'same_code_within = "{fleet.same_code_seconds / 60:g}m"',
        *lines,
    ):
        assert f"\n{line}\n" in text
