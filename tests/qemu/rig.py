"""Boots one guest under qemu, and brings back what its program found there.

The guest sees this machine's files read-only, so it runs the same Python and the same checkout. It is
bounded twice: it ends itself, and it is ended from here. May not judge what was found.
"""

import compileall
import json
import subprocess
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.qemu.parts import CHECKOUT, Parts, packed

GUEST_SECONDS = 300
LEAVE_SECONDS = 10
MEMORY_MIB = 1024


@dataclass(frozen=True, slots=True)
class Guest:
    """What came of one guest: its program's findings by name, its console, and how long it took."""

    findings: Mapping[str, Mapping[str, Any]]
    console: str
    seconds: float

    def finding(self, name: str) -> Mapping[str, Any]:
        """Return one finding; without it the guest did not get so far, and its console says why."""
        assert name in self.findings, f"the guest did not get to {name!r}: {self.console[-4000:]}"
        return self.findings[name]


def boot(parts: Parts) -> Guest:
    """Run one guest to its end and return what it found; it never outlives this call."""
    with tempfile.TemporaryDirectory(prefix="guest-") as place:
        results = Path(place) / "results"
        results.mkdir()
        # The guest can't keep what it compiles, and is some 15 times slower than this machine.
        compileall.compile_dir(CHECKOUT / "reclaimerd", quiet=2)
        archive = Path(place) / "initrd"
        archive.write_bytes(packed(parts, GUEST_SECONDS))
        console = Path(place) / "console"
        began = time.monotonic()
        with console.open("wb") as output:
            process = subprocess.Popen(
                _command(parts, archive, results), stdin=subprocess.DEVNULL, stdout=output, stderr=output
            )
            try:
                process.wait(GUEST_SECONDS + LEAVE_SECONDS)
            except subprocess.TimeoutExpired:
                output.write(b"\nthe guest was ended from outside\n")
            finally:
                process.kill()
                process.wait(LEAVE_SECONDS)
        seconds = time.monotonic() - began
        findings = {
            path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(results.glob("*.json"))
        }
        return Guest(findings, console.read_text(encoding="utf-8", errors="replace"), seconds)


def _command(parts: Parts, archive: Path, results: Path) -> list[str]:
    words = "console=ttyS0 quiet panic=-1 mitigations=off nowatchdog"
    return [
        # Should this process be killed, the guest goes with it.
        *("setpriv", "--pdeathsig", "KILL", str(parts.qemu)),
        *("-machine", "pc,accel=tcg", "-cpu", "max,la57=off", "-smp", "2", "-m", str(MEMORY_MIB)),
        *("-nodefaults", "-no-user-config", "-no-reboot", "-display", "none", "-serial", "stdio"),
        *("-kernel", str(parts.kernel), "-initrd", str(archive), "-append", words),
        *("-virtfs", "local,path=/,mount_tag=host,security_model=none,readonly=on,multidevs=remap"),
        *("-virtfs", f"local,path={results},mount_tag=results,security_model=none"),
    ]
