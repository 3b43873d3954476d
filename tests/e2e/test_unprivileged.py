"""A daemon that only observes and is nobody in particular, where /proc hides the processes of others."""

import os
import shutil

import pytest

from tests.e2e.rig import Json, Table, is_alive, rule, signals_in, simulated_host
from tests.rigs.simulated import wait_until

BOUND_SECONDS = 60.0
UID = 65534
HIDING = (
    "mount --make-rprivate / && mount -t proc -o hidepid=2 proc /proc && "
    f"exec setpriv --reuid {UID} --regid {UID} --clear-groups "
    "--bounding-set=-all,+dac_read_search --inh-caps=-all,+dac_read_search "
    '--ambient-caps=+dac_read_search "$@"'
)
"""It may read files as root does, since this Python may lie where nobody else may look; not processes."""
pytestmark = [
    pytest.mark.root,
    pytest.mark.process,
    pytest.mark.slow,
    pytest.mark.skipif(
        os.geteuid() != 0 or not all(map(shutil.which, ("unshare", "setpriv", "mount"))),
        reason="a /proc of its own needs root and util-linux",
    ),
]


def test_where_it_can_see_nobody_it_says_so_and_does_nothing() -> None:
    """Under hidepid=2 the simulation's own processes are hidden too: no incident, no act, told in `status`.

    What one hidden holder looks like is shown of the worker alone, in test_hung_proc.
    """
    tables: dict[str, Table] = {"daemon": {"mode": "observe", "interval": "400ms"}}
    with simulated_host(rule(mode="observe"), tables=tables) as rig:
        rig.directory.chmod(0o711)
        own = rig.directory / "own"
        own.mkdir(mode=0o700)
        os.chown(own, UID, UID)
        places = ("--state-dir", str(own / "state"), "--log-dir", str(own / "log"))
        pid, path = rig.recorder()
        rig.front = ("unshare", "--mount", "sh", "-c", HIDING, "sh")
        daemon = rig.start_daemon(*places, "--socket", str(own / "socket"))
        asked: list[Json] = []

        def has_looked() -> bool:
            asked.append(rig.ctl("status", "--socket", str(own / "socket")).answer)
            return asked[-1]["last_pass"]["at"] is not None

        wait_until(has_looked, f"it looks: {daemon.words()}", BOUND_SECONDS)
        told = asked[-1]
        assert told["pid"] == daemon.pid, "asked as that user, of that daemon"
        assert (told["incidents"], told["last_error"], told["record_fault"]) == ([], "", "")
        assert any("nothing to watch" in line for line in told["attention"]), told
        assert (is_alive(pid), signals_in(path)) == (True, [])
        assert os.stat(f"/proc/{daemon.pid}").st_uid == UID  # noqa: PTH116  # whose it is
        assert daemon.stop() == 0, daemon.words()
