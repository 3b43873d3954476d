"""Errors that end a command or the daemon: each says what, where and how to mend it.

Expected failures of a step are values (`model.incident.Outcome`), not exceptions. What stands
here crosses a border: configuration, store, access, or a machine that we can't work on.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """What `reclaimctl` and `reclaimerd` return to the shell."""

    OK = 0
    INTERNAL = 1
    USAGE = 2
    REFUSED = 3
    NOT_ALLOWED = 4
    TIME_UP = 5
    NO_TARGET = 6
    NO_DAEMON = 7
    UNVERIFIED = 8
    AUDIT_BROKEN = 9
    ATTENTION = 10
    CORRUPT_STORE = 11


class ReclaimerdError(Exception):
    """An error that is shown as one sentence with its mend, never as a traceback.

    `faults` are what it has to say where that is several sentences.
    """

    exit_code = ExitCode.INTERNAL

    def __init__(self, message: str, mend: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.mend = mend
        self.faults: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"{self.message}; {self.mend}" if self.mend else self.message


class ConfigError(ReclaimerdError):
    """The policy file has faults; `faults` holds one line for each of them."""

    exit_code = ExitCode.USAGE

    def __init__(self, faults: tuple[str, ...], mend: str = "") -> None:
        super().__init__("\n".join(faults), mend)
        self.faults = faults


class UnsuitableHostError(ReclaimerdError):
    """This machine, driver, package or namespace can't be worked on safely."""

    exit_code = ExitCode.USAGE


class CorruptStoreError(ReclaimerdError):
    """The store can't be trusted; it is never taken as empty."""

    exit_code = ExitCode.CORRUPT_STORE


class RecordError(ReclaimerdError):
    """A record could not be made durable: no act may follow."""


class WriterBusyError(ReclaimerdError):
    """Another process writes to this store."""

    exit_code = ExitCode.REFUSED


class NotAllowedError(ReclaimerdError):
    """The caller lacks the right."""

    exit_code = ExitCode.NOT_ALLOWED


class NoTargetError(ReclaimerdError):
    """There is no such process, or it holds no GPU."""

    exit_code = ExitCode.NO_TARGET


class IllegalTransitionError(ReclaimerdError):
    """A fact that the ladder doesn't know at this stage: a bug, and nothing was changed."""


class DriverAbsentError(ReclaimerdError):
    """No NVIDIA library or driver: nothing to watch, and no fault."""

    exit_code = ExitCode.NO_TARGET
