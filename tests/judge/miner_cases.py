"""Labelled histories of holders for rules of kind `miner`: miners in disguise, and what is taken for them.

Made by hand from facts and public incidents. `reclaim` says here whether the owner is to be warned: nothing
is ever taken by such a rule. `DISGUISED` are miners that no rule of this kind can tell: that is no secret.
"""

from dataclasses import replace

from reclaimerd.model.policy import RuleKind
from tests.judge.series_cases import UNTOLD, Case, Line, Program, Steps, every

MINER = RuleKind.MINER
FULL: Steps = ((0, 99),)
HALF: Steps = ((0, 50),)
TABLE: Line = ((0, 4.5),)
SMALL: Line = ((0, 1.5),)
LARGE: Line = ((0, 118),)
MINUTES = 24.0
PUBLIC = "8.8.8.8"
"""Stands for any public address."""
PUBLIC_POOL = ((PUBLIC, 3333),)
SHARED = ((PUBLIC, 5555),)
WEB = ((PUBLIC, 443),)
INSIDE = (("10.0.0.7", 5555),)


def mines(
    name: str, program: Program, *, memory: Line = TABLE, use: Steps = FULL, total_gib: int = 141
) -> Case:
    """Return a miner."""
    return Case(name, MINER, True, memory, use, MINUTES, program=program, total_gib=total_gib)


def works(name: str, program: Program, *, memory: Line = SMALL, use: Steps = FULL) -> Case:
    """Return an honest program, with next to no input or output where `program` does not say otherwise."""
    return Case(name, MINER, False, memory, use, MINUTES, program=program)


TRAINING = Program(quiet=True)
HASHCAT = Program("hashcat", "/usr/bin/hashcat", ("hashcat", "-m", "22000", "hash.txt", "words"), quiet=True)
C52_ARGUMENTS = (
    "python3 \n\n\n\n\n--no-watchdog",
    "-a",
    "kapow",
    "-o",
    "stratum+tcp://rvn.2miners.com:6060",
    "-u",
    "WALLET.w",
    "--proxy",
    "192.0.2.1:7273",
)
C53 = Program(
    "xmrig",
    "/home/jovyan/xmrig",
    ("./xmrig", "-ostratum+tcp://gulf.moneroocean.stream:80", "-a", "rx", "-k", "-u", "WALLET.aa1"),
    ancestors=("python", "jupyter-noteboo"),
    quiet=True,
)
BEHIND_A_DOT = Program("sd", "/dev/shm/.x/sd (deleted)", ("sd",), quiet=True)
TREX = Program("t-rex", "/home/u/t-rex", ("./t-rex", "-a", "kawpow"), quiet=True)
MINERS = (
    mines("C52 padded arguments", Program("miner", "/usr/bin/python3.10", C52_ARGUMENTS, quiet=True)),
    mines(
        "C52 padded arguments, and its load is not told",
        Program("miner", "/usr/bin/python3.10", C52_ARGUMENTS),
        use=((0, None),),
    ),
    mines("C53 child of a notebook's kernel", C53),
    mines("C53 child of a notebook's kernel, just started, at half load", C53, use=HALF),
    mines("C55 hidden by a rootkit, run from shared memory", BEHIND_A_DOT, memory=((0, 0.44),)),
    mines(
        "calls itself a kernel thread", Program("kworker/0:1", "/home/u/b", ("[kworker/0:1]",), quiet=True)
    ),
    mines("calls itself python3", Program("python3", "/dev/shm/.k/p", ("python3", "train.py"), quiet=True)),
    mines("runs from memory", Program("python3", "/memfd:a (deleted)", ("python3", "a.py"), quiet=True)),
    mines("wiped its arguments", Program("a", "/tmp/a (deleted)", (), quiet=True)),
    mines("t-rex at its pool", replace(TREX, connections=PUBLIC_POOL)),
    mines("t-rex by TLS on port 443", replace(TREX, connections=WEB)),
    mines("t-rex on a small GPU", TREX, memory=((0, 5),), total_gib=8),
    mines("t-rex behind a tunnel", replace(TREX, connections=INSIDE, quiet=False), use=FULL, memory=TABLE),
    mines(
        "lolMiner whose load dips for new work",
        Program("lolMiner", "/opt/l/lolMiner", ("lolMiner",), quiet=True),
        use=((0, 99), (12, 40), (12.3, 99)),
    ),
    mines(
        "renamed, at its pool",
        Program("train", "/home/u/train", ("./train",), quiet=True, connections=PUBLIC_POOL),
    ),
    mines(
        "renamed, its file is listed",
        Program("train", "/home/u/train", ("./train",), quiet=True, listed=True),
    ),
    mines(
        "renamed, in a pod, pool in its arguments",
        Program("app", "/app/app", ("/app/app", "--url", "stratums://pool.example:443"), quiet=True),
    ),
    mines(
        "from a notebook, in /tmp, at a port of pools",
        Program("w", "/tmp/w", ("./w",), quiet=True, connections=SHARED, ancestors=("bash", "jupyter-lab")),
    ),
)
NO_MINERS = (
    works("training from disk", Program(), memory=LARGE),
    works("training on a small set in GPU memory", TRAINING),
    works("training whose loaders are children", TRAINING, memory=LARGE),
    works("training, its signs can't be read", UNTOLD),
    works("training in a MIG instance", TRAINING, use=((0, None),)),
    works("training, python upgraded meanwhile", replace(TRAINING, exe="/usr/bin/python3.11 (deleted)")),
    works(
        "training in an environment in /tmp, deleted",
        replace(TRAINING, exe="/tmp/env/bin/python3.11 (deleted)"),
    ),
    works("training in a cache in /tmp", replace(TRAINING, exe="/tmp/.cache/uv/bin/python3.11")),
    works(
        "training in an environment behind a dot",
        replace(TRAINING, exe="/home/u/.conda/envs/t/bin/python3.11"),
    ),
    works(
        "training by a program that a package wraps",
        replace(TRAINING, exe="/nix/store/x-py/bin/.python3.11-wrapped"),
    ),
    works(
        "training with its source as an argument",
        replace(TRAINING, argv=("python3", "-c", "\nimport a\n" + " " * 20 + "\nb()")),
    ),
    works("training against peers on a pool's port", replace(TRAINING, connections=(("10.0.0.7", 3333),))),
    works("reinforcement learning, peers on port 5555", replace(TRAINING, connections=INSIDE)),
    works("reinforcement learning, public peers on port 5555", replace(TRAINING, connections=SHARED)),
    works("T-Rex detector", replace(TRAINING, argv=("python3", "t-rex.py"))),
    works("text miner", Program("miner", "/opt/text/miner", ("miner", "--corpus", "news"), quiet=True)),
    works("ray worker", Program("ray::train", "/usr/bin/python3.11", ("ray::train()",), quiet=True)),
    works(
        "celery worker",
        Program("celery", "/usr/bin/python3.11", ("[celeryd: w@host:MainProcess]",), quiet=True),
    ),
    works(
        "inference server, full",
        Program("VLLM::EngineCor", "/usr/bin/python3.12", ("VLLM::EngineCore",), quiet=True),
        memory=LARGE,
    ),
    works("inference server, by bursts", Program(quiet=True), memory=LARGE, use=every(2, 1, 95, 24)),
    works("embeddings, a small model, full", replace(TRAINING, argv=("python3", "serve.py"))),
    works(
        "ffmpeg with NVENC", Program("ffmpeg", "/usr/bin/ffmpeg", ("ffmpeg", "-i", "a.mkv")), use=((0, 12),)
    ),
    works("ffmpeg with filters in CUDA", Program("ffmpeg", "/usr/bin/ffmpeg", ("ffmpeg", "-i", "a.mkv"))),
    works(
        "notebook at work",
        Program(
            "python3",
            "/usr/bin/python3.11",
            ("python3", "-m", "ipykernel_launcher"),
            quiet=True,
            ancestors=("jupyter-lab",),
        ),
    ),
    works("training started from a notebook", replace(TRAINING, ancestors=("python3", "jupyter-lab"))),
    works(
        "training started from a notebook, in /tmp",
        replace(TRAINING, exe="/tmp/env/bin/python3.11", ancestors=("python3", "jupyter-lab")),
    ),
    works(
        "folding proteins",
        Program(
            "FahCore_23",
            "/var/lib/fahclient/cores/FahCore_23",
            ("FahCore_23",),
            quiet=True,
            connections=((PUBLIC, 8080),),
        ),
    ),
    works(
        "folding proteins, from a home",
        Program("FahCore_23", "/home/u/.FAHClient/cores/FahCore_23", ("FahCore_23",), quiet=True),
    ),
    works(
        "BOINC, pulsars",
        Program("hsgamma_FGRPB1G", "/var/lib/boinc/projects/e/hsgamma", ("../hsgamma",), quiet=True),
    ),
    works("molecular dynamics", Program("gmx", "/usr/bin/gmx", ("gmx", "mdrun"), quiet=True)),
    works("password audit", HASHCAT),
    works("password audit from /tmp", replace(HASHCAT, exe="/tmp/hashcat/hashcat.bin")),
    works(
        "gpu-burn",
        Program("gpu_burn", "/opt/gpu-burn/gpu_burn", ("./gpu_burn", "3600"), quiet=True),
        memory=LARGE,
    ),
    works(
        "renderer from an AppImage",
        Program("blender", "/tmp/.mount_blendeA1/blender", ("blender", "-b"), quiet=True),
    ),
    works(
        "renderer, full", Program("octane", "/opt/octane/octane", ("octane",), quiet=True), memory=((0, 20),)
    ),
    works("debugged by valgrind", replace(TRAINING, exe="/usr/libexec/valgrind/memcheck-amd64-linux")),
)
DISGUISED = (
    mines(
        "renamed, at home, by TLS on port 443",
        Program("train", "/home/u/train", ("./train",), quiet=True, connections=WEB),
    ),
    mines("known name, at half load, nothing else", TREX, use=HALF),
    mines("known name, and its load is not told", TREX, use=((0, None),)),
)
