"""Every fault of a policy file at once, with its line, its key and its mend."""

from pathlib import Path

import pytest

from reclaimerd.config.check import check
from reclaimerd.config.faults import Fault
from reclaimerd.config.known_here import read_uid

RULE = '[[rule]]\nname = "cap"\nabove = "8GiB"\n'
FAULT = '[[rule]]\nname = "mend"\nkind = "fault"\nxid_class = "reset"\n'
GROWTH = '[[rule]]\nname = "leak"\nkind = "memory_growth"\ngrowth = "50MiB/s"\n'
AGE = '[[rule]]\nname = "old"\nkind = "age"\nolder_than = "1h"\n'
IDLE = '[[rule]]\nname = "idle"\nkind = "idle"\nidle = 5\nwarn_before = "10m"\n'
ENFORCING = RULE + 'mode = "enforce"\nmatch = { uid = [1000] }\n'


def faults_of(tmp_path: Path, text: str) -> tuple[Fault, ...]:
    """Return the faults of a policy text."""
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return check(path)


def only_fault(tmp_path: Path, text: str) -> Fault:
    """Return the one fault of a policy text."""
    (fault,) = faults_of(tmp_path, text)
    return fault


@pytest.mark.parametrize(
    "text", ["", RULE, ENFORCING, FAULT, GROWTH, AGE, IDLE, FAULT + RULE + GROWTH + AGE + IDLE, "[daemon]\n"]
)
def test_a_sound_file_has_no_fault(tmp_path: Path, text: str) -> None:
    """Nothing is found where nothing is wrong."""
    assert faults_of(tmp_path, text) == ()


@pytest.mark.parametrize(
    ("text", "line", "key", "what"),
    [
        ('[daemon]\nmode = "enforc"', 2, "daemon.mode", "not known"),
        ('[daemon]\ninterval = "100ms"', 2, "daemon.interval", "shorter than 200ms"),
        ("[daemon]\ninterval = 2", 2, "daemon.interval", "the number 2"),
        ('[daemon]\nfull_scan = "1s"', 2, "daemon.full_scan", "shorter than one pass"),
        ('[daemon]\nnvidia_smi = "nvidia-smi"', 2, "daemon.nvidia_smi", "absolute"),
        ("daemon = 3", 1, "daemon", "place of a table"),
        ('[ladder]\nsigterm = "0s"', 2, "ladder.sigterm", "zero"),
        ('[ladder]\noperator_sigterm = "0s"', 2, "ladder.operator_sigterm", "zero"),
        ('[ladder]\nexit_grace = "-1s"', 2, "ladder.exit_grace", "negative"),
        ('[ladder]\nsigterm_seconds = "1s"', 2, "ladder.sigterm_seconds", "not known"),
        ("[gates]\nhold_files = []", 2, "gates.hold_files", "nobody can stop"),
        ('[gates]\nhold_files = ["/a", "b"]', 2, "gates.hold_files[1]", "absolute"),
        ('[gates]\nhold_files = "/a"', 2, "gates.hold_files", "place of a list"),
        ("[budgets]\ndrains_per_day = -1", 2, "budgets.drains_per_day", "out of range"),
        ("[budgets]\nresets_per_gpu = true", 2, "budgets.resets_per_gpu", "true or false"),
        ("[budgets]\nresets_per_gpu = 1.5", 2, "budgets.resets_per_gpu", "the number 1.5"),
        ("[breaker]\ngpu_percent = 101", 2, "breaker.gpu_percent", "not between"),
        ("[breaker]\ngpu_percent = nan", 2, "breaker.gpu_percent", "not between"),
        ("[breaker]\ngpu_percent = true", 2, "breaker.gpu_percent", "true or false"),
        ("[breaker]\nworkloads_per_pass = 0", 2, "breaker.workloads_per_pass", "out of range"),
        ('[drain]\nfault_domains = ["driver", "hardwear"]', 2, "drain.fault_domains[1]", "not known"),
        ('[drain]\ndirectory = "drain"', 2, "drain.directory", "absolute"),
        ('[workers]\nhung_after = "4s"', 2, "workers.hung_after", "before its answer is due"),
        ('[audit]\nfile_size = "0B"', 2, "audit.file_size", "too small"),
        ('[audit]\nfile_size = "64MB"', 2, "audit.file_size", "not a size"),
        ('[access]\nowner_access = "yes"', 2, "access.owner_access", "place of true or false"),
        ('[access]\ngroup = "a b"', 2, "access.group", "blanks"),
        ('[[protect]]\nname = "x"', 1, "protect[0]", "protects nothing"),
        ("[[protect]]\nuids = [0]", 1, "protect[0].name", "no name"),
        ('[[protect]]\nname = "built-in"\nuids = [0]', 2, "protect[0].name", "our own"),
        ('[[protect]]\nname = "x"\nunit = "sshd"', 3, "protect[0].unit", "not the name of a service"),
        ('[[protect]]\nname = "x"\nexe = "sshd"', 3, "protect[0].exe", "absolute"),
        ("[rule]\nx = 1", 1, "rule", "place of tables"),
        ("rule = [3]", 1, "rule[0]", "place of a table"),
        ('[[rule]]\nabove = "8GiB"', 1, "rule[0].name", "no name"),
        ('[[rule]]\nname = "x"', 1, "rule[0].above", "no cap"),
        ('[[rule]]\nname = "a/b"\nabove = "1GiB"', 2, "rule[0].name", "not a name"),
        (RULE.replace("8GiB", "-8GiB"), 3, "rule[0].above", "negative"),
        (RULE.replace("8GiB", "0B"), 3, "rule[0].above", "zero"),
        (RULE.replace("8GiB", "0%"), 3, "rule[0].above", "0%"),
        (RULE.replace("8GiB", "120%"), 3, "rule[0].above", "not between"),
        (RULE + 'kind = "memry"', 4, "rule[0].kind", "not known"),
        (RULE + "readings = 1", 4, "rule[0].readings", "out of range"),
        (RULE + 'per = "pod"', 4, "rule[0].per", "not known"),
        (RULE + "priority = 1001", 4, "rule[0].priority", "out of range"),
        (RULE + "priority = true", 4, "rule[0].priority", "true or false"),
        (GROWTH.replace("50MiB/s", "50MiB"), 4, "rule[0].growth", "not a rate"),
        (GROWTH.replace("50MiB/s", "50MB/s"), 4, "rule[0].growth", "not a size"),
        (GROWTH.replace("50MiB/s", "0B/s"), 4, "rule[0].growth", "a rate of zero"),
        (GROWTH.replace('"50MiB/s"', "50"), 4, "rule[0].growth", "the number 50"),
        (GROWTH.replace('growth = "50MiB/s"', ""), 1, "rule[0].growth", "no rate"),
        (GROWTH + 'window = "39s"', 5, "rule[0].window", "less than 20 looks"),
        (IDLE + 'window = "0s"', 6, "rule[0].window", "zero"),
        (IDLE.replace("= 5", "= 51"), 4, "rule[0].idle", "is not idle"),
        (IDLE.replace("idle = 5", ""), 1, "rule[0].idle", "no share"),
        (AGE.replace('older_than = "1h"', ""), 1, "rule[0].older_than", "no age"),
        (AGE + "even_if_allocated = false", 5, "rule[0].even_if_allocated", "not known"),
        (IDLE + "even_if_allocated = false", 6, "rule[0].even_if_allocated", "not known"),
        (AGE + 'mode = "enforce"', 1, "rule[0].match", "an enforcing age rule needs a match"),
        (AGE + 'avoid = { user = ["nobody-here"] }', 5, "rule[0].avoid.user[0]", "no user"),
        (RULE + 'grace = "0s"', 4, "rule[0].grace", "zero"),
        (RULE + 'stages = ["sigkill"]', 4, "rule[0].stages", 'without "sigterm"'),
        (RULE + 'stages = ["sigterm", "reset"]', 4, "rule[0].stages", 'without "sigkill"'),
        (RULE + 'stages = ["sigkill", "sigterm"]', 4, "rule[0].stages", "out of order"),
        (RULE + 'stages = ["sigterm", "sigterm"]', 4, "rule[0].stages", "twice"),
        (RULE + "stages = []", 4, "rule[0].stages", "no stage"),
        (RULE + "match = 3", 4, "rule[0].match", "place of a table"),
        (RULE + "match = { user = [3] }", 4, "rule[0].match.user[0]", "the number 3"),
        (RULE + 'match = { uid = ["9-1"] }', 4, "rule[0].match.uid[0]", "backwards"),
        (RULE + "match = { uid = [4294967295] }", 4, "rule[0].match.uid[0]", "beyond"),
        (RULE + "match = { uid = [-1] }", 4, "rule[0].match.uid[0]", "beyond"),
        (RULE + 'match = { uid = ["all"] }', 4, "rule[0].match.uid[0]", "not a range"),
        (RULE + 'match = { exe = ["python3"] }', 4, "rule[0].match.exe[0]", "never match"),
        (RULE + 'match = { exe = [""] }', 4, "rule[0].match.exe[0]", "not a path"),
        (RULE + 'match = { cgroup = ["user.slice"] }', 4, "rule[0].match.cgroup[0]", "never match"),
        (RULE + 'match = { gpu = ["0"] }', 4, "rule[0].match.gpu[0]", "UUID"),
        (RULE + "match = { cmdline = ['(a)\\1'] }", 4, "rule[0].match.cmdline[0]", "RE2 refuses"),
        (RULE + "match = { cmdline = ['(?=a)'] }", 4, "rule[0].match.cmdline[0]", "RE2 refuses"),
        (RULE + "match = { cmdline = ['((x{900}){900}){9}'] }", 4, "rule[0].match.cmdline[0]", "RE2 refuses"),
        (RULE + 'match = { cmdline = [""] }', 4, "rule[0].match.cmdline[0]", "matches everything"),
        (RULE + 'exempt = { user = ["nobody-here"] }', 4, "rule[0].exempt.user[0]", "no user"),
        (RULE + 'mode = "enforce"', 1, "rule[0].match", "needs a match"),
        (RULE + "mode = 'enforce'\nmatch = { cmdline = ['x'] }", 5, "rule[0].match", "alone"),
        (RULE + "mode = 'enforce'\nmatch = { gpu = ['GPU-1'] }", 5, "rule[0].match", "alone"),
        ('[reset]\nfence_hook = "hook"', 2, "reset.fence_hook", "absolute"),
        ('[reset]\nstop_units = ["dcgm"]', 2, "reset.stop_units[0]", "not the name of a service"),
        ('[reset]\nstop_units = ["user.slice"]', 2, "reset.stop_units[0]", "not a service"),
        ('[reset]\nstop_units = ["a.service", "a.service"]', 2, "reset.stop_units", "twice"),
        ('[reset]\nstop_units = ["reclaimerd.service"]', 2, "reset.stop_units", "this program itself"),
        ('[reset]\nunit_timeout = "0s"', 2, "reset.unit_timeout", "zero"),
        ("[reset]\npeers = 1", 2, "reset.peers", "place of true or false"),
        ("[budgets]\nresets_per_day = -1", 2, "budgets.resets_per_day", "out of range"),
        ("[breaker]\nfailed_resets = 0", 2, "breaker.failed_resets", "out of range"),
        ('[[rule]]\nkind = "fault"\nxid_class = "reset"', 1, "rule[0].name", "no name"),
        ('[[rule]]\nkind = "fault"\nname = "x"', 1, "rule[0].xid_class", "waits for no fault"),
        (FAULT.replace('"reset"', '"unknown"'), 4, "rule[0].xid_class[0]", "not known"),
        (FAULT.replace('"reset"', "48"), 4, "rule[0].xid_class", "place of a list"),
        (FAULT + 'recovery_action = ["drain_p2p"]', 5, "rule[0].recovery_action[0]", "not known"),
        (FAULT + 'above = "8GiB"', 5, "rule[0].above", "not known"),
        (FAULT + "match = { uid = [1] }", 5, "rule[0].match", "not known"),
        (FAULT + 'gpu = ["0"]', 5, "rule[0].gpu[0]", "UUID"),
        (FAULT + "stages = []", 5, "rule[0].stages", "no stage"),
        (FAULT + 'stages = ["drain", "reset"]', 5, "rule[0].stages", "out of order"),
        (FAULT + 'stages = ["reset", "reset"]', 5, "rule[0].stages", "twice"),
        (FAULT + 'stages = ["sigkill", "reset"]', 5, "rule[0].stages", 'without "sigterm"'),
        (FAULT + 'stages = ["sigterm", "reset"]', 5, "rule[0].stages", 'without "sigkill"'),
        (FAULT + 'stages = ["sigterm", "sigkill"]', 5, "rule[0].stages", "signals alone"),
        (
            FAULT.replace('"reset"', '"lost"') + 'stages = ["reset"]',
            5,
            "rule[0].stages",
            "mends none of the faults",
        ),
        (
            FAULT + 'stages = ["sigterm", "sigkill", "reset"]\ngrace = "0s"',
            6,
            "rule[0].grace",
            "zero",
        ),
        (FAULT.replace('"fault"', '"falt"'), 3, "rule[0].kind", "not known"),
        (RULE + FAULT.replace('"mend"', '"a/b"'), 5, "rule[1].name", "not a name"),
        (RULE + 'xid_class = "reset"', 4, "rule[0].xid_class", "not known"),
        (RULE + "since = 1979-05-27", 4, "rule[0].since", "not known"),
        (RULE + "name_ = 1\n", 4, "rule[0].name_", "not known"),
        ('"a\\nb" = 1', 1, '"a\\nb"', "not known"),
    ],
)
def test_each_fault_has_its_line_key_and_mend(
    tmp_path: Path, text: str, line: int, key: str, what: str
) -> None:
    """Exactly one fault, at the key that is wrong, in words that say what and how to mend it."""
    fault = only_fault(tmp_path, text)
    assert (fault.line, fault.key) == (line, key)
    assert what in fault.what
    assert fault.mend
    assert str(fault) == f"{tmp_path}/policy.toml:{line}: {key}: {fault.what}; {fault.mend}"
    assert "\n" not in str(fault)


def test_an_unknown_kind_or_key_hides_no_other_fault(tmp_path: Path) -> None:
    """All faults of all tables come at once, in the order of their lines."""
    faults = faults_of(
        tmp_path,
        """\
[daemon]
mode = "enforc"
bogus = 1
[laddr]
sigterm = "1s"
[[rule]]
name = "a"
kind = "idel"
above = "8GB"
for = 3
stages = ["sigkill", "sigterm"]
grace = "0s"
[rule.match]
user = ["nobody-here", 3]
usr = ["x"]
[[rule]]
name = "a"
mode = "enforce"
above = "1GiB"
""",
    )
    assert [(fault.line, fault.key) for fault in faults] == [
        (2, "daemon.mode"),
        (3, "daemon.bogus"),
        (4, "laddr"),
        (8, "rule[0].kind"),
        (9, "rule[0].above"),
        (10, "rule[0].for"),
        (11, "rule[0].stages"),
        (12, "rule[0].grace"),
        (14, "rule[0].match.user[0]"),
        (14, "rule[0].match.user[1]"),
        (15, "rule[0].match.usr"),
        (16, "rule[1].match"),
        (17, "rule[1].name"),
    ]


@pytest.mark.parametrize(
    ("text", "mend"),
    [
        ('[ladder]\nsigtrem = "1s"', 'did you mean "sigterm"?'),
        (FAULT + 'recovery_acton = "reset"', 'did you mean "recovery_action"?'),
        (FAULT + 'above = "8GiB"', 'it belongs in a rule of kind "memory"'),
        (RULE + 'xid_class = "reset"', 'it belongs in a rule of kind "fault"'),
        (RULE + 'growth = "1MiB/s"', 'it belongs in a rule of kind "memory_growth"'),
        (RULE + "idle = 5", 'it belongs in a rule of kind "idle"'),
        (GROWTH + 'per = "user"', 'it belongs in a rule of kind "memory"'),
        (AGE + 'window = "10m"', 'it belongs in a rule of kind "memory_growth"'),
        (IDLE.replace('"idle"', '"idl"'), 'did you mean "idle"?'),
        (GROWTH + 'windo = "10m"', 'did you mean "window"?'),
        (FAULT.replace('"reset"', '"rest"'), 'did you mean "reset"?'),
        ("[access]\ncmdline = []", "it belongs in [rule.match]"),
        ('[ladr]\nsigterm = "1s"', 'did you mean "ladder"?'),
        (RULE + 'grce = "1s"', 'did you mean "grace"?'),
        (RULE + 'stages = ["sigtrem"]', 'did you mean "sigterm"?'),
        ('[daemon]\nsettling = "1s"', "it belongs in [gates]"),
        ('mode = "enforce"', "it belongs in [daemon]"),
        (
            "[access]\nzzz = 1",
            "known are group, viewer_group, operator_group, admin_group, owner_access, require_reason",
        ),
    ],
)
def test_a_misspelt_word_gets_a_suggestion(tmp_path: Path, text: str, mend: str) -> None:
    """The nearest known key, or the table it belongs to, is named."""
    assert mend in only_fault(tmp_path, text).mend


def test_a_refused_value_makes_no_second_fault(tmp_path: Path) -> None:
    """A check on two values is silent when one of them was refused: one slip, one fault."""
    only_fault(tmp_path, '[workers]\nanswer_within = "2m"\nhung_after = "3x"')
    only_fault(tmp_path, RULE + 'mode = "enforce"\nmatch = { uid = ["x"] }')
    only_fault(tmp_path, FAULT.replace('"reset"', '"rset"') + 'stages = ["reset"]')
    only_fault(tmp_path, FAULT + 'stages = ["rest"]\ngrace = "0s"')
    only_fault(tmp_path, "[reset]\nstop_units = ['x', 'x.service', 'x.service']")


def test_duplicate_names_are_faults(tmp_path: Path) -> None:
    """Budgets and records go by name, so each is taken once; a protection may share a rule's."""
    fault = only_fault(tmp_path, RULE + RULE)
    assert (fault.line, fault.key) == (5, "rule[1].name")
    assert "rule[0]" in fault.what
    mixed = only_fault(tmp_path, FAULT + RULE.replace("cap", "mend"))
    assert (mixed.line, mixed.key) == (6, "rule[1].name")
    twice = '[[protect]]\nname = "cap"\nuids = [1]\n' * 2
    assert only_fault(tmp_path, RULE + twice).key == "protect[1].name"


@pytest.mark.parametrize(
    ("content", "line"),
    [
        (b"a = 1\nb = = 2\n", 2),
        (b"[daemon]\n[daemon]\n", 2),
        (b"a = 1\n\nb = [1,", 3),
        (b"a = 1\nb = '\xff'\n", 2),
        (b"a = " + b"[" * 100_000, 1),
        (b"a = " + b"1" * 10_000, 1),
        (b"\xef\xbb\xbf[daemon]\n", 1),
    ],
)
def test_what_is_no_toml_is_one_fault(tmp_path: Path, content: bytes, line: int) -> None:
    """Syntax, encoding, endless nesting and endless numbers are faults with a line, never a traceback."""
    path = tmp_path / "policy.toml"
    path.write_bytes(content)
    (fault,) = check(path)
    assert fault.line == line
    assert fault.mend
    assert "\n" not in str(fault)


def test_what_is_no_file_is_one_fault(tmp_path: Path) -> None:
    """A missing file, a folder, a loop of links and a file too large are faults."""
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    large = tmp_path / "large"
    large.write_bytes(b"#" * (1024 * 1024 + 1))
    for path in (tmp_path / "none", tmp_path, loop, large):
        (fault,) = check(path)
        assert "can't be read" in fault.what


def test_users_are_looked_up() -> None:
    """Root is uid 0; a name that can't be one is nobody, not an error."""
    assert read_uid("root") == 0
    assert read_uid("no\0body") is None


def test_a_signature_that_says_too_little_is_told(tmp_path: Path) -> None:
    """A signature without a meaning, a mend or a place is three faults, each with its line."""
    path = tmp_path / "policy.toml"
    path.write_text('[[signature]]\nname = "close"\n', encoding="utf-8")
    told = [str(fault) for fault in check(path)]
    assert len(told) == 3
    assert any("matches nothing" in line for line in told)


def test_a_signature_twice_is_a_fault(tmp_path: Path) -> None:
    """Two signatures of one name can't both be meant."""
    one = '[[signature]]\nname = "close"\nmeaning = "m"\nmend = "reboot"\nsymbols = ["f"]\n'
    path = tmp_path / "policy.toml"
    path.write_text(one + one, encoding="utf-8")
    assert len(check(path)) == 1
