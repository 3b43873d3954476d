"""`doctor` as a whole: its table, the children that make the checks, what is printed, and the network."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.cli import doctor_network as network
from reclaimerd.cli.doctor_child import examined, heard, line_of
from reclaimerd.cli.doctor_host import Host, Where
from reclaimerd.cli.doctor_run import as_json, examine, exit_code, lines_of, manual_page
from reclaimerd.cli.doctor_table import CHECKS
from reclaimerd.cli.doctor_words import Check, Finding, Said, State, ok
from reclaimerd.cli.main import run
from reclaimerd.errors import ExitCode, ReclaimerdError
from reclaimerd.model.drain_policy import (
    Arbiter,
    DrainSettings,
    FleetSettings,
    KubernetesTarget,
    NodeMark,
    WebhookTarget,
)
from reclaimerd.model.policy import ClusterSettings, Policy
from tests.cli.doctor_rig import a_host, a_where
from tests.rigs.fake_cluster import FakeCluster, fake_cluster
from tests.rigs.fake_cluster import Said as ClusterSaid
from tests.rigs.fake_cluster import status as kube_status
from tests.rigs.schema_check import faults
from tests.rigs.web_receiver import Certificates, make_certificates, receiving

DOCS = Path(__file__).parents[2] / "docs"


def test_the_page_is_what_the_table_says() -> None:
    """docs/doctor.md is made from the table; no name stands twice, and groups stay together."""
    assert (DOCS / "doctor.md").read_text(encoding="utf-8") == manual_page()
    names = [check.name for check in CHECKS]
    assert len(set(names)) == len(names)
    groups = [check.group for check in CHECKS]
    assert groups == sorted(groups, key=list(dict.fromkeys(groups)).index)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """Return a CA and a server's certificate."""
    return make_certificates(tmp_path_factory.mktemp("ca"))


def hooked(folder: Path, url: str, ca: Path | None = None, *, plain: bool = False) -> Host:
    """Return a host whose policy posts there."""
    target = WebhookTarget(url, ca_file=str(ca or ""), plain_http=plain)
    return a_host(folder, Policy(drain=DrainSettings(webhook=target)))


def test_a_receiver_shakes_hands_and_gets_nothing(tmp_path: Path, certificates: Certificates) -> None:
    """A certificate of somebody else, a closed port and plain HTTP fail; no request is ever sent."""
    with receiving(certificates) as there:
        assert network.read_webhooks(hooked(tmp_path, there.url, certificates.ca)).state is State.OK
        said = network.read_webhooks(hooked(tmp_path, there.url))
        assert (said.state, "certificate" in said.text) == (State.FAIL, True)
        assert "sesame" not in said.text
    assert there.sent == []
    assert network.read_webhooks(hooked(tmp_path, there.url, certificates.ca)).state is State.FAIL
    with receiving(None) as bare:
        assert network.read_webhooks(hooked(tmp_path, bare.url, plain=True)).state is State.OK
        assert network.read_webhooks(hooked(tmp_path, bare.url)).state is State.FAIL
    assert bare.sent == []
    assert network.read_webhooks(a_host(tmp_path)).state is State.OK


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FakeCluster]:
    """Serve a cluster that answers access reviews."""
    with fake_cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made


def clustered(folder: Path, kubeconfig: Path, *marks: NodeMark) -> Host:
    """Return a host that drains through the cluster, as node n1."""
    fleet = FleetSettings(arbiter=Arbiter.KUBERNETES)
    drain = DrainSettings(kubernetes=KubernetesTarget(marks), fleet=fleet)
    return a_host(folder, Policy(cluster=ClusterSettings(str(kubeconfig), "n1"), drain=drain))


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="a kubeconfig must be root's")
def test_the_cluster_is_asked_what_we_may_do_and_nothing_else(tmp_path: Path, cluster: FakeCluster) -> None:
    """Each deed by a review of its own; what is denied is named, and nothing is written."""
    reviews: list[dict[str, Any]] = []
    paths: set[str] = set()

    def answer(_cluster: FakeCluster, request: Any, _query: Any) -> ClusterSaid:
        body = json.loads(request.rfile.read(int(request.headers["content-length"])))
        reviews.append(body["spec"]["resourceAttributes"])
        paths.add(f"{request.command} {request.path.split('?')[0]}")
        allowed = reviews[-1].get("subresource") != "status"
        return ClusterSaid(json.dumps({**body, "status": {"allowed": allowed}}).encode(), 201)

    cluster.answer = answer
    config = cluster.kubeconfig("ours")
    said = network.read_cluster(clustered(tmp_path, config, NodeMark.TAINT, NodeMark.CONDITION))
    assert said.state is State.FAIL
    assert said.text.endswith("may not patch nodes/status n1")
    assert paths == {"POST /apis/authorization.k8s.io/v1/selfsubjectaccessreviews"}
    asked = [(one["verb"], one["resource"], one.get("name")) for one in reviews]
    assert ("patch", "nodes", "n1") in asked
    assert ("update", "leases", "reclaimerd-fleet") in asked
    assert network.read_cluster(clustered(tmp_path, config, NodeMark.EVICT)).state is State.OK
    cluster.answer = lambda *_: kube_status(401)
    assert network.read_cluster(clustered(tmp_path, config)).state is State.FAIL
    assert network.read_cluster(a_host(tmp_path)).state is State.OK
    without = a_host(tmp_path, Policy(drain=DrainSettings(kubernetes=KubernetesTarget())))
    assert network.read_cluster(without).state is State.FAIL


def _raises(_host: Host) -> Said:
    raise ReclaimerdError("it can't be told", "look there")


def _breaks(_host: Host) -> Said:
    raise ZeroDivisionError


def _is_forbidden(_host: Host) -> Said:
    raise PermissionError(13, "Permission denied", "/secret")


FOUR = (
    Check("one", "g", "", lambda _host: ok("well")),
    Check("two", "g", "", _raises),
    Check("three", "g", "", _breaks),
    Check("four", "g", "", _is_forbidden),
)


def test_a_check_that_raises_is_unknown_and_hides_no_other(tmp_path: Path) -> None:
    """Whatever it raises; and the parent hears the same from the lines."""
    lines = list(examined(FOUR, a_host(tmp_path)))
    found = heard("\n".join(map(line_of, lines)), FOUR, "it ended")
    assert [one for one in lines if isinstance(one, Finding)] == found
    assert [one.state for one in found] == [State.OK, State.UNKNOWN, State.UNKNOWN, State.UNKNOWN]
    assert [one.text for one in found[1:]] == [
        "it can't be told",
        "the check broke off: ZeroDivisionError: ",
        "/secret: Permission denied",
    ]


HANGS = """
import json, select
print(json.dumps({"begins": "one"}))
print(json.dumps({"name": "one", "state": "ok", "text": "well", "mend": ""}))
print(json.dumps({"begins": "two"}), flush=True)
select.select([], [], [])  # nothing ever comes: a hang has no end of its own
"""
ENDS = 'print("{\\"begins\\": \\"one\\"}", flush=True)\nprint("{half")\nraise SystemExit(3)'


@pytest.mark.process
def test_a_check_that_never_answers_is_unknown_within_its_bound(tmp_path: Path) -> None:
    """What came before it counts, what comes after it was not looked at, and nobody waits."""
    argv = (sys.executable, "-c", HANGS)
    began = time.monotonic()
    found = asyncio.run(examine(a_where(tmp_path), FOUR, argv=lambda: argv, bound_seconds=3.0))
    assert time.monotonic() - began < 60.0
    assert [one.state for one in found[1:]] == [State.UNKNOWN] * 3
    assert found[0].state is State.OK
    assert found[1].text.startswith("no answer within 3 s")
    assert "not looked at" in found[2].text
    assert exit_code(found) is ExitCode.ATTENTION


@pytest.mark.process
@pytest.mark.parametrize("argv", [(sys.executable, "-c", ENDS), ("/no/such/program",)])
def test_a_child_that_breaks_off_or_does_not_start_makes_unknown(
    tmp_path: Path, argv: tuple[str, ...]
) -> None:
    """Never ok."""
    found = asyncio.run(examine(a_where(tmp_path), FOUR, argv=lambda: argv))
    assert {one.state for one in found} == {State.UNKNOWN}
    assert "did not start" in found[0].text or "code 3" in found[0].text


SAID = (
    Finding("aa", State.OK, "well"),
    Finding("bb", State.UNKNOWN, "can't be told"),
    Finding("much-longer", State.FAIL, "a\x1b[31mb\n" + "long words " * 20, "mend it " * 20),
)


def test_the_text_fits_its_columns_and_what_fails_comes_first() -> None:
    """80 columns, aligned, no control character; colour only where it was asked for."""
    plain = list(lines_of(SAID, 80, coloured=False))
    assert plain[0] == "1 fail, 0 warn, 1 unknown, 1 ok"
    assert [line.split()[1] for line in plain[1:] if not line.startswith(" ")] == ["much-longer", "bb", "aa"]
    assert max(map(len, plain)) <= 80
    assert "\x1b" not in "".join(plain)
    assert any(line.lstrip().startswith("mend: mend it") for line in plain)
    assert "\x1b[31mfail" in "".join(lines_of(SAID, 80, coloured=True))


@pytest.mark.parametrize(
    ("terminal", "no_color", "coloured"), [(True, "", True), (True, "1", False), (False, "", False)]
)
def test_colour_is_for_a_terminal_that_did_not_forbid_it(
    terminal: bool,  # noqa: FBT001  # pytest passes it by name
    no_color: str,
    coloured: bool,  # noqa: FBT001  # the same
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The command's own output, 80 columns where nobody knows better, exit 10 as one failed."""

    async def found(_where: Where) -> tuple[Finding, ...]:
        return SAID

    monkeypatch.setattr("reclaimerd.cli.doctor_run.examine", found)
    monkeypatch.setattr(sys.stdout, "isatty", lambda: terminal)
    monkeypatch.setenv("NO_COLOR", no_color)
    monkeypatch.setenv("COLUMNS", "80")
    assert run(["doctor"]) == ExitCode.ATTENTION
    shown = capsys.readouterr().out
    assert ("\x1b[" in shown) is coloured
    assert coloured or max(map(len, shown.splitlines())) <= 80


@pytest.mark.parametrize(
    ("states", "code"),
    [
        ((State.OK, State.WARN), ExitCode.OK),
        ((State.OK, State.FAIL), ExitCode.ATTENTION),
        ((State.OK, State.UNKNOWN), ExitCode.ATTENTION),
    ],
)
def test_only_ok_and_warn_are_ready(states: tuple[State, ...], code: ExitCode) -> None:
    """What can't be told is never ready."""
    found = tuple(Finding("a" * (number + 1), state, "x") for number, state in enumerate(states))
    assert exit_code(found) is code
    assert as_json(found)["ready"] is (code is ExitCode.OK)
    assert list(faults(as_json(found), *_schema())) == []


def _schema() -> tuple[dict[str, Any], dict[str, Any]]:
    document = json.loads((DOCS / "doctor.schema.json").read_text(encoding="utf-8"))
    return {key: value for key, value in document.items() if key not in ("$schema", "title")}, document


@pytest.mark.process
def test_the_whole_of_this_machine_is_looked_at_and_left_as_it_was(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every check answers in the schema's form, without a daemon, and nothing is made."""
    places = [
        word for name in ("state-dir", "log-dir", "socket") for word in (f"--{name}", str(tmp_path / name))
    ]
    code = run(["doctor", "--json", *places])
    told = json.loads(capsys.readouterr().out)
    assert list(faults(told, *_schema())) == []
    assert [one["name"] for one in told["checks"]] == [one.name for one in CHECKS]
    assert code == (ExitCode.OK if told["ready"] else ExitCode.ATTENTION)
    states = {one["name"]: one["state"] for one in told["checks"]}
    assert (states["pidfd"], states["daemon"], states["state-dir"]) == ("ok", "warn", "warn")
    assert list(tmp_path.iterdir()) == []


AS_USER = """
import os, sys
from pathlib import Path
from reclaimerd.cli.doctor_child import examined
from reclaimerd.cli.doctor_host import Host, Where
from reclaimerd.cli.doctor_table import CHECKS
os.setgroups([]); os.setresgid(65534, 65534, 65534); os.setresuid(65534, 65534, 65534)
where = Where(None, *(Path(sys.argv[1], name) for name in ("state", "log", "s")))
names = ("state-dir", "log-dir", "reserve", "audit", "writer", "clock", "driver")
mine = [one for one in CHECKS if one.name in names]
for one in examined(mine, Host(where)):
    print(one if isinstance(one, str) else f"{one.name}={one.state.value}")
"""


@pytest.mark.root
@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_what_a_user_may_not_see_is_unknown() -> None:
    """Another user's look at root's folders ends in no traceback and in no ok that was not seen."""
    with tempfile.TemporaryDirectory() as made:  # of our own: pytest closes its folder to other users
        Path(made).chmod(0o755)
        for name in ("state", "log"):
            Path(made, name).mkdir(mode=0o700)
        words = [sys.executable, "-c", AS_USER, made]
        ran_as = subprocess.run(words, capture_output=True, text=True, timeout=60, check=True)
    said = dict(line.split("=") for line in ran_as.stdout.splitlines() if "=" in line)
    assert {said[name] for name in ("reserve", "audit", "writer", "clock", "driver")} == {"unknown"}
    assert said["log-dir"] in ("ok", "warn")
