"""What a value may be that only rules have; each takes what TOML gave and returns it typed."""

import math
import re

from reclaimerd.config.units import BadValueError, parse_size, quoted
from reclaimerd.config.values import choice, listed, percent, shape_of
from reclaimerd.model.policy import RuleAction

MOST_IDLE_PERCENT = 50.0
"""Who uses half of a GPU is not idle, whatever the policy would like."""
MOST_PRIORITY = 1000
MOST_SCORE = 100.0
MOST_PORT = 65535
_SECONDS_PER = {"s": 1, "m": 60, "h": 3600}
_RATE = re.compile(r"(.+)/(s|m|h)", re.ASCII)


def rate(value: object) -> float:
    """Return bytes a second from `50MiB/s`, `1GiB/m` or `1GiB/h`."""
    mend = 'write a size and a time, such as "50MiB/s", "1GiB/m" or "2GiB/h"'
    if not isinstance(value, str):
        raise BadValueError(f"{shape_of(value)} stands in the place of a rate", mend)
    found = _RATE.fullmatch(value.strip())
    if found is None:
        raise BadValueError(f"{quoted(value)} is not a rate", mend)
    size = parse_size(found[1])
    if size == 0:
        raise BadValueError("a rate of zero takes every holder that does not shrink", mend)
    return size / _SECONDS_PER[found[2]]


def idle_share(value: object) -> float:
    """Return the percent of a GPU up to which its holder is idle, at most half of it."""
    share = percent(value)
    if share > MOST_IDLE_PERCENT:
        mend = f"write a number from 0 to {MOST_IDLE_PERCENT:g}, such as 5"
        raise BadValueError(f"who uses {share:g} % of a GPU is not idle", mend)
    return share


def priority(value: object) -> int:
    """Return a rank among rules: the higher goes first."""
    mend = f"write a whole number from -{MOST_PRIORITY} to {MOST_PRIORITY}, higher goes first"
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadValueError(f"{shape_of(value)} stands in the place of a whole number", mend)
    if not -MOST_PRIORITY <= value <= MOST_PRIORITY:
        raise BadValueError(f"{value} is out of range", mend)
    return value


def score(value: object) -> float:
    """Return how many signs a miner must show, by their weights."""
    mend = f"write a number above 0, at most {MOST_SCORE:g}, such as 1.0"
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise BadValueError(f"{shape_of(value)} stands in the place of a number", mend)
    if not (math.isfinite(value) and 0 < value <= MOST_SCORE):
        raise BadValueError(f"{value} is out of range: every holder, or none, would reach it", mend)
    return float(value)


def port(value: object) -> int:
    """Return the number of a TCP port."""
    mend = f"write a whole number from 1 to {MOST_PORT}"
    if isinstance(value, bool) or not isinstance(value, int):
        raise BadValueError(f"{shape_of(value)} stands in the place of a port", mend)
    if not 1 <= value <= MOST_PORT:
        raise BadValueError(f"{value} is out of range", mend)
    return value


def some_listed(value: object) -> object:
    """Return a list for one text that stands in its place; an empty list is neither always nor never."""
    if value == []:
        raise BadValueError("the list is empty", "name at least one, or leave the key out")
    return listed(value)


def only_observes(value: object) -> RuleAction:
    """Return `observe`, all that a sign may lead to."""
    if value in (RuleAction.WARN, RuleAction.RECLAIM):
        what = f"what such a rule sees is a sign and no proof: it does not {value}"
        raise BadValueError(what, 'write action = "observe", or leave it out')
    return RuleAction(choice(RuleAction.OBSERVE)(value))


def only_warns(value: object) -> RuleAction:
    """Return `observe` or `warn`, all that a score may lead to."""
    if value == RuleAction.RECLAIM:
        raise BadValueError(
            "what looks like a miner may be none: such a rule never reclaims", 'write action = "warn"'
        )
    return RuleAction(choice(RuleAction.OBSERVE, RuleAction.WARN)(value))
