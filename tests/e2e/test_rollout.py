"""A rule for a share of the hosts, from the policy file to the signal that does not come, and its report."""

import pytest

from tests.e2e.rig import is_alive, rule, signals_in, simulated_host

pytestmark = [pytest.mark.slow, pytest.mark.process]


def test_outside_of_its_share_a_rule_stays_in_dry_run_and_the_report_says_what_it_would_do() -> None:
    """Nothing is sent, `status` says which host this is, and the counts are on record at the end."""
    with simulated_host(rule(enforce_on="0%")) as rig:
        daemon = rig.start_daemon()
        pid, path = rig.recorder()
        assert rig.wait_record("outcome", pid=pid)["outcome"]["kind"] == "dry_run"
        rig.passes(2)
        assert (is_alive(pid), signals_in(path)) == (True, [])
        staged = {"rule": "over-cap", "percent": 0, "enforces_here": False, "mode": "enforce"}
        assert rig.ask("/v1/status")["staged"] == [staged]
        said = rig.begin("status").result(20.0).out
        assert "rule over-cap: dry run here: 0 % of hosts enforce" in said
        daemon.stop()
        counted = rig.wait_record("tally")["tally"]
        assert counted["passes"] > 0
        assert [one["rule"] for one in counted["rules"]] == ["over-cap"]
        (report,) = rig.ctl("rollout", "report").answer["rules"]
        assert (report["targets"], report["fates"]["at_once"], report["mode"]) == (1, 1, "dry-run")
        assert report["tally"]["due"] > 0
        assert report["advice"]["word"] == "too_short"
        assert rig.verify_audit().code == 0


def test_where_every_host_enforces_the_same_rule_acts() -> None:
    """The whole share is no share: the rule that the other test holds back sends its signal."""
    with simulated_host(rule(enforce_on="100%", grace="600s")) as rig:
        rig.start_daemon()
        pid, path = rig.recorder()
        assert rig.wait_record("outcome", pid=pid)["outcome"]["kind"] == "sent"
        rig.passes(1)
        assert "SIGTERM" in signals_in(path)
        assert rig.ask("/v1/status")["staged"] == []
