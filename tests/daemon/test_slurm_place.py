"""Which of Slurm's nodes a host is: never another host's, and nothing where that can't be told."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from reclaimerd.daemon.slurm_place import SlurmFinder, node_of
from reclaimerd.host.child import Child, Finished, Overran
from reclaimerd.host.slurm_drain_text import SlurmPlace
from reclaimerd.host.wire import to_wire
from reclaimerd.model.drain_ports import NotAsked
from reclaimerd.model.policy import AttributionSettings
from reclaimerd.observe.answers import Answer, Answered, Silent
from reclaimerd.observe.slurm_host import SlurmDaemon, SlurmHost


@pytest.mark.parametrize(
    ("wanted", "named", "aliases", "environment", "node"),
    [
        ("", ["gpu01"], [], "", "gpu01"),
        ("", ["gpu01"], ["host7"], "host7", "gpu01"),
        ("", [], ["host7"], "", "host7"),
        ("", [], ["n1", "n2"], "n2", "n2"),
        ("", ["n1", "n2"], ["n1", "n2"], "n2", None),
        ("n2", ["n1", "n2"], [], "", "n2"),
        ("n2", ["n1"], ["n1", "n2"], "", "n2"),
        ("other", ["gpu01"], ["host7"], "other", None),
        ("other", [], [], "other", None),
        ("", [], ["n1", "n2"], "n3", None),
        ("", [], [], "n3", None),
        ("", ["gpu[1-9]"], [], "", None),
        ("", ["ALL nodes"], [], "", None),
    ],
)
def test_the_node_is_one_of_this_hosts(
    wanted: str, named: Sequence[str], aliases: Sequence[str], environment: str, node: str | None
) -> None:
    """A slurmd's own name, else the one alias; the policy chooses among them, and names no other host."""
    found = node_of(wanted, named, aliases, environment)
    assert (None if isinstance(found, NotAsked) else found) == node


@dataclass(slots=True)
class Host:
    """Stands for the procfs worker and for scontrol."""

    answer: Answer
    aliases: Finished | Overran | None = None
    asked: list[dict[str, object] | None] = field(default_factory=list)
    ran: list[Sequence[str]] = field(default_factory=list)

    async def ask(
        self, op: str, args: dict[str, object] | None = None, *, answer_within: float | None = None
    ) -> Answer:
        """Answer what the test wants."""
        assert (op, answer_within) == ("slurm", None)
        self.asked.append(args)
        return self.answer

    async def run(self, argv: Sequence[str], *, deadline_seconds: float) -> Finished | Overran:
        """Print the aliases, or fail to start."""
        assert deadline_seconds > 0
        self.ran.append(argv)
        if self.aliases is None:
            raise FileNotFoundError(2, "gone")
        return self.aliases

    def find(self, node: str = "") -> SlurmPlace | NotAsked:
        """Return what is found."""
        settings = AttributionSettings(scontrol="/opt/scontrol")
        return asyncio.run(SlurmFinder(self, lambda: settings, node, "/root", self.run, lambda: 100.0).find())


def a_host(*daemons: SlurmDaemon, scontrol: str = "/s/scontrol") -> Answered:
    """Return the worker's answer."""
    told = to_wire(SlurmHost(scontrol, "", daemons=daemons, sinfo="/s/sinfo"))
    return Answered(({"slurm": told},), 1.0, 2.0)


NAMED = SlurmDaemon(7, 1, "gpu01", 9.0)
PLAIN = SlurmDaemon(7, 1, "", 9.0)


def test_a_slurmd_that_names_its_node_is_believed() -> None:
    """Nobody else is asked; the policy's own scontrol is looked for, below the root."""
    host = Host(a_host(NAMED))
    assert host.find() == host.find("gpu01") == SlurmPlace("gpu01", "/s/scontrol", "/s/sinfo", 91.0)
    assert host.ran == []
    assert host.asked[0] == {"root": "/root", "scontrol": "/opt/scontrol", "slurmd": "", "folder": ""}


def test_the_configuration_tells_of_any_other() -> None:
    """`scontrol show aliases` knows this host by its name."""
    host = Host(a_host(PLAIN), Finished(0, "host7\n", ""))
    assert host.find() == SlurmPlace("host7", "/s/scontrol", "/s/sinfo")
    assert [words[-3:] for words in host.ran] == [["/s/scontrol", "show", "aliases"]]


OVERRAN = Overran(1, gone=True, out="host7", err="", child=Child(1, -1, code=0))


@pytest.mark.parametrize("aliases", [None, Finished(1, "host7", "no"), Finished(0, "", ""), OVERRAN])
def test_without_an_alias_there_is_no_node(aliases: Finished | Overran | None) -> None:
    """A scontrol that fails, hangs or says nothing names no node; it may next time."""
    found = Host(a_host(PLAIN), aliases).find()
    assert isinstance(found, NotAsked)
    assert not found.lasting


@pytest.mark.parametrize("answer", [Silent("hangs", 1.0), Answered(({"slurm": None},), 1.0, 2.0)])
def test_a_worker_that_can_not_look_says_so(answer: Answer) -> None:
    """The disk or the worker hangs: asked again."""
    found = Host(answer).find()
    assert found == NotAsked("which slurmd and scontrol this host has could not be read")


def test_without_scontrol_a_person_is_needed() -> None:
    """There is none that is root's alone."""
    found = Host(a_host(scontrol="")).find()
    assert isinstance(found, NotAsked)
    assert found.lasting


def test_a_policy_copied_from_another_host_drains_nobody() -> None:
    """It names a node that is not this host's: refused until a person mends it."""
    found = Host(a_host(NAMED), Finished(0, "host7\n", "")).find("gpu99")
    assert isinstance(found, NotAsked)
    assert found.lasting
    assert found.text.startswith("gpu99 is no node of this host's (gpu01, host7)")
