"""The pages agree with the code and with each other."""

import re
from pathlib import Path

import pytest

from reclaimerd import __version__
from reclaimerd.daemon.drain_request import RUNBOOK
from reclaimerd.errors import ExitCode
from reclaimerd.judge.drain_steps import as_markdown as drain_table
from reclaimerd.judge.ladder import as_markdown
from reclaimerd.model.drain import AskState, DrainCode, DrainPhase
from reclaimerd.model.fault import FaultClass
from reclaimerd.model.incident import OutcomeKind, ProofKind, Stage
from reclaimerd.model.kernel import Leaving, TaskCondition
from reclaimerd.model.policy import Per, RuleKind
from reclaimerd.model.reset_run import ChangeKind, ChangeState, ResetPhase, ResetResult
from reclaimerd.model.step import ReasonKind

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted((*ROOT.glob("*.md"), *DOCS.rglob("*.md")))
ENDS_WITH_A_RUNBOOK = {Stage.UNVERIFIED, Stage.STOOD_DOWN, Stage.HANDED_OVER}
ERRORS_WITH_A_RUNBOOK = {"corrupt_store", "audit_broken", "writer_busy"}
INDEX = {"README"}
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
RUNBOOKS = sorted(path for path in (DOCS / "runbooks").glob("*.md") if path.stem not in INDEX)


def text_of(path: Path) -> str:
    """Return a page."""
    return path.read_text(encoding="utf-8")


def anchors_of(path: Path) -> set[str]:
    """Return the anchors that a page's headings have."""
    headings = re.findall(r"^#+ (.+)$", text_of(path), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def test_the_ladder_page_is_the_table() -> None:
    """docs/ladder.md is what `make docs` makes of the table now."""
    assert text_of(DOCS / "ladder.md") == as_markdown()


def test_the_drain_s_page_has_its_table() -> None:
    """docs/drain.md has the phases as `judge/drain_steps.py` has them."""
    assert drain_table() in text_of(DOCS / "drain.md")


def test_each_refusal_and_each_end_has_its_runbook() -> None:
    """An operator who meets a reason, an end or an error finds a page of its name, and no other is there."""
    wanted = {str(kind) for kind in ReasonKind} | {str(end) for end in ENDS_WITH_A_RUNBOOK}
    assert {path.stem for path in RUNBOOKS} == wanted | ERRORS_WITH_A_RUNBOOK | {Path(RUNBOOK).stem}


def test_the_list_of_runbooks_is_whole() -> None:
    """The runbooks' own page links each of them once."""
    linked = LINK.findall(text_of(DOCS / "runbooks" / "README.md"))
    assert sorted(link for link in linked if "/" not in link) == [path.name for path in RUNBOOKS]


@pytest.mark.parametrize("page", RUNBOOKS, ids=lambda path: path.stem)
def test_a_runbook_says_what_to_do_and_what_not(page: Path) -> None:
    """Each runbook has the four parts, in one order, and a command to see it with."""
    headings = re.findall(r"^## (.+)$", text_of(page), re.MULTILINE)
    assert headings == ["What it means", "How to see it", "What to do", "What not to do"]
    seeing = text_of(page).split("## How to see it")[1].split("## What to do")[0]
    assert re.search(r"^    \S", seeing, re.MULTILINE), "no command"


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_each_relative_link_resolves(page: Path) -> None:
    """A link to a file or to a heading of this project leads there."""
    for link in LINK.findall(text_of(page)):
        if re.match(r"[a-z]+:", link):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        assert not anchor or anchor in anchors_of(target), f"{link}: no such heading"


def test_the_readme_shows_the_two_commands() -> None:
    """A newcomer finds both commands."""
    text = text_of(ROOT / "README.md")
    assert re.search(r"^    make demo$", text, re.MULTILINE)
    assert re.search(r"^    make check$", text, re.MULTILINE)


def test_the_readme_lists_every_exit_code() -> None:
    """The table of exit codes in the README has each code of the programs once."""
    codes = re.findall(r"^\| (\d+) \|", text_of(ROOT / "README.md"), re.MULTILINE)
    assert [int(code) for code in codes] == [int(code) for code in ExitCode]


def test_the_readme_names_the_seven_principles() -> None:
    """Seven principles, numbered."""
    part = text_of(ROOT / "README.md").split("## Principles")[1].split("\n## ")[0]
    assert re.findall(r"^(\d)\. ", part, re.MULTILINE) == list("1234567")


def test_the_changelog_has_this_version() -> None:
    """The version that the code has is one that the changelog tells of."""
    found = re.findall(r"^## \[([\d.]+)\] - \d{4}-\d{2}-\d{2}$", text_of(ROOT / "CHANGELOG.md"), re.MULTILINE)
    assert __version__ in found


@pytest.mark.parametrize("page", [ROOT / "README.md", DOCS / "tutorial.md"], ids=lambda path: path.name)
def test_samples_show_this_version(page: Path) -> None:
    """What a page shows as printed has the version that is printed; `make docs` writes it."""
    shown = re.findall(r"^ *reclaim(?:erd|ctl) (\d+\.\d+\.\d+)\b", text_of(page), re.MULTILINE)
    assert shown
    assert set(shown) == {__version__}, "run `make docs`"


def test_decisions_are_numbered_without_a_gap() -> None:
    """Decision records have numbers from 0001 on, and the three parts."""
    pages = sorted((DOCS / "adr").glob("*.md"))
    assert [page.name[:4] for page in pages] == [f"{number:04}" for number in range(1, len(pages) + 1)]
    for page in pages:
        headings = re.findall(r"^## (.+)$", text_of(page), re.MULTILINE)
        assert headings == ["Context", "Decision", "Consequences"], page.name


def test_each_word_of_the_model_is_in_the_glossary() -> None:
    """Every stage, reason of a refusal, condition of a task and end of an exit stands there by its value."""
    text = text_of(DOCS / "glossary.md")
    words = (*Stage, *ReasonKind, *TaskCondition, *Leaving, *OutcomeKind, *ProofKind)
    resets = (*ResetPhase, *ResetResult, *ChangeKind, *ChangeState)
    drains = (*DrainPhase, *AskState, *DrainCode)
    values = [str(word) for word in (*words, *resets, *drains, *RuleKind, *Per)]
    values += [fault.word for fault in FaultClass]
    assert [value for value in values if f"`{value}`" not in text] == []


def test_each_call_of_the_socket_is_on_the_page_that_a_wrong_call_points_to() -> None:
    """Method and path of every route stand in architecture.md; one that takes a name says so."""
    text = text_of(ROOT / "reclaimerd/daemon/api.py")
    routes = re.findall(r'_Route\(\s*"(GET|POST)", "(/[^"]+)"', text)
    told = re.findall(r"`(GET|POST) (/[^`]+)`", text_of(DOCS / "architecture.md"))
    assert len(routes) == text.count("_Route(")
    assert set(routes) <= set(told)


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_pages_hold_no_unfinished_text(page: Path) -> None:
    """No page promises to be written later."""
    assert not re.search(r"\b(TODO|FIXME|TBD|XXX|lorem)\b", text_of(page))
