"""Whom the administrator lets through the control socket."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class AccessSettings:
    """Who may use the control socket, and as what; a group of "" is none.

    Members of `group`, which also owns socket and audit log, and of `viewer_group` may look. Root is an
    administrator.
    """

    group: str = "reclaimerd"
    viewer_group: str = ""
    operator_group: str = ""
    admin_group: str = ""
    owner_access: bool = False
    require_reason: bool = False
