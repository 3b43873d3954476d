"""The form of `match`, `exempt` and `avoid` in the policy file."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import ConfigDict, Field, StrictBool, with_config

from reclaimerd.config.value_kinds import (
    CgroupGlob,
    Digest,
    GpuName,
    Label,
    NameGlob,
    Pattern,
    ProgramGlob,
    RuntimeWord,
    UidRange,
    UnitGlob,
    Word,
)


@with_config(ConfigDict(extra="forbid"))
@dataclass(frozen=True, slots=True, kw_only=True)
class SelectorTable:
    """`match`, `exempt`, `avoid`: every key that is set must hold; of its list one item suffices."""

    users: Annotated[
        tuple[Word, ...],
        Field(alias="user", description="Names of users: the real uid of the process."),
    ] = ()
    uids: Annotated[
        tuple[UidRange, ...],
        Field(alias="uid", description='Real uids, or ranges of them such as "1000-1999".'),
    ] = ()
    groups: Annotated[
        tuple[Word, ...],
        Field(alias="group", description="Names of groups that the process is in, as its own or beside it."),
    ] = ()
    exe: Annotated[
        tuple[ProgramGlob, ...],
        Field(description="Globs on the whole path of the program. A path can be made by its owner."),
    ] = ()
    sha256: Annotated[
        tuple[Digest, ...],
        Field(description="SHA-256 of the program's file. It is read once for each file, not in each pass."),
    ] = ()
    cmdline: Annotated[
        tuple[Pattern, ...],
        Field(description="RE2 patterns, searched in the arguments joined by blanks. Anybody can write any."),
    ] = ()
    unit: Annotated[
        tuple[UnitGlob, ...],
        Field(description="Globs on the name of its systemd unit, as root made it."),
    ] = ()
    cgroup: Annotated[
        tuple[CgroupGlob, ...],
        Field(description="Globs on the whole cgroup path."),
    ] = ()
    runtimes: Annotated[
        tuple[RuntimeWord, ...],
        Field(alias="runtime", description="What made its container, by the word in the cgroup path."),
    ] = ()
    namespaces: Annotated[
        tuple[NameGlob, ...],
        Field(alias="namespace", description="Globs on the Kubernetes namespace of its pod."),
    ] = ()
    labels: Annotated[
        tuple[Label, ...],
        Field(
            description='Terms of a Kubernetes label selector: "app=a", "app!=a", "tier in (a, b)", '
            '"tier notin (a)", "gpu", "!gpu". Unlike other lists all of them must hold.',
        ),
    ] = ()
    partitions: Annotated[
        tuple[NameGlob, ...],
        Field(alias="partition", description="Globs on the Slurm partition of its job."),
    ] = ()
    accounts: Annotated[
        tuple[NameGlob, ...],
        Field(alias="account", description="Globs on the Slurm account of its job."),
    ] = ()
    gpus: Annotated[
        tuple[GpuName, ...],
        Field(alias="gpu", description="UUIDs of GPUs."),
    ] = ()
    models: Annotated[
        tuple[NameGlob, ...],
        Field(alias="model", description='Globs on the GPU\'s name, such as "NVIDIA H200*".'),
    ] = ()
    mig: Annotated[
        StrictBool | None,
        Field(description="true: only GPUs in MIG mode; false: only others."),
    ] = None


EVERYBODY = SelectorTable()
