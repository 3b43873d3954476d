"""What the kernel shows before a reset: over trees of plain files, and over this machine's own."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from reclaimerd.model.identity import DeviceNumber
from reclaimerd.model.reading import Absent, Known, Unreadable
from reclaimerd.model.reset_facts import BusyThread, DisplayClient, KernelFacts, ModuleUse
from reclaimerd.observe import kernel_facts
from reclaimerd.observe.kernel_devices import MODULES, read_displays, read_modules, read_presence
from reclaimerd.observe.kernel_facts import KernelAnswer, KernelQuestion, read_kernel_facts
from reclaimerd.observe.kernel_threads import read_busy_threads
from reclaimerd.observe.open_count import count_files, descriptors_of
from tests.rigs.fake_proc import KTHREAD_FLAGS, FakeProc, FakeTask
from tests.rigs.proc_children import device, script

GPU = "0000:3b:00.0"
BUSY = "[<0>] uvm_spin_loop+0x1/0x2 [nvidia_uvm]\n[<0>] _main_loop+0x1/0x2 [nvidia]\n"
IDLE = "[<0>] down_interruptible+0x1/0x2\n[<0>] _main_loop+0x1/0x2 [nvidia]\n[<0>] kthread+0x1/0x2\n"
THEIRS = "[<0>] worker_thread+0x1/0x2\n[<0>] kthread+0x1/0x2\n"


def nothing(_pid: int) -> None:
    """Take note of nothing."""


class FakeHost:
    """A proc and a sys tree of plain files."""

    def __init__(self, root: Path) -> None:
        self.proc = FakeProc(root / "proc")
        (self.proc.root / "devices").write_text(
            "Character devices:\n195 nvidia\n507 nvidia-uvm\n\nBlock devices:\n"
        )
        self.sys = root / "sys"
        self.dev = root / "dev"
        self.dev.mkdir()
        (self.sys / "bus/pci/devices").mkdir(parents=True)

    def gpu(self, address: str = GPU, driver: str = "nvidia") -> Path:
        """Put a PCI device on the bus, bound to a driver."""
        folder = self.sys / "bus/pci/devices" / address
        folder.mkdir()
        if driver:
            place = self.sys / "bus/pci/drivers" / driver
            place.mkdir(parents=True, exist_ok=True)
            (folder / "driver").symlink_to(place)
        return folder

    def module(self, name: str, users: str, *holders: str) -> None:
        """Load a module."""
        folder = self.sys / "module" / name
        (folder / "holders").mkdir(parents=True)
        (folder / "refcnt").write_text(f"{users}\n")
        for holder in holders:
            (folder / "holders" / holder).mkdir()

    def card(self, name: str, address: str) -> Path:
        """Make a drm card of a PCI device."""
        folder = self.sys / "class/drm" / name
        folder.mkdir(parents=True)
        (folder / "device").symlink_to(self.sys / "bus/pci/devices" / address)
        return folder

    def answer(self, *addresses: str, without: tuple[int, ...] = ()) -> KernelAnswer:
        """Return one look."""
        question = KernelQuestion(
            addresses,
            sys_root=self.sys,
            proc_root=self.proc.root,
            dev_root=self.dev,
            without=frozenset(without),
        )
        return read_kernel_facts(question, nothing)

    def facts(self, *addresses: str) -> KernelFacts:
        """Return the facts of one look."""
        return self.answer(*addresses).facts


@pytest.fixture
def host(tmp_path: Path) -> FakeHost:
    """Return a host with no GPU and no process."""
    return FakeHost(tmp_path)


# --- the device ------------------------------------------------------------------------------------


def test_a_gpu_is_present_when_its_device_is_there_and_the_driver_has_it(host: FakeHost) -> None:
    """Gone is missing; unbound, or bound to another driver, is neither: in words why."""
    host.gpu()
    host.gpu("0000:5e:00.0", driver="vfio-pci")
    host.gpu("0000:af:00.0", driver="")
    answer = host.answer(GPU, "0000:5e:00.0", "0000:af:00.0", "0000:d8:00.0")
    facts = answer.facts
    assert facts.present == (GPU,)
    assert facts.missing == ("0000:d8:00.0",)
    assert facts.skipped == ()  # a lost GPU says nothing against its neighbours
    assert answer.notes == (
        "0000:5e:00.0: bound to vfio-pci, not to nvidia",
        "0000:af:00.0: bound to no driver, not to nvidia",
        "0000:d8:00.0: the PCI device is gone",
    )


def test_a_gpu_that_nobody_named_is_present_too(host: FakeHost) -> None:
    """What the driver has counts, also where NVML no longer lists it."""
    host.gpu()
    (host.sys / "bus/pci/drivers/nvidia" / GPU).symlink_to(host.sys / "bus/pci/devices" / GPU)
    (host.sys / "bus/pci/drivers/nvidia/bind").touch()
    assert host.facts().present == (GPU,)


def test_a_bus_that_cannot_be_listed_is_no_lost_gpu(tmp_path: Path) -> None:
    """An error, so that the whole is unreadable: never "missing"."""
    with pytest.raises(FileNotFoundError):
        read_presence(tmp_path, [GPU])


# --- modules ---------------------------------------------------------------------------------------


def test_modules_tell_their_users_and_who_uses_them(host: FakeHost) -> None:
    """A count, the modules on top; not loaded and built in are absent; an odd count is unreadable."""
    host.module("nvidia", "12", "nvidia_uvm", "nvidia_modeset")
    host.module("nvidia_uvm", "-1")
    (host.sys / "module/nvidia_drm").mkdir()
    found = {one.name: one for one in read_modules(host.sys)}
    assert tuple(found) == MODULES
    assert found["nvidia"] == ModuleUse("nvidia", Known(12), ("nvidia_modeset", "nvidia_uvm"))
    assert found["nvidia_uvm"].users == Unreadable("use count '-1'")
    assert found["nvidia_drm"].users == Absent("this kernel does not count its users")
    assert found["gdrdrv"].users == Absent("not loaded")


def test_a_count_that_cannot_be_read_is_unreadable(host: FakeHost) -> None:
    """A folder in the file's place: the words of the error."""
    (host.sys / "module/nvidia_fs/refcnt").mkdir(parents=True)
    found = next(one for one in read_modules(host.sys) if one.name == "nvidia_fs")
    assert found.users == Unreadable("is a directory")


def test_a_loaded_module_of_this_machine_is_read() -> None:
    """The kernel's own files: a module that is loaded here tells a number."""
    loaded = [path.parent.name for path in Path("/sys/module").glob("*/refcnt")]
    if not loaded:
        pytest.skip("no module is loaded here: the kernel has all built in")
    found = kernel_facts_of_module(loaded[0])
    assert isinstance(found.users, Known)


def kernel_facts_of_module(name: str) -> ModuleUse:
    """Read one module of this machine."""
    from reclaimerd.observe import kernel_devices  # noqa: PLC0415  # its inner reader, for this test alone

    return kernel_devices._read_module(Path("/sys/module") / name, name)


@pytest.mark.process
def test_users_of_one_module_are_not_explained_by_open_files_of_another(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of nvidia-uvm's and one of nvidia's are seen: a third user of uvm is named, a total hides it."""
    nvidia, uvm = DeviceNumber(195, 0), DeviceNumber(507, 0)
    monkeypatch.setattr(kernel_facts, "count_files", lambda _places: {nvidia: 1, uvm: 2})
    host.module("nvidia", "2", "nvidia_uvm")
    host.module("nvidia_uvm", "3")
    facts = host.facts()
    assert facts.opens == Known(3)
    assert facts.skipped == ("1 users of nvidia_uvm beyond its open files that can be seen",)
    (host.sys / "module/nvidia_uvm/refcnt").write_text("2\n")
    assert host.facts().skipped == ()


def test_where_no_module_counts_there_is_nothing_to_compare(host: FakeHost) -> None:
    """A process that can't be looked at matters for the count only where there is one."""
    host.proc.add([FakeTask(70)])
    assert host.answer(without=(70,)).facts.opens == Absent(
        "no module here counts its users: there is nothing to compare with"
    )
    host.module("nvidia", "0")
    assert isinstance(host.answer(without=(70,)).facts.opens, Unreadable)


def test_descriptors_that_cannot_be_compared_are_not_counted(
    host: FakeHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel without kcmp: unreadable, with its words."""

    def refuse(_places: object) -> dict[DeviceNumber, int]:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr(kernel_facts, "count_files", refuse)
    assert host.facts().opens == Unreadable("operation not permitted")


# --- displays --------------------------------------------------------------------------------------


def test_a_lit_connector_and_a_console_are_displays_of_their_gpu(host: FakeHost) -> None:
    """Connected and enabled, a frame buffer with the console on it; another vendor's card is not ours."""
    host.gpu()
    host.gpu("0000:00:02.0", driver="i915")
    for card, address, status, enabled in (
        ("card0", GPU, "connected", "enabled"),
        ("card1", "0000:00:02.0", "connected", "enabled"),
    ):
        host.card(card, address)
        for connector, lit in (("DP-1", (status, enabled)), ("DP-2", ("disconnected", "disabled"))):
            folder = host.sys / "class/drm" / f"{card}-{connector}"
            folder.mkdir()
            (folder / "device").symlink_to(host.sys / "class/drm" / card)
            (folder / "status").write_text(f"{lit[0]}\n")
            (folder / "enabled").write_text(f"{lit[1]}\n")
    buffer = host.sys / "class/graphics/fb0"
    buffer.mkdir(parents=True)
    (buffer / "name").write_text("nvidia-drmdrmfb\n")
    (buffer / "device").symlink_to(host.sys / "bus/pci/devices" / GPU)
    (host.sys / "class/graphics/fbcon").mkdir()
    assert read_displays(host.sys, [GPU]) == (
        DisplayClient(GPU, "a display is on at connector DP-1"),
        DisplayClient(GPU, "fb0 (nvidia-drmdrmfb): a frame buffer of the kernel"),
    )
    console = host.sys / "class/vtconsole/vtcon1"
    console.mkdir(parents=True)
    (console / "name").write_text("(M) frame buffer device\n")
    (console / "bind").write_text("1\n")
    assert read_displays(host.sys, [GPU])[1].text == "fb0 (nvidia-drmdrmfb): the console is bound to it"
    assert host.facts(GPU).displays == read_displays(host.sys, [GPU])


@pytest.mark.parametrize(("modeset", "held"), [("Y", True), ("N", False), (None, False)])
def test_mode_setting_holds_each_card_of_ours(host: FakeHost, modeset: str | None, *, held: bool) -> None:
    """Loaded so, nvidia_drm has the device without any process or display; another's card does not count."""
    host.gpu()
    host.gpu("0000:00:02.0", driver="i915")
    host.card("card0", GPU)
    host.card("renderD128", GPU)
    host.card("card1", "0000:00:02.0")
    if modeset is not None:
        parameters = host.sys / "module/nvidia_drm/parameters"
        parameters.mkdir(parents=True)
        (parameters / "modeset").write_text(f"{modeset}\n")
    client = DisplayClient(GPU, "nvidia_drm holds it as card0 (it is loaded with modeset=Y)")
    assert read_displays(host.sys, [GPU]) == ((client,) if held else ())


def test_a_host_without_drm_has_no_display(host: FakeHost) -> None:
    """No folder, no display, no error."""
    assert read_displays(host.sys, [GPU]) == ()


# --- kernel threads --------------------------------------------------------------------------------


def kthread(tid: int, comm: str, stack: str, state: str = "S") -> list[FakeTask]:
    """Return a kernel thread."""
    return [FakeTask(tid, comm, state, KTHREAD_FLAGS, stack)]


def test_a_thread_inside_the_driver_is_busy_and_an_idle_one_is_not(host: FakeHost) -> None:
    """Any name, a driver's frame; the idle loop alone, another module's thread, a process: none."""
    host.proc.add(kthread(60, "nv_queue", BUSY))
    host.proc.add(kthread(61, "nv_queue", IDLE))
    host.proc.add(kthread(62, "kworker/0:1", THEIRS))
    host.proc.add(kthread(63, "kworker/0:2", "[<0>] nvidia_close_deferred+0x1/0x2 [nvidia]\n", "D"))
    host.proc.add([FakeTask(64, "python", stack=BUSY)])
    facts = host.facts()
    assert facts.busy_threads == (
        BusyThread(60, "nv_queue", "uvm_spin_loop [nvidia_uvm]"),
        BusyThread(63, "kworker/0:2", "nvidia_close_deferred [nvidia]"),
    )
    assert facts.skipped == ()


def test_only_the_idle_loop_itself_is_idle(host: FakeHost) -> None:
    """Another function of the driver whose name ends like it is at work, as for `doctor --stuck`."""
    host.proc.add(kthread(60, "nv_queue", "[<0>] service_main_loop+0x1/0x2 [nvidia]\n"))
    assert host.facts().busy_threads == (BusyThread(60, "nv_queue", "service_main_loop [nvidia]"),)


def test_a_running_driver_thread_whose_stack_is_empty_may_be_busy(host: FakeHost) -> None:
    """The kernel shows no stack in state R: by name and state; a worker that runs is not the driver's."""
    host.proc.add(kthread(60, "UVM deferred release queue", "", "R"))
    host.proc.add(kthread(61, "kworker/0:1", "", "R"))
    assert host.facts().busy_threads == (
        BusyThread(60, "UVM deferred release queue", "state R, its stack does not show"),
    )


def test_a_stack_that_cannot_be_read_is_named_for_the_driver_s_threads_only(host: FakeHost) -> None:
    """A folder in the file's place stands for a read that fails."""
    for pid, comm in ((60, "nv_queue"), (61, "kworker/0:1")):
        host.proc.add(kthread(pid, comm, ""))
        stack = host.proc.root / f"{pid}/task/{pid}/stack"
        stack.unlink()
        stack.mkdir()
    facts = host.facts()
    assert facts.busy_threads == ()
    assert facts.skipped == ("kernel thread 60 (nv_queue): its stack can't be read: is a directory",)


def test_a_kernel_without_stacks_tells_by_the_state(host: FakeHost) -> None:
    """Blocked and the driver's: busy; asleep: not."""
    for pid, state in ((60, "D"), (61, "S")):
        host.proc.add(kthread(pid, "nv_queue", "", state))
        (host.proc.root / f"{pid}/task/{pid}/stack").unlink()
    assert [one.pid for one in host.facts().busy_threads] == [60]


def test_a_second_look_tells_who_is_busy_still(host: FakeHost) -> None:
    """One busy, one idle by now, one gone, one odd: busy, nothing, nothing, a sentence."""
    host.proc.add(kthread(60, "nv_queue", BUSY))
    host.proc.add(kthread(61, "nv_queue", IDLE))
    host.proc.add(kthread(63, "nv_queue", BUSY))
    (host.proc.root / "63/task/63/stat").write_text("odd")
    busy, skipped = read_busy_threads(host.proc.root, [60, 61, 62, 63])
    assert [one.pid for one in busy] == [60]
    assert skipped == ("kernel thread 63: not a stat line: 'odd'",)


@pytest.mark.root
def test_the_kernel_threads_of_this_machine_are_read_and_none_is_busy_in_a_driver() -> None:
    """Real stacks of kthreadd and its children: no driver, no busy thread, nothing that could not be read."""
    if os.geteuid() != 0:
        pytest.skip("stacks are for root")
    if Path("/proc/2/comm").read_text() != "kthreadd\n":
        pytest.skip("kernel threads don't show in this PID namespace")
    if Path("/proc/driver/nvidia").exists():
        pytest.skip("this machine has a driver: it may really be busy")
    facts = read_kernel_facts(KernelQuestion((), sys_root=None), nothing).facts
    assert facts.busy_threads == ()
    assert not [text for text in facts.skipped if text.startswith("kernel thread")]


# --- processes -------------------------------------------------------------------------------------


def add_program(host: FakeHost, pid: int, comm: str, exe: str, *args: str) -> None:
    """Add a process with a program and arguments."""
    host.proc.add([FakeTask(pid, comm)])
    folder = host.proc.root / str(pid)
    (folder / "exe").symlink_to(exe)
    (folder / "cmdline").write_text("\0".join((exe, *args, "")))


@pytest.mark.root
def test_another_reset_tool_is_found_by_program_and_argument(host: FakeHost) -> None:
    """`--gpu-reset` and `-r`, also `--gpu-reset=bus`; a query, and another program of that name, are not."""
    if os.geteuid() != 0:
        pytest.skip("only root's processes count")
    tool = "/usr/bin/nvidia-smi"
    add_program(host, 70, "nvidia-smi", tool, "--gpu-reset", "-i", "0")
    add_program(host, 71, "nvidia-smi", tool, "-r")
    add_program(host, 72, "nvidia-smi", tool, "-q")
    add_program(host, 73, "nvidia-smi", "/tmp/python3", "-r")
    add_program(host, 74, "python3", tool, "-r")
    assert host.facts().other_resets == (70, 71)
    question = KernelQuestion((), ours=(70,), sys_root=None, proc_root=host.proc.root, dev_root=host.dev)
    assert read_kernel_facts(question, nothing).facts.other_resets == (71,)


@pytest.mark.root
def test_an_agent_of_a_scheduler_is_named_by_its_program(host: FakeHost) -> None:
    """Name and program, root's own."""
    if os.geteuid() != 0:
        pytest.skip("only root's processes count")
    add_program(host, 70, "kubelet", "/usr/bin/kubelet")
    add_program(host, 71, "slurmd", "/tmp/python3")
    add_program(host, 72, "k3s-server", "/usr/local/bin/k3s")
    assert host.answer().agents == ("k3s", "kubelet")
    os.chown(host.proc.root / "70", 65534, 65534)
    assert host.answer().agents == ("k3s",)


@pytest.mark.root
def test_a_program_whose_file_was_replaced_is_still_that_program(host: FakeHost) -> None:
    """An upgrade before the restart: the agent still gives work, the tool still resets."""
    if os.geteuid() != 0:
        pytest.skip("only root's processes count")
    add_program(host, 70, "kubelite", "/snap/microk8s/1/kubelite (deleted)")
    add_program(host, 71, "nvidia-smi", "/usr/bin/nvidia-smi (deleted)", "-r")
    answer = host.answer()
    assert (answer.agents, answer.facts.other_resets) == (("kubelite",), (71,))


def test_who_is_left_out_makes_the_count_unreadable(host: FakeHost) -> None:
    """One process that did not answer before, one with an odd stat: neither is "holds nothing"."""
    host.proc.add([FakeTask(70)])
    host.proc.add([FakeTask(71)])
    host.module("nvidia", "0")
    (host.proc.root / "71/task/71/stat").write_text("odd")
    facts = host.answer(without=(70,)).facts
    assert facts.skipped == (
        "pid 70: left out: it did not answer before",
        "pid 71: not a stat line: 'odd'",
    )
    assert facts.opens == Unreadable(
        "not every open file was looked at: pid 70: left out: it did not answer before, and 1 more"
    )


def test_the_time_is_bounded_and_that_is_said(host: FakeHost) -> None:
    """No time at all: nobody was looked at, and it says so."""
    host.proc.add([FakeTask(70)])
    question = KernelQuestion((), sys_root=None, proc_root=host.proc.root, dev_root=host.dev, seconds=-1.0)
    facts = read_kernel_facts(question, nothing).facts
    assert facts.skipped == ("1 processes from pid 70 on: the time is up",)
    assert isinstance(facts.opens, Unreadable)


def test_a_simulated_host_without_a_sys_blames_nobody(host: FakeHost) -> None:
    """Every address is there, no module, no display, and none of this machine's kernel threads."""
    keeper = host.proc.add([FakeTask(70)])
    host.proc.add(kthread(60, "nv_queue", BUSY))
    question = KernelQuestion(
        (GPU,), root=keeper, ours=(60,), sys_root=None, proc_root=host.proc.root, dev_root=host.dev
    )
    facts = read_kernel_facts(question, nothing).facts
    absent = Absent("a simulated host without modules")
    modules = tuple(ModuleUse(name, absent) for name in MODULES)
    assert facts == KernelFacts((GPU,), (), modules, busy_threads=(), displays=(), opens=Known(0))


def test_sentences_are_bounded(host: FakeHost, monkeypatch: pytest.MonkeyPatch) -> None:
    """A flood is cut, and how much of it."""
    monkeypatch.setattr(kernel_facts, "_MOST_SKIPPED", 2)
    for pid in range(70, 75):
        host.proc.add([FakeTask(pid)])
    facts = host.answer(without=tuple(range(70, 75))).facts
    assert len(facts.skipped) == 3
    assert facts.skipped[-1] == "and 3 more"


# --- open files ------------------------------------------------------------------------------------

HOLD = """
import os
fd = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)
copy = os.dup(fd)
other = os.open(sys.argv[1], os.O_RDWR | os.O_NOCTTY)
child = os.fork()
if child == 0:
    import signal
    signal.pause()
ready()
os.waitpid(child, 0)
"""


@pytest.fixture
def held() -> Iterator[tuple[int, DeviceNumber]]:
    """Give a device, and a child that opened it twice, has a duplicate, and a forked child of its own."""
    with device() as (_, path, number), script(HOLD, path) as child:
        try:
            yield child, number
        finally:
            below = Path(f"/proc/{child}/task/{child}/children").read_text().split()
            for pid in map(int, below):
                os.kill(pid, 9)


@pytest.mark.process
def test_open_files_are_counted_and_not_descriptors(held: tuple[int, DeviceNumber]) -> None:
    """Two opens, a duplicate, all inherited by a fork: two files in six descriptors, ours apart."""
    child, number = held
    question = KernelQuestion((), devices=(number,), ours=(child,), root=child, sys_root=None)
    assert read_kernel_facts(question, nothing).facts.opens == Known(2)


@pytest.mark.process
def test_our_own_open_files_count_beside_those_below_a_root(held: tuple[int, DeviceNumber]) -> None:
    """The child's two, and the one that this process (given as ours) has open itself."""
    child, number = held
    ours = (os.getpid(),)
    question = KernelQuestion((), devices=(number,), ours=ours, root=child, sys_root=None)
    # Below the child is only its fork, which inherited both of its open files.
    assert read_kernel_facts(question, nothing).facts.opens == Known(3)


@pytest.mark.process
@pytest.mark.root
def test_a_process_whose_descriptors_are_forbidden_makes_the_count_unreadable(
    held: tuple[int, DeviceNumber],
) -> None:
    """Over the whole machine: either all was seen, and the count is right, or it is unreadable."""
    _, number = held
    facts = read_kernel_facts(KernelQuestion((), devices=(number,), sys_root=None), nothing).facts
    if isinstance(facts.opens, Unreadable):
        assert facts.opens.why.startswith("not every open file was looked at: pid ")
    else:
        assert facts.opens == Known(3)


def test_descriptors_are_taken_from_places_and_mappings_are_not() -> None:
    """A leader's table, a thread's own, a mapping: the first two, by the task that has them."""
    nvidia = DeviceNumber(195, 0)
    places = {b"7/fd/3": nvidia, b"7/task/9/fd/4": nvidia, b"7/map_files/1-2": nvidia}
    assert descriptors_of(places) == {nvidia: [(7, 3), (9, 4)]}


@pytest.mark.process
def test_a_descriptor_that_vanished_counts_for_nothing() -> None:
    """Closed, or its process gone: no file, and no error."""
    nvidia = DeviceNumber(195, 0)
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    own = os.open("/dev/null", os.O_RDONLY)
    copy = os.dup(own)
    closed = os.dup(own)
    os.close(closed)
    try:
        one, same = (os.getpid(), own), (os.getpid(), copy)
        found = count_files({nvidia: [one, (gone.pid, 0), (os.getpid(), closed), same]})
    finally:
        os.close(own)
        os.close(copy)
    assert found == {nvidia: 1}


@pytest.mark.process
def test_a_path_that_was_never_opened_is_no_open_file() -> None:
    """O_PATH takes no right and reaches no driver: counted, a crowd of them would hide a real user."""
    nvidia = DeviceNumber(195, 0)
    opened, path = os.open("/dev/null", os.O_RDONLY), os.open("/dev/null", os.O_PATH)
    try:
        assert count_files({nvidia: [(os.getpid(), opened), (os.getpid(), path)]}) == {nvidia: 1}
    finally:
        os.close(opened)
        os.close(path)


def test_a_flood_of_descriptors_is_not_counted() -> None:
    """Past the bound there is no figure, and why."""
    with pytest.raises(OSError, match="over 8192 descriptors"):
        count_files({DeviceNumber(195, 0): [(1, number) for number in range(8193)]})
