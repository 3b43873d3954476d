"""One call of the control API: its method and path, and who may make it. It knows no handler's insides."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from reclaimerd.daemon.access import Caller, Role
from reclaimerd.daemon.http_server import Answer, Call

Handler = Callable[[Call, Caller], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Route:
    """One call; a part of `path` in capitals stands for any name.

    `owner`: also for who asks about their own processes alone, where the policy has owners. `acts`: it
    changes something that people asked for, so the policy may demand a reason.
    """

    method: str
    path: str
    role: Role
    handler: Handler
    owner: bool = False
    acts: bool = False

    def fits(self, asked: str) -> bool:
        """Tell whether a path is this call's, whatever its method."""
        own, theirs = self.path.split("/"), asked.split("/")
        return len(own) == len(theirs) and all(
            part == given or (part.isupper() and given != "") for part, given in zip(own, theirs, strict=True)
        )
