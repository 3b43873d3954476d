"""Look a group up once, at start: NSS may block, so nothing does it in the loop."""

import grp


def group_id(name: str) -> int | None:
    """Return a group's gid, None when there is no such group (then files stay root's alone)."""
    try:
        return grp.getgrnam(name).gr_gid
    except (KeyError, OSError):
        return None
