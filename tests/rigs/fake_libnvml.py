"""The fake driver library: built by gcc at test time, read by a real pynvml in a child process."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SOURCE = Path(__file__).with_name("fake_libnvml.c")
CHILD = """
import dataclasses, json, sys
from pathlib import Path
from reclaimerd.errors import ReclaimerdError
from reclaimerd.observe.nvml import RealNvml
nvml = RealNvml(devices_file=Path(sys.argv[1]), caps_directory=Path(sys.argv[2]))
for line in sys.stdin:
    if line == "close\\n":
        nvml.close()
        print("{}", flush=True)
        continue
    try:
        if line == "shares\\n":
            print(json.dumps(dataclasses.asdict(nvml.read_host(utilisation=True))), flush=True)
        elif line == "facts\\n":
            facts = [dataclasses.asdict(gpu) for gpu in nvml.read_reset_facts()]
            print(json.dumps({"facts": facts}), flush=True)
        else:
            print(json.dumps(dataclasses.asdict(nvml.read_host())), flush=True)
    except ReclaimerdError as error:
        fault = {"error": type(error).__name__, "text": error.message, "mend": error.mend}
        print(json.dumps(fault), flush=True)
"""
DEVICES = (
    "Character devices:\n  1 mem\n195 nvidia\n507 nvidia-uvm\n508 nvidia-caps\n\nBlock devices:\n507 sd\n"
)


def why_unavailable() -> str:
    """Return why the fake can't be built here, or ""."""
    return "" if shutil.which("gcc") else "no gcc to build the fake libnvidia-ml.so.1"


def build_fake_libnvml(folder: Path, defines: Sequence[str] = ()) -> Path:
    """Compile the library into a folder, leaving symbols out as asked; return its path."""
    gcc = shutil.which("gcc")
    assert gcc is not None
    library = folder / "libnvidia-ml.so.1"
    soname = "-Wl,-soname,libnvidia-ml.so.1"
    flags = ["-shared", "-fPIC", "-O1", "-D_GNU_SOURCE", "-Wall", "-Werror", soname]
    subprocess.run([gcc, *flags, *(f"-D{name}" for name in defines), "-o", library, SOURCE], check=True)
    return library


@dataclass(slots=True)
class FakeDriver:
    """A child with RealNvml over the fake library, and the file that the library answers from."""

    folder: Path
    process: subprocess.Popen[str]

    @classmethod
    def start(cls, folder: Path, library: Path | None) -> "FakeDriver":
        """Start the child; without a library the loader finds none."""
        (folder / "state").write_text("")
        (folder / "log").write_text("")
        (folder / "devices").write_text(DEVICES)
        environment = {
            **os.environ,
            "LD_LIBRARY_PATH": str(library.parent if library else folder),
            "FAKE_NVML_STATE": str(folder / "state"),
            "FAKE_NVML_LOG": str(folder / "log"),
        }
        process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(folder / "devices"), "/dev/no-such-folder"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        return cls(folder, process)

    def set(self, **state: object) -> None:
        """Write the whole state; `gpu0_used=5` stands for the key `0.used`."""
        lines = []
        for key, value in state.items():
            front, _, rest = key.partition("_")
            name = f"{front[3:]}.{rest}" if front.startswith("gpu") else key
            lines.append(f"{name}={value}\n")
        (self.folder / "state").write_text("".join(lines))

    def read(self) -> dict[str, Any]:
        """Return one read_host as plain values, or {"error", "text", "mend"}."""
        return self._ask("read")

    def shares(self) -> dict[str, Any]:
        """Return one read_host with what each process uses, as `read` does."""
        return self._ask("shares")

    def facts(self) -> dict[str, Any]:
        """Return one read_reset_facts as plain values below "facts", or {"error", "text", "mend"}."""
        return self._ask("facts")

    def close(self) -> None:
        """Let RealNvml close."""
        self._ask("close")

    def log(self) -> list[str]:
        """Return the calls of init and shutdown so far."""
        return (self.folder / "log").read_text().split()

    def stop(self) -> None:
        """End the child."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.close()
        self.process.wait(10)
        self.process.stdout.close()

    def _ask(self, word: str) -> dict[str, Any]:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer
