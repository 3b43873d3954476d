"""host.toml: what is written is read, and a faulty file says all that is wrong with it."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import fields, replace
from pathlib import Path

import pytest

from reclaimerd.errors import UnsuitableHostError
from reclaimerd.simulation.host import (
    SimulatedGpu,
    SimulatedHost,
    change_simulated_host,
    read_simulated_host,
    write_simulated_host,
)
from reclaimerd.simulation.toml_table import size_bytes


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """Every field survives the way through the file, hostile names too."""
    gpu = SimulatedGpu(
        "GPU-a", 'A "quoted"\nname', 5, "0000:01:00.0", 1, "/dev/null", "gpu_reset", True, True, 9,
        "ampere", ("GPU-b",), True, "completed", "vgpu_host", True, True, True, 3, 2, True,
        "300.00", "3", "1", "1,2", 7, True,
    )  # fmt: skip
    assert all(getattr(gpu, one.name) != one.default for one in fields(gpu))
    host = SimulatedHost(
        gpus=(gpu, SimulatedGpu("GPU-b", "B", 5, "0000:02:00.0", device="/dev/null")),
        fail={"GPU-a": {"memory": "no permission", "reset": "hang"}},
        shared_devices=("/dev/zero",),
        slow_seconds=0.5,
        hang=True,
        block_on="/x",
        all_processes=True,
        driver_version="550.1",
        slow_reset_seconds=0.5,
    )
    write_simulated_host(tmp_path, host)
    assert read_simulated_host(tmp_path) == host
    assert [path.name for path in tmp_path.iterdir()] == ["host.toml"]


def test_a_hand_written_file_needs_little(tmp_path: Path) -> None:
    """A GPU needs uuid, total and device; sizes may have units."""
    (tmp_path / "host.toml").write_text('[[gpu]]\nuuid = "GPU-a"\ntotal = "16GiB"\ndevice = "/dev/null"\n')
    gpu = read_simulated_host(tmp_path).gpus[0]
    assert (gpu.total_bytes, gpu.pci, gpu.persistence) == (16 << 30, "0000:01:00.0", False)


def test_every_fault_is_named_at_once(tmp_path: Path) -> None:
    """Wrong types, unknown keys, missing keys and a failure of an unknown call come together."""
    lines = ["slow = -1", "speed = 3", 'fail = {"GPU-x" = {}}']
    lines += ["[[gpu]]", 'uuid = "GPU-a"', 'total = "16 apples"', 'mig = "no"']
    (tmp_path / "host.toml").write_text("\n".join(lines))
    with pytest.raises(UnsuitableHostError) as caught:
        read_simulated_host(tmp_path)
    for word in (
        "slow",
        "speed",
        "GPU-x",
        "16 apples",
        "gpu 0: mig",
        "gpu 0: device: is missing",
        "host.toml",
    ):
        assert word in caught.value.message


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ('generation = "old"', "generation: one of ampere"),
        ('virtualisation = "some"', "virtualisation: one of"),
        ('power_limit = "much"', "power_limit: must be written as '700.00' is"),
        ('application_clocks = "fast"', "application_clocks"),
        ('peers = ["a"]', "peers: 'a' is no other GPU"),
        ('peers = ["b"]', "peers: 'b' is no other GPU"),
        ('residue = "some"', "residue"),
        ('lost = "yes"', "lost: must be true or false"),
        ("remapped_rows = -1", "remapped_rows"),
    ],
)
def test_each_wrong_value_of_a_gpu_is_a_fault(tmp_path: Path, line: str, word: str) -> None:
    """Words, forms and UUIDs are checked, not believed."""
    (tmp_path / "host.toml").write_text(f'[[gpu]]\nuuid="a"\ntotal=1\ndevice="d"\n{line}\n')
    with pytest.raises(UnsuitableHostError) as caught:
        read_simulated_host(tmp_path)
    assert word in caught.value.message


def test_two_changes_at_once_both_hold(tmp_path: Path) -> None:
    """Read, change and write is one step: none of many hands loses another's change."""
    write_simulated_host(tmp_path, SimulatedHost((SimulatedGpu("a", "A", 1, device="d"),)))

    def add(_: int) -> None:
        change_simulated_host(tmp_path, lambda host: replace(host, slow_seconds=host.slow_seconds + 1))

    with ThreadPoolExecutor(4) as hands:
        list(hands.map(add, range(40)))
    assert read_simulated_host(tmp_path).slow_seconds == 40


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("gpu = 3", "[[gpu]]"),
        ("= 3", "not TOML"),
        ("fail = 3", "fail"),
        ('[[gpu]]\nuuid="a"\ntotal=1\ndevice="d"\n[fail.a]\nflight="x"\nreset="never"', "flight"),
        ('[[gpu]]\nuuid="a"\ntotal=1\ndevice="d"\n[[gpu]]\nuuid="a"\ntotal=1\ndevice="d"', "same uuid"),
    ],
)
def test_a_broken_file_is_one_sentence(tmp_path: Path, text: str, word: str) -> None:
    """Neither bad TOML nor a wrong shape is a traceback."""
    (tmp_path / "host.toml").write_text(text)
    with pytest.raises(UnsuitableHostError) as caught:
        read_simulated_host(tmp_path)
    assert word in caught.value.message


def test_no_simulation_is_said_with_its_mend(tmp_path: Path) -> None:
    """A directory without host.toml is no simulated host."""
    with pytest.raises(UnsuitableHostError) as caught:
        read_simulated_host(tmp_path / "nowhere")
    assert "no simulated host" in caught.value.message
    assert caught.value.mend


@pytest.mark.parametrize(("text", "number"), [("4GiB", 4 << 30), ("1.5 KiB", 1536), ("12", 12), ("7B", 7)])
def test_sizes(text: str, number: int) -> None:
    """Sizes are binary; a bare number is bytes."""
    assert size_bytes(text) == number


@pytest.mark.parametrize("text", ["", "GiB", "1.2.3GiB", "4GB", "-1", "."])
def test_what_is_no_size(text: str) -> None:
    """Anything else is refused, decimal units too: they are not what people mean."""
    with pytest.raises(ValueError, match="no size"):
        size_bytes(text)
