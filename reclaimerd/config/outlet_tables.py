"""The form of `[metrics]`, `[[notify]]` and `[anchor_webhook]`: what leaves the daemon besides the socket.

Each default is the model's.
"""

from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, Field, StrictBool, with_config

from reclaimerd.config import outlet_values, values
from reclaimerd.config.daemon_tables import CLOSED
from reclaimerd.config.drain_tables import PostTable
from reclaimerd.config.value_kinds import Name, PositiveCount, PositiveDuration
from reclaimerd.model.outlets import AnchorWebhook, MetricsSettings, NotifyTarget, Severity

_METRICS = MetricsSettings()
_NOTIFY = NotifyTarget()
_ANCHOR = AnchorWebhook()


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsTable:
    """`[metrics]`: where metrics are shown besides `/metrics` on the control socket."""

    listen: Annotated[
        str,
        BeforeValidator(outlet_values.listen_address),
        Field(
            description='Address and port of TCP, as they are at the start; "" is none. '
            "Whoever can connect there may read."
        ),
    ] = _METRICS.listen
    any_address: Annotated[
        StrictBool,
        Field(description="true: `listen` may also be an address that other hosts reach."),
    ] = _METRICS.any_address
    textfile: Annotated[
        str,
        BeforeValidator(outlet_values.textfile_path),
        Field(
            description="A file for the textfile collector of node_exporter, "
            'written at most every 15 s; "" is none.'
        ),
    ] = _METRICS.textfile


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class NotifyTable(PostTable):
    """`[[notify]]`: a web server that is told by a POST when something happened. It decides nothing here."""

    name: Annotated[Name, Field(description="Its name, for logs and metrics.")] = _NOTIFY.name
    severities: Annotated[
        tuple[Annotated[Severity, BeforeValidator(values.choice(*Severity))], ...],
        Field(description="What it is told of."),
    ] = _NOTIFY.severities
    template: Annotated[
        str,
        BeforeValidator(outlet_values.notice_template),
        Field(description='The body, JSON with `$host`, `$reason` and other names in it; "" is our own.'),
    ] = _NOTIFY.template
    per_hour: Annotated[
        PositiveCount,
        Field(description="So many in an hour are sent, and further ones are dropped and counted."),
    ] = _NOTIFY.per_hour
    dry_run: Annotated[
        StrictBool,
        Field(description="true: also told what a dry run would have done."),
    ] = _NOTIFY.dry_run


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class AnchorWebhookTable(PostTable):
    """`[anchor_webhook]`: a web server off this host that keeps the audit log's head."""

    every_seconds: Annotated[
        PositiveDuration,
        Field(alias="every", description="A head that moved is sent when the last one sent is so old."),
    ] = _ANCHOR.every_seconds
    every_records: Annotated[
        PositiveCount,
        Field(description="It is sent before that when the log grew by so many records."),
    ] = _ANCHOR.every_records
