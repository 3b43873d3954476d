"""The catalogue of Xids is whole, each code has its class, and a broken file is told, never empty."""

import re
from pathlib import Path

import pytest

from reclaimerd.config import xids as module
from reclaimerd.config.xids import load_xids
from reclaimerd.errors import ConfigError
from reclaimerd.model.fault import FaultClass, XidEntry

APPLICATION = (8, 11, 13, 25, 31, 32, 39, 40, 41, 60, *range(68, 73), 75, 76, 77, 80, *range(82, 87), 88, 89)
APPLICATION_LATER = (94, *range(96, 106), *range(126, 136), 139)
IGNORED = (37, 38, 43, 44, 45, 63, 66, 67, 92, 93, 106, 107, 121, 137, 141, 152, 153, 157, 160, 161)
RESET = (46, 48, 62, 64, 95, 109, 110, 119, 120, 136, 140, 143, 155, 156, 158)
UNKNOWN = (142, *range(144, 151), 154, 159, *range(162, 177))


@pytest.mark.parametrize(
    ("codes", "fault"),
    [
        ((*APPLICATION, *APPLICATION_LATER), FaultClass.APPLICATION),
        (IGNORED, FaultClass.IGNORE),
        (RESET, FaultClass.RESET),
        ((79,), FaultClass.LOST),
        ((54, 74, 78, 151), FaultClass.OTHER),
        (UNKNOWN, FaultClass.UNKNOWN),
    ],
)
def test_each_code_has_the_class_that_the_vendor_gives_it(codes: tuple[int, ...], fault: FaultClass) -> None:
    """All rows of the vendor's recovery map, and what has no row in it is unknown."""
    catalogue = load_xids()
    assert {code: catalogue[code].fault for code in codes} == dict.fromkeys(codes, fault)


def test_the_catalogue_has_nothing_else_and_says_where_it_is_from() -> None:
    """No row outside of the lists above; each has a mnemonic and a source."""
    catalogue = load_xids()
    listed = {*APPLICATION, *APPLICATION_LATER, *IGNORED, *RESET, *UNKNOWN, 79, 54, 74, 78, 151}
    assert catalogue.keys() == listed
    assert all(entry.code == code for code, entry in catalogue.items())
    assert all(entry.mnemonic.replace("_", "").isalnum() for entry in catalogue.values())
    assert all(entry.source.startswith(("catalogue: ", "nverror.h: ")) for entry in catalogue.values())
    assert catalogue[48] == XidEntry(
        48,
        FaultClass.RESET,
        "ROBUST_CHANNEL_GPU_ECC_DBE",
        "catalogue: WORKFLOW_XID_48: alone, reset; with 63 or 64, drain and reset",
    )


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (None, "No such file"),
        ("[xid", ""),
        ("", "one table [xid]"),
        ("xid = 3", "one table [xid]"),
        ("[xid]\n48 = 3", "one table [xid]"),
        ('[xid]\n48 = { class = "reset", name = "X", source = "s" }\n[more]', "one table [xid]"),
        ('[xid]\nx = { class = "reset", name = "X", source = "s" }', "xid.x: is no number"),
        ('[xid]\n048 = { class = "reset", name = "X", source = "s" }', "xid.048: is no number"),
        ('[xid]\n48 = { class = "rset", name = "X", source = "s" }', "xid.48.class: must be one of ignore"),
        ('[xid]\n48 = { class = "none", name = "X", source = "s" }', "xid.48.class: must be one of"),
        ('[xid]\n48 = { class = ["reset"], name = "X", source = "s" }', "xid.48.class: must be a text"),
        ('[xid]\n48 = { class = "reset", source = "s" }', "xid.48.name: must be a text"),
        ('[xid]\n48 = { class = "reset", name = "X", source = "" }', "xid.48.source: must be a text"),
        ('[xid]\n48 = { class = "reset", name = "X", source = "s", why = 1 }', "xid.48.why: is no key"),
    ],
)
def test_a_broken_catalogue_is_told_and_never_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None, fault: str
) -> None:
    """The file, the row and what is wrong with it; no code is passed over."""
    path = tmp_path / "xids.toml"
    if text is not None:
        path.write_text(text, encoding="utf-8")
    monkeypatch.setattr(module, "BUILT_IN", path)
    with pytest.raises(ConfigError) as caught:
        load_xids()
    assert str(path) in caught.value.faults[0]
    assert fault in caught.value.faults[0]


def test_the_page_on_faults_lists_the_catalogue() -> None:
    """docs/faults.md has each code in the row of its class, and no code in another row."""
    page = (Path(__file__).parents[2] / "docs" / "faults.md").read_text(encoding="utf-8")
    listed: dict[int, str] = {}
    for word, codes in re.findall(
        r"^\| `(\w+)` \|.*\| ([\d, to]+)(?:, and every other)? \|$", page, re.MULTILINE
    ):
        for low, high in re.findall(r"(\d+)(?: to (\d+))?", codes):
            listed |= dict.fromkeys(range(int(low), int(high or low) + 1), word)
    assert listed == {code: entry.fault.word for code, entry in load_xids().items()}
