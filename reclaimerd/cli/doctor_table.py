"""Every check of `doctor`, in one table: add one here, with a function that says what it found.

docs/doctor.md is made from this table.
"""

from reclaimerd.cli import doctor_access as access
from reclaimerd.cli import doctor_around as around
from reclaimerd.cli import doctor_driver as driver
from reclaimerd.cli import doctor_kernel as kernel
from reclaimerd.cli import doctor_network as network
from reclaimerd.cli import doctor_records as records
from reclaimerd.cli.doctor_words import Check

CHECKS = (
    Check("pynvml", "driver", "the module `pynvml` is nvidia-ml-py's", driver.read_package),
    Check("driver", "driver", "driver and library answer, and are 535.113 or newer", driver.read_driver),
    Check("gpus", "driver", "the driver lists its GPUs, as many as the daemon sees", driver.read_gpus),
    Check("persistence", "driver", "persistence mode is on", driver.read_persistence),
    Check("recovery", "driver", "no GPU waits for a reset or a reboot", driver.read_recovery),
    Check("mig", "driver", "which GPUs are in MIG mode", driver.read_mig),
    Check("mps", "driver", "which GPUs are shared through MPS", driver.read_mps),
    Check("python", "kernel", "Python and the required packages are new enough", kernel.read_python),
    Check("pid-namespace", "kernel", "this is the host's own PID namespace", kernel.read_pid_namespace),
    Check("proc", "kernel", "/proc shows every process: no hidepid, no subset", kernel.read_proc_mount),
    Check("cgroup", "kernel", "which cgroup version is mounted", kernel.read_cgroups),
    Check("kernel-log", "kernel", "/dev/kmsg can be read, where Xids stand", kernel.read_kernel_log),
    Check("pidfd", "kernel", "pidfd_open and pidfd_send_signal work", kernel.read_pidfd),
    Check("daemon", "policy", "a daemon answers, of this version", access.read_daemon),
    Check("attention", "policy", "the daemon asks for no person", access.read_attention),
    Check("policy", "policy", "the policy file loads, and only root could write it", access.read_policy),
    Check("socket", "policy", "the control socket's owner, group and mode", access.read_socket),
    Check("groups", "policy", "the groups exist that the policy gives access", access.read_groups),
    Check("nvidia-smi", "policy", "the vendor's tool may be run for a reset", access.read_reset_tool),
    Check("programs", "policy", "programs that the policy names run, and are root's", access.read_programs),
    Check("capabilities", "policy", "the daemon has what the stages need", kernel.read_capabilities),
    Check(
        "state-dir", "records", "the state directory is root's alone, with room", records.read_state_directory
    ),
    Check("log-dir", "records", "the audit log's directory is root's, with room", records.read_log_directory),
    Check("reserve", "records", "room is kept for acts on a full disk", records.read_reserve),
    Check("writer", "records", "one process alone writes to the state directory", records.read_writer),
    Check("audit", "records", "the audit log ends as the store remembers", records.read_audit),
    Check("anchor", "records", "the audit log's head is kept where the policy says", records.read_anchor),
    Check("ntp", "records", "the clock is synchronised", records.read_synchronised),
    Check("clock", "records", "the clock stands after the boot and the last record", records.read_clock),
    Check("systemd", "neighbours", "systemd manages this host", around.read_systemd),
    Check("unit", "neighbours", "the daemon's unit is loaded, enabled and well", around.read_unit),
    Check("kubelet", "neighbours", "the kubelet's socket is there and root's", around.read_kubelet),
    Check("runtimes", "neighbours", "container runtimes' sockets are root's", around.read_runtimes),
    Check("slurm", "neighbours", "scontrol is there and the controller answers", around.read_slurm),
    Check("cluster", "network", "the cluster answers and permits what is needed", network.read_cluster),
    Check("webhooks", "network", "receivers resolve, their certificates are good", network.read_webhooks),
)
_HEAD = """\
# doctor

Made by `make docs` from the code; do not edit. `reclaimctl doctor` asks whether this host is ready: {count} checks, each with the mend beside what it found. It changes nothing and sends nothing but questions: the cluster is asked what we may do, the receiver of a webhook only shakes hands.

    reclaimctl doctor
    reclaimctl doctor --json
    reclaimctl doctor --stuck

It works with the daemon and without it, as root and as a user. Checks of one group run one after the other in a child of their own, all groups at once, each within {bound:g} s: a driver, a disk or a server that hangs makes `unknown` and nobody waits for it.

| state | meaning |
| --- | --- |
| fail | something does not work; a person mends it |
| warn | it works, and not as well as it could |
| unknown | it can't be told, and why: often that only root may see it |
| ok | all is well, or there is no such thing on this host |

The exit code is 0 when every check is ok or warns, else 10: what can't be told is never "ready". While a reset is under way, or the driver was released for a person's work, the driver is not opened: its checks are unknown then. `--json` is described by [doctor.schema.json](doctor.schema.json). What is stuck in the kernel is another question, which `--stuck` answers: [how-stuck.md](how-stuck.md).

| check | group | what is looked at |
| --- | --- | --- |
"""  # noqa: E501 - a line of the page is a paragraph


def as_markdown(bound_seconds: float) -> str:
    """Return docs/doctor.md."""
    head = _HEAD.format(count=len(CHECKS), bound=bound_seconds)
    return head + "".join(f"| `{one.name}` | {one.group} | {one.asks} |\n" for one in CHECKS)
