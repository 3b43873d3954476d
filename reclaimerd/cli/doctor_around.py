"""Checks of `doctor` about who is beside the daemon: systemd, Slurm, the kubelet, container runtimes.

They are asked by children with a deadline; nothing is started, stopped or set.
"""

import errno
from pathlib import Path

from reclaimerd.cli.doctor_host import Host, ran
from reclaimerd.cli.doctor_words import Said, fail, gravest, ok, unknown, warn
from reclaimerd.errors import ReclaimerdError
from reclaimerd.observe.root_sockets import socket_mark, trusted_mark
from reclaimerd.observe.slurm_host import SlurmPlaces, read_slurm_host

UNIT = "reclaimerd.service"
_PROPERTIES = "LoadState,ActiveState,SubState,Result,UnitFileState,NRestarts"
_SYSTEMCTL = "/usr/bin/systemctl"
_ABSENT = (errno.ENOENT, errno.ENOTDIR)


def read_systemd(host: Host) -> Said:
    """Say whether systemd is the service manager here."""
    if host.path("/run/systemd/system").is_dir():
        return ok("systemd manages this host")
    return warn(
        "systemd does not manage this host: no unit can be told, and no reset is run",
        "run it on the host itself",
    )


def read_unit(host: Host) -> Said:
    """Say whether the daemon's unit is installed, enabled and well."""
    if host.where.simulate is not None:
        return ok("a simulated host has no unit of ours")
    if not host.path("/run/systemd/system").is_dir():
        return ok("no systemd, so no unit of ours")
    ended = ran((_SYSTEMCTL, "show", "-p", _PROPERTIES, "--", UNIT))
    if ended.code != 0:
        return unknown(f"systemctl show: {ended.err.strip()[:200] or f'exit code {ended.code}'}")
    return unit_said(dict(line.split("=", 1) for line in ended.out.splitlines() if "=" in line))


def unit_said(shown: dict[str, str]) -> Said:
    """Return what systemd's words on the unit come to; pure."""
    active = f"{shown.get('ActiveState')} ({shown.get('SubState')})"
    if shown.get("LoadState") != "loaded":
        return warn(
            f"{UNIT} is {shown.get('LoadState') or 'unknown'}", "install the unit; systemctl daemon-reload"
        )
    if shown.get("ActiveState") == "failed":
        return fail(
            f"{UNIT} failed: {shown.get('Result')}", f"journalctl -u {UNIT}; then systemctl restart {UNIT}"
        )
    if shown.get("ActiveState") != "active":
        return warn(f"{UNIT} is {active}", f"systemctl enable --now {UNIT}")
    if shown.get("UnitFileState") not in ("enabled", "enabled-runtime", "static"):
        return warn(
            f"{UNIT} runs, but is {shown.get('UnitFileState')}: not after a reboot",
            f"systemctl enable {UNIT}",
        )
    if shown.get("NRestarts", "0") != "0":
        return warn(f"{UNIT} runs and was restarted {shown['NRestarts']} times", f"journalctl -u {UNIT}")
    return ok(f"{UNIT} is {active} and enabled")


def read_slurm(host: Host) -> Said:
    """Say whether Slurm's controller answers scontrol, where there is Slurm."""
    named = host.policy.attribution
    places = SlurmPlaces(root=str(host.root), scontrol=named.scontrol, slurmd=named.slurmd)
    found = read_slurm_host(places, host.path("/proc"))
    if not found.scontrol:
        if host.policy.drain.slurm is None and not named.scontrol:
            return ok("no Slurm here")
        return fail("scontrol is not there, or not root's alone", "name it in [attribution] scontrol")
    ended = ran((found.scontrol, "ping"))
    said = (ended.out + ended.err).split("\n")
    words = next(
        (" ".join(line.split())[:200] for line in reversed(said) if line.strip()), f"code {ended.code}"
    )
    if ended.code == 0 and " UP" in ended.out:
        return ok(f"scontrol answers: {words}")
    mend = "look at slurmctld and slurm.conf"
    if found.daemons or host.policy.drain.slurm is not None:
        return fail(f"scontrol ping: {words}", mend)
    return warn(f"scontrol is there and no slurmd runs; scontrol ping: {words}", mend)


def read_kubelet(host: Host) -> Said:
    """Say whether the kubelet's pod-resources socket is there and root's."""
    path = host.policy.attribution.kubelet_socket
    if not path:
        return ok("the policy asks no kubelet")
    place = host.path(path)
    if not place.exists():
        if host.policy.drain.kubernetes is None:
            return ok("no kubelet here")
        return fail(f"there is no {path}", "start the kubelet, or name its socket in [attribution]")
    try:
        mark = trusted_mark(place)
    except ReclaimerdError as error:
        return fail(error.message, error.mend)
    return ok(f"{mark.path} is there and root's")


def read_runtimes(host: Host) -> Said:
    """Say which container runtimes' sockets are there, and root's."""
    said, found = [], []
    for path in host.policy.attribution.runtime_sockets:
        try:
            socket_mark(host.path(path))
        except ReclaimerdError as error:
            said.append(fail(error.message, error.mend or "only root may own it"))
        except OSError as error:
            if error.errno not in _ABSENT:
                said.append(unknown(f"{path}: {error.strerror}", "run doctor as root"))
        else:
            found.append(Path(path).name)
    return gravest(said, ok(f"sockets of {', '.join(found)}" if found else "no container runtime here"))
