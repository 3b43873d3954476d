"""One line of the policy file, changed and nothing else; whatever is not plain is refused."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.config import mode_line as module
from reclaimerd.config.check import examine
from reclaimerd.config.mode_line import ModeLine, NotPlainError, mode_line, with_mode
from reclaimerd.config.source import Source
from reclaimerd.errors import ConfigError, NoTargetError
from reclaimerd.model.policy import Mode

FILE = Path("/etc/reclaimerd/reclaimerd.toml")
POLICY = """\
# mode = "enforce"
[daemon]
mode = "dry-run"   # the cap

[[rule]]
name = "first"
above = "8GiB"
mode = "dry-run"
match = { uid = ["1000-2000"] }

[[rule]]
  above = "8GiB"
  mode   =  'observe'  # as 'first' is not "enforce"
  name = "second"
  match = { uid = ["1000-2000"] }

[[rule]]
name = "third"
above = "8GiB"

[[rule]]
name = "gpu"
kind = "fault"
xid_class = ["reset"]
mode = "observe"
"""


def source(text: str = POLICY) -> Source:
    """Return a policy file with this text."""
    return Source(FILE, text.encode(), ())


def modes_of(file: Source) -> dict[str, Mode]:
    """Return each rule's mode as the loader reads it."""
    policy = examine(file).policy
    return {one.name: one.mode for one in policy.rules} | {one.name: one.mode for one in policy.fault_rules}


def test_the_line_is_named_as_it_is_and_as_it_would_be() -> None:
    """File, line, both texts, and the daemon's mode where it caps what is asked."""
    found = mode_line(source(), "first", Mode.ENFORCE)
    assert (found.where, found.old, found.new) == (f"{FILE}:8", 'mode = "dry-run"', 'mode = "enforce"')
    assert found.capped_by is Mode.DRY_RUN
    assert mode_line(source(), "first", Mode.OBSERVE).capped_by is None


@pytest.mark.parametrize(
    ("rule", "line", "new"),
    [
        ("first", 8, 'mode = "enforce"'),
        ("second", 13, "  mode   =  'enforce'  # as 'first' is not \"enforce\""),
        ("gpu", 25, 'mode = "enforce"'),
    ],
)
def test_one_line_changes_and_all_others_stay(rule: str, line: int, new: str) -> None:
    """Quotes, blanks and the comment of that line stay too."""
    before = POLICY.split("\n")
    after = with_mode(source(), rule, Mode.ENFORCE).decode().split("\n")
    assert after[line - 1] == new
    assert [place for place, pair in enumerate(zip(before, after, strict=True), 1) if pair[0] != pair[1]] == [
        line
    ]


def test_lines_that_end_as_on_windows_stay_so() -> None:
    """Every carriage return is kept."""
    text = POLICY.replace("\n", "\r\n")
    after = with_mode(source(text), "first", Mode.ENFORCE).decode()
    assert after == text.replace('mode = "dry-run"\r\nmatch', 'mode = "enforce"\r\nmatch')


def test_a_rule_without_the_line_is_told_where_it_belongs_and_not_changed() -> None:
    """It is observe by default; a line more is for a person to write."""
    found = mode_line(source(), "third", Mode.ENFORCE)
    assert (found.line, found.old, found.new) == (18, "", 'mode = "enforce"')
    with pytest.raises(NotPlainError, match="has no line that says its mode"):
        with_mode(source(), "third", Mode.ENFORCE)


@pytest.mark.parametrize(
    "written",
    [
        'rule = [{ name = "first", above = "8GiB", mode = "observe", match = { uid = ["1-2"] } }]',
        '[[rule]]\nname = "first"\nabove = "8GiB"\n"mode" = "observe"\nmatch = { uid = ["1-2"] }',
        '[[rule]]\nname = "first"\nabove = "8GiB"\nmode = """observe"""\nmatch = { uid = ["1-2"] }',
        '[[rule]]\nname = "first"\nabove = "8GiB"\nmode = "obs\\u0065rve"\nmatch = { uid = ["1-2"] }',
    ],
    ids=["inline table", "quoted key", "long text", "escape"],
)
def test_what_is_not_plain_is_refused(written: str) -> None:
    """A person sees what it means; we do not guess."""
    with pytest.raises(NotPlainError, match="not on a plain line"):
        with_mode(source(written), "first", Mode.DRY_RUN)


def test_a_file_with_faults_is_refused_with_all_of_them() -> None:
    """Nothing is looked for in it."""
    with pytest.raises(ConfigError) as caught:
        mode_line(source(POLICY + 'odd = 1\n[[rule]]\nname = "x"\nodd = 2\n'), "first", Mode.ENFORCE)
    assert len(caught.value.faults) >= 2


def test_a_change_that_would_make_a_fault_is_refused() -> None:
    """An enforcing memory rule without a match: the fault names its line."""
    text = '[[rule]]\nname = "first"\nabove = "8GiB"\nmode = "observe"\n'
    with pytest.raises(ConfigError, match="match"):
        with_mode(source(text), "first", Mode.ENFORCE)


def test_an_unknown_rule_is_refused_with_those_there_are() -> None:
    """A slip of the pen changes nothing."""
    with pytest.raises(NoTargetError, match="it has first, gpu, second, third"):
        mode_line(source(), "frist", Mode.ENFORCE)
    with pytest.raises(NoTargetError, match="no rule at all"):
        mode_line(source(""), "first", Mode.ENFORCE)


@given(
    st.sampled_from(["first", "second", "gpu"]), st.lists(st.sampled_from(list(Mode)), min_size=1, max_size=4)
)
def test_whatever_is_asked_for_last_is_what_the_file_says(rule: str, modes: list[Mode]) -> None:
    """Changed again and again, only that rule's mode differs; and back again the file is what it was."""
    now = source()
    for mode in modes:
        now = Source(FILE, with_mode(now, rule, mode), ())
    was = modes_of(source())
    assert modes_of(now) == was | {rule: modes[-1]}
    assert with_mode(now, rule, was[rule]) == POLICY.encode()


def test_the_line_is_ours_even_where_a_text_looks_like_it() -> None:
    """A rule whose command line pattern holds the words is no place to write in."""
    text = (
        '[[rule]]\nname = "first"\nabove = "8GiB"\n'
        "match = { uid = [\"1-2\"], cmdline = ['''\nmode = \"observe\"\n'''] }\n"
        'mode = "dry-run"\n'
    )
    found = mode_line(source(text), "first", Mode.OBSERVE)
    assert (found.line, found.old) == (7, 'mode = "dry-run"')


def test_a_line_that_is_not_the_rule_s_own_is_never_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Were we wrong about the place, the result would say something else: it is compared, and refused."""
    real = module.mode_line

    def another(file: Source, _rule: str, mode: Mode) -> ModeLine:
        return real(file, "second", mode)

    monkeypatch.setattr(module, "mode_line", another)
    with pytest.raises(NotPlainError, match="would change more than a mode"):
        with_mode(source(), "first", Mode.ENFORCE)
