"""Look groups up, at start and at a reload: NSS may block, so nothing does it in the loop."""

import grp
from collections.abc import Iterator

from reclaimerd.daemon.access import Rights
from reclaimerd.model.policy import AccessSettings


def group_id(name: str) -> int | None:
    """Return a group's gid, None when there is no such group (then files stay root's alone)."""
    try:
        return grp.getgrnam(name).gr_gid
    except (KeyError, OSError):
        return None


def read_rights(access: AccessSettings) -> Rights:
    """Return what the policy's groups may do, by gid; a group that does not exist gives nobody anything."""
    return Rights(
        viewers=frozenset(_gids(access.group, access.viewer_group)),
        operators=frozenset(_gids(access.operator_group)),
        admins=frozenset(_gids(access.admin_group)),
        owner_access=access.owner_access,
    )


def missing_groups(access: AccessSettings) -> tuple[str, ...]:
    """Return the groups that the policy names and this host does not have."""
    names = (access.group, access.viewer_group, access.operator_group, access.admin_group)
    return tuple(name for name in dict.fromkeys(names) if name and group_id(name) is None)


def _gids(*names: str) -> Iterator[int]:
    for name in names:
        gid = group_id(name) if name else None
        if gid is not None:
            yield gid
