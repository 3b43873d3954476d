"""What a program shows of a miner, and what looks like it and is ordinary."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reclaimerd.judge.miner_program import KNOWN_NAMES, POOL_PORTS, SHARED_PORTS, program_signs
from reclaimerd.judge.miner_signs import WEIGHTS, MinerSign, Signs
from reclaimerd.model.policy import MinerSettings
from reclaimerd.model.process import PF_KTHREAD, Connection, ProgramSigns
from reclaimerd.model.reading import Known, Unreadable
from tests.builders import a_process, a_task

PUBLIC = "8.8.8.8"
DIGEST = "ab" * 32
NOTHING = ProgramSigns(Known(0), Known("cd" * 32), Known(()))
ABOUT_NAMES = {MinerSign.KNOWN_NAME}


def of_program(settings: MinerSettings | None = None, signs: ProgramSigns = NOTHING, **fields: Any) -> Signs:
    """Return what a process with these fields shows."""
    return program_signs(a_process(**fields), signs, MinerSettings() if settings is None else settings)


def found(signs: Signs) -> set[MinerSign]:
    """Return the signs without their words."""
    return {sign.sign for sign in signs.found}


def connected(*ends: tuple[str, int]) -> ProgramSigns:
    """Return the signs of a process with these connections."""
    return replace(NOTHING, connections=Known(tuple(Connection(*end) for end in ends)))


@pytest.mark.parametrize(
    "fields",
    [
        {"comm": "xmrig"},
        {"comm": "XMRig"},
        {"exe": Known("/opt/t-rex")},
        {"exe": Known("/opt/lolMiner.exe (deleted)")},
        {"cmdline": Known(("./nbminer", "-a"))},
        {"comm": "averylongnameth", "exe": Known("/opt/x")},
        {"cmdline": Known(("own-tool",))},
    ],
)
def test_a_known_name_is_found_wherever_it_stands(fields: dict[str, Any]) -> None:
    """In the name that the kernel cuts to 15 bytes, the file's, or the first argument's, in any case."""
    own = MinerSettings(names=("averylongnamethatiscut", "Own-Tool", ""))
    assert found(of_program(own, **{"cmdline": Known(("x",)), **fields})) & ABOUT_NAMES == {
        MinerSign.KNOWN_NAME
    }


def test_a_name_that_only_contains_a_miners_is_none() -> None:
    """Neither a script's name nor a longer one tells; nor does `miner`, which others bear too."""
    for fields in (
        {"cmdline": Known(("python3", "xmrig.py"))},
        {"comm": "t-rex-detector", "exe": Known("/opt/t-rex-detector")},
        {"comm": "miner", "exe": Known("/opt/text/miner")},
    ):
        assert found(of_program(**fields)) & ABOUT_NAMES == set()
    assert all(name == name.lower() for name in KNOWN_NAMES)


def test_a_listed_digest_is_found() -> None:
    """By the policy's own list, in either case of letters."""
    signs = replace(NOTHING, sha256=Known(DIGEST))
    assert found(of_program(MinerSettings(sha256=(DIGEST.upper(),)), signs)) == {MinerSign.KNOWN_DIGEST}
    assert found(of_program(signs=signs)) == set()


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/tmp/a", {MinerSign.TEMPORARY_FILE}),
        ("/var/tmp/a/b", {MinerSign.TEMPORARY_FILE}),
        ("/dev/shm/a", {MinerSign.TEMPORARY_FILE}),
        (
            "/dev/shm/.x/a (deleted)",
            {MinerSign.TEMPORARY_FILE, MinerSign.HIDDEN_FILE, MinerSign.DELETED_FILE},
        ),
        ("/memfd:a (deleted)", {MinerSign.TEMPORARY_FILE, MinerSign.DELETED_FILE}),
        ("/tmp/.mount_blendA1/blender", {MinerSign.TEMPORARY_FILE}),
        ("/home/u/.a", {MinerSign.HIDDEN_FILE}),
        ("/home/u/.../a", {MinerSign.HIDDEN_FILE}),
        ("/home/u/ /a", {MinerSign.HIDDEN_FILE}),
        ("/home/u/.conda/envs/t/bin/python3.11", set()),
        ("/nix/store/x/bin/.a-wrapped", set()),
        ("/usr/tmp/a", set()),
        ("/tmpfiles/a", set()),
        ("/usr/bin/python3.11 (deleted)", {MinerSign.DELETED_FILE}),
    ],
)
def test_where_a_program_file_may_lie(path: str, answer: set[MinerSign]) -> None:
    """In a folder for what passes, hidden, or deleted; environments behind a dot are ordinary."""
    assert found(of_program(exe=Known(path), cmdline=Known(("x",)))) == answer


@pytest.mark.parametrize(
    ("words", "answer"),
    [
        (("a", "stratum+tcp://pool:1"), {MinerSign.POOL_ADDRESS}),
        (("a", "-ostratum+ssl://pool:1"), {MinerSign.POOL_ADDRESS}),
        (("a", "--url=STRATUM2+TCP://pool"), {MinerSign.POOL_ADDRESS}),
        (("a", "stratums://pool"), {MinerSign.POOL_ADDRESS}),
        (("a", "https://pool/stratum"), set()),
        ((), {MinerSign.NO_ARGUMENTS}),
        (("", " "), {MinerSign.NO_ARGUMENTS}),
        (("a \n\n--no-watchdog",), {MinerSign.PADDED}),
        (("a" + " " * 16 + "b",), {MinerSign.PADDED}),
        (("a" + " " * 60,), set()),
        (("a", " " * 16), {MinerSign.PADDED}),
        (("a", "-c", "\nif x:\n" + " " * 20 + "y()"), set()),
        (("worker    [rank 0]",), set()),
        (("sshd: u@pts/0",), {MinerSign.OTHER_NAME}),
        (("/usr/sbin/nginx", "-g"), {MinerSign.OTHER_NAME}),
        (("-bash",), {MinerSign.OTHER_NAME}),
        (("My Env/bin/python",), set()),
        (("-", "x"), set()),
    ],
)
def test_what_arguments_may_show(words: tuple[str, ...], answer: set[MinerSign]) -> None:
    """A pool's address, wiped or padded arguments, or the name of a program that it is not."""
    assert found(of_program(exe=Known("/opt/a"), comm="a", cmdline=Known(words))) == answer


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("python", "/usr/bin/python3.11"),
        ("python3.11", "/usr/bin/pypy3.10"),
        ("sh", "/usr/bin/dash"),
        ("python3", "/usr/lib64/ld-linux-x86-64.so.2"),
        ("python3", "/usr/libexec/valgrind/memcheck-amd64-linux"),
        ("/usr/bin/python3", "/nix/store/x/bin/.python3.11-wrapped"),
        ("nginx: worker process", "/usr/sbin/nginx (deleted)"),
        ("ray::train", "/usr/bin/python3.11"),
    ],
)
def test_who_bears_a_name_rightly_borrows_none(name: str, path: str) -> None:
    """Links, versions, loaders and titles of one's own are no disguise."""
    assert MinerSign.OTHER_NAME not in found(of_program(exe=Known(path), cmdline=Known((name,))))


def test_wiped_arguments_are_a_sign_of_programs_that_run() -> None:
    """Who is dead has none either, and whose file can't be read may be no program."""
    dead = a_process(cmdline=Known(()), tasks=(a_task(state="Z"),))
    assert found(program_signs(dead, NOTHING, MinerSettings())) == set()
    assert found(of_program(cmdline=Known(()), exe=Unreadable("gone"))) == set()


@pytest.mark.parametrize(
    "name", ["[kworker/0:1]", "kworker/u8:2-events", "[kthreadd]", "irq/42-nvidia", "migration/3"]
)
def test_a_program_with_the_name_of_a_kernel_thread_is_found(name: str) -> None:
    """By its name or its first argument; a real thread of the kernel, or an unreadable file, is none."""
    sign = {MinerSign.KERNEL_NAME}
    assert found(of_program(comm=name[:15])) == sign
    assert found(of_program(cmdline=Known((name,)))) == sign
    assert found(of_program(comm=name[:15], tasks=(a_task(flags=PF_KTHREAD),))) == set()
    assert found(of_program(comm=name[:15], exe=Unreadable("x"), cmdline=Unreadable("x"))) == set()


@pytest.mark.parametrize("name", ["[celeryd: w@h]", "migration", "kworkers", "irqbalance", "watchdog/main"])
def test_names_near_a_kernel_threads_are_none(name: str) -> None:
    """Brackets alone are a title, and a longer word is another name."""
    assert found(of_program(comm=name[:15], cmdline=Known((name,)))) == set()


@pytest.mark.parametrize(
    ("address", "port", "answer"),
    [
        (PUBLIC, 3333, {MinerSign.POOL_PORT}),
        (f"::ffff:{PUBLIC}", 3333, {MinerSign.POOL_PORT}),
        ("2001:4860:4860::8888", 14444, {MinerSign.POOL_PORT}),
        ("2001:4860:4860::8888%\x1b", 14444, {MinerSign.POOL_PORT}),
        (PUBLIC, 5555, {MinerSign.SHARED_PORT}),
        ("10.0.0.5", 3333, {MinerSign.NEAR_PORT}),
        ("::ffff:10.0.0.5", 3333, {MinerSign.NEAR_PORT}),
        ("100.64.0.9", 5555, {MinerSign.NEAR_PORT}),
        ("127.0.0.1", 3333, {MinerSign.NEAR_PORT}),
        ("no address", 3333, {MinerSign.NEAR_PORT}),
        (PUBLIC, 4040, {MinerSign.POOL_PORT}),
        (PUBLIC, 443, set()),
    ],
)
def test_what_a_connection_may_show(address: str, port: int, answer: set[MinerSign]) -> None:
    """A pool's port in the public network, one that others use too, or either inside: that counts less."""
    assert found(of_program(MinerSettings(ports=(4040,)), connected((address, port)))) == answer


def test_of_many_connections_the_weightiest_counts_once() -> None:
    """A hundred connections weigh what one does."""
    many = connected(("10.0.0.5", 3333), (PUBLIC, 5555), (PUBLIC, 14444), (PUBLIC, 3333))
    signs = of_program(signs=many)
    assert found(signs) == {MinerSign.POOL_PORT}
    assert signs.points == WEIGHTS[MinerSign.POOL_PORT].points


def test_no_port_of_ours_is_met_by_chance() -> None:
    """None lies in the range from which Linux takes the ports of whoever connects, nor in both tables."""
    assert all(1024 < port < 32768 for port in POOL_PORTS | SHARED_PORTS)
    assert not POOL_PORTS & SHARED_PORTS


@pytest.mark.parametrize("notebook", ["jupyter-lab", "jupyter-noteboo", "ipython3", "rsession"])
def test_a_child_of_a_notebook_is_found_and_the_notebook_is_not(notebook: str) -> None:
    """Its kernel works for its user openly; what a cell starts is a sign, of the lowest weight."""
    signs = replace(NOTHING, ancestors=("bash", "python3", notebook))
    assert found(of_program(signs=signs)) == {MinerSign.NOTEBOOK}
    kernel = Known(("python3", "-m", "ipykernel_launcher"))
    assert found(of_program(signs=signs, cmdline=kernel)) == set()
    assert found(of_program(signs=signs, cmdline=Unreadable("x"))) == {MinerSign.NOTEBOOK}
    assert found(of_program(signs=replace(NOTHING, ancestors=("bash",)))) == set()


_HARMFUL = "\x1b]0;\n%s{}"


@given(st.text(max_size=40), st.lists(st.text(max_size=40), max_size=3), st.text(max_size=15))
def test_nothing_that_a_process_chose_reaches_the_sentence(path: str, words: list[str], name: str) -> None:
    """No path, argument or name makes it raise, and none of their text is in the signs' words."""
    marked = [f"{word}{_HARMFUL}" for word in words]
    reading = a_process(
        exe=Known(f"/tmp/{path}{_HARMFUL}"), cmdline=Known(tuple(marked)), comm=f"{name}{_HARMFUL}"
    )
    signs = replace(connected((f"{path}{_HARMFUL}", 3333)), ancestors=(f"jupyter{_HARMFUL}",))
    text = program_signs(reading, signs, MinerSettings()).text()
    assert "\x1b" not in text
    assert "\n" not in text
