"""What a process uses of its GPU: a missing sample is zero only where something else accounts for it."""

import pytest

from reclaimerd.host.gpu_shares import Samples, with_shares
from reclaimerd.model.reading import Absent, Known, Reading, Unreadable
from reclaimerd.model.snapshot import ContextKind, GpuProcess, Utilisation

NOBODY: Samples = {}
IDLE = Known(Utilisation(0, 3))


def a_row(pid: int, context: ContextKind = ContextKind.COMPUTE) -> GpuProcess:
    """Return a row that holds something."""
    return GpuProcess(pid, Known(1), context)


def shares(
    samples: Reading[Samples], utilisation: Reading[Utilisation], *rows: GpuProcess
) -> dict[int, Reading[int]]:
    """Return what each row uses; without rows there are two, 7 and 8."""
    found = with_shares(Known(rows or (a_row(7), a_row(8))), samples, utilisation)
    assert isinstance(found, Known)
    return {row.pid: row.sm_percent for row in found.value}


def busy(percent: int) -> Reading[Utilisation]:
    """Return a GPU that is so busy."""
    return Known(Utilisation(percent, 0))


def test_a_sample_is_the_share() -> None:
    """Also one of 0; and the other, without one, is at rest when the first accounts for the GPU."""
    assert shares(Known({7: 60}), busy(90)) == {7: Known(60), 8: Known(0)}
    assert shares(Known({7: 0, 8: 100}), busy(100)) == {7: Known(0), 8: Known(100)}


@pytest.mark.parametrize(
    ("samples", "utilisation", "expected"),
    [
        (NOBODY, IDLE, Known(0)),
        (NOBODY, busy(1), Unreadable("the GPU is 1 % busy, and no sample says with what")),
        (NOBODY, Unreadable("hung"), Unreadable("whether the GPU is idle can't be read")),
        (NOBODY, Absent("MIG"), Unreadable("whether the GPU is idle can't be read")),
        ({8: 5}, Unreadable("hung"), Known(0)),
        ({8: 0}, Unreadable("hung"), Unreadable("whether the GPU is idle can't be read")),
        ({8: 44}, busy(90), Unreadable("the GPU is 90 % busy, and no sample says with what")),
        ({8: 45}, busy(90), Known(0)),
        ({99: 90}, busy(90), Unreadable("the GPU is 90 % busy, and no sample says with what")),
        ({99: None}, IDLE, Unreadable("the driver's samples make no sense")),
        ({7: None}, IDLE, Unreadable("the driver gives no percentage")),
    ],
)
def test_without_a_sample(
    samples: Samples, utilisation: Reading[Utilisation], expected: Reading[int]
) -> None:
    """C34, C75: zero only if the GPU is idle or the listed others account for it; nonsense spoils all."""
    assert shares(Known(samples), utilisation)[7] == expected


def test_what_is_not_offered_or_not_read_is_that_for_everybody() -> None:
    """C63: MIG has no shares; a failed call has none either; without a list there is nobody to have one."""
    for failed in (Absent("MIG"), Unreadable("lost")):
        assert shares(failed, IDLE) == {7: failed, 8: failed}
        assert with_shares(failed, Known({}), IDLE) == failed


def test_under_mps_nobody_is_known_to_be_idle() -> None:
    """C71: the server may be booked with its clients' work."""
    rows = (a_row(7, ContextKind.MPS), a_row(8))
    assert shares(Known({7: 3}), busy(3), *rows) == {
        7: Unreadable("its work may be counted as the MPS server's"),
        8: Known(0),
    }
