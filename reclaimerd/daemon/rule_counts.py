"""Counts what the rules say, pass by pass, for one record a day: what a rollout must know and no act shows.

Holds whole numbers and a bounded set of identities for each rule. It writes nothing: it gives the record
to whoever does, and starts anew only when that is durable.
"""

from collections import defaultdict
from dataclasses import dataclass, field

from reclaimerd.daemon.cycle import Cycle
from reclaimerd.errors import RecordError
from reclaimerd.judge.evaluate import Evaluation
from reclaimerd.judge.tally import RuleWord, rule_answers
from reclaimerd.model.audit_record import AuditEntry, RecordKind, RuleTally, Tally
from reclaimerd.model.identity import ProcessRef

EVERY_SECONDS = 86400.0
MOST_PROCESSES = 1000
"""As many different processes are told apart for a rule and word; the count stands still there."""
MOST_RULES = 200
"""As many rules go into one record; more make more records."""
_NAMED = frozenset({RuleWord.SPARED, RuleWord.LEFT_ALONE, RuleWord.UNDETERMINED})
_HELD = frozenset({RuleWord.DUE, RuleWord.SPARED, RuleWord.LEFT_ALONE, RuleWord.HOLDING})


@dataclass(slots=True)
class _Counts:
    """One rule's words so far, and whom some of them were about."""

    words: dict[RuleWord, int] = field(default_factory=lambda: dict.fromkeys(RuleWord, 0))
    refs: dict[RuleWord, set[ProcessRef]] = field(default_factory=lambda: {word: set() for word in _NAMED})


@dataclass(slots=True)
class RuleCounts:
    """The counts since the last record of them; `since` is wall-clock seconds."""

    since: float | None = None
    passes: int = 0
    digest: str = ""
    _by_rule: dict[str, _Counts] = field(default_factory=lambda: defaultdict(_Counts))

    def take(self, evaluation: Evaluation, wall: float) -> None:
        """Count one look's answers."""
        self.since = wall if self.since is None else self.since
        self.passes += 1
        for answer in rule_answers(evaluation):
            counts = self._by_rule[answer.rule]
            counts.words[answer.word] += 1
            named = counts.refs.get(answer.word)
            if named is not None and len(named) < MOST_PROCESSES:
                named.add(answer.ref)

    async def passed(self, cycle: Cycle) -> None:
        """Count the last look, and once a day, or under a new policy, put the counts on record first.

        What can't be recorded now goes on being counted, and is tried again.
        """
        snapshot, evaluation = cycle.state.snapshot, cycle.state.evaluation
        if snapshot is None or evaluation is None or cycle.joints.foreground:
            return
        wall, digest = snapshot.taken_at, cycle.policy.digest
        over = self.since is not None and not 0 <= wall - self.since < EVERY_SECONDS
        if over or (self.passes and digest != self.digest):
            try:
                await cycle.write(None, self.records())
            except RecordError:
                pass  # the pass itself says that nothing can be recorded
            else:
                self._clear()
        self.digest = digest if not self.passes else self.digest
        self.take(evaluation, wall)

    def records(self) -> tuple[AuditEntry, ...]:
        """Return the record of what was counted, more than one only where there are very many rules."""
        if self.since is None:
            return ()
        rules = [_tally(name, self._by_rule[name]) for name in sorted(self._by_rule)]
        parts = [tuple(rules[at : at + MOST_RULES]) for at in range(0, len(rules), MOST_RULES)] or [()]
        return tuple(
            AuditEntry(RecordKind.TALLY, tally=Tally(self.since, self.passes, self.digest, part))
            for part in parts
        )

    def _clear(self) -> None:
        self.since, self.passes = None, 0
        self._by_rule.clear()


def _tally(rule: str, counts: _Counts) -> RuleTally:
    words, refs = counts.words, counts.refs
    return RuleTally(
        rule=rule,
        looks=sum(words.values()),
        holding=sum(words[word] for word in _HELD),
        due=words[RuleWord.DUE],
        spared=words[RuleWord.SPARED],
        left_alone=words[RuleWord.LEFT_ALONE],
        undetermined=words[RuleWord.UNDETERMINED],
        spared_processes=len(refs[RuleWord.SPARED]),
        left_alone_processes=len(refs[RuleWord.LEFT_ALONE]),
        undetermined_processes=len(refs[RuleWord.UNDETERMINED]),
    )
