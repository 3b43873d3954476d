"""Loads the policy that is in force: the whole file, or nothing of it.

With no file the built-in defaults hold, which enforce nothing; this path imports neither pydantic
nor RE2, so that a command in the foreground starts fast.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from reclaimerd.errors import ConfigError
from reclaimerd.model.policy import Policy

DEFAULT_PATH = Path("/etc/reclaimerd/reclaimerd.toml")


@dataclass(frozen=True, slots=True)
class LoadedPolicy:
    """A policy in force; `user_ids` and `group_ids` are of the users and groups it names, at this load."""

    policy: Policy
    user_ids: Mapping[str, int] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    group_ids: Mapping[str, int] = field(default_factory=dict)


def load(path: Path | None, *, enforce_ownership: bool) -> LoadedPolicy:
    """Return the policy of a file, or the built-in one when the default file does not exist.

    Raise ConfigError with every fault, one line each. `enforce_ownership` refuses a file that
    anyone but root could change (without root: anyone but root and us); else that is a warning.
    A file that is named must exist.
    """
    named = installed(path)
    return LoadedPolicy(Policy()) if named is None else _load_file(named, enforce_ownership=enforce_ownership)


def installed(path: Path | None) -> Path | None:
    """Return the file that holds: the named one, else the default one; None where that does not exist."""
    named = DEFAULT_PATH if path is None else path
    return None if named == DEFAULT_PATH and _is_absent(named) else named


def _is_absent(path: Path) -> bool:
    """Tell whether nothing stands at this path; a dangling link or a closed folder is not nothing."""
    try:
        path.lstat()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return False


def _load_file(path: Path, *, enforce_ownership: bool) -> LoadedPolicy:
    # Imported here, not above: pydantic and RE2 cost 80 ms that the built-in policy need not pay.
    from reclaimerd.config.check import examine, unreadable_file  # noqa: PLC0415 - see the comment above
    from reclaimerd.config.source import read_source  # noqa: PLC0415 - the same

    try:
        source = read_source(path)
    except OSError as error:
        raise ConfigError((str(unreadable_file(path, error)),)) from error
    concerns = tuple(f"{path}:1: file: {concern}" for concern in source.concerns)
    examined = examine(source)
    faults = tuple(str(fault) for fault in examined.faults)
    if enforce_ownership:
        faults = (*concerns, *faults)
    if faults:
        raise ConfigError(faults)
    digest = hashlib.sha256(source.content).hexdigest()
    policy = replace(examined.policy, digest=digest, source=str(path))
    here = examined.here
    return LoadedPolicy(policy, here.user_ids, (*concerns, *examined.warnings), here.group_ids)
