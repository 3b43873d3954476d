"""Pages that people write by hand name what exists: tests, alerts, commands, options, files, figures."""

import ast
import re
import tomllib
from functools import cache
from pathlib import Path

import click
import pytest
import yaml  # type: ignore[import-untyped]  # no stubs here

from reclaimerd.cli.main import reclaimctl
from reclaimerd.observe.nvml_quirks import OLDEST_DRIVER

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
SECURITY = (ROOT / "docs/security.md").read_text(encoding="utf-8")
OPERATIONS = (ROOT / "docs/operations.md").read_text(encoding="utf-8")
SUPPORT = (ROOT / "docs/support.md").read_text(encoding="utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
NAMED_TEST = re.compile(r"`([a-z0-9_/]+\.py)::(\w+)`")
OLD = ROOT / "CHANGELOG.md"
"""What a version had may be gone."""
PAGES = sorted({*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")} - {OLD})
CALL = re.compile(r"\breclaimctl ([a-z][^`|#;)\n]*)")


@cache
def functions_of(path: Path) -> frozenset[str]:
    """Return the names of a file's functions, by its syntax tree: a name in a text is none."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef)
    return frozenset(node.name for node in ast.walk(tree) if isinstance(node, kinds))


def rows_of(part: str) -> list[list[str]]:
    """Return the cells of each row of the tables in a part of a page, without their heads."""
    lines = part.splitlines()
    heads = {at - 1 for at, line in enumerate(lines) if re.fullmatch(r"\|( *-+:? *\|)+", line)}
    return [
        [cell.strip() for cell in line.strip("|").split("|")]
        for at, line in enumerate(lines)
        if line.startswith("|") and at not in heads and at - 1 not in heads
    ]


@pytest.mark.parametrize(("file", "name"), NAMED_TEST.findall(SECURITY))
def test_each_defence_names_a_test_that_exists(file: str, name: str) -> None:
    """Whoever reads that something is stopped can run what shows it."""
    assert name.startswith("test_")
    assert name in functions_of(TESTS / file)


def test_each_thing_that_is_tried_has_its_answer_and_its_test() -> None:
    """No row of the attacks is without a test, and the page says what is not stopped."""
    attacks = SECURITY.split("## What a hostile workload can try")[1].split("\n## ")[0]
    rows = rows_of(attacks)
    assert len(rows) > 50
    for tried, stops, shown in rows:
        assert tried, shown
        assert stops, tried
        assert NAMED_TEST.search(shown), tried
    assert SECURITY.split("## What is not stopped")[1].count("\n- **") > 8


def test_the_rights_that_it_calls_much_are_the_unit_s() -> None:
    """The page names no capability that the unit has not."""
    unit = (ROOT / "systemd/reclaimerd.service").read_text(encoding="utf-8")
    kept = set(re.findall(r"^CapabilityBoundingSet=(.+)$", unit, re.MULTILINE))
    named = set(re.findall(r"CAP_\w+", SECURITY))
    assert named
    assert named <= set(" ".join(kept).split())


def test_each_alert_is_told_with_its_urgency() -> None:
    """What is critical in the rules pages somebody, all else waits for working hours, each once."""
    rules = yaml.safe_load((ROOT / "config/prometheus/reclaimerd.rules.yml").read_text(encoding="utf-8"))
    shipped: dict[str, set[str]] = {"critical": set(), "warning": set()}
    for group in rules["groups"]:
        for rule in group["rules"]:
            shipped[rule["labels"]["severity"]].add(rule["alert"])
    part = OPERATIONS.split("## Watch it")[1].split("\n## ")[0]
    urgent, later = part.split("In working hours:")
    for told, severity in ((urgent, "critical"), (later, "warning")):
        named = re.findall(r"\bReclaimerd[A-Z]\w+", told)
        assert len(named) == len(set(named))
        assert set(named) == shipped[severity]


def assert_call_exists(call: str) -> None:
    """Assert that these words after `reclaimctl` name a command, and options that it has."""
    command: click.Command = reclaimctl
    words = call.split()
    while words and isinstance(command, click.Group) and words[0].rstrip(",.:'\"") in command.commands:
        command = command.commands[words.pop(0).rstrip(",.:'\"")]
    assert command is not reclaimctl, call
    assert not (isinstance(command, click.Group) and words and words[0].isalpha()), call
    known = {option for each in command.params for option in (*each.opts, *each.secondary_opts)}
    given = {re.split(r"[^a-z-]", word.lstrip("["))[0] for word in words if word.lstrip("[").startswith("--")}
    assert given <= known | {"--help"}, call


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_command_on_a_page_exists_with_its_options(page: Path) -> None:
    """Of every `reclaimctl` in a block or in code: a command of that name, with every option given."""
    text = page.read_text(encoding="utf-8").replace("\\\n", " ")
    fenced = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    lines = [re.sub(r"^ctl ", "reclaimctl ", line) for block in fenced for line in block.splitlines()]
    lines += re.findall(r"^ {4}.*$", text, re.MULTILINE)
    lines += re.findall(r"`([^`\n]+)`", text)
    for call in [found for line in lines for found in CALL.findall(line)]:
        assert_call_exists(call)


@pytest.mark.parametrize("folder", ["reclaimerd", "config", "systemd", "deploy"])
def test_each_command_that_a_mend_names_exists(folder: str) -> None:
    """Nobody is told at night to run what is not there: in messages, rules of alerts, units and manifests."""
    found = 0
    for path in sorted((ROOT / folder).rglob("*")):
        if path.suffix not in {".py", ".yml", ".yaml", ".toml", ".json", ".service", ".conf", ".socket"}:
            continue
        for call in re.findall(r"`reclaimctl ([a-z][^`{}\n\"]*)`", path.read_text(encoding="utf-8")):
            assert_call_exists(call)
            found += 1
    assert found or folder != "reclaimerd"


def test_each_place_that_support_names_exists() -> None:
    """Files and folders of tests, and the sections of other pages by test_docs."""
    places = re.findall(r"`([a-z0-9_]+(?:/[a-z0-9_]+\.py)?)`(?=[,| ])", SUPPORT)
    rows = [cell for row in rows_of(SUPPORT) for cell in re.findall(r"`([a-z0-9_]+(?:/\w+\.py)?)`", row[-1])]
    markers = set(re.findall(r"\(marker `(\w+)`\)", SUPPORT))
    assert len(places) > 20
    for place in set(rows) - markers - {"kill"}:
        assert (TESTS / place).exists(), place


def test_support_tells_of_each_kind_of_surroundings() -> None:
    """Each marker that stands for a real thing is on the page, and the floors are the code's."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    markers = {line.split(":")[0] for line in project["tool"]["pytest"]["ini_options"]["markers"]}
    real = markers - {"process", "root", "soak", "nightly", "slow"}
    assert set(re.findall(r"marker `(\w+)`", SUPPORT)) == real
    driver = f"driver {'.'.join(str(part) for part in OLDEST_DRIVER)} or newer"
    python = f"Python {project['project']['requires-python'].removeprefix('>=')} or newer"
    for page in (SUPPORT, OPERATIONS, (ROOT / "README.md").read_text(encoding="utf-8")):
        assert driver in page
        assert python in page


def test_each_place_that_contributing_names_exists() -> None:
    """Where a newcomer is sent, there is a file."""
    named = re.findall(r"`((?:\w+/)+\w+\.\w+)`", CONTRIBUTING)
    assert len(named) > 15
    missing = [
        path
        for path in named
        if not path.split("/")[1].startswith(("drain_NAME", "NAME_", "commands_NAME"))
        and not (ROOT / path).exists()
        and not (ROOT / "reclaimerd" / path).exists()
    ]
    assert missing == []


def test_each_owner_is_a_team_of_something_that_exists() -> None:
    """A line of CODEOWNERS leads to a file or folder, and names teams and no person."""
    lines = (ROOT / "CODEOWNERS").read_text(encoding="utf-8").splitlines()
    rules = [line.split() for line in lines if line and not line.startswith("#")]
    assert rules[0][0] == "*"
    for pattern, *owners in rules:
        assert pattern == "*" or (ROOT / pattern.lstrip("/")).exists(), pattern
        assert owners
        assert all(re.fullmatch(r"@[a-z-]+/[a-z-]+", owner) for owner in owners), owners


def test_a_hook_runs_what_make_check_runs_and_fetches_nothing() -> None:
    """Each hook is local, by a pinned tool, and its tool is one of `make check`."""
    config = yaml.safe_load((ROOT / ".pre-commit-config.yaml").read_text(encoding="utf-8"))
    (repository,) = config["repos"]
    assert repository["repo"] == "local"
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("$(BIN)", ".venv/bin")
    for hook in repository["hooks"]:
        assert hook["language"] == "system"
        words = [word for word in hook["entry"].split() if not word.startswith("--")]
        assert re.search(rf"^\t{re.escape(' '.join(words))}( |$)", makefile, re.MULTILINE), hook["id"]
