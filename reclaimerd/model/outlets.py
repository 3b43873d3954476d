"""What the administrator decided about what leaves the daemon for people's eyes: metrics, and notices.

Neither has a say in what is done: whoever reads them decides nothing here.
"""

from dataclasses import dataclass
from enum import StrEnum

from reclaimerd.model.drain_policy import WebhookTarget
from reclaimerd.model.identity import GpuUuid, IncidentId


@dataclass(frozen=True, slots=True)
class MetricsSettings:
    """Where metrics are shown besides the control socket; "" is nowhere else.

    `listen` is a numeric address and a port of TCP, and only a loopback one without `any_address`: whoever
    can connect there may read. `textfile` is a file in the folder of node_exporter's textfile collector.
    """

    listen: str = ""
    any_address: bool = False
    textfile: str = ""


class Severity(StrEnum):
    """How much a notice wants of its reader: nothing, a look in the daytime, a person now."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"


class NoticeKind(StrEnum):
    """What a notice tells."""

    ALARM = "alarm"
    BREAKER_TRIPPED = "breaker_tripped"
    DRAIN_REQUESTED = "drain_requested"
    RECORD_FAULT = "record_fault"
    ANCHOR_FAULT = "anchor_fault"
    INCIDENT_OPENED = "incident_opened"
    INCIDENT_ENDED = "incident_ended"


@dataclass(frozen=True, slots=True)
class Notice:
    """One thing that people are told; no command line leaves the host. `at` is wall-clock seconds.

    `pid` is 0 where no process is meant, `rule`, `end` and `incident` "" where none is. `dry_run`: nothing
    was done, only written down.
    """

    kind: NoticeKind
    severity: Severity
    host: str
    reason: str
    at: float
    incident: IncidentId | str = ""
    rule: str = ""
    pid: int = 0
    gpus: tuple[GpuUuid, ...] = ()
    end: str = ""
    dry_run: bool = False


@dataclass(frozen=True, slots=True)
class NotifyTarget:
    """One receiver of notices: a signed POST of JSON, or of what `template` makes of it.

    The keys of the address are those of `WebhookTarget`. Past `per_hour` in one hour notices are dropped and
    counted. `dry_run`: also what a dry run would have done is told.
    """

    name: str = ""
    url: str = ""
    severities: tuple[Severity, ...] = (Severity.WARNING, Severity.CRITICAL)
    template: str = ""
    per_hour: int = 30
    dry_run: bool = False
    secret_file: str = ""
    ca_file: str = ""
    seconds: float = 10.0
    plain_http: bool = False

    @property
    def webhook(self) -> WebhookTarget:
        """Return where and how it is posted."""
        return WebhookTarget(self.url, self.secret_file, self.ca_file, self.seconds, self.plain_http)

    def wants(self, notice: Notice) -> bool:
        """Tell whether this receiver is told of it at all."""
        return notice.severity in self.severities and (self.dry_run or not notice.dry_run)


@dataclass(frozen=True, slots=True)
class AnchorWebhook:
    """Who keeps the audit log's head for us, off this host; "" as address is nobody.

    The head is sent when it moved by `every_records`, or moved at all and the last one is `every_seconds`
    old. The keys of the address are those of `WebhookTarget`.
    """

    url: str = ""
    secret_file: str = ""
    ca_file: str = ""
    seconds: float = 10.0
    plain_http: bool = False
    every_seconds: float = 300.0
    every_records: int = 1000

    @property
    def webhook(self) -> WebhookTarget:
        """Return where and how it is posted."""
        return WebhookTarget(self.url, self.secret_file, self.ca_file, self.seconds, self.plain_http)
