"""The package's file is sound, users' tables come first, and each fault is told with its place."""

import re
from pathlib import Path
from typing import Any

import pytest

from reclaimerd.config import signatures as module
from reclaimerd.config.signatures import BUILT_IN, load_signatures
from reclaimerd.errors import ConfigError
from reclaimerd.model.policy import FaultDomain, Signature

PAGES = Path(__file__).parents[2] / "docs" / "runbooks" / "signatures"
OWN = {
    "name": "own_place",
    "title": "our place",
    "meaning": "It hangs.",
    "mend": "reboot",
    "fault_domain": "hardware",
    "symbols": ["own_wait*"],
}


def faults_of(*tables: dict[str, Any]) -> tuple[str, ...]:
    """Return the faults of these tables of a policy."""
    with pytest.raises(ConfigError) as caught:
        load_signatures(tables)
    return caught.value.faults


def test_the_package_has_the_places_that_are_known() -> None:
    """Each with a title, a meaning, a mend and a domain; none permits a reset."""
    names = [signature.name for signature in load_signatures()]
    assert names[0] == "uvm_spin_loop"
    assert {"close_waits_for_rm_lock", "ioctl_waits_for_rm_mutex", "gsp_rpc_timeout", "deferred_close"} < set(
        names
    )
    assert names.index("gpu_driver") > max(
        names.index(name) for name in ("nvidia_close", "uvm_release", "rm_lock_wait")
    )
    assert all(signature.forbids_reset for signature in load_signatures())
    assert all(
        signature.issue == "" or signature.issue.startswith("https://") for signature in load_signatures()
    )


@pytest.mark.parametrize(
    "name", ["fuse_flush", "fuse_request", "nfs_wait", "core_dump_pipe", "cgroup_freezer"]
)
def test_what_users_can_cause_is_the_workloads(name: str) -> None:
    """A user who can hang a task in a mount of his own must not drain a node by it."""
    found = next(signature for signature in load_signatures() if signature.name == name)
    assert found.fault_domain is FaultDomain.WORKLOAD


def test_each_signature_has_its_runbook_and_the_list_is_whole() -> None:
    """One page per name, linked from the folder's own page, with the four parts of a runbook."""
    names = {signature.name for signature in load_signatures()}
    assert {page.stem for page in PAGES.glob("*.md")} == names | {"README"}
    linked = re.findall(r"\((\w+)\.md\)", (PAGES / "README.md").read_text(encoding="utf-8"))
    assert sorted(linked) == sorted(names)
    for name in names:
        text = (PAGES / f"{name}.md").read_text(encoding="utf-8")
        headings = re.findall(r"^## (.+)$", text, re.MULTILINE)
        assert headings == ["What it means", "How to see it", "What to do", "What not to do"], name
        assert f"`{name}`" in text


def test_an_administrators_place_comes_first_and_may_replace_ours() -> None:
    """As a table or as the policy's typed value; by name it takes the place of one of ours."""
    found = load_signatures([OWN, {**OWN, "name": "uvm_spin_loop"}])
    assert [one.name for one in found[:2]] == ["own_place", "uvm_spin_loop"]
    assert [one.name for one in found].count("uvm_spin_loop") == 1
    typed = Signature("typed", "t", "m", "m", FaultDomain.DRIVER, modules=("x",))
    assert load_signatures([typed])[0] is typed
    assert found[0] == Signature(
        "own_place", "our place", "It hangs.", "reboot", FaultDomain.HARDWARE, symbols=("own_wait*",)
    )


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"colour": 1}, "signature[0].colour: is no key of a signature"),
        ({"title": ""}, "signature[0].title: is missing"),
        ({"mend": None}, "signature[0].mend: is missing"),
        ({"issue": 3}, "signature[0].issue: must be text"),
        ({"symbols": "x"}, "signature[0].symbols: must be a list of texts"),
        ({"symbols": [""]}, "signature[0].symbols: must be a list of texts"),
        ({"within": ["a*b"]}, "signature[0].within: 'a*b': a * may only end"),
        ({"symbols": ["*"]}, "signature[0].symbols: '*': a * may only end"),
        ({"modules": ["nv*"]}, "signature[0].modules: 'nv*': a * may only end"),
        ({"name": "Own Place"}, "signature[0].name: only small letters"),
        ({"fault_domain": "weather"}, "signature[0].fault_domain: must be one of driver, hardware"),
        ({"fault_domain": ["driver"]}, "signature[0].fault_domain: must be one of"),
        ({"forbids_reset": "no"}, "signature[0].forbids_reset: must be true or false"),
        ({"symbols": []}, "signature[0].symbols: it matches nothing"),
    ],
)
def test_each_fault_is_told_with_its_table_and_key(change: dict[str, Any], fault: str) -> None:
    """What, where, and nothing else."""
    assert any(f"policy: {fault}" in line for line in faults_of({**OWN, **change}))


def test_all_faults_are_told_at_once() -> None:
    """Of every table, also a name that stands there twice."""
    faults = faults_of(OWN, {**OWN, "colour": 1}, {}, OWN)
    assert any("signature[1].colour" in fault for fault in faults)
    assert any("signature[2].name: is missing" in fault for fault in faults)
    assert any("signature[3].name: 'own_place' stands there twice" in fault for fault in faults)


@pytest.mark.parametrize("text", ["[[signature", "[other]\n", "signature = 3\n", "signature = [1]\n", None])
def test_a_broken_file_of_the_package_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    """A clear error with the file, never a traceback and never an empty list of places."""
    path = tmp_path / "signatures.toml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(module, "BUILT_IN", path)
    with pytest.raises(ConfigError) as caught:
        load_signatures()
    assert str(path) in caught.value.faults[0]
    assert caught.value.mend


def test_a_fault_of_the_package_names_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that nobody searches the policy for it; an empty file is no fault."""
    path = tmp_path / "signatures.toml"
    monkeypatch.setattr(module, "BUILT_IN", path)
    path.write_text("", encoding="utf-8")
    assert load_signatures() == ()
    path.write_text('[[signature]]\nname = "x"\n', encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_signatures()
    assert f"{path}: signature[0].title: is missing" in caught.value.faults
    assert BUILT_IN.is_file()
