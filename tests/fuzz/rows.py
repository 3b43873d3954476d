"""Everything that reads what others wrote, a row each: a new parser is attacked by being given a row here."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from reclaimerd.act.reset_texts import outcome_of_tool
from reclaimerd.config.check import examine
from reclaimerd.config.source import Source
from reclaimerd.errors import ReclaimerdError
from reclaimerd.host import (
    grant_text,
    kernel_text,
    notice_text,
    oci_text,
    owner_text,
    proc_text,
    sign_text,
    slurm_drain_text,
    slurm_text,
    web_address,
    xid_text,
)
from reclaimerd.observe import (
    cluster,
    cri_wire,
    kernel_scan,
    kubelet_wire,
    nvml_quirks,
    owner_marks,
    protobuf,
    udev,
    units,
    workloads,
)
from reclaimerd.record import audit_read, chain
from tests.fuzz import seeds
from tests.fuzz.strategies import Given, json_texts, objects, payloads, policies, texts

Parser = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Row:
    """One reader: what it is given, and which errors it may answer with. `call` where it needs more.

    `shown`: every text in its answer is for people, so nothing in it may move a terminal's cursor.
    """

    parser: Parser
    given: Given
    allowed: tuple[type[Exception], ...] = ()
    call: Callable[[Any], Any] | None = None
    shown: bool = False

    @property
    def name(self) -> str:
        """Return `module.function`."""
        return f"{self.parser.__module__}.{self.parser.__qualname__}"

    def __call__(self, given: Any) -> Any:
        """Read it to the end."""
        answer = (self.call or self.parser)(given)
        return list(answer) if isinstance(answer, Iterator) else answer


def _xid(text: str) -> Any:
    return xid_text.parse_xid(kernel_text.LogRecord(1, 1.0, 4, from_kernel=True, text=text))


def _policy(content: bytes) -> Any:
    return examine(Source(Path("/etc/reclaimerd/reclaimerd.toml"), content, ())).faults


def _owned(controllers: str, path: str) -> bool:
    return not controllers.startswith("cpu") and "user" not in path


def _docker_names(text: str) -> Any:
    """Read what is shown of a record; its id is only compared."""
    record = oci_text.parse_docker_config(text)
    return None if record is None else record.names


def _is_address(url: str) -> bool:
    """Tell whether `address_fault` lets an address pass: it stands before the other two."""
    return web_address.address_fault(url) == ""


STRICT = (ValueError,)
ROWS = (
    Row(proc_text.parse_stat, texts(seeds.STAT), STRICT),
    Row(proc_text.parse_status, texts(seeds.STATUS), STRICT),
    Row(proc_text.is_number, texts("4026531840")),
    Row(proc_text.parse_cgroup, texts(*seeds.CGROUPS)),
    Row(proc_text.printable, texts(seeds.HUNG), shown=True),
    Row(
        proc_text.mask_secrets,
        texts(*seeds.ARGUMENTS),
        call=lambda text: proc_text.mask_secrets(tuple(text.split(" "))),
    ),
    Row(workloads.workload_of, texts(*seeds.CGROUPS), call=lambda text: workloads.workload_of(text, _owned)),
    Row(sign_text.parse_io, texts(seeds.IO), STRICT),
    Row(sign_text.parse_tcp, texts(seeds.TCP)),
    Row(sign_text.socket_inode, texts("socket:[4026531840]")),
    Row(kernel_text.parse_stack, texts(seeds.STACK), shown=True),
    Row(kernel_text.parse_switches, texts(seeds.STATUS)),
    Row(kernel_text.parse_record, texts(*seeds.RECORDS), shown=True),
    Row(kernel_text.parse_hung_task, texts(seeds.HUNG), shown=True),
    Row(kernel_text.topic_of, texts(seeds.HUNG, *seeds.RECORDS), shown=True),
    Row(kernel_scan.is_driver_module, texts("nvidia_uvm", "nvidia")),
    Row(xid_text.parse_xid, texts(*seeds.XIDS), call=_xid),
    Row(
        udev.device_event,
        objects(*seeds.EVENTS).map(seeds.texts_only),
        call=lambda one: udev.device_event(one, {"0000:3b:00.0"}),
    ),
    Row(nvml_quirks.driver_fault, texts("535.129.03", "570.86.15")),
    Row(nvml_quirks.pci_address, texts("00000000:3B:00.0"), STRICT),
    Row(
        outcome_of_tool,
        texts(*seeds.RESETS).map(lambda text: (len(text) % 3 - 1, text)),
        call=lambda one: outcome_of_tool(*one),
        shown=True,
    ),
    Row(oci_text.parse_containerd_config, json_texts(*seeds.CONTAINERD), shown=True),
    Row(oci_text.parse_crio_config, json_texts(*seeds.CRIO), shown=True),
    Row(oci_text.parse_docker_config, json_texts(*seeds.DOCKER), call=_docker_names, shown=True),
    Row(
        oci_text.parse_storage_list,
        json_texts(*seeds.STORAGE),
        call=lambda text: oci_text.parse_storage_list(text, seeds.CID),
        shown=True,
    ),
    Row(oci_text.parse_stepd_job, texts("slurmstepd: [123.batch]", "slurmstepd: [7.extern]")),
    Row(oci_text.parse_job, texts(seeds.JOB), call=lambda text: oci_text.parse_job(text, "1"), shown=True),
    Row(oci_text.names_of_labels, objects(seeds.LABELS).map(seeds.texts_only), shown=True),
    Row(grant_text.grants_of_bundle, objects(*seeds.CONTAINERD), shown=True),
    Row(grant_text.grants_of_docker, objects(*seeds.DOCKER), shown=True),
    Row(owner_text.mark_in_environment, texts(seeds.ENVIRONMENT), shown=True),
    Row(owner_text.mark_of, texts("yes", "until friday"), shown=True),
    Row(owner_marks.parse_marks, texts(seeds.MARKS)),
    Row(
        units.parse_show,
        texts(seeds.UNITS),
        call=lambda text: units.parse_show(text, ["a.service", "b.service"]),
    ),
    Row(slurm_text.parse_gres, texts(*seeds.GRES)),
    Row(
        slurm_text.parse_job_here,
        texts(seeds.JOB),
        call=lambda text: slurm_text.parse_job_here(text, "1", "gpu01", {"shard"}),
        shown=True,
    ),
    Row(slurm_text.parse_node, texts(seeds.NODE), call=lambda text: slurm_text.parse_node(text, "gpu01")),
    Row(slurm_text.parse_config, texts(seeds.SLURM_CONFIG)),
    Row(
        slurm_text.names_node,
        texts("gpu[01-04,7],cpu1", "gpu01"),
        call=lambda text: slurm_text.names_node(text, "gpu03"),
    ),
    Row(slurm_drain_text.parse_ours, texts(seeds.REASON)),
    Row(
        slurm_drain_text.parse_stands,
        texts(seeds.NODE),
        call=lambda text: slurm_drain_text.parse_stands(text, "gpu01"),
    ),
    Row(slurm_drain_text.parse_marks, texts(*seeds.DRAIN_MARKS)),
    Row(slurm_drain_text.parse_total, texts("128\n", "Nodes=128")),
    Row(slurm_drain_text.parse_nodes, texts("gpu01\ngpu02\n")),
    Row(cri_wire.containers_of, payloads(*seeds.CRI_CONTAINERS), (ReclaimerdError,)),
    Row(cri_wire.sandboxes_of, payloads(*seeds.CRI_PODS), (ReclaimerdError,)),
    Row(cri_wire.request_for, texts(seeds.CID), STRICT),
    Row(kubelet_wire.list_response, payloads(*seeds.KUBELET), STRICT),
    Row(protobuf.fields_of, payloads(*seeds.KUBELET, *seeds.CRI_PODS), STRICT),
    Row(protobuf.message_of, Given(st.binary(max_size=20) | st.integers(0, 2**64 - 1)), STRICT),
    Row(protobuf.text_of, Given(st.binary(max_size=20) | st.integers(0, 2**64 - 1)), STRICT),
    Row(cluster.this_node, texts("gpu-01.example"), (ReclaimerdError,)),
    Row(web_address.address_fault, texts(*seeds.ADDRESSES)),
    Row(
        web_address.plain_fault,
        texts(*seeds.ADDRESSES).filter(_is_address),
        call=lambda url: web_address.plain_fault(url, allowed=True),
    ),
    Row(web_address.shown_host, texts(*seeds.ADDRESSES).filter(_is_address), shown=True),
    Row(notice_text.template_fault, texts(seeds.TEMPLATE)),
    Row(examine, policies(*seeds.POLICIES), call=_policy, shown=True),
    Row(chain.link_of, payloads(seeds.AUDIT_LINE)),
    Row(chain.kind_of, payloads(seeds.AUDIT_LINE)),
    Row(audit_read.record_of, payloads(seeds.AUDIT_LINE)),
)
"""The control socket's calls have tests/daemon/test_mutated.py, the audit log's files a test beside this."""

NO_PARSERS = {
    "reclaimerd.host.kube_credentials.read_credentials": "opens a file by its name",
    "reclaimerd.host.node_name.node_name": "is given a word of the policy",
    "reclaimerd.observe.open_processes.open_process": "is given a folder and a pid",
    "reclaimerd.observe.peers.cgroup_root": "is given one of the kernel's own words",
    "reclaimerd.observe.peers.read_members": "is given a path",
    "reclaimerd.observe.proc_files.read_descriptor_count": "is given a path",
    "reclaimerd.observe.proc_files.read_whole": "is given a path",
    "reclaimerd.observe.slurm_places.read_job_id": "is given a path",
}
"""What takes a text and reads nothing in it, with what it is given instead."""
