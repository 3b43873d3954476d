"""What a review looks for, and what of a record it compares: pure, for the scan and for the index alike.

Both ask the same functions about the same words, so the index can't find more or less than the scan.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

Json = dict[str, Any]
_GPU = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z./-]+", re.ASCII)
WORDS = ("kind", "incident", "actor", "action", "outcome", "pids", "gpus", "workload")
"""The fields of `Keys` that are words, in the order in which the index numbers them."""


class Keys(NamedTuple):
    """What of a record can be filtered by; "" and None where it has none.

    `actor` is kind, name and login, a line each; `pids` and `gpus` are lists between blanks; `workload` is
    what the target's job and pod are called (`workload_words`), a line each; `uid` is the target's. A tuple,
    since one is made for each record that is indexed.
    """

    at: float | None
    uid: int | None
    kind: str
    incident: str
    actor: str
    action: str
    outcome: str
    pids: str
    gpus: str
    workload: str


def no_limit() -> None:
    """Let a search take as long as it takes."""


@dataclass(frozen=True, slots=True)
class Filter:
    """What a record must have; "" and None ask nothing. Instants are wall seconds, `until` is not within.

    `gpu` is a UUID or its beginning; `actor` a name, a login's name (sudo seen through) or a kind (rule,
    operator, watch); `outcome` also
    takes an end, such as reclaimed; `text` stands anywhere in its words, in whatever case. `incidents` are
    several of which one is enough. `job` is a Slurm job's number, `pod` NAMESPACE/NAME or a uid. `kinds` only
    spares the reading of others: they may come all the same. `go_on` is called again and again while the log
    is searched, and raises where that takes too long.
    """

    since: float | None = None
    until: float | None = None
    pid: int | None = None
    uid: int | None = None
    gpu: str = ""
    actor: str = ""
    rule: str = ""
    action: str = ""
    outcome: str = ""
    incident: str = ""
    kind: str = ""
    text: str = ""
    job: str = ""
    pod: str = ""
    incidents: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    go_on: Callable[[], None] = field(default=no_limit, compare=False)

    def word_tests(self) -> tuple[str, ...]:
        """Return which words of a record are asked for."""
        asked = {
            "kind": self.kind,
            "incident": self.incident or self.incidents,
            "actor": self.actor or self.rule,
            "action": self.action,
            "outcome": self.outcome,
            "pids": self.pid is not None,
            "gpus": self.gpu,
            "workload": self.job or self.pod,
        }
        return tuple(word for word in WORDS if asked[word])

    def narrows(self) -> bool:
        """Tell whether anything but the text is asked for."""
        return bool(self.word_tests()) or (self.since, self.until, self.uid) != (None, None, None)

    def takes_word(self, word: str, text: str) -> bool:
        """Tell whether one word of a record, `word` being its name in WORDS, is what is asked for."""
        match word:
            case "actor":
                return self._takes_actor(text)
            case "pids":
                return f" {self.pid} " in text
            case "gpus":
                return f" {self.gpu}".lower() in text.lower()
            case "outcome":
                return self.outcome in text.split()
            case "workload":
                return self._takes_workload(text)
            case _:
                several = self.incidents if word == "incident" else frozenset()
                return getattr(self, word) in ("" if several else text, text) and text in (several or (text,))

    def _takes_actor(self, text: str) -> bool:
        kind, _, names = text.partition("\n")
        name, *login = names.split("\n")
        asked = self.actor in ("", kind, name, *login)
        return text != "" and asked and self.rule in ("", name if kind == "rule" else None)

    def _takes_workload(self, text: str) -> bool:
        asked = (f"{kind} {name}" for kind, name in (("job", self.job), ("pod", self.pod)) if name)
        return set(asked) <= set(text.split("\n"))

    def takes_keys(self, keys: Keys) -> bool:
        """Tell whether all but the text is as asked."""
        if self.uid is not None and keys.uid != self.uid:
            return False
        if (self.since is not None or self.until is not None) and not self._takes_instant(keys.at):
            return False
        return all(self.takes_word(word, getattr(keys, word)) for word in self.word_tests())

    def _takes_instant(self, at: float | None) -> bool:
        if at is None or (self.since is not None and at < self.since):
            return False
        return self.until is None or at < self.until

    def takes(self, record: Json) -> bool:
        """Tell whether a record is what is asked for."""
        self.go_on()
        if self.narrows() and not self.takes_keys(keys_of(record)):
            return False
        return not self.text or any(self.text.lower() in text.lower() for text in texts_of(record))

    def sieve(self) -> Callable[[bytes], bool]:
        """Return what tells quickly whether bytes may hold a line that is asked for, as we write lines."""
        words = (self.incident, self.action, self.outcome, self.kind, self.actor, self.rule, self.job)
        one = max((*words, self.pod.rpartition("/")[2], "" if self.pid is None else str(self.pid)), key=len)
        needles = [json.dumps(word)[1:-1].encode("ascii") for word in ([one] if one else self.incidents)]
        folded = json.dumps(self.text.lower())[1:-1].encode("ascii") if self.text.isascii() else b""

        def may_hold(content: bytes) -> bool:
            self.go_on()
            if needles and not any(needle in content for needle in needles):
                return False
            return not folded or folded in content.lower()

        return may_hold


def keys_of(record: Json) -> Keys:
    """Return what a record can be found by; what has not the form of ours gives nothing."""
    actor, target = table_of(record, "actor"), table_of(record, "target")
    outcome = table_of(record, "outcome")
    uid = target.get("uid")
    name = "\n".join(word_of(actor, key) for key in ("kind", "name", "login")) if actor else ""
    return Keys(
        instant_of(record),
        uid if isinstance(uid, int) and 0 <= uid < 1 << 32 else None,
        word_of(record, "kind"),
        word_of(record, "incident"),
        name,
        word_of(record, "action"),
        " ".join(word for word in (word_of(outcome, "kind"), word_of(record, "end")) if word),
        _listed(str(pid) for pid in _pids(record, target, outcome)),
        _listed(gpu for gpu in _gpus(record, target)),
        "\n".join(workload_words(target)),
    )


def workload_words(target: Json) -> Iterator[str]:
    """Yield what a target's job and pod are called: `job 4711`, `pod NAMESPACE/NAME`, `pod UID`.

    Names that a path could forge are not on record at all (`Workload.trusted`).
    """
    names = table_of(table_of(target, "workload"), "names")
    job, pod, uid = (word_of(names, key) for key in ("job_id", "pod", "pod_uid"))
    space = word_of(names, "namespace")
    yield from (f"job {job}",) if job else ()
    yield from (f"pod {space}/{pod}",) if space and pod else ()
    yield from (f"pod {uid}",) if uid else ()


def word_of(table: Json, key: str) -> str:
    """Return a text of a table, "" when there is none."""
    value = table.get(key)
    return value if isinstance(value, str) else ""


def table_of(record: Json, key: str) -> Json:
    """Return a table of a record, an empty one when there is none."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def tables_of(table: Json, key: str) -> Iterator[Json]:
    """Return the tables of a list."""
    value = table.get(key)
    return (one for one in value if isinstance(one, dict)) if isinstance(value, list) else iter(())


def instant_of(record: Json) -> float | None:
    """Return when a record was written, in wall seconds, or None."""
    try:
        return datetime.fromisoformat(word_of(record, "at")).timestamp()
    except (ValueError, OverflowError):
        return None


def _listed(words: Iterator[str]) -> str:
    """Return words between blanks, each once."""
    found = dict.fromkeys(words)
    return f" {' '.join(found)} " if found else ""


def _pids(record: Json, target: Json, outcome: Json) -> Iterator[int]:
    refs = [table_of(target, "root"), *tables_of(target, "members")]
    refs += [table_of(one, "ref") for one in tables_of(outcome, "targets")]
    for refusal in tables_of(record, "refusals"):
        refs += tables_of(refusal, "processes")
    return (ref["pid"] for ref in refs if isinstance(ref.get("pid"), int))


def _gpus(record: Json, target: Json) -> Iterator[str]:
    named = target.get("gpus")
    yield from (gpu for gpu in named if isinstance(gpu, str)) if isinstance(named, list) else ()
    refused = (word_of(refusal, "gpu") for refusal in tables_of(record, "refusals"))
    yield from (gpu for gpu in refused if gpu)
    notes = record.get("evidence")
    texts = [word_of(record, "reason"), *(notes if isinstance(notes, list) else ())]
    for text in texts:
        if isinstance(text, str) and ("GPU-" in text or "MIG-" in text):
            yield from (found.rstrip(".-") for found in _GPU.findall(text))


def texts_of(value: object) -> Iterator[str]:
    """Return every text in a record, however deep; names of fields are none."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            waiting.extend(one.values())
        elif isinstance(one, list):
            waiting.extend(one)
