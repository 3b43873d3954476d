"""A driver that hangs over our own restarts: the clock of its silence belongs to the driver, not to us."""

import signal
import time

import pytest

from tests.e2e.hung_driver import hung_host, nvml_workers
from tests.e2e.rig import is_alive
from tests.rigs.raw_fuse import RawFuse, why_unavailable
from tests.rigs.simulated import wait_until

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.root,
    pytest.mark.skipif(why_unavailable() != "", reason=f"raw FUSE: {why_unavailable()}"),
]


def test_the_clock_of_a_silence_goes_on_over_restarts_and_ends_with_the_hung_worker() -> None:
    """One alarm however often we start; once the hung worker is gone the next silence is another one."""
    drain = {"driver_alarm": "3s", "driver_drain_after": "1h"}
    with hung_host(drain=drain) as host, RawFuse(withhold="read") as another:
        daemon = host.start()
        worker = host.hang_until_abandoned(daemon)
        began = time.monotonic()
        host.rig.wait_record("alarm")
        host.rig.passes(2)  # what is kept for the next start is written at a pass's end, after its records
        for how in (signal.SIGKILL, signal.SIGTERM):
            if how is signal.SIGKILL:
                daemon.kill_now()
            else:
                assert daemon.stop() == 0
            daemon = host.start("unresponsive")
            told = host.driver
            assert told["since_seconds"] >= time.monotonic() - began, "the restart began it anew"
            assert f"pid {worker}" in told["text"]
        host.rig.passes(5)
        assert len(host.rig.records("alarm")) == 1, host.rig.story()
        daemon.kill_now()
        host.set(block_on=str(another.path("driver")))
        host.fuse.release()
        wait_until(lambda: not is_alive(worker), "the kernel lets go of the first worker")
        since = time.monotonic()
        daemon = host.start("unresponsive")
        told = host.driver
        assert told["since_seconds"] <= time.monotonic() - since, "it may have answered in between"
        assert nvml_workers(daemon) != [worker]
        wait_until(lambda: len(host.rig.records("alarm")) == 2, "the new silence has an alarm of its own", 30)
        daemon.kill_now()
