"""Checks of `doctor` about the daemon, the policy file, the control socket, and programs run as root."""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from reclaimerd import __version__
from reclaimerd.cli.doctor_host import Host
from reclaimerd.cli.doctor_words import Said, fail, gravest, ok, unknown, warn
from reclaimerd.cli.http_socket import NoAnswer
from reclaimerd.config.load import DEFAULT_PATH, load
from reclaimerd.daemon.groups import group_id, missing_groups
from reclaimerd.errors import ConfigError
from reclaimerd.host.files import refuse_unsafe
from reclaimerd.model.policy import ListedStage

_START = "systemctl start reclaimerd; journalctl -u reclaimerd tells why it ended"
_OTHERS = stat.S_IROTH | stat.S_IWOTH


def read_daemon(host: Host) -> Said:
    """Say whether the daemon answers, and is of this version."""
    status = host.status
    if isinstance(status, NoAnswer):
        return warn(f"no daemon answers at {host.where.socket}: {status.why}", _START)
    if status.get("version") != __version__:
        text = f"the daemon is version {status.get('version')}, this command {__version__}"
        return warn(text, "systemctl restart reclaimerd")
    return ok(f"pid {status['pid']} answers, mode {status.get('mode')}")


def read_attention(host: Host) -> Said:
    """Say whether the daemon itself asks for a person."""
    status = host.status
    if isinstance(status, NoAnswer):
        return unknown("no daemon answers")
    found = [str(one) for one in status.get("attention") or ()]
    return fail("; ".join(found), "reclaimctl status") if found else ok("the daemon asks for nobody")


def read_policy(host: Host) -> Said:
    """Say whether the policy file can be loaded, and nobody but root could have written it."""
    path = host.where.config or DEFAULT_PATH
    try:
        loaded = load(host.where.config, enforce_ownership=True)
    except ConfigError as error:
        more = f" (and {len(error.faults) - 1} more)" if len(error.faults) > 1 else ""
        return fail(error.faults[0] + more, f"reclaimctl policy check {path}")
    if loaded.warnings:
        return warn("; ".join(loaded.warnings), f"reclaimctl policy check {path}")
    policy = loaded.policy
    rules = len(policy.rules) + len(policy.fault_rules)
    if not policy.source:
        return ok("no policy file: the built-in policy holds, which enforces nothing")
    return ok(f"{policy.source} has no faults: mode {policy.mode.value}, {rules} rules")


def read_groups(host: Host) -> Said:
    """Say whether the groups exist that may use the control socket."""
    missing = missing_groups(host.policy.access)
    if missing:
        mend = "; ".join(f"groupadd --system {name}" for name in missing)
        return warn(f"there is no group {', '.join(missing)}: its members have no access", mend)
    return ok("every group that the policy gives access exists")


def read_socket(host: Host) -> Said:
    """Say whether the control socket belongs to root and to the policy's group."""
    path = host.where.socket
    try:
        found = path.lstat()
    except FileNotFoundError:
        return warn(f"there is no {path}", _START)
    if not stat.S_ISSOCK(found.st_mode):
        return fail(f"{path} is no socket", "move it away and restart the daemon")
    return gravest(list(_socket_flaws(host, found)), ok(f"{path} is {stat.S_IMODE(found.st_mode):04o}"))


def _socket_flaws(host: Host, found: os.stat_result) -> Iterator[Said]:
    path, access = host.where.socket, host.policy.access
    owners = {0} if host.where.simulate is None else {0, os.geteuid()}
    again = "systemctl restart reclaimerd"
    if found.st_uid not in owners:
        yield fail(f"{path} belongs to uid {found.st_uid}: somebody else answers there", again)
    if found.st_mode & _OTHERS and not access.owner_access:
        yield fail(f"{path} is open to everybody, and owner_access is off", again)
    wanted = group_id(access.group) if access.group else None
    if wanted is not None and host.where.simulate is None and found.st_gid != wanted:
        yield warn(f"{path} belongs to gid {found.st_gid}, not to {access.group}", again)


def read_reset_tool(host: Host) -> Said:
    """Say whether the vendor's tool may be run as root for a reset."""
    if host.where.simulate is not None:
        return ok("a simulated host has a tool of its own")
    policy = host.policy
    fault = _program_fault(Path(policy.nvidia_smi))
    if not fault:
        return ok(f"{policy.nvidia_smi} is root's alone")
    mend = "install it, or name it in nvidia_smi; it and its folders must be root's alone"
    if ListedStage.RESET in host.stages:
        return fail(f"{fault}, and a rule lists the stage reset", mend)
    return warn(f"{fault}: an operator's reset would be refused", mend)


def read_programs(host: Host) -> Said:
    """Say whether the programs that the policy names can be run, and only root could change them."""
    policy = host.policy
    named = {
        "[drain.command] program": policy.drain.command.program if policy.drain.command else "",
        "[warn] hook": policy.warn.hook,
        "[reset] fence_hook": policy.reset.fence_hook,
    }
    used = {key: path for key, path in named.items() if path}
    mend = "make it executable and root's alone, with every folder above it"
    said = [
        fail(f"{key}: {fault}", mend) for key, path in used.items() if (fault := _program_fault(Path(path)))
    ]
    return gravest(
        said, ok(f"{len(used)} programs are root's alone" if used else "the policy names no program")
    )


def _program_fault(path: Path) -> str:
    """Return why root should not run this, or ""."""
    unsafe = refuse_unsafe(path)
    if unsafe is not None:
        return unsafe
    return "" if path.stat().st_mode & stat.S_IXUSR else f"{path} is not executable"
