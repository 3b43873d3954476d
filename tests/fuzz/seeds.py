"""Real inputs of every kind, for the fuzz tests to bend; some stand in other tests."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.host import test_slurm_drain_text as drain_texts
from tests.host import test_slurm_text as slurm_texts
from tests.observe.test_kubelet_wire import POD
from tests.rigs.cri import Served, container, sandbox
from tests.rigs.kubelet import encoded
from tests.rigs.proto_text import message
from tests.rigs.records import containerd_config, crio_config, docker_config

UID = "9a15d2b5-c152-46b9-96e0-d57032629e1f"
CID = "3f2a" * 16

STAT = (
    "40 (python3 train) S 41 42 43 0 -1 4194304 1 2 3 4 111 22 0 0 20 0 7 0 987654 1 2 3 4 5 6 7 8 9 10 11"
    " 12 13 14 17 5 0 0 0 0 0 1 2 3 700 800 1 2 0\n"
)
STATUS = (
    "Name:\tpython3\nUmask:\t0022\nState:\tD (disk sleep)\nTgid:\t490\nNgid:\t0\nPid:\t490\nPPid:\t1\n"
    "TracerPid:\t0\nUid:\t1000\t1000\t1000\t1000\nGid:\t5\t6\t7\t8\nFDSize:\t64\nGroups:\t4 24 27 \n"
    "NStgid:\t490\t1\nNSpid:\t490\t1\nVmPeak:\t  9000 kB\nVmRSS:\t  4096 kB\nCoreDumping:\t0\nThreads:\t3\n"
    "SigQ:\t0/31\nSigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\nSigBlk:\t0000000000000000\n"
    "voluntary_ctxt_switches:\t7\nnonvoluntary_ctxt_switches:\t158\n"
)
IO = "rchar: 100\nwchar: 20\nsyscr: 3\nsyscw: 4\nread_bytes: 5\nwrite_bytes: 6\ncancelled_write_bytes: 7\n"
TCP = (
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    "   0: 0100007F:0277 0100007F:D431 01 00000000:00000000 00:00000000 00000000     0        0 777 1 0\n"
    "   1: 0000000000000000FFFF00000100007F:0277 0000000000000000FFFF00000100007F:D431 01 00000000:00000000"
    " 00:00000000 00000000     0        0 778 1 0\n"
)
ARGUMENTS = (
    "python train.py --password hunter2 --token=abc AWS_SECRET_ACCESS_KEY=zzz https://me:pw@host/x",
    'curl -H "Authorization: Bearer abcdef" {"secret": "v"} hf_abcdefghijklmnopqrst',
)
CGROUPS = (
    f"0::/kubepods.slice/kubepods-pod{UID.replace('-', '_')}.slice/cri-containerd-{CID}.scope\n",
    "0::/system.slice/slurmstepd.scope/job_123/step_0/user/task_0\n",
    "12:devices:/slurm/uid_1000/job_7/step_batch\n9:name=systemd:/user.slice/user-1000.slice/session-3.scope\n",
    f"0::/system.slice/docker-{CID}.scope (deleted)\n",
    "0::/user.slice/user-1000.slice/user@1000.service/app.slice/a\\x2db.service\n",
    f"0::/nomad.slice/share.slice/{UID}.train.scope\n0::/machine.slice/machine-vm1.scope\n0::/lxc.payload.c1\n",
)
STACK = (
    "[<0>] nv_wait+0x1/0x2 [nvidia]\n[<0>] os_acquire+0x10/0x20 [nvidia]\n? uvm_x+0x1/0x2 [nvidia_uvm]\n"
    "[<ffffffff81234567>] do_exit+0x2f/0xb10\n[<0>] 0xffffffffffffffff\n"
)
HUNG = "INFO: task python3:490 blocked for more than 120 seconds."
XIDS = (
    "NVRM: Xid (PCI:0000:3b:00): 48, pid=1, name=x, DBE",
    "NVRM: Xid (PCI:0000:3b:00 GPU-I:05 GPU-CI:01): 31, pid='1234', name=a b, Ch 00000008",
    "NVRM: GPU at PCI:0000:3b:00: GPU has fallen off the bus",
    "NVRM: The NVIDIA GPU 0000:3b:00.0 (PCI ID: 10de:20b2) has fallen off the bus",
)
RECORDS = (
    *(f"4,7,2500000,-;{one}\n SUBSYSTEM=pci\n DEVICE=+pci:0000:3b:00.0\n" for one in XIDS),
    f"3,8,2600000,-,caller=T1;{HUNG}\n",
    "12,9,2700000,-;python: \\x0aNVRM: Xid\n",
)
EVENTS: tuple[dict[str, Any], ...] = (
    {
        "SUBSYSTEM": "pci", "ACTION": "unbind", "DEVPATH": "/devices/pci0000:3a/0000:3a:00.0/0000:3b:00.0",
        "PCI_SLOT_NAME": "0000:3b:00.0", "PCI_CLASS": "30200", "PCI_ID": "10DE:20B2",
        "DRIVER": "nvidia", "XID": "79",
    },
    {"SUBSYSTEM": "drm", "ACTION": "change", "DEVPATH": "/devices/pci0000:3a/0000:3b:00.0/drm/card0"},
)  # fmt: skip
RESETS = (
    "GPU 00000000:3B:00.0 was successfully reset.\nAll done.\n",
    "GPU Reset couldn't run because GPU 00000000:3B:00.0 is the primary GPU.\nIn use by another client\n",
    "Unable to reset this GPU because it's being used by some other process: Not Supported\n",
)
LABELS = {
    "io.kubernetes.pod.namespace": "ml", "io.kubernetes.pod.name": "train-0", "io.kubernetes.pod.uid": UID,
    "io.kubernetes.container.name": "train", "app": "llm", "team": "x",
}  # fmt: skip
_GRANTS: dict[str, Any] = {
    "process": {
        "env": ["NVIDIA_VISIBLE_DEVICES=all", "PATH=/bin"],
        "capabilities": {"bounding": ["CAP_SYS_ADMIN", "CAP_KILL"]},
    },
    "linux": {
        "devices": [{"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0}],
        "resources": {"devices": [{"allow": True, "type": "c", "major": 195, "minor": 0, "access": "rw"}]},
        "cgroupsPath": f"kubepods-pod{UID}.slice:cri-containerd:{CID}",
    },
}
CONTAINERD = (containerd_config(UID), {**containerd_config(UID), **_GRANTS})
CRIO = (crio_config(UID, app="train"), {**crio_config(UID), **_GRANTS})
DOCKER = (
    docker_config(CID, "web", {"tier": "gpu"}),
    {**docker_config(CID, "k8s_train_x", LABELS), "HostConfig": {"Privileged": True}},
)
STORAGE: tuple[list[dict[str, Any]], ...] = (
    [{"id": CID, "names": ["web"], "metadata": '{"image-name": "docker.io/x", "name": "web"}'}],
)
ENVIRONMENT = "A=b \"RECLAIMERD_SPARE=until friday\" 'C=d e' RECLAIMERD_SPARE=yes"
MARKS = (
    f"Id=a.service\nControlGroup=/a\nEnvironment={ENVIRONMENT}\n\nId=b.service\nControlGroup=\nEnvironment=\n"
)
UNITS = (
    "Id=a.service\nLoadState=loaded\nActiveState=active\nRequiredBy=b.service\n\n"
    "Id=b.service\nLoadState=not-found\nActiveState=inactive\n"
)
GRES = (slurm_texts.GRES, slurm_texts.MIXED)
JOB = slurm_texts.a_text()
NODE = f"{slurm_texts.NODE}   Reason={drain_texts.REASON} [root@2026-11-30T10:00:27]\n"
REASON = drain_texts.REASON
SLURM_CONFIG = (
    "Configuration data as of 2026\nClusterName = c1\nKillWait = 30 sec\nUnkillableStepTimeout = 60 sec\n"
    "SelectType = select/cons_tres\nSlurmdParameters = (null)\n"
)
DRAIN_MARKS = (
    f"1796052827|root|drained|gpu[01-03]|{REASON}\n1796052829|root|down*|gpu08|{REASON}\n",
    "1796052830|ann|drained|gpu09|maintenance\n1796052831|root|maint|gpu10|reclaimerd: written by hand\n",
)
_SERVED = asdict(
    Served(CID, "u1", labels={"app": "llm", "empty": ""}, annotations={"reclaimerd.io/spare": "yes"})
)
CRI_CONTAINERS = (message(1, container(_SERVED)), message(1, container(_SERVED)) * 2)
CRI_PODS = (message(1, sandbox(_SERVED)),)
KUBELET = (encoded([POD]), encoded([POD, POD]))
ADDRESSES = (
    "https://hooks.example/x?y=1", "http://127.0.0.1:8080/notify", "https://[::1]:443/", "http://localhost",
    "https://h",
)  # fmt: skip
TEMPLATE = '{"text": "$reason on $host", "n": "$$5"}'
AUDIT_LINE = (
    b'{"schema":1,"seq":2,"prev":"'
    + b"0" * 64
    + b'","at":"2026-11-30T10:00:27Z","kind":"note","reason":"a note"'
    b',"hash":"' + b"1" * 64 + b'"}'
)
_CONFIG = Path(__file__).resolve().parent.parent.parent / "config"
POLICIES = tuple(sorted(path.read_text(encoding="utf-8") for path in (_CONFIG / "examples").glob("*.toml")))


def texts_only(given: Any) -> dict[str, str]:
    """Return an object's entries that are text, as udev and runtimes give them."""
    return (
        {key: value for key, value in given.items() if isinstance(value, str)}
        if isinstance(given, dict)
        else {}
    )
