"""How a container came by its GPU, in words for a record: no secret of its environment is among them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.host.grant_text import MOST_GRANTS, grants_of_bundle, grants_of_docker

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)
DENY_ALL = {"allow": False, "access": "rwm"}
KEYS = st.sampled_from(["env", "capabilities", "bounding", "devices", "resources", "path", "allow", "major"])


def a_bundle(env: list[str] | None = None, **parts: Any) -> dict[str, Any]:
    """Return the parts of an OCI bundle that matter."""
    process = {"env": env or [], "capabilities": {"bounding": parts.get("caps", ["CAP_KILL"])}}
    linux = {"devices": parts.get("nodes", []), "resources": {"devices": parts.get("rules", [DENY_ALL])}}
    return {"process": process, "linux": linux}


def test_the_thiefs_variable_is_named_and_no_other() -> None:
    """What the toolkit goes by; a token beside it stays where it is."""
    found = grants_of_bundle(
        a_bundle(["NVIDIA_VISIBLE_DEVICES=all", "API_TOKEN=hush", "NVIDIA_API_KEY=hush"])
    )
    assert found == ("NVIDIA_VISIBLE_DEVICES=all",)


def test_an_old_image_that_says_nothing_is_told() -> None:
    """CUDA_VERSION alone is `all` to the toolkit; with a requirement or the variable itself it is not."""
    (line,) = grants_of_bundle(a_bundle(["CUDA_VERSION=9.0"]))
    assert "toolkit takes that for all" in line
    assert grants_of_bundle(a_bundle(["CUDA_VERSION=9.0", "NVIDIA_REQUIRE_CUDA=cuda>=9.0"])) == ()
    assert grants_of_bundle(a_bundle(["CUDA_VERSION=9.0", "NVIDIA_VISIBLE_DEVICES=void"])) == (
        "NVIDIA_VISIBLE_DEVICES=void",
    )


def test_a_privileged_container_shows_by_capability_and_rules() -> None:
    """CAP_SYS_ADMIN, and a rule without numbers that allows (C58)."""
    found = grants_of_bundle(
        a_bundle(caps=["CAP_SYS_ADMIN"], rules=[DENY_ALL, {"allow": True, "access": "rwm"}])
    )
    assert any("CAP_SYS_ADMIN" in line for line in found)
    assert "its device rules allow every device" in found


def test_rules_and_nodes_of_the_driver_are_told() -> None:
    """Device nodes by path, rules by number; mknod alone and other majors open nothing of ours."""
    rules = [
        DENY_ALL,
        {"allow": True, "type": "c", "major": 195, "minor": 1, "access": "rw"},
        {"allow": True, "type": "c", "major": 195, "access": "rwm"},
        {"allow": True, "type": "c", "major": -1, "minor": -1, "access": "m"},
        {"allow": True, "type": "c", "major": 1, "minor": 3, "access": "rwm"},
    ]
    nodes = [{"path": "/dev/nvidia1"}, {"path": "/dev/null"}, {"path": "/dev/nvidiactl"}]
    assert grants_of_bundle(a_bundle(nodes=nodes, rules=rules)) == (
        "device nodes /dev/nvidia1 /dev/nvidiactl",
        "its device rules allow 195:1 195:*",
    )


def test_docker_says_as_much_as_its_environment() -> None:
    """Its record keeps device rules elsewhere."""
    assert grants_of_docker({"Env": ["NVIDIA_VISIBLE_DEVICES=0,1\n"]}) == ("NVIDIA_VISIBLE_DEVICES=0,1\\x0a",)
    assert grants_of_docker({}) == ()


@pytest.mark.parametrize(
    "config", [{}, {"process": 5, "linux": []}, {"process": {"env": [5]}, "linux": {"devices": [5]}}]
)
def test_a_config_in_another_form_says_nothing(config: dict[str, Any]) -> None:
    """Nothing raises."""
    assert grants_of_bundle(config) == ()


@given(st.fixed_dictionaries({"process": st.dictionaries(KEYS, JSON), "linux": st.dictionaries(KEYS, JSON)}))
def test_no_config_raises_and_what_is_told_is_bounded(config: dict[str, Any]) -> None:
    """Whatever stands there: a few short printable lines."""
    found = grants_of_bundle(config)
    assert len(found) <= MOST_GRANTS
    assert all(line.isprintable() and len(line) < 1000 for line in found)
