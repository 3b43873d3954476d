"""The daemon, whose loop SIGUSR1 really blocks: the signal's own handler sleeps in the loop's thread."""

import signal
import time

from reclaimerd.daemon.main import main

if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, lambda *_: time.sleep(3600))
    main()
