"""The policies of the end-to-end tests: one that holds nobody back, and changes to it."""

import json
from collections.abc import Mapping, Sequence

Table = Mapping[str, object]

OPEN: Mapping[str, Table] = {
    "daemon": {"mode": "enforce", "interval": "400ms"},
    "ladder": {
        "sigterm": "1s",
        "operator_sigterm": "1s",
        "sigkill": "1s",
        "exit_grace": "1s",
        "proof": "1s",
        "reset": "5s",
    },
    "gates": {"settling": "0s", "workload_cooldown": "0s", "gpu_cooldown": "0s"},
    "budgets": {"workloads_per_window": 200, "workloads_per_day": 200, "drains_per_day": 200},
    "breaker": {"workloads_per_pass": 200, "gpu_percent": 100},
}
"""A policy that holds nobody back, with waits of a second: each test closes the gate it is about.

The interval leaves room for a busy machine: a gap of three of them starts every `for` anew.
"""

RULE: Table = {
    "name": "over-cap",
    "above": "4GiB",
    "for": "400ms",
    "readings": 2,
    "mode": "enforce",
    "action": "reclaim",
    "stages": ["sigterm", "sigkill"],
    "grace": "1s",
    "match.uid": ["0-4294967294"],
}
"""A cap of 4 GiB for everybody."""


def rule(**changes: object) -> Table:
    """Return the rule with other values."""
    return {**RULE, **changes}


def policy_text(rules: Sequence[Table], tables: Mapping[str, Table]) -> str:
    """Return a policy file's text; a JSON string, list, number or boolean is a TOML one too."""
    lines: list[str] = []
    for name in sorted({*OPEN, *tables}):
        merged = {**OPEN.get(name, {}), **tables.get(name, {})}
        lines += [f"[{name}]", *(f"{key} = {json.dumps(value)}" for key, value in merged.items())]
    for one in rules:
        lines += ["[[rule]]", *(f"{key} = {json.dumps(value)}" for key, value in one.items())]
    return "\n".join(lines) + "\n"
