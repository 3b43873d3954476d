"""Takes GPUs back from processes that will not give them up, one proven step at a time."""

__version__ = "0.2.0"
