"""The daemon, whose loop SIGUSR1 really blocks: its handler waits in that thread for what never comes."""

import select
import signal

from reclaimerd.daemon.main import main


def block(*_: object) -> None:
    """Never return: there is nothing that could come. Another signal's handler does not end it (PEP 475)."""
    select.select([], [], [])


if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, block)
    main()
