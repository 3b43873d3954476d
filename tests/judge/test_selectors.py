"""A selector answers yes, no or unknown; what can't be read never decides."""

import re
from typing import Any

import pytest

from reclaimerd.judge.selectors import Match, asks_gpu, digest_of, matches
from reclaimerd.judge.subjects import JudgeContext
from reclaimerd.judge.tri import Tri
from reclaimerd.model.policy import Selector
from reclaimerd.model.process import ProgramSigns
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from tests.builders import GPU_A, OURS, a_gpu, a_process, a_snapshot, a_workload

LOOKUPS = JudgeContext(
    OURS, lambda p, t: bool(re.search(p, t)), {"alice": 1000, "bob": 1001}, {"staff": 50, "gpu": 60}
)
DIGEST = "AB" * 32


def ask(selector: Selector, gpu: Any = None, **overrides: Any) -> Match:
    """Return the selector's answer on a built process."""
    found = a_gpu() if gpu is None else gpu
    return matches(selector, a_process(**overrides), found, LOOKUPS)


@pytest.mark.parametrize(
    ("selector", "overrides", "answer"),
    [
        (Selector(), {}, Tri.YES),
        (Selector(users=("alice",)), {}, Tri.YES),
        (Selector(users=("bob",)), {}, Tri.NO),
        (Selector(users=("bob", "nobody-knows")), {}, Tri.UNKNOWN),
        (Selector(users=("alice", "nobody-knows")), {}, Tri.YES),
        (Selector(uids=((1000, 1000),)), {}, Tri.YES),
        (Selector(uids=((1, 2), (1001, 9999))), {}, Tri.NO),
        (Selector(uids=((0, 0),)), {"uids": (1000, 0, 0, 0)}, Tri.NO),
        (Selector(exe=("/usr/bin/python*",)), {}, Tri.YES),
        (Selector(exe=("/usr/bin/python3",)), {"exe": Known("/usr/bin/python3 (deleted)")}, Tri.YES),
        (Selector(exe=("/usr/bin/perl",)), {}, Tri.NO),
        (Selector(exe=("/usr/bin/perl",)), {"exe": Unreadable("gone")}, Tri.UNKNOWN),
        (Selector(exe=("/usr/bin/perl",)), {"exe": Absent("gone")}, Tri.UNKNOWN),
        (Selector(cmdline=("train",)), {}, Tri.YES),
        (Selector(cmdline=("serve",)), {}, Tri.NO),
        (Selector(cmdline=("train",)), {"cmdline": Unreadable("hung")}, Tri.UNKNOWN),
        (Selector(cgroup=("/system.slice/*",)), {}, Tri.YES),
        (Selector(cgroup=("/a/*",)), {"cgroup": "4:memory:/a/b\n0::/c"}, Tri.YES),
        (Selector(cgroup=("/a/*",)), {"cgroup": "/a/b"}, Tri.YES),
        (Selector(cgroup=("/kubepods/*",)), {}, Tri.NO),
        (Selector(cgroup=("/system.slice/*",)), {"workload": a_workload(trusted=False)}, Tri.UNKNOWN),
        (Selector(cgroup=("/kubepods/*",)), {"workload": a_workload(trusted=False)}, Tri.NO),
        (Selector(gpus=(GPU_A,)), {}, Tri.YES),
        (Selector(gpus=("GPU-bbbb*",)), {}, Tri.NO),
        (Selector(groups=("staff",)), {"gids": (1000, 50)}, Tri.YES),
        (Selector(groups=("gpu", "staff")), {"gids": (60,)}, Tri.YES),
        (Selector(groups=("staff",)), {"gids": (1000, 60)}, Tri.NO),
        (Selector(groups=("staff", "nobody-knows")), {"gids": (1000,)}, Tri.UNKNOWN),
        (Selector(groups=("staff", "nobody-knows")), {"gids": (50,)}, Tri.YES),
        (Selector(groups=("staff",)), {"gids": ()}, Tri.UNKNOWN),
        (Selector(models=("*H200*",)), {}, Tri.YES),
        (Selector(models=("*A100*",)), {}, Tri.NO),
        (Selector(mig=False), {}, Tri.YES),
        (Selector(mig=True), {}, Tri.NO),
    ],
)
def test_each_field(selector: Selector, overrides: dict[str, Any], answer: Tri) -> None:
    """Each field answers by its own reading, and unreadable or forged is UNKNOWN."""
    assert ask(selector, **overrides).answer is answer


def test_every_field_must_hold_and_no_beats_unknown() -> None:
    """One NO decides, else one UNKNOWN, and the answer names the fields that decided."""
    both = Selector(uids=((1000, 1000),), exe=("/x",))
    assert ask(both) == Match(Tri.NO, ("exe",))
    assert ask(both, exe=Unreadable("gone")) == Match(Tri.UNKNOWN, ("exe",), "can't be known: exe")
    blind = Selector(uids=((5, 5),), exe=("/x",))
    assert ask(blind, exe=Unreadable("gone")).answer is Tri.NO
    assert ask(Selector(users=("alice",), exe=("/usr/*",))).fields == ("user", "exe")


def test_unseen_gpu_is_unknown() -> None:
    """A GPU that was not seen is neither concerned nor not."""
    reading = a_process()
    for selector in (Selector(gpus=(GPU_A,)), Selector(models=("*",)), Selector(mig=False)):
        assert matches(selector, reading, None, LOOKUPS).answer is Tri.UNKNOWN
        assert asks_gpu(selector)
    assert not asks_gpu(Selector(uids=((0, 5),), exe=("/x",), unit=("a.service",)))


@pytest.mark.parametrize(
    ("mode", "wanted", "answer"),
    [
        (Known(value=True), True, Tri.YES),
        (Known(value=True), False, Tri.NO),
        (Unreadable("no rights"), True, Tri.UNKNOWN),
        (Unreadable("no rights"), False, Tri.UNKNOWN),
        (Absent("no such mode"), True, Tri.NO),
        (Absent("no such mode"), False, Tri.YES),
    ],
)
def test_mig_mode(mode: Reading[bool], wanted: bool, answer: Tri) -> None:  # noqa: FBT001 - a table's column
    """A GPU that has no MIG mode is not in it; one that can't be asked is unknown."""
    assert ask(Selector(mig=wanted), a_gpu(mig=mode)).answer is answer


@pytest.mark.parametrize(
    ("signs", "answer"),
    [
        (Known(DIGEST.lower()), Tri.YES),
        (Known("00" * 32), Tri.NO),
        (Unreadable("too large"), Tri.UNKNOWN),
        (None, Tri.UNKNOWN),
    ],
)
def test_the_digest_of_a_program(signs: Reading[str] | None, answer: Tri) -> None:
    """Digests are compared whatever their case; one that was not made, or not asked for, is unknown."""
    reading = a_process()
    unread = Unreadable("not asked")
    known = {} if signs is None else {reading.ref: ProgramSigns(unread, signs, unread)}
    digest = digest_of(reading, a_snapshot(signs=known))
    assert matches(Selector(sha256=(DIGEST,)), reading, None, LOOKUPS, digest).answer is answer
