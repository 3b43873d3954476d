"""`[metrics]` and `[[notify]]` in the policy file."""

from dataclasses import replace
from pathlib import Path

import pytest

from reclaimerd.config.check import check
from reclaimerd.config.load import load
from reclaimerd.config.outlet_combinations import outlet_warnings
from reclaimerd.model.outlets import AnchorWebhook, MetricsSettings, NotifyTarget, Severity
from reclaimerd.model.policy import Policy

WHOLE = """
[metrics]
listen = "[2001:db8::1]:9485"
any_address = true
textfile = "/var/lib/x/reclaimerd.prom"
[[notify]]
name = "on-call"
url = "https://alerts.example.org/hook?key=k"
severities = ["critical"]
template = '{"text": "$reason"}'
per_hour = 5
dry_run = true
secret_file = "/etc/reclaimerd/key"
ca_file = "/etc/ssl/x.pem"
within = "3s"
[[notify]]
name = "here"
url = "http://127.0.0.1:9000/"
plain_http = true
"""


def loaded(tmp_path: Path, text: str) -> Policy:
    """Return the policy of a text."""
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return load(path, enforce_ownership=False).policy


def faults(tmp_path: Path, text: str) -> list[str]:
    """Return what is wrong with a text."""
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    return [f"{fault.key}: {fault.what}; {fault.mend}" for fault in check(path)]


def test_every_key_becomes_a_typed_value(tmp_path: Path) -> None:
    """Each in its place, each receiver by itself."""
    policy = loaded(tmp_path, WHOLE)
    assert policy.metrics == MetricsSettings(
        "[2001:db8::1]:9485", any_address=True, textfile="/var/lib/x/reclaimerd.prom"
    )
    first, second = policy.notices
    assert first == NotifyTarget(
        "on-call",
        "https://alerts.example.org/hook?key=k",
        (Severity.CRITICAL,),
        '{"text": "$reason"}',
        5,
        dry_run=True,
        secret_file="/etc/reclaimerd/key",  # noqa: S106  # a path
        ca_file="/etc/ssl/x.pem",
        seconds=3.0,
    )
    assert second == NotifyTarget("here", "http://127.0.0.1:9000/", plain_http=True)


def test_without_the_tables_nothing_leaves(tmp_path: Path) -> None:
    """No address, no file, nobody."""
    policy = loaded(tmp_path, "")
    assert policy.metrics == MetricsSettings("", any_address=False, textfile="")
    assert policy.notices == ()


@pytest.mark.parametrize("address", ["127.0.0.1:9485", "127.9.9.9:1", "[::1]:65535", ""])
def test_a_loopback_address_needs_no_word_more(tmp_path: Path, address: str) -> None:
    """This host alone reaches it."""
    assert faults(tmp_path, f'[metrics]\nlisten = "{address}"\n') == []


@pytest.mark.parametrize(
    ("text", "key", "word"),
    [
        ('[metrics]\nlisten = "0.0.0.0:9485"', "metrics.listen", "any_address = true"),
        ('[metrics]\nlisten = "[::]:9485"', "metrics.listen", "any_address = true"),
        ('[metrics]\nlisten = "10.0.0.7:9485"', "metrics.listen", "other hosts reach 10.0.0.7"),
        ('[metrics]\nlisten = "localhost:9485"', "metrics.listen", "no numeric address"),
        ('[metrics]\nlisten = "127.0.0.1"', "metrics.listen", "no numeric address"),
        ('[metrics]\nlisten = "127.0.0.1:0"', "metrics.listen", "no port"),
        ('[metrics]\nlisten = "127.0.0.1:65536"', "metrics.listen", "no port"),
        ('[metrics]\nlisten = "127.0.0.1:٣"', "metrics.listen", "no port"),
        ("[metrics]\nlisten = 9485", "metrics.listen", "the number 9485"),
        ('[metrics]\ntextfile = "/var/lib/x/metrics.txt"', "metrics.textfile", ".prom"),
        ('[metrics]\ntextfile = "x.prom"', "metrics.textfile", "absolute"),
        ("[metrics]\nport = 1", "metrics.port", "not known"),
        ('[[notify]]\nurl = "https://x/"', "notify[0].name", "no name"),
        ('[[notify]]\nname = "x"', "notify[0].url", "no address"),
        ('[anchor_webhook]\nevery = "1m"', "anchor_webhook.url", "no address"),
        ('[anchor_webhook]\nurl = "http://127.0.0.1/"', "anchor_webhook.url", "plain_http"),
        ('[anchor_webhook]\nurl = "https://x/"\nevery = "0s"', "anchor_webhook.every", ""),
        ('[anchor_webhook]\nurl = "https://x/"\nevery_records = 0', "anchor_webhook.every_records", "range"),
        ('[[notify]]\nname = "x"\nurl = "ftp://x/"', "notify[0].url", "can't be used"),
        ('[[notify]]\nname = "x"\nurl = "http://127.0.0.1/"', "notify[0].url", "plain_http"),
        (
            '[[notify]]\nname = "x"\nurl = "http://10.0.0.1/"\nplain_http = true',
            "notify[0].url",
            "only a loopback",
        ),
        (
            '[[notify]]\nname = "x"\nurl = "https://x/"\nseverities = []',
            "notify[0].severities",
            "told of nothing",
        ),
        ('[[notify]]\nname = "x"\nurl = "https://x/"\nseverities = ["panic"]', "notify[0].severities", ""),
        ('[[notify]]\nname = "x"\nurl = "https://x/"\nper_hour = 0', "notify[0].per_hour", "range"),
        ('[[notify]]\nname = "x"\nurl = "https://x/"\ntemplate = "$what"', "notify[0].template", "$what"),
        ('[[notify]]\nname = "x"\nurl = "https://x/"\ntemplate = 5', "notify[0].template", "number"),
        ('[[notify]]\nname = "x"\nurl = "https://x/"\nwithin = "1h"', "notify[0].within", "longer"),
        (
            '[[notify]]\nname = "x"\nurl = "https://x/"\n[[notify]]\nname = "x"\nurl = "https://y/"',
            "notify[1].name",
            "taken",
        ),
        ('[notify]\nname = "x"', "notify", "[[notify]]"),
    ],
)
def test_what_can_t_be_is_a_fault(tmp_path: Path, text: str, key: str, word: str) -> None:
    """One fault, at its key, with its mend; an address is never repeated."""
    (fault,) = faults(tmp_path, text)
    assert fault.startswith(key)
    assert word in fault


def test_an_unsigned_receiver_is_a_warning(tmp_path: Path) -> None:
    """It is allowed, and said."""
    path = tmp_path / "policy.toml"
    path.write_text(WHOLE, encoding="utf-8")
    (warning,) = load(path, enforce_ownership=False).warnings
    assert '"here" has no secret_file' in warning


def test_who_keeps_the_audit_s_head(tmp_path: Path) -> None:
    """Each key in its place; without a key that signs it is allowed, and a warning."""
    text = (
        '[anchor_webhook]\nurl = "https://keeper.example.org/"\nsecret_file = "/etc/reclaimerd/key"\n'
        'ca_file = "/etc/ssl/x.pem"\nwithin = "3s"\nevery = "1m"\nevery_records = 7\n'
    )
    keeper = AnchorWebhook("https://keeper.example.org/", "/etc/reclaimerd/key", "/etc/ssl/x.pem", 3.0)
    policy = loaded(tmp_path, text)
    assert policy.anchor_webhook == replace(keeper, every_seconds=60.0, every_records=7)
    assert list(outlet_warnings(policy)) == []
    (warning,) = outlet_warnings(loaded(tmp_path, '[anchor_webhook]\nurl = "https://x/"\n'))
    assert "secret_file" in warning
