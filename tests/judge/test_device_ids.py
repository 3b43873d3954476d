"""Device ids of every plugin: each leads to its GPU or to a sentence, and never to another GPU."""

import pytest
from hypothesis import given, strategies

from reclaimerd.judge.device_ids import Place, place_of
from reclaimerd.model.allocation import AllocatedDevice, MigDevice, may_be_gpu
from reclaimerd.model.reading import Known, Unreadable
from tests.builders import GPU_A, GPU_B, a_gpu

MIG = "MIG-41b3359c-e721-56e5-8009-12e5797ed514"
GPUS = (a_gpu(GPU_A), a_gpu(GPU_B, mig_devices=Known((MigDevice(MIG, 3, 0),))))


def placed(name: str, resource: str = "nvidia.com/gpu") -> Place | str:
    """Return where one id leads on a host with two GPUs, the second with one MIG device."""
    return place_of(AllocatedDevice(resource, name), GPUS)


@pytest.mark.parametrize(
    ("name", "place"),
    [
        (GPU_A, Place(GPU_A)),
        (f"{GPU_A}::0", Place(GPU_A, replica=True)),
        (f"{GPU_A}-12", Place(GPU_A, replica=True)),
        ("GPU-dddddddd-0000-0000-0000-000000000000", Place(None)),
        (MIG, Place(GPU_B, 3, 0)),
        (f"{MIG}::2", Place(GPU_B, 3, 0, replica=True)),
        (f"MIG-{GPU_B}/5/0", Place(GPU_B, 5, 0)),
        ("nvidia0", Place(GPU_A)),
        ("nvidia1/gi3", Place(GPU_B, 3)),
        ("nvidia0/vgpu1", Place(GPU_A, replica=True)),
        ("nvidia1/gi3/vgpu1", Place(GPU_B, 3, replica=True)),
        ("nvidia7", Place(None)),
    ],
)
def test_each_known_form_leads_to_its_gpu(name: str, place: Place) -> None:
    """NVIDIA's UUIDs, MIG devices new and old, replicas, HAMi's numbers and GKE's minors."""
    assert placed(name) == place


@pytest.mark.parametrize(
    "name",
    ["tegra", "", "0", "0000:3b:00.0", f"{GPU_A}::", f"{GPU_A}x", f"{GPU_A}::0::1", "nvidia", "nvidia0/gi",
     "MIG-11111111-e721-56e5-8009-12e5797ed514", f"{GPU_A.upper()}"],
)  # fmt: skip
def test_an_unknown_form_is_a_sentence(name: str) -> None:
    """It is never guessed, also when it begins like one that is known."""
    assert isinstance(placed(name), str)


def test_a_mig_device_of_an_unreadable_gpu_is_not_guessed() -> None:
    """When the instances can't be read nothing is known of the device."""
    blind = (a_gpu(GPU_A, mig_devices=Unreadable("driver unresponsive")),)
    assert isinstance(place_of(AllocatedDevice("nvidia.com/mig-1g.10gb", MIG), blind), str)


@given(strategies.text(max_size=80))
def test_no_id_raises_or_leads_to_a_gpu_that_it_does_not_name(name: str) -> None:
    """Whatever the text: a place has a GPU of this host only if the id names it by UUID or minor."""
    place = placed(name)
    if isinstance(place, Place) and place.gpu is not None:
        assert str(place.gpu) in name or name.startswith(("nvidia", MIG))


@pytest.mark.parametrize(
    ("resource", "name", "expected"),
    [
        ("nvidia.com/gpu", "nvidia0", True),
        ("nvidia.com/gpu.shared", f"{GPU_A}::1", True),
        ("nvidia.com/mig-1g.10gb", MIG, True),
        ("example.com/renamed", GPU_A, True),
        ("rdma/hca_shared", "0000:3b:00.0", False),
        ("intel.com/qat", "GPUX", False),
    ],
)
def test_which_devices_can_be_gpus(resource: str, name: str, *, expected: bool) -> None:
    """By the vendor's resource names, and by ids that only GPUs have; other devices are passed over."""
    assert may_be_gpu(AllocatedDevice(resource, name)) is expected
