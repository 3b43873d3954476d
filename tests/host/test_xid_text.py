"""Fault lines of the driver in every form, and names that try to be another line."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.host.kernel_text import LogRecord, parse_record
from reclaimerd.host.xid_text import parse_xid
from reclaimerd.model.fault import XidLine

HEAD = "NVRM: Xid (PCI:0000:3b:00): "


def a_record(text: str, *, from_kernel: bool = True) -> LogRecord:
    """Return a record of the kernel log with this text."""
    return LogRecord(7, 2.5, 4, from_kernel=from_kernel, text=text)


def parsed(text: str) -> XidLine:
    """Return the Xid of a line that has one."""
    line = parse_xid(a_record(text))
    assert line is not None
    return line


@pytest.mark.parametrize(
    ("text", "code", "pid", "rest"),
    [
        (
            "31, pid=1234, name=python, Ch 00000008, intr 00000000. MMU Fault: ...",
            31,
            1234,
            "pid=1234, name=python, Ch 00000008, intr 00000000. MMU Fault: ...",
        ),
        ("79, GPU has fallen off the bus.", 79, None, "GPU has fallen off the bus."),
        (
            "45, pid='<unknown>', name=<unknown>, Ch 00000010",
            45,
            None,
            "pid='<unknown>', name=<unknown>, Ch 00000010",
        ),
        ("45, pid='77', name=x, Ch 00000010", 45, 77, "pid='77', name=x, Ch 00000010"),
        (
            "45, pid=8, name=x, Ch 00000010, caused by previous Xid 31",
            45,
            8,
            "pid=8, name=x, Ch 00000010, caused by previous Xid 31",
        ),
        (
            "94, pid=9, name=x, Contained: SM. RST: No, D-RST: Yes",
            94,
            9,
            "pid=9, name=x, Contained: SM. RST: No, D-RST: Yes",
        ),
        (
            "154, GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
            154,
            None,
            "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)",
        ),
        (
            "149, NETIR_LINK_EVT Fatal XC0 i0 Link 03 (0x1 0x2 0x3)",
            149,
            None,
            "NETIR_LINK_EVT Fatal XC0 i0 Link 03 (0x1 0x2 0x3)",
        ),
        ("62, 32344000 0000b670 00000000", 62, None, "32344000 0000b670 00000000"),
        ("13", 13, None, ""),
    ],
)
def test_each_form_of_a_line_is_one_xid(text: str, code: int, pid: int | None, rest: str) -> None:
    """Old and new drivers, with and without a process: GPU and code from the head, the rest is text."""
    assert parsed(HEAD + text) == XidLine(7, 2.5, "0000:3b:00.0", code, rest, pid_hint=pid)


@pytest.mark.parametrize(
    ("pci", "address"),
    [
        ("0000:3b:00", "0000:3b:00.0"),
        ("00000000:3B:00", "0000:3b:00.0"),
        ("0000:3B:00.0", "0000:3b:00.0"),
        ("00010000:ff:1f", "10000:ff:1f.0"),
        ("0001:00:00", "0001:00:00.0"),
    ],
)
def test_each_form_of_an_address_is_the_kernels(pci: str, address: str) -> None:
    """Domains of 4 and of 8 digits, large and small letters, with and without a function."""
    assert parsed(f"NVRM: Xid (PCI:{pci}): 31, x").pci == address


def test_instances_of_mig_are_read() -> None:
    """GPU instance and compute instance, the second only where it is written."""
    both = parsed("NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:00): 43, pid=1, name=x, Ch 00000008")
    assert (both.gpu_instance, both.compute_instance, both.code) == (5, 0, 43)
    one = parsed("NVRM: Xid (PCI:0000:3b:00 GPU-I:11): 43, pid=1, name=x")
    assert (one.gpu_instance, one.compute_instance) == (11, None)


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: GPU 0000:b3:00.0: GPU has fallen off the bus.",
        (
            "NVRM: The NVIDIA GPU 0000:b3:00.0\\x0aNVRM: (PCI ID: 10de:2330) in this system has\\x0a"
            "NVRM: fallen off the bus and is not responding to commands."
        ),
        "NVRM: The NVIDIA GPU 0000:b3:00.0 (PCI ID: 10de:20b5) has fallen off the bus and is not responding",
    ],
)
def test_a_gpu_that_is_lost_without_an_xid_has_code_79(text: str) -> None:
    """Two lines of the driver say the same as Xid 79 and have no code."""
    line = parsed(text)
    assert (line.pci, line.code, line.pid_hint) == ("0000:b3:00.0", 79, None)


@pytest.mark.parametrize(
    "text",
    [
        "NVRM: GPU at PCI:0000:3b:00: GPU-5fd4f087-86f3-4f15-9a2b-000000000000",
        "nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Fatal, Link 30 LTSSM Fault Up",
        "x NVRM: Xid (PCI:0000:3b:00): 79, pid=1",
        "NVRM: Xid (PCI:3b:00): 79, pid=1",
        "NVRM: Xid (PCI:0000:3b:00): pid=1",
        "NVRM: Xid (PCI:0000:3b:00): 123456789, pid=1",
        "NVRM: Xid (PCI:0000:3b:00), 79",
        "NVRM: GPU 0000:b3:00.0: RmInitAdapter failed! (0x23:0x65:1423)",
        "NVRM: krcWatchdog_IMPL: RC watchdog: GPU is probably locked!  Notify Timeout Seconds: 7",
        "python[7]: NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.",
        "",
    ],
)
def test_no_other_line_is_an_xid(text: str) -> None:
    """The switch's own faults, other lines of the driver, and heads in the midst of a line are none."""
    assert parse_xid(a_record(text)) is None


def test_what_a_program_wrote_is_no_xid() -> None:
    """The very line of the driver, but not by the kernel: anyone who may write the log could frame a GPU."""
    text = HEAD + "79, GPU has fallen off the bus."
    assert parse_xid(a_record(text, from_kernel=False)) is None
    assert parse_xid(a_record(text)) is not None


def test_c43_a_name_in_brackets_and_the_address_of_the_log() -> None:
    """C43: `(udev-worker)` is a name like any other; its pid stays a hint; the address is the GPU's."""
    line = parsed(
        "NVRM: Xid (PCI:0000:2d:00): 109, pid=619, name=(udev-worker), channel 0x00000001, "
        "errorString CTX SWITCH TIMEOUT, Info 0x4000",
    )
    assert (line.pci, line.code, line.pid_hint) == ("0000:2d:00.0", 109, 619)
    assert "name=(udev-worker)" in line.text


def test_c22_a_time_out_of_the_gsp_names_who_asked() -> None:
    """C22: the pid is that of one who asked the GPU, often a monitor's: a hint and no more."""
    line = parsed(
        "NVRM: Xid (PCI:0000:61:00): 119, pid=977823, name=nvidia-smi, Timeout waiting for RPC from GSP! "
        "Expected function 76 (GSP_RM_CONTROL) (0x2080014b 0x5).",
    )
    assert (line.pci, line.code, line.pid_hint) == ("0000:61:00.0", 119, 977823)


NAMES = st.one_of(
    st.text(max_size=15),
    st.sampled_from(
        [
            "a, 79, b",
            "): 79, x",
            "\nNVRM: Xid (PC",
            "'x', 79, \"",
            "x), pid=1, name",
            "\\x0aNVRM: Xid",
            "pid=1, 79",
        ]
    ),
)


@given(
    name=NAMES, tail=st.sampled_from([", Ch 00000008", "", ", 79, x", " NVRM: Xid (PCI:0000:00:00): 79, x"])
)
def test_no_name_makes_another_gpu_or_another_code(name: str, tail: str) -> None:
    """Whatever a process calls itself: the GPU and the code are the head's, and the text can be shown."""
    escaped = "".join(
        letter if " " <= letter < "\x7f" and letter != "\\" else "".join(f"\\x{byte:02x}" for byte in raw)
        for letter in name
        for raw in (letter.encode("utf-8", "surrogatepass"),)
    )
    record = parse_record(f"4,7,2500000,-;{HEAD}31, pid=5, name={escaped}{tail}\n")
    assert record is not None
    line = parse_xid(record)
    assert line is not None
    assert (line.pci, line.code, line.pid_hint) == ("0000:3b:00.0", 31, 5)
    assert line.text.isprintable()


@given(st.text(max_size=300))
def test_no_text_makes_the_parser_raise(text: str) -> None:
    """Any text is an Xid or none."""
    parse_xid(a_record(text))
    parse_xid(a_record(HEAD + text))


def test_a_long_line_is_cut() -> None:
    """What is kept of a line is bounded."""
    assert len(parsed(HEAD + "31, " + "x" * 5000).text) == 512


def test_c17_trouble_without_an_xid_is_no_xid() -> None:
    """C17: lines of the driver that tell of a link and name no code stand against no GPU."""
    for text in (
        "NVRM: knvlinkUpdatePostRxDetectLinkMask_IMPL: Failed to update Rx Detect Link mask!",
        "NVRM: knvlinkDiscoverPostRxDetLinks_GH100: Getting peer0's postRxDetLinkMask failed!",
    ):
        assert parse_xid(a_record(text)) is None
