"""A selector answers yes, no or unknown; what can't be read never decides."""

import re
from typing import Any

import pytest

from reclaimerd.judge.selectors import Match, Tri, matches
from reclaimerd.model.policy import Selector
from reclaimerd.model.reading import Absent, Known, Unreadable
from tests.builders import GPU_A, a_gpu, a_process, a_workload

USER_IDS = {"alice": 1000, "bob": 1001}


def ask(selector: Selector, gpu: Any = None, **overrides: Any) -> Match:
    """Return the selector's answer on a built process."""
    found = a_gpu() if gpu is None else gpu
    return matches(selector, a_process(**overrides), found, lambda p, t: bool(re.search(p, t)), USER_IDS)


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
    found = matches(Selector(gpus=(GPU_A,)), reading, None, lambda _p, _t: True, {})
    assert found.answer is Tri.UNKNOWN
