"""What goes on around a daemon that runs for long: holders come and go, people ask, policies change."""

import os
import random
import select
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path

from reclaimerd.cli.http_socket import NoAnswer, Request, ask_daemon
from tests.e2e.programs import Ran
from tests.e2e.rig import GPU_A, GPU_B, Daemon, Rig, Table, rule
from tests.rigs.simulated import wait_until
from tests.soak.meters import children_of

CALLS = ("/v1/status", "/v1/ps", "/v1/incidents", "/v1/rules", "/v1/breakers", "/v1/reclaims/candidates")
MOST_BYSTANDERS = 6
MOST_HOGS, HOGS_GO_SECONDS = 6, 60.0
"""So many may wait to be taken when others come: a busy machine is given no more than it takes."""
TABLES: dict[str, Table] = {
    "daemon": {"mode": "enforce", "interval": "50ms", "full_scan": "5s"},
    "audit": {"file_size": "256KiB", "keep_files": 8},
    "breaker": {"workloads_per_pass": 1000, "gpu_percent": 100, "gpus_at_least": 64},
    "budgets": {"workloads_per_window": 100_000, "workloads_per_day": 100_000, "drains_per_day": 200},
}
HOG = rule(**{"for": "100ms", "grace": "500ms"})


@dataclass(slots=True)
class Churn:
    """One daemon's busy surroundings, a round at a time."""

    rig: Rig
    daemon: Daemon
    chance: random.Random
    bystanders: list[tuple[int, int]] = field(default_factory=list)
    """Pid and pidfd of those who break no rule."""
    hogs: list[tuple[int, int]] = field(default_factory=list)
    """The same of those who break it."""
    innocent_dead: list[int] = field(default_factory=list)
    ran: list[Ran] = field(default_factory=list)
    rounds: int = 0
    workers_die: bool = True
    """A new worker takes less than one that has been at work: none dies where memory is compared."""

    def round(self) -> None:
        """Let everything happen once, and what costs more every few rounds."""
        self.rounds += 1
        self.await_hogs()
        self.come()
        for path in CALLS:
            self.rig.ask(path)
        for about in ("/v1/processes", "/v1/explain/pid"):
            self.tell(f"{about}/{self.bystanders[-1][0]}")
        scrape(self.rig.socket)
        hang_up_in_mid_call(self.rig.socket)
        rarely: dict[int, Callable[[], None]] = {
            3: self.reload,
            4: lambda: self.ran.append(self.rig.ctl("ps")),
            5: self.order,
        }
        if self.workers_die:
            rarely[7] = self.lose_a_worker
        for every, act in rarely.items():
            if self.rounds % every == 0:
                act()
        self.go()

    def await_hogs(self) -> None:
        """Wait until few of those who break the rule are left; who stays says why."""
        try:
            wait_until(self._few_hogs, "those who break the rule go", HOGS_GO_SECONDS)
        except AssertionError as error:
            said = {pid: self.rig.verdict(pid) for pid, _ in self.hogs}
            status = self.rig.ask("/v1/status")
            text = f"{error}: {said}; {status['attention']}; {self.rig.story()[-4000:]}"
            raise AssertionError(text) from error

    def _few_hogs(self) -> bool:
        gone = [one for one in self.hogs if _has_ended(one[1])]
        for one in gone:
            self.hogs.remove(one)
            os.close(one[1])
        return len(self.hogs) <= MOST_HOGS

    def come(self) -> None:
        """Start one who breaks no rule, one who goes when told to, and one who must be made to go."""
        gpu = self.chance.choice((GPU_A, GPU_B))
        place = ("--gpu", gpu, "--bytes")
        options = [[*place, "1GiB"], [*place, "5GiB"], [*place, "5GiB", "--ignore-term", "--threads", "4"]]
        bystander, *hogs = self.rig.keeper.launch_all(options)
        self.bystanders.append((bystander.pid, os.pidfd_open(bystander.pid)))
        for one in hogs:
            with suppress(ProcessLookupError):  # it was taken and reaped while the others started
                self.hogs.append((one.pid, os.pidfd_open(one.pid)))

    def go(self) -> None:
        """End the oldest of those who break no rule, who must have lived until now."""
        while len(self.bystanders) > MOST_BYSTANDERS:
            pid, pidfd = self.bystanders.pop(0)
            try:
                signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            except ProcessLookupError:
                self.innocent_dead.append(pid)
            os.close(pidfd)

    def reload(self) -> None:
        """Take another policy, every third of them with a fault."""
        match self.rounds // 3 % 3:
            case 0:
                self.rig.policy.write_text('[daemon]\nmode = "enforc"\n', encoding="utf-8")
            case 1:
                self.rig.write_policy(HOG, rule(name="more", above="60GiB", mode="observe"), **TABLES)
            case _:
                self.rig.write_policy(HOG, **TABLES)
        self.daemon.send(signal.SIGHUP)

    def order(self) -> None:
        """Have an operator kill one who breaks no rule."""
        pid, pidfd = self.bystanders.pop(0)
        os.close(pidfd)
        self.ran.append(self.rig.ctl("kill", "--pid", str(pid), "--grace", "500ms"))

    def lose_a_worker(self) -> None:
        """Kill one of the daemon's workers: until another is there nobody is let in, or nothing is read."""
        with suppress(ProcessLookupError):
            os.kill(self.chance.choice(children_of(self.daemon.pid)), signal.SIGKILL)
        self.tell("/v1/status")

    def tell(self, path: str) -> None:
        """Wait until this is told: while a lost worker is replaced the daemon says that it can't."""
        wait_until(lambda: answers(self.rig.socket, path), f"{path} is told", 30)

    def close(self) -> None:
        """Let go of the pidfds."""
        for _, pidfd in (*self.bystanders, *self.hogs):
            os.close(pidfd)


def _has_ended(pidfd: int) -> bool:
    return bool(select.select([pidfd], [], [], 0)[0])


def answers(path: Path, what: str) -> bool:
    """Tell whether root is let in and is told what it asks for."""
    reply = ask_daemon(path, Request("GET", what), None)
    return not isinstance(reply, NoAnswer) and reply.status == HTTPStatus.OK


def scrape(path: Path) -> str:
    """Return the metrics as Prometheus gets them."""
    with socket.socket(socket.AF_UNIX) as channel:
        channel.settimeout(30)
        channel.connect(str(path))
        channel.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        return b"".join(iter(lambda: channel.recv(65536), b"")).decode()


def hang_up_in_mid_call(path: Path) -> None:
    """Begin a call and go away."""
    with socket.socket(socket.AF_UNIX) as channel:
        channel.connect(str(path))
        channel.sendall(b"POST /v1/reclaims HTTP/1.1\r\nHost: localhost\r\nContent-Le")


def metric(text: str, name: str) -> float:
    """Return the sum of a metric's samples."""
    lines = (line for line in text.splitlines() if line.partition("{")[0].split(" ")[0] == name)
    return sum(float(line.rpartition(" ")[2]) for line in lines)
