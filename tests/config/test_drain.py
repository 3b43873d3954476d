"""`[drain]` in the policy file, and the tables in it."""

from pathlib import Path

import pytest

from reclaimerd.config.check import check
from reclaimerd.config.load import load
from reclaimerd.model.drain_policy import (
    Arbiter,
    CommandTarget,
    DrainSettings,
    FleetSettings,
    KubernetesTarget,
    NodeMark,
    SlurmTarget,
    UnitTarget,
    WebhookTarget,
)

WHOLE = """
[drain]
file = false
auto_withdraw = true
settling = "1h"
[drain.fleet]
arbiter = "receiver"
nodes = 2
percent = "5%"
same_code_nodes = 4
same_code_within = "1h"
lease_namespace = "ops"
[drain.webhook]
url = "https://fleet.example.org:8443/drain?team=ml"
secret_file = "/etc/reclaimerd/key"
ca_file = "/etc/ssl/fleet.pem"
within = "3s"
plain_http = false
[drain.command]
program = "/usr/local/sbin/d"
within = "1m"
[drain.unit]
name = "drain-me@1.target"
[drain.slurm]
node = "gpu-1"
within = "5s"
[drain.kubernetes]
marks = ["cordon", "taint", "evict"]
no_execute = true
evict_within = "2m"
"""


def written(tmp_path: Path, text: str) -> Path:
    """Write a policy file."""
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return path


def drain_of(tmp_path: Path, text: str) -> DrainSettings:
    """Return what a policy's text says of drains."""
    return load(written(tmp_path, text), enforce_ownership=False).policy.drain


def test_every_key_becomes_a_typed_value(tmp_path: Path) -> None:
    """Each table is the settings of its target."""
    assert drain_of(tmp_path, WHOLE) == DrainSettings(
        file=False,
        auto_withdraw=True,
        settling_seconds=3600.0,
        fleet=FleetSettings(Arbiter.RECEIVER, 2, 5.0, 4, 3600.0, "ops"),
        webhook=WebhookTarget(
            "https://fleet.example.org:8443/drain?team=ml",
            "/etc/reclaimerd/key",
            "/etc/ssl/fleet.pem",
            3.0,
        ),
        command=CommandTarget("/usr/local/sbin/d", 60.0),
        unit=UnitTarget("drain-me@1.target"),
        slurm=SlurmTarget("gpu-1", 5.0),
        kubernetes=KubernetesTarget((NodeMark.CORDON, NodeMark.TAINT, NodeMark.EVICT), True, 120.0),
    )


def test_a_target_without_its_table_is_not_asked(tmp_path: Path) -> None:
    """And one whose table is empty is asked with the defaults."""
    assert drain_of(tmp_path, "[drain]\n") == DrainSettings()
    assert drain_of(tmp_path, "[drain.unit]\n") == DrainSettings(unit=UnitTarget())
    assert drain_of(tmp_path, "[drain.kubernetes]\n") == DrainSettings(kubernetes=KubernetesTarget())


@pytest.mark.parametrize("url", ["http://127.0.0.1:9000/drain", "http://[::1]/drain", "http://127.8.8.8"])
def test_plain_http_is_for_this_very_host(tmp_path: Path, url: str) -> None:
    """By a loopback address itself, and only when it is said."""
    text = f'[drain.webhook]\nurl = "{url}"\n'
    settings = drain_of(tmp_path, text + "plain_http = true\n").webhook
    assert settings is not None
    assert (settings.url, settings.plain_http) == (url, True)
    (fault,) = check(written(tmp_path, text))
    assert (fault.line, fault.key) == (2, "drain.webhook.url")
    assert "without TLS" in fault.what


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1.example.org", "10.0.0.1", "0.0.0.0"])  # noqa: S104 - data
def test_a_name_or_another_host_is_never_asked_without_tls(tmp_path: Path, host: str) -> None:
    """A name could come to mean another host."""
    (fault,) = check(written(tmp_path, f'[drain.webhook]\nurl = "http://{host}/"\nplain_http = true\n'))
    assert "loopback" in fault.what


@pytest.mark.parametrize(
    ("table", "text", "key", "what"),
    [
        ("webhook", 'url = "ftp://x/y"', "drain.webhook.url", "no https"),
        ("webhook", 'url = "https://"', "drain.webhook.url", "no https"),
        ("webhook", 'url = "https://x:99999/"', "drain.webhook.url", "port"),
        ("webhook", 'url = "https://x/a b"', "drain.webhook.url", "ASCII"),
        ("webhook", 'url = "https://x/#y"', "drain.webhook.url", "fragment"),
        ("webhook", "url = 3", "drain.webhook.url", "number 3"),
        ("webhook", 'secret_file = "key"', "drain.webhook.secret_file", "absolute"),
        ("webhook", 'ca_file = "ca"', "drain.webhook.ca_file", "absolute"),
        ("webhook", 'within = "11m"', "drain.webhook.within", "longer than 10m"),
        ("webhook", 'secret = "x"', "drain.webhook.secret", "secret_file"),
        ("command", 'program = "drain"', "drain.command.program", "absolute"),
        ("command", 'program = ""', "drain.command.program", "no program"),
        ("unit", 'name = "reboot.target"', "drain.unit.name", "ends all work"),
        ("unit", 'name = "x.service"', "drain.unit.name", "no name of a target"),
        ("unit", 'name = "--now.target"', "drain.unit.name", "no name of a target"),
        ("slurm", 'node = "gpu[1-9]"', "drain.slurm.node", "one node"),
        ("slurm", 'node = "all"', "drain.slurm.node", "one node"),
        ("kubernetes", 'marks = ["cordn"]', "drain.kubernetes.marks[0]", "not known"),
        ("kubernetes", "marks = []", "drain.kubernetes.marks", "sets nothing"),
        ("kubernetes", 'marks = ["taint", "taint"]', "drain.kubernetes.marks", "twice"),
        ("kubernetes", 'no_execute = true\nmarks = ["cordon"]', "drain.kubernetes.no_execute", "taint"),
        ("fleet", 'arbiter = "nobody"', "drain.fleet.arbiter", "not known"),
        ("fleet", 'arbiter = "slurm"', "drain.fleet.arbiter", "drains none"),
        ("fleet", "nodes = 0", "drain.fleet.nodes", "out of range"),
        ("fleet", 'lease_namespace = "A/b"', "drain.fleet.lease_namespace", "namespace"),
        ("fleet", "node = 3", "drain.fleet.node", "belongs in [drain.slurm]"),
    ],
)
def test_what_is_wrong_is_told_with_its_line(
    tmp_path: Path, table: str, text: str, key: str, what: str
) -> None:
    """One fault for one mistake, at its own key."""
    given = 'url = "https://x/"\n' if table == "webhook" and "url" not in text else ""
    given = 'program = "/d"\n' if table == "command" and "program" not in text else given
    (fault,) = check(written(tmp_path, f"[drain.{table}]\n{text}\n{given}"))
    assert (fault.line, fault.key) == (2, key)
    assert what in f"{fault.what} {fault.mend}"


@pytest.mark.parametrize(("table", "key"), [("webhook", "url"), ("command", "program")])
def test_a_table_must_say_whom_to_ask(tmp_path: Path, table: str, key: str) -> None:
    """An empty table names nobody."""
    (fault,) = check(written(tmp_path, f"[drain.{table}]\n"))
    assert fault.key == f"drain.{table}.{key}"
    assert f"add {key}" in fault.mend


def test_what_is_no_table_is_one_fault(tmp_path: Path) -> None:
    """And it hides no other."""
    text = '[drain]\nwebhook = "https://x"\nfleet = 3\nfile = 1\n'
    assert {fault.key for fault in check(written(tmp_path, text))} == {
        "drain.webhook",
        "drain.fleet",
        "drain.file",
    }


def test_a_password_in_an_address_is_refused_and_not_shown(tmp_path: Path) -> None:
    """What stands in the policy may be told to many: `policy check` does not repeat it."""
    (fault,) = check(written(tmp_path, '[drain.webhook]\nurl = "https://me:sesame@x/"\n'))
    assert "password" in fault.what
    assert "sesame" not in str(fault)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[drain.unit]", "[drain.unit] will never be asked"),
        ("[drain]\nfile = false", "reaches no one"),
        ('[drain.webhook]\nurl = "https://x/"', "no secret_file"),
        ("[drain.kubernetes]", "[cluster] has no credentials"),
        ('[drain.fleet]\narbiter = "kubernetes"', "[cluster] has no credentials"),
    ],
)
def test_what_may_not_be_meant_is_said(tmp_path: Path, text: str, said: str) -> None:
    """Targets that nobody may ask, nobody at all, and a receiver that can't know who asks."""
    warnings = load(written(tmp_path, text), enforce_ownership=False).warnings
    assert [each for each in warnings if said in each] != []


def test_a_whole_set_of_targets_has_nothing_unusual(tmp_path: Path) -> None:
    """With somebody who counts, a key and credentials there is nothing to say."""
    text = WHOLE + '[cluster]\ncredentials = "in-cluster"\n'
    assert load(written(tmp_path, text), enforce_ownership=False).warnings == ()
