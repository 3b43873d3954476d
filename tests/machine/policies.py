"""The policies that a reload may bring: waits of seconds, budgets of a host in service."""

from dataclasses import replace
from pathlib import Path

from reclaimerd.model.policy import (
    BreakerSettings,
    BudgetSettings,
    FaultRule,
    GateSettings,
    LadderSettings,
    ListedStage,
    Mode,
    Policy,
    Rule,
    UserProtection,
)
from tests.builders import a_policy, a_rule
from tests.machine.world import CLIENT_UNIT, SHIELDED_UID

OVER_CAP = a_rule(
    "over-cap",
    stages=(ListedStage.SIGTERM, ListedStage.SIGKILL, ListedStage.RESET, ListedStage.DRAIN),
    sigterm_seconds=6.0,
    sigkill_seconds=6.0,
)
MEND = FaultRule("mend", xid_classes=("reset", "lost", "reboot"), for_seconds=0.0, mode=Mode.ENFORCE)


def a_host_policy(folder: Path) -> Policy:
    """Return the policy by which a host starts."""
    policy = a_policy(
        OVER_CAP,
        fault_rules=(MEND,),
        digest="whole",
        protections=(UserProtection("shielded", uids=((SHIELDED_UID, SHIELDED_UID),)),),
        ladder=LadderSettings(
            sigterm_seconds=6.0,
            operator_sigterm_seconds=6.0,
            sigkill_seconds=6.0,
            exit_grace_seconds=12.0,
            proof_seconds=8.0,
            reset_seconds=40.0,
        ),
        gates=GateSettings(
            settling_seconds=5.0,
            workload_cooldown_seconds=20.0,
            gpu_cooldown_seconds=60.0,
            hold_files=(str(folder / "HOLD"),),
        ),
        budgets=BudgetSettings(workloads_per_window=2, window_seconds=1800.0, workloads_per_day=4),
        breaker=BreakerSettings(workloads_per_pass=2, gpu_percent=100.0),
    )
    drain = replace(
        policy.drain,
        driver_alarm_seconds=20.0,
        driver_drain_seconds=60.0,
        auto_withdraw=True,
        settling_seconds=20.0,
    )
    reset = replace(policy.reset, stop_units=(CLIENT_UNIT,), unit_seconds=5.0, verify_seconds=5.0)
    return replace(policy, drain=drain, reset=reset)


def variant(policy: Policy, name: str) -> Policy:
    """Return another policy of the same host by its name."""
    match name:
        case "observe":
            return replace(policy, mode=Mode.OBSERVE, digest=name)
        case "dry run":
            return replace(policy, mode=Mode.DRY_RUN, digest=name)
        case "no cap":
            return replace(policy, rules=(_quiet(),), digest=name)
        case "cap observes":
            return replace(policy, rules=(replace(OVER_CAP, mode=Mode.OBSERVE),), digest=name)
        case "no mend":
            return replace(policy, fault_rules=(), digest=name)
        case _:
            return policy


def _quiet() -> Rule:
    return a_rule("nobody-breaks-it", above=10**15)


VARIANTS = ("whole", "whole", "observe", "dry run", "no cap", "cap observes", "no mend")
