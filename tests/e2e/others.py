"""Running the programs as somebody who is not root."""

import functools
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

import reclaimerd

NOBODY = 65534
AS_NOBODY = ("setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups")
_TRIAL = "import subprocess, sys, reclaimerd.cli.main; subprocess.run([sys.executable, '-c', ''], check=True)"


def environment() -> dict[str, str]:
    """Return our environment, with which any Python of this version finds the checkout and its packages."""
    checkout = Path(reclaimerd.__file__).parents[1]
    return {**os.environ, "PYTHONPATH": f"{checkout}:{sysconfig.get_path('purelib')}"}


@functools.cache
def python_of_nobody() -> str:
    """Return a Python that an ordinary user may run with this checkout; skip the test where there is none."""
    for python in (sys.executable, "/usr/bin/python3"):
        try:
            trial = subprocess.run(
                [*AS_NOBODY, python, "-c", _TRIAL],
                env=environment(),
                cwd="/",
                capture_output=True,
                check=False,
                timeout=30,
            )
        except OSError:
            continue
        if trial.returncode == 0:
            return python
    pytest.skip("this checkout, or a Python for it, can't be read by an ordinary user")
