"""The commands that review the audit log: filters, stories, following, figures, exports, hostile names."""

import csv
import gzip
import io
import json
import os
import select
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from reclaimerd.cli.audit_story import story_lines
from reclaimerd.cli.main import run
from reclaimerd.host.proc_text import printable
from reclaimerd.model.audit_record import AuditEntry, RecordKind
from reclaimerd.record.audit_index import INDEX_NAME
from reclaimerd.record.audit_keeping import pack_full_files
from tests.builders import WALL
from tests.record.log_rig import Log, a_note
from tests.record.review_rig import GPU_A, HOSTILE, append, stories
from tests.rigs.other_user import as_user

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = [sys.executable, "-m", "reclaimerd.cli.main", "audit"]
NOBODY = 65534


@pytest.fixture
def log(tmp_path: Path) -> Log:
    """Return a log of 12 incidents, its full files packed."""
    made = stories(tmp_path / "log")
    pack_full_files(made.directory)
    return made


def call(log: Log, *words: str) -> int:
    """Run `reclaimctl audit` on this log."""
    return run(["audit", *words, "--log-dir", str(log.directory), "--state-dir", str(log.directory)])


def listed(log: Log, capsys: pytest.CaptureFixture[str], *words: str) -> list[int]:
    """Return the numbers of what `audit list` gives."""
    assert call(log, "list", "--json", *words) == 0
    return [record["seq"] for record in json.loads(capsys.readouterr().out)["records"]]


@pytest.mark.parametrize(
    ("words", "count"),
    [
        (["--incident", "inc-3"], 5),
        (["--pid", "103", "--kind", "outcome"], 1),
        (["--user", "1001"], 20),
        (["--user", "root"], 0),
        (["--gpu", "GPU-bbbbbbbb"], 30),
        (["--rule", "leak", "--limit", "7"], 7),
        (["--actor", "operator"], 1),
        (["--action", "sigkill", "--outcome", "sent"], 12),
        (["--since", "2027-01-15T19:00:00Z", "--until", "2027-01-15T20:00:00Z"], 5),
        (["--until", "2027-01-15T10:30:00+00:00", "--rule", "leak"], 10),
        (["--text", "fallen OFF the bus"], 1),
        (["--text", '\n4243, Forged,"x"\u202e', "--no-index", "--limit", "100"], 60),
    ],
)
def test_each_filter_narrows_the_list(
    log: Log, capsys: pytest.CaptureFixture[str], words: list[str], count: int
) -> None:
    """Each filter, by its own words on the command line; records come oldest first."""
    found = listed(log, capsys, *words)
    assert len(found) == count
    assert found == sorted(found)


@pytest.mark.parametrize("option", ["--incident", "--action", "--actor", "--gpu", "--text"])
def test_a_word_that_is_no_text_is_looked_for_and_not_found(
    log: Log, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    """A byte of another encoding, as a shell gives it, with an index as without one."""
    assert call(log, "index") == 0
    assert call(log, "list", option, "\udcff") == 0
    assert capsys.readouterr().out.endswith("no records\n")


def test_the_newest_or_the_oldest(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    """A limit takes the newest; --oldest the first ones."""
    assert listed(log, capsys, "--rule", "leak", "--oldest", "--limit", "2") == [1, 2]
    newest = listed(log, capsys, "--limit", "2")
    assert newest[0] > 60


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--since", "yesterday"], "neither an instant"),
        (["--since", "99999d"], "neither an instant"),
        (["--user", "no-such-user"], "give the uid"),
        (["--pid", "0"], "0 is not in the range"),
        (["--limit", "0"], "0 is not in the range"),
        (["--kind", "refusal"], "one of started, "),
        (["--kind", "\udcff"], "one of started, "),
    ],
)
def test_wrong_values_are_exit_2_with_what_to_write(
    log: Log, capsys: pytest.CaptureFixture[str], words: list[str], says: str
) -> None:
    """A value that can't be read is one sentence, and nothing is listed."""
    assert call(log, "list", *words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert says in err


def test_the_story_of_an_incident_has_why_gates_steps_evidence_and_end(
    log: Log, capsys: pytest.CaptureFixture[str]
) -> None:
    """Everything that is on record of one incident is told, in order."""
    assert call(log, "show", "inc-3") == 0
    out = capsys.readouterr().out
    wanted = (
        "incident inc-3: reclaimed", "took 7s", "pid 103@1030", "(uid 1000)", f"{GPU_A}, held",
        "asked by  rule leak (policy dddddddddddd)", "why       it leaks 3 MiB/s", "what happened",
        "incident_opened: it leaks 3 MiB/s", "seen twice", "+1s       refused sigterm",
        "refused (paused): acts are paused; reclaimctl resume", "intent sigkill", "gate mode: enforce",
        "outcome sigkill sent", "pid 103@1030: sent: signal 9", "incident_ended reclaimed: proven",
        "end: reclaimed", "proof: exclusive: gone, and its memory is back", f"left on {GPU_A}: 0 B",
    )  # fmt: skip
    places = [out.find(word) for word in wanted]
    assert -1 not in places, wanted[places.index(-1)]
    assert call(log, "show", "inc-3", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["incident"], len(answer["records"])) == ("inc-3", 5)
    assert answer["story"][0] == "incident inc-3: reclaimed"


def test_a_story_without_an_end_says_so(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An incident that is open, or whose end was cut off, is not told as ended."""
    log = stories(tmp_path / "log", 1)
    log.put(log.lines()[:2])
    assert call(log, "show", "inc-1") == 0
    assert "no end on record" in capsys.readouterr().out


@pytest.mark.parametrize(
    "value", [7, True, 1.5, "x", {}, [3], [[]], [[1, 2]], [[[], 1]], [[{}, 1], [GPU_A, "x"]]]
)
def test_a_forged_record_is_told_as_far_as_it_has_our_form(value: object) -> None:
    """The story of a log that somebody else wrote breaks off nowhere."""
    record = {
        "kind": "incident_ended", "end": "reclaimed", "proof": {"kind": "exclusive", "residual_bytes": value},
        "target": {"gpus": [GPU_A], "held_bytes": value},
    }  # fmt: skip
    told = "\n".join(story_lines("inc-1", [record]))
    assert f"{GPU_A}, held unknown" in told
    assert "proof: exclusive" in told


def test_an_unknown_incident_is_exit_6(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    """No record names it: said, with how to find the names."""
    assert call(log, "show", "inc-\x1b[2Jx") == 6
    out, err = capsys.readouterr()
    assert out == ""
    assert "\x1b" not in err
    assert "audit list shows" in err


def test_statistics_in_words_and_json(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    """Each grouping has its table, and JSON the same figures."""
    assert call(log, "stats") == 0
    out = capsys.readouterr().out
    assert [line.split()[0] for line in out.splitlines() if "P95" in line] == [
        "TOTAL",
        "RULE",
        "USER",
        "GPU",
        "DAY",
    ]
    assert call(log, "stats", "--since", "2027-01-15T19:00:00Z", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (answer["total"]["incidents"], answer["total"]["reclaimed"], answer["total"]["refusals"]) == (
        2,
        2,
        2,
    )
    assert answer["rule"][0]["name"] == "leak"
    assert answer["total"]["seconds_to_reclaim_p95"] == pytest.approx(16)


def test_csv_gives_every_cell_back_and_no_formula(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    """C83: commas, quotes and line ends stay in their cell; nothing is taken as a formula by a sheet."""
    append(log, AuditEntry(RecordKind.NOTE, reason='=HYPERLINK("x")'))
    assert call(log, "export", "--format", "csv") == 0
    out = capsys.readouterr().out
    rows = list(csv.DictReader(io.StringIO(out)))
    assert len(rows) == len(listed(log, capsys, "--limit", "1000"))
    assert {row["command"] for row in rows} == {printable(HOSTILE.replace("\udcff", "\\udcff")), ""}
    assert {row["pid"] for row in rows if row["incident"] == "inc-3"} == {"103"}
    assert rows[-1]["reason"] == '\'=HYPERLINK("x")'
    assert all(line.isprintable() for line in out.splitlines())


def test_jsonl_is_the_very_lines(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    """Each exported line is the record's own, so that its hash can still be checked."""
    assert call(log, "export", "--rule", "leak") == 0
    lines = capsys.readouterr().out.encode().splitlines(keepends=True)
    whole = b"".join(
        gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        for path in (*sorted(log.directory.glob("audit-*.gz")), log.path)
    )
    assert len(lines) == 60
    assert all(line in whole for line in lines)


@pytest.mark.parametrize(
    "words",
    [
        ["list", "--limit", "100"],
        ["list", "--json", "--limit", "100"],
        ["show", "inc-3"],
        ["show", "inc-3", "--json"],
        ["export"],
        ["export", "--format", "csv"],
        ["stats"],
        ["stats", "--json"],
    ],
)
def test_c83_no_hostile_name_reaches_the_terminal(
    log: Log, capsys: pytest.CaptureFixture[str], words: list[str]
) -> None:
    """C83: whatever names hold, output is printable lines, also of a record that somebody forged raw."""
    hostile = AuditEntry(RecordKind.NOTE, reason=HOSTILE, action=HOSTILE, end=HOSTILE, evidence=(HOSTILE,))
    append(log, hostile, wall=WALL + 99 * 3600)
    raw = json.dumps(
        {"kind": "note", "incident": "inc-3", "reason": "\x9b31m\u202e", "at": 5}, ensure_ascii=False
    )
    with log.path.open("ab") as stream:
        stream.write(raw.encode() + b"\n")
    assert call(log, *words) == 0
    out, err = capsys.readouterr()
    assert out
    assert all(line.isprintable() for line in (*out.split("\n"), *err.split("\n")))
    if words[0] == "list" and "--json" not in words:
        assert "NOT AS IT WAS WRITTEN" in out


def test_an_edited_record_is_shown_as_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whoever changed a record is not helped by the review: it says so in words, JSON, CSV and story."""
    log = stories(tmp_path / "log", 1)
    log.path.write_bytes(log.path.read_bytes().replace(b"signal 9", b"signal 0"))
    for words in (["list"], ["list", "--json"], ["show", "inc-1"], ["export"], ["export", "--format", "csv"]):
        assert call(log, *words) == 0
        assert "its bytes do not match its hash" in capsys.readouterr().out


def test_verify_with_an_anchor_file_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Who holds only the anchor file sees a cut tail, and is not told to find a store."""
    anchors = tmp_path / "anchors"
    log = Log(tmp_path / "log", anchor_file=str(anchors))
    for number in range(3):
        audit = log.open()
        audit.append([a_note(str(number))], wall=WALL, mono=1.0)
        audit.close()
    assert call(log, "verify", "--anchor", str(anchors)) == 0
    out, err = capsys.readouterr()
    assert f"compared with 3 of 3 anchors in {anchors}" in out
    assert err == ""
    log.put(log.lines()[:-1])
    assert call(log, "verify") == 0
    capsys.readouterr()
    assert call(log, "verify", "--anchor", str(anchors), "--json") == 9
    answer = json.loads(capsys.readouterr().out)
    assert f"the log ends with record 2, {anchors} knows record 3 (cut)" in answer["faults"][0]
    assert answer["anchors_compared"] == 2


@pytest.mark.parametrize("content", [b"", b"no anchor at all\n", None])
def test_a_file_without_an_anchor_proves_nothing(
    log: Log, tmp_path: Path, capsys: pytest.CaptureFixture[str], content: bytes | None
) -> None:
    """An empty, wrong or missing anchor file is exit 2, and the log is not called intact."""
    if content is not None:
        (tmp_path / "anchors").write_bytes(content)
    assert call(log, "verify", "--anchor", str(tmp_path / "anchors")) == 2
    assert "intact" not in capsys.readouterr().out


def test_the_index_is_made_and_made_anew(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    """`audit index` says how much it added; --rebuild begins from nothing; the list is the same by it."""
    without = listed(log, capsys, "--pid", "103")
    assert call(log, "index", "--json") == 0
    added = json.loads(capsys.readouterr().out)["added"]
    assert added >= 62
    assert call(log, "index") == 0
    assert capsys.readouterr().out.endswith(": 0 records added\n")
    assert call(log, "index", "--rebuild", "--json") == 0
    assert json.loads(capsys.readouterr().out)["added"] == added
    assert listed(log, capsys, "--pid", "103") == without


def test_a_log_that_is_not_there(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Where nothing was recorded yet, reviews are empty and make nothing."""
    log = Log(tmp_path / "none")
    for words in (["list", "--pid", "3"], ["stats"], ["export"], ["export", "--format", "csv"]):
        assert call(log, *words) == 0
    assert call(log, "index") == 1
    assert "can't be read" in capsys.readouterr().err
    assert not log.directory.exists()


@contextmanager
def following(log: Log, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    """Follow a log in a process of its own, which has begun when this yields."""
    argv = [*PROGRAM, "follow", "--log-dir", str(log.directory), *words]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, bufsize=0) as child:
        try:
            assert child.stderr is not None
            assert b"following" in child.stderr.readline()
            yield child
        finally:
            child.kill()


def read_line(child: subprocess.Popen[bytes]) -> bytes:
    """Return the next line within a bound."""
    assert child.stdout is not None
    assert select.select([child.stdout], [], [], 20)[0], "nothing came"
    return child.stdout.readline()


@pytest.mark.process
def test_follow_prints_new_records_over_a_rotation_and_ends_with_its_reader(tmp_path: Path) -> None:
    """New records come as they are written, whatever file they are in; a closed pipe ends it with exit 0."""
    log = Log(tmp_path / "log", file_bytes=1200)
    head = log.write(2)
    with following(log, "--json") as child:
        seen: list[int] = []
        for _ in range(6):
            head = log.write(1, anchor=head)
            while not seen or seen[-1] < head.seq:
                seen.append(json.loads(read_line(child))["seq"])
        assert len(list(log.directory.glob("audit-*"))) >= 2
        assert seen == list(range(3, head.seq + 1))
        assert child.stdout is not None
        child.stdout.close()
        assert child.wait(20) == 0
        assert child.stderr is not None
        assert child.stderr.read() == b""


@pytest.mark.process
def test_follow_makes_one_printable_line_of_a_hostile_record(tmp_path: Path) -> None:
    """C83: a record with line ends and escapes is one line."""
    log = Log(tmp_path / "log")
    log.write(1)
    with following(log) as child:
        append(log, AuditEntry(RecordKind.NOTE, reason=HOSTILE))
        line = read_line(child).decode()
    assert line.endswith("\n")
    assert line[:-1].isprintable()
    assert "forged" in line


@pytest.mark.process
def test_a_reader_that_goes_away_early_is_no_error(log: Log) -> None:
    """`audit export | head -1` ends quietly."""
    argv = [*PROGRAM, "export", "--log-dir", str(log.directory)]
    with subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.close()
        assert child.stderr is not None
        assert child.stderr.read() == b""
        assert child.wait(20) == 0


def as_nobody(folder: Path, log: Log, *words: str) -> tuple[int, str, str]:
    """Return exit code, stdout and stderr of `reclaimctl audit` as a user without any right."""
    return as_user(folder, NOBODY, [NOBODY], lambda: call(log, *words))


@pytest.mark.root
@pytest.mark.process
@pytest.mark.skipif(os.geteuid() != 0, reason="needs another user")
def test_who_may_only_read_is_served_and_writes_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A reader lists, tells and counts; export and index are exit 4, and nothing is written."""
    log = stories(tmp_path / "log")
    for path in (log.directory, *log.directory.parents):
        if len(path.parts) > 2 and path.parts[1] == "tmp":
            path.chmod(path.stat().st_mode | 0o055)
    for path in log.directory.iterdir():
        path.chmod(0o644)
    served = (["list", "--pid", "103"], ["show", "inc-3"], ["stats"])
    for words in (*served, ["export"], ["export", "--format", "csv"], ["index"]):
        assert call(log, *words) == 0
    capsys.readouterr()
    (log.directory / INDEX_NAME).unlink()
    before = {path.name: path.stat().st_mtime_ns for path in log.directory.iterdir()}
    for words in served:
        code, out, err = as_nobody(tmp_path, log, *words)
        assert (code, err) == (0, "")
        assert "inc-3" in out or words == ["stats"]
    for words in (["export"], ["export", "--format", "csv"], ["index"]):
        code, out, err = as_nobody(tmp_path, log, *words)
        assert (code, out) == (4, "")
        assert "run this as root" in err
    assert {path.name: path.stat().st_mtime_ns for path in log.directory.iterdir()} == before


def test_an_age_is_counted_from_now(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """--since 2h takes what is an hour old, and not what is three hours old."""
    log = Log(tmp_path / "log")
    now = time.time()
    for hours in (3, 1):
        append(log, a_note(f"{hours} h old"), wall=now - hours * 3600)
    assert listed(log, capsys, "--since", "2h") == [2]
    assert listed(log, capsys, "--until", "2h") == [1]


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0 or not shutil.which("mount"), reason="mounting needs root")
def test_a_read_only_disk_is_reviewed_without_an_index(
    log: Log, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Where nothing can be written, the same records are found by reading the log."""
    place = tmp_path / "mounted"
    place.mkdir()
    subprocess.run(["/usr/bin/mount", "--bind", str(log.directory), str(place)], check=True, timeout=10)
    try:
        subprocess.run(["/usr/bin/mount", "-o", "remount,bind,ro", str(place)], check=True, timeout=10)
        there = Log(place)
        assert len(listed(there, capsys, "--pid", "103")) == 5
        assert call(there, "show", "inc-3") == 0
        assert call(there, "index") in (1, 4)
        assert call(there, "verify") == 0
    finally:
        subprocess.run(["/usr/bin/umount", "--lazy", str(place)], check=True, timeout=10)


def test_a_story_that_is_longer_than_asked_for_says_so(log: Log, capsys: pytest.CaptureFixture[str]) -> None:
    """The first records, that there are more, and the way to all; nothing of it when all are told."""
    assert call(log, "show", "inc-3", "--limit", "4") == 0
    err = capsys.readouterr().err
    assert "only the first 4 records are told" in err
    assert "reclaimctl audit export --incident inc-3" in err
    assert call(log, "show", "inc-3", "--limit", "4", "--json") == 0
    answer = json.loads(capsys.readouterr().out)
    assert (len(answer["records"]), answer["more"]) == (4, True)
    assert call(log, "show", "inc-3", "--limit", "5", "--json") == 0
    out, err = capsys.readouterr()
    assert (json.loads(out)["more"], err) == (False, "")


def test_anchors_of_several_hosts_want_one_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What a receiver keeps of a fleet: exit 2 without a name, and the right host's heads with one."""
    log, kept = Log(tmp_path / "log"), tmp_path / "kept"
    head = log.write(3)
    lines = [{"host": "gpu-1", "seq": 3, "hash": head.hash}, {"host": "gpu-2", "seq": 3, "hash": "0" * 64}]
    kept.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert call(log, "verify", "--anchor", str(kept)) == 2
    out, err = capsys.readouterr()
    assert "intact" not in out
    assert "--anchor-host" in err
    assert call(log, "verify", "--anchor", str(kept), "--anchor-host", "gpu-1") == 0
    assert call(log, "verify", "--anchor", str(kept), "--anchor-host", "gpu-2") == 9
    assert call(log, "verify", "--anchor", str(kept), "--anchor-host", "gpu-3") == 2


@pytest.mark.parametrize("name", ["", " "])
def test_a_story_needs_an_incident(log: Log, capsys: pytest.CaptureFixture[str], name: str) -> None:
    """An empty word is wrong usage: no story is told that was put together from everybody's records."""
    assert call(log, "show", name) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "reclaimctl audit list" in err
