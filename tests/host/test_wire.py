"""What goes over a worker's socket, or into the store, comes back equal."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from reclaimerd.host.wire import Decoder, to_json, to_wire
from reclaimerd.model.audit_record import AuditEntry
from reclaimerd.model.drain import DrainRequest
from reclaimerd.model.identity import DeviceNumber, FileIdentity, GpuUuid, ProcessRef
from reclaimerd.model.incident import Incident, Outcome, Stage, Target
from reclaimerd.model.ledger import Ledger
from reclaimerd.model.memory import Baseline, RememberedHolder
from reclaimerd.model.process import (
    NodeHolding,
    ProcessLook,
    ScanResult,
    ScanRow,
)
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import (
    GpuMemory,
    HostGpus,
)
from reclaimerd.model.step import Permit, Reason, Refusal
from reclaimerd.model.verdict import Verdict
from tests.builders import a_process

_MODEL = [
    AuditEntry, Baseline, DrainRequest, HostGpus, Incident, Ledger, Outcome, Permit, ProcessLook,
    Reason, Refusal, RememberedHolder, ScanResult, Target, Verdict,
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class _Mixed:
    """A value with a set, a mapping by name and one by number."""

    stages: frozenset[Stage]
    by_gpu: Mapping[GpuUuid, int]
    by_pid: Mapping[int, str]


def _register_plain_values() -> None:
    """Let hypothesis build floats and text that JSON has, and typed readings."""
    st.register_type_strategy(float, st.floats(allow_nan=False, allow_infinity=False))
    st.register_type_strategy(str, st.text(st.characters(codec="utf-8"), max_size=20))
    st.register_type_strategy(Known, lambda kind: st.builds(Known, st.from_type(get_args(kind)[0])))


_register_plain_values()


@pytest.mark.parametrize("kind", _MODEL, ids=lambda kind: kind.__name__)
def test_every_model_value_comes_back_equal(kind: type[Any]) -> None:
    """Whatever value of a model type is written, by text or by object, reads back equal."""
    decoder = Decoder(kind)

    @settings(max_examples=25, deadline=None, suppress_health_check=list(HealthCheck), database=None)
    @given(st.from_type(kind))
    def comes_back(value: object) -> None:
        text = to_json(value)
        assert decoder.decode(text) == value
        assert decoder.from_object(json.loads(text)) == value

    comes_back()


def test_unknown_never_becomes_zero() -> None:
    """Known(0), Unreadable and Absent stay three different things over the wire."""
    decoder = Decoder(ProcessLook)
    readings: tuple[Reading[tuple[NodeHolding, ...]], ...] = (Known(()), Unreadable("no"), Absent("never"))
    for nodes in readings:
        look = ProcessLook(a_process(), nodes)
        back = decoder.decode(to_json(look))
        assert type(back.nodes) is type(nodes)
        assert back == look


def test_sets_and_mappings_come_back_and_are_sorted() -> None:
    """Equal values give equal text, whatever order a set iterates in."""
    one = _Mixed(frozenset({Stage.SIGTERM, Stage.DRAIN, Stage.RESET}), {GpuUuid("GPU-1"): 5}, {7: "x"})
    assert json.loads(to_json(one))["stages"] == ["drain", "reset", "sigterm"]
    assert Decoder(_Mixed).decode(to_json(one)) == one


def test_a_name_that_is_no_unicode_still_travels() -> None:
    """A hostile name with odd bytes is escaped: it can't break the reading of its process."""
    hostile = b"/tmp/\xff\xfe evil".decode("utf-8", "surrogateescape")
    text = to_json(Unreadable(hostile))
    assert Decoder(Unreadable).decode(text).why == "/tmp/\\udcff\\udcfe evil"


def test_what_has_no_wire_form_is_refused() -> None:
    """An object of no model type, a mapping keyed by a value, and NaN are errors, not guesses."""
    with pytest.raises(TypeError, match="object has no wire form"):
        to_wire(object())
    with pytest.raises(TypeError, match="keyed by FileIdentity"):
        to_wire({FileIdentity(1, 2): "x"})
    with pytest.raises(TypeError, match="keyed by bool"):
        to_wire({True: 1})
    with pytest.raises(ValueError, match="JSON compliant"):
        to_json(float("nan"))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "Invalid JSON"),
        ('{"boot_id":"b","pid":1}', "start_ticks: Field required"),
        ('{"boot_id":"b","pid":"many","start_ticks":2}', "pid: Input should be a valid integer"),
    ],
)
def test_an_error_is_one_short_sentence(text: str, says: str) -> None:
    """A wrong text is a ValueError that names the field, and does not repeat the input."""
    with pytest.raises(ValueError, match="not a ProcessRef: ") as caught:
        Decoder(ProcessRef).decode(text)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "many" not in str(caught.value)


def test_many_faults_are_counted_not_listed() -> None:
    """A thoroughly wrong object gives three faults and a number."""
    with pytest.raises(ValueError, match=r"and \d+ more"):
        Decoder(ScanRow).from_object({"pid": "x", "start_ticks": "y", "nodes": [1, 2, 3]})


def test_scan_rows_keep_their_kinds() -> None:
    """Nested tuples of dataclasses come back as tuples of dataclasses."""
    scan = ScanResult((ScanRow(7, 9, (NodeHolding(DeviceNumber(195, 0), mapped=True),)),), ("pid 3: no",), 12)
    assert Decoder(ScanResult).from_object(to_wire(scan)) == scan
    assert Decoder(GpuMemory).from_object(to_wire(GpuMemory(3, 2, 1))) == GpuMemory(3, 2, 1)


def test_writing_costs_no_pydantic() -> None:
    """A worker that only writes never imports pydantic (10 MiB)."""
    script = (
        "import sys; from reclaimerd.host.wire import Decoder, to_json;"
        "from reclaimerd.model.identity import ProcessRef; Decoder(ProcessRef);"
        "to_json(ProcessRef('b', 1, 2)); print('pydantic' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
