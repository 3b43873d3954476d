"""The keys of selectors, of warnings and of the kinds that only tell; what a rule may not say of itself."""

import grp
import os
from pathlib import Path

import pytest

from reclaimerd.config.check import check
from reclaimerd.config.known_here import read_gid
from reclaimerd.config.load import LoadedPolicy, load
from reclaimerd.config.selector_values import label_term
from reclaimerd.config.units import BadValueError
from reclaimerd.model.policy import (
    ONLY_TOLD,
    AttributionSettings,
    LabelOperator,
    LabelTerm,
    MinerSettings,
    Mode,
    OwnerMarks,
    Rule,
    RuleAction,
    RuleKind,
    Selector,
    WarnSettings,
)

RULE = '[[rule]]\nname = "x"\nabove = "8GiB"\n'
DIGEST = "0123456789abcdef" * 4


def of_kind(kind: str, more: str = "") -> str:
    """Return a rule of this kind; `more` begins on line 4."""
    return f'[[rule]]\nname = "x"\nkind = "{kind}"\n{more}'


IDLE = of_kind("idle", "idle = 5\n")


def written(tmp_path: Path, text: str) -> Path:
    """Write a policy file."""
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return path


def loaded(tmp_path: Path, text: str) -> LoadedPolicy:
    """Return the policy of a text."""
    return load(written(tmp_path, text), enforce_ownership=False)


def only_rule(tmp_path: Path, text: str) -> Rule:
    """Return the one rule of a text."""
    (rule,) = loaded(tmp_path, text).policy.rules
    return rule


def test_every_key_of_a_selector_becomes_a_typed_value(tmp_path: Path) -> None:
    """Each arrives under its own field; digests in small letters, labels as terms."""
    text = (
        RULE + "[rule.match]\n"
        'user = ["root"]\nuid = [7]\ngroup = ["root"]\nexe = ["/a"]\n'
        f'sha256 = ["{DIGEST.upper()}"]\ncmdline = ["x"]\nunit = ["a-*.service"]\ncgroup = ["/b"]\n'
        'runtime = ["docker"]\nnamespace = ["team-*"]\nlabels = ["app=a", "!b"]\npartition = ["gpu"]\n'
        'account = ["lab"]\ngpu = ["GPU-1"]\nmodel = ["NVIDIA H200*"]\nmig = true\n'
    )
    wanted = Selector(
        users=("root",),
        uids=((7, 7),),
        groups=("root",),
        exe=("/a",),
        sha256=(DIGEST,),
        cmdline=("x",),
        unit=("a-*.service",),
        cgroup=("/b",),
        runtimes=("docker",),
        namespaces=("team-*",),
        labels=(LabelTerm("app", LabelOperator.IN, ("a",)), LabelTerm("b", LabelOperator.ABSENT)),
        partitions=("gpu",),
        accounts=("lab",),
        gpus=("GPU-1",),
        models=("NVIDIA H200*",),
        mig=True,
    )
    for side in ("match", "exempt", "avoid"):
        policy = loaded(tmp_path, text.replace("rule.match", f"rule.{side}"))
        assert getattr(policy.policy.rules[0], side) == wanted
        assert (policy.user_ids, policy.group_ids) == ({"root": 0}, {"root": 0})
    assert only_rule(tmp_path, RULE + "match = { mig = false }").match.mig is False
    assert only_rule(tmp_path, RULE).match.mig is None


@pytest.mark.parametrize(
    ("text", "term"),
    [
        ("app=a", LabelTerm("app", LabelOperator.IN, ("a",))),
        (" app == a ", LabelTerm("app", LabelOperator.IN, ("a",))),
        ("app=", LabelTerm("app", LabelOperator.IN, ("",))),
        ("app != a", LabelTerm("app", LabelOperator.NOT_IN, ("a",))),
        ("tier in (a, b)", LabelTerm("tier", LabelOperator.IN, ("a", "b"))),
        ("tier notin (a)", LabelTerm("tier", LabelOperator.NOT_IN, ("a",))),
        ("tier in(a)", LabelTerm("tier", LabelOperator.IN, ("a",))),
        ("tier in (a,)", LabelTerm("tier", LabelOperator.IN, ("a", ""))),
        ("gpu", LabelTerm("gpu", LabelOperator.EXISTS)),
        ("in", LabelTerm("in", LabelOperator.EXISTS)),
        ("!gpu", LabelTerm("gpu", LabelOperator.ABSENT)),
        ("! a.b/c_d", LabelTerm("a.b/c_d", LabelOperator.ABSENT)),
    ],
)
def test_a_label_is_read_as_kubernetes_reads_it(text: str, term: LabelTerm) -> None:
    """The forms of `kubectl get -l`, one term each."""
    assert label_term(text) == term


@pytest.mark.parametrize(
    "text",
    ["", "!", "=a", "app=a,tier=b", "a b", "app=a b", "tier in ()", "tier in a", "tier in (a", "-a", "a/b/c",
     "A.b/c", "app=-a", "a=" + "x" * 64, "x" * 64, "a>1", "app===a", "!app=a", "tier in (a b)", "é=a"],
)  # fmt: skip
def test_what_is_no_label_term_is_refused(text: str) -> None:
    """A term that Kubernetes would not take matches nothing or everything: refused, with the forms."""
    with pytest.raises(BadValueError) as caught:
        label_term(text)
    assert caught.value.mend


@pytest.mark.parametrize(
    ("text", "line", "key", "what"),
    [
        (RULE + 'match = { group = ["no-such-group"] }', 4, "rule[0].match.group[0]", "no group"),
        (RULE + 'avoid = { group = ["root", 3] }', 4, "rule[0].avoid.group[1]", "the number 3"),
        (RULE + 'match = { sha256 = ["abc"] }', 4, "rule[0].match.sha256[0]", "not a SHA-256"),
        (RULE + "match = { sha256 = [1] }", 4, "rule[0].match.sha256[0]", "the number 1"),
        (RULE + 'match = { unit = ["jupyter"] }', 4, "rule[0].match.unit[0]", "never match"),
        (RULE + 'match = { unit = ["/system.slice/*"] }', 4, "rule[0].match.unit[0]", "never match"),
        (RULE + 'match = { runtime = ["podman"] }', 4, "rule[0].match.runtime[0]", "not known"),
        (RULE + 'match = { namespace = [" "] }', 4, "rule[0].match.namespace[0]", "never match"),
        (RULE + "match = { account = [7] }", 4, "rule[0].match.account[0]", "the number 7"),
        (RULE + 'match = { labels = ["a=b,c=d"] }', 4, "rule[0].match.labels[0]", "more than one term"),
        (RULE + "match = { labels = [true] }", 4, "rule[0].match.labels[0]", "true or false"),
        (RULE + 'match = { labels = "a=b" }', 4, "rule[0].match.labels", "place of a list"),
        (RULE + 'match = { mig = "yes" }', 4, "rule[0].match.mig", "place of true or false"),
        (RULE + 'match = { model = [""] }', 4, "rule[0].match.model[0]", "never match"),
        (RULE + 'mode = "enforce"\nmatch = { runtime = ["docker"] }', 5, "rule[0].match", "alone"),
        (RULE + 'mode = "enforce"\nmatch = { model = ["*"] }', 5, "rule[0].match", "alone"),
        (RULE + 'mode = "enforce"\nmatch = { mig = false }', 5, "rule[0].match", "alone"),
        (RULE + 'mode = "enforce"\nmatch = { labels = ["!a", "b!=c"] }', 5, "rule[0].match", "absence"),
        (RULE + 'mode = "enforce"\naction = "observe"', 4, "rule[0].mode", "nothing to enforce"),
        (RULE + 'action = "observe"\nwarn_before = "1m"', 5, "rule[0].warn_before", "nobody is warned"),
        (RULE + 'warn_before = "0s"', 4, "rule[0].warn_before", "zero"),
        (RULE + "large_jobs = 1", 4, "rule[0].large_jobs", "true or false"),
        (IDLE, 1, "rule[0].warn_before", "must warn first"),
        (IDLE + 'warn_before = "soon"', 5, "rule[0].warn_before", "not a duration"),
        (of_kind("user_limit"), 1, "rule[0].gpus_at_most", "no limit"),
        (of_kind("user_limit", "gpus_at_most = 0"), 4, "rule[0].gpus_at_most", "out of range"),
        (of_kind("user_limit", "gpus_at_most = 1.5"), 4, "rule[0].gpus_at_most", "the number 1.5"),
        (of_kind("user_limit", 'gpus_at_most = 1\nabove = "8GiB"'), 5, "rule[0].above", "not known"),
        (of_kind("lingering", "pod_shares = true"), 4, "rule[0].pod_shares", "not known"),
        (of_kind("unallocated", "outside_jobs = 1"), 4, "rule[0].outside_jobs", "true or false"),
        (of_kind("miner", "score = 0"), 4, "rule[0].score", "out of range"),
        (of_kind("miner", "score = nan"), 4, "rule[0].score", "out of range"),
        (of_kind("miner", "score = true"), 4, "rule[0].score", "true or false"),
        (of_kind("miner", 'action = "reclaim"'), 4, "rule[0].action", "never reclaims"),
        (of_kind("miner", 'stages = ["sigterm"]'), 4, "rule[0].stages", "only tells"),
        (of_kind("miner", 'window = "10s"'), 4, "rule[0].window", "less than 20 looks"),
        (of_kind("orphan", 'action = "warn"'), 4, "rule[0].action", "no proof"),
        (of_kind("orphan", 'action = "reclaim"'), 4, "rule[0].action", "no proof"),
        (of_kind("orphan", 'action = "kill"'), 4, "rule[0].action", "not known"),
        (of_kind("orphan", 'mode = "enforce"'), 4, "rule[0].mode", "nothing to enforce"),
        (of_kind("orphan", 'scope = "workload"'), 4, "rule[0].scope", "only tells"),
        (of_kind("hidden", 'grace = "1m"'), 4, "rule[0].grace", "only tells"),
        (of_kind("hidden", "match = { uid = [0] }"), 4, "rule[0].match", "only tells"),
        (of_kind("fault", 'xid_class = "reset"\naction = "warn"'), 5, "rule[0].action", "not known"),
        ("[gates]\nspare_jobs_over_gpus = 0", 2, "gates.spare_jobs_over_gpus", "out of range"),
        ('[attribution]\nscontrol = "scontrol"', 2, "attribution.scontrol", "absolute"),
        ('[attribution]\nslurmd = "slurmd"', 2, "attribution.slurmd", "absolute"),
        ('[marks]\nusers = ["nobody-here"]', 2, "marks.users[0]", "no user"),
        ('[marks]\nnamespaces = "a"', 2, "marks.namespaces", "place of a list"),
        ('[warn]\nhook = "hook"', 2, "warn.hook", "absolute"),
        ('[warn]\nwithin = "0s"', 2, "warn.within", "zero"),
        ("[miner]\nports = [0]", 2, "miner.ports[0]", "out of range"),
        ('[miner]\nports = ["3333"]', 2, "miner.ports[0]", "place of a port"),
        ('[miner]\nsha256 = ["x"]', 2, "miner.sha256[0]", "not a SHA-256"),
        ('[miner]\nnames = ["a b"]', 2, "miner.names[0]", "blanks"),
    ],
)
def test_what_is_wrong_is_told_once_with_its_line(
    tmp_path: Path, text: str, line: int, key: str, what: str
) -> None:
    """Exactly one fault, at the key that is wrong, with a mend."""
    (fault,) = check(written(tmp_path, text))
    assert (fault.line, fault.key) == (line, key)
    assert what in fault.what
    assert fault.mend


@pytest.mark.parametrize(
    "match",
    ['group = ["root"]', f'sha256 = ["{DIGEST}"]', 'unit = ["a.service"]', 'namespace = ["a"]',
     'labels = ["app=a"]', 'labels = ["gpu", "!keep"]', 'partition = ["a"]', 'account = ["a"]'],
)  # fmt: skip
def test_a_match_that_says_whose_process_it_is_may_enforce(tmp_path: Path, match: str) -> None:
    """Who made the process, or where it runs, is whom the rule concerns."""
    rule = only_rule(tmp_path, RULE + f'mode = "enforce"\nmatch = {{ {match} }}')
    assert rule.mode is Mode.ENFORCE


@pytest.mark.parametrize("kind", sorted(ONLY_TOLD))
def test_a_kind_that_only_tells_has_nothing_to_act_with(tmp_path: Path, kind: RuleKind) -> None:
    """Whatever its file says, no stage is left in it, and it does not reclaim."""
    rule = only_rule(tmp_path, of_kind(kind))
    assert rule.kind is kind
    assert rule.stages == ()
    assert rule.action is not RuleAction.RECLAIM
    assert rule.mode is Mode.OBSERVE


def test_each_kind_has_its_keys(tmp_path: Path) -> None:
    """Limit, score, warning and large jobs arrive in the rule."""
    assert only_rule(tmp_path, of_kind("user_limit", "gpus_at_most = 2")).gpus_at_most == 2
    assert only_rule(tmp_path, of_kind("user_limit", "gpus_at_most = 2")).sums
    miner = only_rule(tmp_path, of_kind("miner", 'score = 2\nwindow = "1h"\nmode = "enforce"'))
    assert (miner.score, miner.window_seconds, miner.action) == (2.0, 3600.0, RuleAction.WARN)
    assert only_rule(tmp_path, of_kind("lingering")).kind is RuleKind.LINGERING
    assert only_rule(tmp_path, of_kind("unallocated", "outside_jobs = true")).outside_jobs
    idle = only_rule(tmp_path, IDLE + 'warn_before = "10m"\nlarge_jobs = true')
    assert (idle.warn_before_seconds, idle.large_jobs) == (600.0, True)


@pytest.mark.parametrize("action", ["observe", "warn"])
def test_an_idle_rule_that_reclaims_nothing_needs_no_warning_before(tmp_path: Path, action: str) -> None:
    """Only what is followed by a signal needs one."""
    assert only_rule(tmp_path, IDLE + f'action = "{action}"').warn_before_seconds is None


def test_settings_become_typed_values(tmp_path: Path) -> None:
    """Each key of the new tables; left out it is the built-in one."""
    text = f"""\
[gates]
spare_jobs_over_gpus = 4
[attribution]
scontrol = "/opt/slurm/bin/scontrol"
slurmd = "/opt/slurm/sbin/slurmd"
[marks]
namespaces = ["team-*"]
users = ["root"]
[warn]
terminals = false
hook = "/usr/libexec/tell"
within = "5s"
[miner]
names = ["digger"]
sha256 = ["{DIGEST}"]
ports = [3333]
"""
    got = loaded(tmp_path, text)
    policy = got.policy
    assert policy.gates.spare_jobs_over_gpus == 4
    assert policy.marks == OwnerMarks(("team-*",), ("root",))
    assert got.user_ids == {"root": 0}
    assert policy.warn == WarnSettings(terminals=False, hook="/usr/libexec/tell", seconds=5.0)
    assert policy.miner == MinerSettings(("digger",), (DIGEST,), (3333,))
    assert policy.attribution == AttributionSettings(
        scontrol="/opt/slurm/bin/scontrol", slurmd="/opt/slurm/sbin/slurmd"
    )


def test_a_rule_that_warns_by_no_way_is_a_warning(tmp_path: Path) -> None:
    """It would do nothing for ever, which may not be meant; it is no fault, since nobody is harmed."""
    deaf = "[warn]\nterminals = false\n"
    (said,) = loaded(tmp_path, deaf + IDLE + 'warn_before = "1m"').warnings
    assert "left alone" in said
    (said,) = loaded(tmp_path, deaf + of_kind("miner")).warnings
    assert "left alone" in said
    assert loaded(tmp_path, deaf + RULE).warnings == ()
    assert loaded(tmp_path, deaf + 'hook = "/usr/libexec/tell"\n' + of_kind("miner")).warnings == ()


@pytest.mark.parametrize(
    ("text", "kind"),
    [("gpus_at_most = 2", "user_limit"), ("score = 1.0", "miner"), ("outside_jobs = true", "unallocated")],
)
def test_a_misspelt_kind_is_guessed_by_its_keys(tmp_path: Path, text: str, kind: str) -> None:
    """The kind is the one fault, and its keys are none."""
    (fault,) = check(written(tmp_path, of_kind(kind[:-2], text)))
    assert fault.key == "rule[0].kind"
    assert f'did you mean "{kind}"?' in fault.mend


def test_groups_are_looked_up() -> None:
    """A group of this host has its gid; a name that can't be one is nobody, not an error."""
    assert read_gid(grp.getgrgid(os.getgid()).gr_name) == os.getgid()
    assert read_gid("no\0body") is None
    assert read_gid("no-such-group") is None
