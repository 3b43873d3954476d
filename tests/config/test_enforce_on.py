"""The key `enforce_on`: a share of the hosts for every kind that may act, and a fault for what is none."""

from pathlib import Path

import pytest

from reclaimerd.config.check import check
from reclaimerd.config.load import load

MEMORY = '[[rule]]\nname = "x"\nabove = "8GiB"\nmatch = { uid = ["1000-2000"] }\n'
FAULT = '[[rule]]\nname = "x"\nkind = "fault"\nxid_class = ["reset"]\n'
MINER = '[[rule]]\nname = "x"\nkind = "miner"\n'
ORPHAN = '[[rule]]\nname = "x"\nkind = "orphan"\n'


def file_with(tmp_path: Path, text: str) -> Path:
    """Return a policy file."""
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("rule", [MEMORY, FAULT, MINER])
@pytest.mark.parametrize(
    ("written", "percent"), [('"5%"', 5.0), ("5", 5.0), ('"0%"', 0.0), ('"12.5%"', 12.5)]
)
def test_a_share_is_written_as_one(tmp_path: Path, rule: str, written: str, percent: float) -> None:
    """With its sign or as a number; and a policy as it is loaded enforces none of it yet."""
    path = file_with(tmp_path, f"{rule}enforce_on = {written}\n")
    policy = load(path, enforce_ownership=False).policy
    shares = [one.enforce_on_percent for one in policy.rules]
    shares += [one.enforce_on_percent for one in policy.fault_rules]
    assert shares == [percent]
    assert policy.enforces_here == frozenset()


def test_left_out_it_is_every_host(tmp_path: Path) -> None:
    """A rule enforces everywhere unless it is said."""
    policy = load(file_with(tmp_path, MEMORY), enforce_ownership=False).policy
    assert policy.rules[0].enforce_on_percent == 100.0


@pytest.mark.parametrize("written", ['"all"', '"101%"', "-1", "true", '["5%"]', '"5"'])
def test_what_is_no_share_is_a_fault_with_its_line(tmp_path: Path, written: str) -> None:
    """And nothing is in force of such a file."""
    (fault,) = check(file_with(tmp_path, f"{MEMORY}enforce_on = {written}\n"))
    assert (fault.line, fault.key) == (5, "rule[0].enforce_on")
    assert fault.mend


def test_a_kind_that_only_tells_has_no_such_key(tmp_path: Path) -> None:
    """It enforces nowhere."""
    (fault,) = check(file_with(tmp_path, f'{ORPHAN}enforce_on = "5%"\n'))
    assert "enforce_on" in fault.key
