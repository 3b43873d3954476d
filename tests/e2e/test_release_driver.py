"""The driver released to a person: our worker goes, nobody is touched, no reset permitted; it comes back."""

import signal
import time

import pytest

from reclaimerd.cli.http_socket import NoAnswer, Request, ask_daemon
from tests.e2e.hung_driver import nvml_workers
from tests.e2e.reset_rig import reset_host
from tests.e2e.rig import GPU_A, Rig, is_alive, rule, signals_in, simulated_host
from tests.rigs.simulated import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.process]
REFUSED, ATTENTION = 3, 10


def listens(rig: Rig) -> bool:
    """Tell whether the daemon answers: its socket is there a moment before."""
    return not isinstance(ask_daemon(rig.socket, Request("GET", "/v1/status"), None), NoAnswer)


def test_a_released_driver_is_held_by_none_of_ours_and_comes_back_by_itself() -> None:
    """Worker gone, `status` says until when, an enforcing rule sends nothing; then all is judged again."""
    with simulated_host(rule(**{"for": "400ms"})) as rig:
        daemon = rig.start_daemon()
        wait_until(lambda: listens(rig), "it listens")
        rig.passes(1)
        (worker,) = nvml_workers(daemon)
        ran = rig.ctl("release-driver", "--for", "4s", "--reason", "upgrade")
        until = time.monotonic() + 4.0
        assert ran.code == 0, ran
        assert '"until": "20' in ran.out
        assert not is_alive(worker)
        _, path = rig.recorder()
        while time.monotonic() < until - 1.5:
            assert nvml_workers(daemon) == []
            rig.passes(1)
            assert signals_in(path) == []
        told = rig.ctl("status")
        assert told.code == ATTENTION
        assert "released by root until 20" in told.out
        assert rig.ask("/v1/status")["driver_released"]["reason"] == "upgrade"
        wait_until(lambda: bool(nvml_workers(daemon)), "it is asked again")
        wait_until(lambda: "SIGTERM" in signals_in(path), f"the rule is in force again: {rig.story()}")
        assert rig.ask("/v1/status")["driver_released"] is None
        notes = [one["reason"] for one in rig.records("note")]
        assert [note for note in notes if "closed" in note] == [
            "our own client of the driver is closed for 4 s: upgrade",
            "the time is over for which root had our own client of the driver closed",
        ]
        assert rig.records("drain") == []


def test_no_reset_is_permitted_meanwhile_and_end_takes_it_back() -> None:
    """Refused by the gate with exit 3, nothing stopped, nothing reset; after --end the same is permitted."""
    with reset_host() as host:
        host.rig.start_daemon()
        wait_until(lambda: listens(host.rig), "it listens")
        assert host.rig.ctl("release-driver").code == 0
        ran = host.reset()
        assert ran.code == REFUSED, ran
        assert "released by root" in ran.out + ran.err
        assert (host.resets, host.jobs) == ((), ())
        assert host.rig.ctl("release-driver", "--end").code == 0
        wait_until(lambda: host.explain().code == 0, "the gate permits again")
        assert host.reset().code == 0
        assert [line.gpu for line in host.resets] == [GPU_A]


@pytest.mark.slow
def test_a_start_of_ours_finds_it_open() -> None:
    """A release is kept nowhere: whoever works on the driver stops the daemon, or asks again."""
    with simulated_host() as rig:
        daemon = rig.start_daemon()
        wait_until(lambda: listens(rig), "it listens")
        assert rig.ctl("release-driver", "--for", "1h").code == 0
        wait_until(lambda: nvml_workers(daemon) == [], "it is closed")
        daemon.send(signal.SIGKILL)
        daemon.process.wait(10)
        rig.socket.unlink()
        again = rig.start_daemon()
        wait_until(lambda: listens(rig) and bool(nvml_workers(again)), "it asks the driver")
        assert rig.ask("/v1/status")["driver_released"] is None


def test_without_a_daemon_there_is_nothing_to_release() -> None:
    """Exit 3, and no record."""
    with simulated_host() as rig:
        ran = rig.ctl("release-driver")
        assert ran.code == REFUSED, ran
        assert "no daemon runs" in ran.err
        assert rig.records("note") == []
