"""The form of `[access]` in the policy file: who may use the control socket, and as what."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import BeforeValidator, Field, StrictBool, with_config

from reclaimerd.config.daemon_tables import CLOSED
from reclaimerd.config.value_kinds import Word
from reclaimerd.config.values import word
from reclaimerd.model.policy import Policy

_ACCESS = Policy().access


def group_name(value: object) -> str:
    """Return a group's name; "" is none."""
    return "" if value == "" else word(value)


GroupName = Annotated[str, BeforeValidator(group_name)]


@with_config(CLOSED)
@dataclass(frozen=True, slots=True, kw_only=True)
class AccessTable:
    """`[access]`: who may use the control socket, and [as what](access.md). Root is an administrator."""

    group: Annotated[
        Word,
        Field(description="The group that may look. It owns the socket, and the audit log's files."),
    ] = _ACCESS.group
    viewer_group: Annotated[
        GroupName,
        Field(description="A further group that may look, but not read the audit log's files."),
    ] = _ACCESS.viewer_group
    operator_group: Annotated[
        GroupName,
        Field(description="The group that may look and act: kill, pause, suspend a rule, undrain."),
    ] = _ACCESS.operator_group
    admin_group: Annotated[
        GroupName,
        Field(
            description="The group that may besides reset GPUs, close breakers, reload, release the driver."
        ),
    ] = _ACCESS.admin_group
    owner_access: Annotated[
        StrictBool,
        Field(description="true: everybody may order a kill of processes all four of whose uids are theirs."),
    ] = _ACCESS.owner_access
    require_reason: Annotated[
        StrictBool,
        Field(description="true: whoever acts must say why (`--reason`)."),
    ] = _ACCESS.require_reason
