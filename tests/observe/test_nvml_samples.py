"""Shares over a fake driver library: nvidia-ml-py's odd errors, old samples and nonsense."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.observe.nvml_samples import sampled_seconds
from tests.rigs.fake_libnvml import FakeDriver, build_fake_libnvml, why_unavailable

Start = Callable[..., FakeDriver]
TWO = {"gpu0_compute": "70:200,71:50"}

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable() or "gcc is there"),
]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the whole fake library."""
    return build_fake_libnvml(tmp_path_factory.mktemp("lib"))


@pytest.fixture
def start(tmp_path: Path, library: Path) -> Iterator[Start]:
    """Give a starter of children, and end them."""
    started: list[FakeDriver] = []

    def begin(lib: Path = library, **state: object) -> FakeDriver:
        driver = FakeDriver.start(tmp_path, lib)
        started.append(driver)
        driver.set(**{**TWO, **state})
        return driver

    yield begin
    for driver in started:
        driver.stop()


def shares(answer: dict[str, Any]) -> list[object]:
    """Return what the two processes of the first GPU use: a number, or why there is none."""
    rows = answer["gpus"][0]["processes"]["value"]
    return [row["sm_percent"].get("value", row["sm_percent"].get("why")) for row in rows]


NO_PERCENTAGE = "the driver gives no percentage"
BUSY = "the GPU is 42 % busy, and no sample says with what"


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ({"gpu0_samples": "70:60,71:3"}, [60, 3]),
        ({"gpu0_samples": "70:60,70:20,70:70"}, [70, 0]),
        ({"gpu0_samples": "70:60:9,71:5:11"}, [60, 0]),
        ({"gpu0_samples": "70:0:0:80"}, [80, 0]),
        ({"gpu0_samples": "70:60,71:101"}, [60, NO_PERCENTAGE]),
        (
            {"gpu0_samples": "71:4000000000,71:5"},
            ["the driver's samples make no sense", "the driver gives no percentage"],
        ),
        ({}, [BUSY, BUSY]),
        ({"gpu0_utilisation": 0}, [0, 0]),
        ({"gpu0_utilisation": 0, "gpu0_samples_code": 6}, [0, 0]),
        ({"gpu0_samples_code": 6}, [BUSY, BUSY]),
        ({"gpu0_samples_code": 3}, ["not supported"] * 2),
        ({"gpu0_samples_code": 4}, ["no permission"] * 2),
        ({"gpu0_samples_code": 999}, ["unknown error"] * 2),
        ({"gpu0_samples": "70:60", "gpu0_samples_grow": 1}, [60, 0]),
        ({"gpu0_samples": "70:60", "gpu0_samples_grow": 9}, ["the list grew while it was read"] * 2),
        ({"gpu0_samples": "70:60", "gpu0_mig": 1}, ["not offered while MIG is enabled"] * 2),
    ],
)
def test_shares(start: Start, state: dict[str, object], expected: list[object]) -> None:
    """What each used, an encoder's work too; no sample, a failure and nonsense each as what they are."""
    assert shares(start(**state).shares()) == expected


def test_the_next_look_asks_back_to_the_one_before(start: Start) -> None:
    """The driver averages over what is asked for: the second look sees no more than the last 2 s."""
    driver = start(gpu0_samples="70:60:5", gpu0_utilisation=0)
    assert shares(driver.shares()) == [60, 0]
    assert shares(driver.shares()) == [0, 0]
    driver.set(**TWO, gpu0_samples="70:60:0.5", gpu0_utilisation=0)
    assert shares(driver.shares()) == [60, 0]


@pytest.mark.parametrize(
    ("since_last", "expected"), [(None, 10.0), (0.2, 2.0), (2.0, 3.0), (30.0, 31.0), (900.0, 60.0)]
)
def test_how_far_back_is_asked(since_last: float | None, expected: float) -> None:
    """To the look before and a second more, at least 2 s and at most a minute."""
    assert sampled_seconds(since_last) == expected


def test_shares_are_not_asked_for_unless_wanted(start: Start) -> None:
    """A look without an idle rule costs no such call."""
    assert shares(start(gpu0_samples="70:60").read()) == ["not asked in this look"] * 2


def test_a_void_connection_is_made_anew(start: Start) -> None:
    """As for every call: a stale connection is nobody's share."""
    answer = start(gpu0_samples_code=18).shares()
    assert answer["error"] == "ReclaimerdError"


def test_an_old_library_has_no_shares(tmp_path: Path, start: Start) -> None:
    """A library without the call offers none, and all else is read."""
    folder = tmp_path / "old"
    folder.mkdir()
    old = build_fake_libnvml(folder, ["NO_SAMPLES"])
    assert shares(start(old).shares()) == ["the library lacks this call"] * 2
    assert start(old, count=0).shares()["gpus"] == []
