"""Who is told of what."""

from dataclasses import replace

import pytest

from reclaimerd.model.drain_policy import WebhookTarget
from reclaimerd.model.outlets import Notice, NoticeKind, NotifyTarget, Severity

NOTICE = Notice(NoticeKind.ALARM, Severity.CRITICAL, "gpu-7", "it burns", 0.0)


def test_a_receiver_s_address_is_that_of_any_webhook() -> None:
    """Each key goes where it belongs."""
    target = NotifyTarget(
        "x",
        "https://x/",
        secret_file="/k",  # noqa: S106  # a path
        ca_file="/c",
        seconds=3.0,
        plain_http=True,
    )
    assert target.webhook == WebhookTarget("https://x/", "/k", "/c", 3.0, plain_http=True)


@pytest.mark.parametrize("severity", Severity)
@pytest.mark.parametrize("dry_run", [True, False])
@pytest.mark.parametrize("wants_dry_run", [True, False])
def test_who_wants_what(severity: Severity, *, dry_run: bool, wants_dry_run: bool) -> None:
    """Only its severities, and of a dry run nothing without leave."""
    target = NotifyTarget(severities=(Severity.CRITICAL,), dry_run=wants_dry_run)
    wanted = severity is Severity.CRITICAL and (wants_dry_run or not dry_run)
    assert target.wants(replace(NOTICE, severity=severity, dry_run=dry_run)) is wanted
