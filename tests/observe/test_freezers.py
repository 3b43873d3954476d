"""Whether holders are frozen: each cgroup asked about once, and every silence is unreadable."""

import asyncio

import pytest

from reclaimerd.host.wire import to_wire
from reclaimerd.model.ports import Look
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.observe.answers import Answer, Failed, Silent
from reclaimerd.observe.freezers import MOST_CHARACTERS, Freezers, ask_freezers
from tests.builders import MONO, a_gpu, a_process, a_row
from tests.observe.eyes import Eyes, Hands, ScriptedProbe, a_host, answered
from tests.observe.test_sampler import _A, _PID, _look

FROZEN: Reading[bool] = Known(value=True)
THAWED: Reading[bool] = Known(value=False)
READINGS = [a_process(1, cgroup="0::/b"), a_process(2, cgroup="0::/a"), a_process(3, cgroup="0::/b")]


def test_each_cgroup_is_asked_about_once() -> None:
    """Two processes in one cgroup cost one look, and each gets its own cgroup's answer."""
    probe = ScriptedProbe(Hands())
    probe.answers["freezers"] = answered(to_wire(Freezers((THAWED, FROZEN))))
    found = asyncio.run(ask_freezers(probe, READINGS))
    assert found == {1: FROZEN, 2: THAWED, 3: FROZEN}
    assert probe.ops("freezers") == [{"cgroups": ["0::/a", "0::/b"]}]
    assert asyncio.run(ask_freezers(probe, [])) == {}
    assert len(probe.asked) == 1


def test_no_user_s_paths_make_a_question_too_long_for_its_socket() -> None:
    """Long names are asked about in shares; one that no question can hold is unreadable, not thawed."""
    probe = ScriptedProbe(Hands())
    probe.answers["freezers"] = answered(to_wire(Freezers((FROZEN,))))
    texts = [f"0::/{pid}".ljust(MOST_CHARACTERS, "x") for pid in range(1, 4)]
    readings = [a_process(pid, cgroup=text) for pid, text in enumerate(texts, 1)]
    found = asyncio.run(ask_freezers(probe, [*readings, a_process(4, cgroup=texts[0] + "x")]))
    assert probe.ops("freezers") == [{"cgroups": [text]} for text in texts]
    assert found == {
        1: FROZEN,
        2: FROZEN,
        3: FROZEN,
        4: Unreadable("its cgroup's path is too long to ask about"),
    }


@pytest.mark.parametrize("answer", [Silent("it hangs", MONO), Failed("failed", "it hangs")])
def test_a_worker_that_does_not_answer_makes_nobody_thawed(answer: Answer) -> None:
    """Silence and failure are unreadable for everybody."""
    probe = ScriptedProbe(Hands())
    probe.answers["freezers"] = answer
    assert asyncio.run(ask_freezers(probe, READINGS)) == dict.fromkeys((1, 2, 3), Unreadable("it hangs"))


def test_a_look_asks_for_shares_and_freezers_only_when_told() -> None:
    """Both cost calls: a plain look makes neither."""
    eyes = Eyes(_look(a_process(_PID), _A))
    eyes.nvml.answers["host"] = a_host(a_gpu(processes=(a_row(_PID),)))
    eyes.procfs.answers["freezers"] = answered(to_wire(Freezers((Absent("none"),))))
    assert asyncio.run(eyes.sampler.sample(Look())).frozen == {}
    assert (eyes.nvml.ops("host"), eyes.procfs.ops("freezers")) == ([{}], [])
    snapshot = asyncio.run(eyes.sampler.sample(Look(utilisation=True, freezers=True)))
    assert snapshot.frozen == {_PID: Absent("none")}
    assert eyes.nvml.ops("host")[1] == {"utilisation": True}
