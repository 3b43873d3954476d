"""What a reset must know of each GPU, read by a real pynvml over a fake driver library."""

import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.model.reading import Absent
from reclaimerd.observe.nvml_reset import _Gpu, _read_fabric
from tests.rigs.fake_libnvml import FakeDriver, build_fake_libnvml, why_unavailable

pytestmark = [
    pytest.mark.process,
    pytest.mark.skipif(bool(why_unavailable()), reason=why_unavailable() or "gcc is there"),
]
Start = Callable[..., FakeDriver]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the whole fake library."""
    return build_fake_libnvml(tmp_path_factory.mktemp("lib"))


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Give a starter of children, and end them."""
    started: list[FakeDriver] = []

    def begin(library: Path, **state: object) -> FakeDriver:
        driver = FakeDriver.start(tmp_path, library)
        started.append(driver)
        driver.set(**state)
        return driver

    yield begin
    for driver in started:
        driver.stop()


def known(value: object) -> dict[str, object]:
    """Return a known reading as plain values."""
    return {"value": value, "kind": "known"}


def unreadable(why: str) -> dict[str, object]:
    """Return an unreadable reading as plain values."""
    return {"why": why, "kind": "unreadable"}


def absent(why: str) -> dict[str, object]:
    """Return an absent reading as plain values."""
    return {"why": why, "kind": "absent"}


def only(told: dict[str, Any]) -> dict[str, Any]:
    """Return the facts of the one GPU."""
    assert len(told["facts"]) == 1, told
    facts: dict[str, Any] = told["facts"][0]
    return facts


def setting(facts: dict[str, Any], kind: str) -> tuple[object, bool]:
    """Return one setting's value, and whether it is the default."""
    found = next(one for one in facts["settings"] if one["kind"] == kind)
    return found["value"], found["is_default"]


def test_a_healthy_gpu_has_every_fact(library: Path, start: Start) -> None:
    """A bare H200: no links, no display, no drain, defaults everywhere; nothing is left unread."""
    facts = only(start(library).facts())
    assert (facts["uuid"], facts["pci_address"]) == ("GPU-0", "0000:3b:00.0")
    assert facts["generation"] == known("later")
    assert facts["links"] == known({"active": 0, "peers": [], "switched": False})
    assert facts["fabric"] == known("completed")
    assert facts["virtualisation"] == known("none")
    for flag in ("display_active", "drain_state", "mig_pending"):
        assert facts[flag] == known(value=False)
    assert facts["counters"] == {
        "uncorrected_ecc": known(0),
        "remapped_rows": known(0),
        "remap_failed": known(value=False),
    }
    assert setting(facts, "power_limit") == (known("700.00"), True)
    assert setting(facts, "compute_mode") == (known("0"), True)
    assert setting(facts, "accounting_mode") == (known("0"), True)
    assert setting(facts, "application_clocks") == (known("3201,1980"), True)


@pytest.mark.parametrize(
    ("number", "reading"),
    [
        (5, known("before_ampere")),
        (6, known("before_ampere")),
        (7, known("ampere")),
        (8, known("later")),
        (13, known("later")),
        (0xFFFFFFFF, unreadable("the driver does not know this GPU's architecture")),
    ],
)
def test_the_generation_follows_the_architecture(
    library: Path, start: Start, number: int, reading: dict[str, object]
) -> None:
    """Up to Turing, Ampere itself, all later; the driver's own "unknown" is never a generation."""
    assert only(start(library, gpu0_arch=number).facts())["generation"] == reading


def test_links_name_gpus_and_switches(library: Path, start: Start) -> None:
    """Active links only: two GPUs by their kernel address, a switch by its kind, an NPU by nothing."""
    facts = only(
        start(
            library,
            gpu0_link0=1, gpu0_link0_type=0, gpu0_link0_pci="00000000:AF:00.0",
            gpu0_link1=1, gpu0_link1_type=0, gpu0_link1_pci="00000000:5E:00.0",
            gpu0_link2=1, gpu0_link2_type=2,
            gpu0_link3=1, gpu0_link3_type=1,
            gpu0_link4=0, gpu0_link4_type=0,
        ).facts()
    )  # fmt: skip
    peers = ["0000:5e:00.0", "0000:af:00.0"]
    assert facts["links"] == known({"active": 4, "peers": peers, "switched": True})


@pytest.mark.parametrize(
    ("state", "why"),
    [
        ({"gpu0_link5_code": 999}, "NVLink 5: unknown error"),
        ({"gpu0_link1": 1, "gpu0_link1_type": 255}, "NVLink 1: what is at its other end is not told: "),
        ({"gpu0_link1": 1, "gpu0_link1_type_code": 15}, "NVLink 1: what is at its other end is not told: "),
        (
            {"gpu0_link1": 1, "gpu0_link1_type": 0, "gpu0_link1_pci_code": 999},
            "NVLink 1: what is at its other end is not told: unknown error",
        ),
        ({"gpu0_link1": 1, "gpu0_link1_type_code": 3}, "NVLink 1: what is at its other end is not told: "),
    ],
)
def test_one_link_that_is_not_told_hides_no_peer(
    library: Path, start: Start, state: dict[str, object], why: str
) -> None:
    """The whole is unreadable: fewer peers than there are would reset a GPU under its neighbour."""
    links = only(start(library, **state).facts())["links"]
    assert links["kind"] == "unreadable"
    assert links["why"].startswith(why)


def test_an_old_library_still_tells_a_peer_by_its_address(library: Path, start: Start) -> None:
    """Without the kind of the other end, an address of one of our own GPUs is a GPU."""
    told = start(
        library, count=2, gpu1_pci="00000000:AF:00.0",
        gpu0_link0=1, gpu0_link0_type_code=13, gpu0_link0_pci="00000000:AF:00.0",
    ).facts()  # fmt: skip
    assert told["facts"][0]["links"]["value"]["peers"] == ["0000:af:00.0"]


@pytest.mark.parametrize("code", [2, 3, 13])
def test_links_that_do_not_exist_are_no_fault(library: Path, start: Start, code: int) -> None:
    """Not supported, no such link, no such call: no active link."""
    assert only(start(library, gpu0_links=code).facts())["links"]["value"]["active"] == 0


@pytest.mark.parametrize(
    ("state", "reading"),
    [
        ({"gpu0_fabric": 1}, known("not_started")),
        ({"gpu0_fabric": 2}, known("in_progress")),
        ({"gpu0_fabric": 3, "gpu0_fabric_status": 999}, known("failed: unknown error")),
        ({"gpu0_fabric": 0}, absent("this GPU has no fabric")),
        ({"gpu0_fabric": 9}, unreadable("unknown fabric state 9")),
        ({"gpu0_fabric_code": 3}, absent("not supported")),
        ({"gpu0_fabric_code": 999}, unreadable("unknown error")),
    ],
)
def test_the_fabric_in_words(
    library: Path, start: Start, state: dict[str, object], reading: dict[str, object]
) -> None:
    """NVML's states, its probe's failure, and a GPU that has none."""
    assert only(start(library, **state).facts())["fabric"] == reading


@pytest.mark.parametrize(
    ("mode", "reading"),
    [
        (1, known("passthrough")),
        (2, known("vgpu_guest")),
        (3, known("vgpu_host")),
        (4, known("vgpu_host")),
        (9, unreadable("unknown virtualisation mode 9")),
    ],
)
def test_virtualisation_in_words(library: Path, start: Start, mode: int, reading: dict[str, object]) -> None:
    """A mode without a word is unreadable and refuses."""
    assert only(start(library, gpu0_virtual=mode).facts())["virtualisation"] == reading


def test_what_stands_against_a_reset_is_told(library: Path, start: Start) -> None:
    """A display, somebody's drain state, a MIG mode that waits for the reset, counters that rose."""
    facts = only(
        start(
            library, gpu0_display=1, gpu0_drain=1, gpu0_mig=0, gpu0_mig_pending=1, gpu0_ecc=7,
            gpu0_rows="1:2:0:1",
        ).facts()
    )  # fmt: skip
    for flag in ("display_active", "drain_state", "mig_pending"):
        assert facts[flag] == known(value=True)
    assert facts["counters"] == {
        "uncorrected_ecc": known(7),
        "remapped_rows": known(2),
        "remap_failed": known(value=True),
    }


def test_settings_that_differ_from_the_default_are_kept_as_the_tool_takes_them(
    library: Path, start: Start
) -> None:
    """Watts with two decimals, mode numbers, `memory,graphics`; one without a default is none."""
    facts = only(
        start(
            library, gpu0_limit=300000, gpu0_compute_mode=3, gpu0_accounting=1, gpu0_clock=1410,
            gpu0_default_limit_code=3,
        ).facts()
    )  # fmt: skip
    assert setting(facts, "power_limit") == (known("300.00"), False)
    assert setting(facts, "compute_mode") == (known("3"), False)
    assert setting(facts, "accounting_mode") == (known("1"), False)
    assert setting(facts, "application_clocks") == (known("3201,1410"), False)


CALLS = {
    "arch": "generation", "virtual": "virtualisation", "display": "display_active", "drain": "drain_state",
    "mig": "mig_pending", "fabric": "fabric",
}  # fmt: skip


@pytest.mark.parametrize("call", sorted(CALLS))
@pytest.mark.parametrize(("code", "kind"), [(3, "absent"), (999, "unreadable"), (4, "unreadable")])
def test_a_failed_call_is_one_reading_of_that_gpu(
    library: Path, start: Start, call: str, code: int, kind: str
) -> None:
    """The others of that GPU, and those of the next GPU, stand."""
    told = start(library, count=2, gpu1_pci="00000000:AF:00.0", **{f"gpu0_{call}_code": code}).facts()
    first, second = told["facts"]
    assert first[CALLS[call]]["kind"] == kind
    assert all(first[other]["kind"] == "known" for name, other in CALLS.items() if name != call)
    assert all(second[other]["kind"] == "known" for other in CALLS.values())


def test_failed_counters_and_settings_are_readings_too(library: Path, start: Start) -> None:
    """Nothing that could not be read is a zero or a default."""
    facts = only(
        start(
            library, gpu0_ecc_code=3, gpu0_rows_code=999, gpu0_limit_code=999, gpu0_clock_code=3,
            gpu0_compute_mode_code=4,
        ).facts()
    )  # fmt: skip
    assert facts["counters"] == {
        "uncorrected_ecc": absent("not supported"),
        "remapped_rows": unreadable("unknown error"),
        "remap_failed": unreadable("unknown error"),
    }
    assert setting(facts, "power_limit") == (unreadable("unknown error"), False)
    assert setting(facts, "application_clocks") == (absent("not supported"), False)
    assert setting(facts, "compute_mode") == (unreadable("no permission"), False)


def test_an_old_driver_lacks_the_calls_and_that_is_absent(
    tmp_path_factory: pytest.TempPathFactory, start: Start
) -> None:
    """Missing symbols refuse nothing; only the MIG mode, which is older, is known."""
    library = build_fake_libnvml(tmp_path_factory.mktemp("old"), ["NO_RESET_CALLS"])
    facts = only(start(library).facts())
    for name in ("generation", "fabric", "virtualisation", "display_active", "drain_state"):
        assert facts[name] == absent("the library lacks this call"), name
    assert facts["links"] == known({"active": 0, "peers": [], "switched": False})
    assert facts["mig_pending"] == known(value=False)
    assert {one["value"]["kind"] for one in facts["settings"]} == {"absent"}


def test_a_lost_gpu_keeps_its_identity_and_hides_nobody(library: Path, start: Start) -> None:
    """Seen before, lost now: blind facts with the reason, and the other GPU whole."""
    driver = start(library, count=2, gpu1_pci="00000000:AF:00.0")
    driver.read()
    driver.set(count=2, gpu1_pci="00000000:AF:00.0", gpu0_handle=15)
    facts = {one["uuid"]: one for one in driver.facts()["facts"]}
    assert facts["GPU-0"]["pci_address"] == "0000:3b:00.0"
    assert facts["GPU-0"]["generation"] == unreadable("GPU is lost")
    assert facts["GPU-0"]["counters"]["uncorrected_ecc"] == unreadable("GPU is lost")
    assert facts["GPU-1"]["generation"] == known("later")
    driver.set(count=1)
    facts = {one["uuid"]: one for one in driver.facts()["facts"]}
    assert facts["GPU-1"]["generation"] == unreadable("the driver no longer lists this GPU")


def test_nvml_is_left_as_it_was_found(library: Path, start: Start) -> None:
    """Let go again where it was not initialised; kept where it was."""
    driver = start(library)
    driver.facts()
    assert driver.log() == ["init", "shutdown"]
    driver.read()
    driver.facts()
    assert driver.log() == ["init", "shutdown", "init"]


def test_a_void_connection_is_made_anew_once(library: Path, start: Start) -> None:
    """After a driver upgrade the facts come from a second connection; what stays void is an error."""
    driver = start(library, stale_until_init=2)
    assert only(driver.facts())["generation"] == known("later")
    driver.close()
    driver.set(stale_until_init=99)
    assert driver.facts()["error"] == "ReclaimerdError"


def test_a_package_that_lacks_a_call_is_like_a_library_that_does() -> None:
    """An older nvidia-ml-py: absent, by the call's name, and no AttributeError."""
    module = types.ModuleType("pynvml")
    assert _Gpu(module, 1).ask("nvmlDeviceGetArchitecture") == Absent(
        "nvidia-ml-py lacks nvmlDeviceGetArchitecture"
    )
    assert _read_fabric(_Gpu(module, 1)) == Absent("nvidia-ml-py knows no fabric")
