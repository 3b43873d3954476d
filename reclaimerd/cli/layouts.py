"""What gives way on a narrow screen in the tables of looking: figures and names, no identity."""

from reclaimerd.cli.tables import Layout

GPU_SHOWN = 12
"""As much of a UUID as tells GPUs of one host apart, for tables."""
GPUS = Layout(cut=(("UUID", GPU_SHOWN + 1), ("NAME", 11)), drop=("PCI", "UTIL"), folds=True)
PS = Layout(
    cut=(("USER", 12), ("WORKLOAD", 12), ("VERDICT", 10), ("COMMAND", 12)),
    drop=("SHARE", "ALLOC", "UTIL", "STATE", "AGE"),
)
OPEN_INCIDENTS = Layout(cut=(("TARGET", 16), ("GPUS", GPU_SHOWN + 1)), drop=("SINCE",))
INCIDENTS = Layout(cut=(("OPENED", 20), ("BY", 12), ("GPUS", GPU_SHOWN + 1)), drop=("GPUS", "BY"), folds=True)
BREAKERS = Layout(cut=(("BREAKER", GPU_SHOWN + 1), ("SINCE", 20)), folds=True)
KILL = Layout(cut=(("USER", 12), ("WORKLOAD", 12)), folds=True)
ALONG = Layout(cut=(("USER", 12), ("PROGRAM", 16)), drop=("WITH",), folds=True)
FACTS = Layout(folds=True)
