"""The words of host.toml's `fail` tables: which calls may fail on a GPU, and how a reset may end."""

READING_CALLS = frozenset(
    [
        "handle",
        "identity",
        "memory",
        "processes",
        "process_memory",
        "utilisation",
        "samples",
        "mig",
        "persistence",
        "recovery_action",
    ],
)
FACT_CALLS = frozenset(
    [
        "generation",
        "links",
        "fabric",
        "virtualisation",
        "display_active",
        "drain_state",
        "mig_pending",
        "ecc",
        "remapped_rows",
        "settings",
    ],
)
"""What `read_reset_facts` reads besides; each may fail alone."""
TOOL_CALLS = frozenset({"reset", "set_persistence", "set_settings"})
FAILING_CALLS = READING_CALLS | FACT_CALLS | TOOL_CALLS
RESET_REFUSALS = frozenset({"in_use", "not_supported"})
RESET_AFTERMATHS = frozenset(
    ["lost", "lost_after", "other_index", "residue", "recovery_after", "silent", "xid_after", "ecc_after"],
)
"""A reset takes place, and something is wrong after it."""
CARELESS = "careless"
"""A driver that counts nobody and resets over them: shows what our own gate alone prevents."""
RESET_FAILURES = RESET_REFUSALS | RESET_AFTERMATHS | {"hang", CARELESS}
