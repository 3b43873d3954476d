"""What comes into force: the whole file or nothing, and only from hands that may."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from reclaimerd.config import load as load_module
from reclaimerd.config.load import LoadedPolicy, load
from reclaimerd.errors import ConfigError, ExitCode
from reclaimerd.model.policy import (
    FaultDomain,
    FaultRule,
    GpuSpan,
    ListedStage,
    Mode,
    Policy,
    ResetSettings,
    Rule,
    RuleAction,
    Scope,
    Selector,
    Threshold,
    UserProtection,
)

FULL = """\
[daemon]
mode = "enforce"
interval = "500ms"
[ladder]
sigterm = "1m30s"
[breaker]
gpu_percent = "50%"
[drain]
fault_domains = ["workload"]
[audit]
file_size = "1MiB"
[[protect]]
name = "keep"
exe = "/usr/bin/keep"
unit = "keep.service"
uids = [7, "10-19"]
[[rule]]
name = "cap"
kind = "memory"
above = "70%"
gpus = "all"
for = "10s"
readings = 3
mode = "enforce"
action = "warn"
stages = ["sigterm", "sigkill", "reset"]
scope = "tree"
grace = "5s"
sigkill = "6s"
even_if_allocated = true
[rule.match]
user = ["root"]
uid = ["1000-1999", 1001]
exe = ["/usr/bin/python3*"]
cmdline = ['train\\.py']
cgroup = ["/user.slice/*"]
gpu = ["GPU-1"]
[rule.exempt]
uid = [0]
"""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")


def written(tmp_path: Path, text: str = FULL) -> Path:
    """Write a policy file that nobody else may write."""
    path = tmp_path / "policy.toml"
    path.write_text(text, encoding="utf-8")
    path.chmod(0o644)
    return path


def refusal(path: Path) -> ConfigError:
    """Return the error with which a file is refused."""
    with pytest.raises(ConfigError) as caught:
        load(path, enforce_ownership=True)
    return caught.value


def test_a_file_becomes_typed_values(tmp_path: Path) -> None:
    """Each key arrives under its own field, as a number, a word or a range, never as a text."""
    path = written(tmp_path)
    loaded = load(path, enforce_ownership=True)
    policy = loaded.policy
    assert (policy.mode, policy.interval_seconds) == (Mode.ENFORCE, 0.5)
    assert policy.ladder.sigterm_seconds == 90
    assert policy.breaker.gpu_percent == 50
    assert policy.drain.fault_domains == (FaultDomain.WORKLOAD,)
    assert policy.audit.file_bytes == 2**20
    assert policy.protections == (
        UserProtection("keep", "/usr/bin/keep", "keep.service", ((7, 7), (10, 19))),
    )
    assert policy.rules == (
        Rule(
            name="cap",
            above=Threshold(above_percent=70.0),
            span=GpuSpan.ALL,
            for_seconds=10.0,
            readings=3,
            match=Selector(
                users=("root",),
                uids=((1000, 1999), (1001, 1001)),
                exe=("/usr/bin/python3*",),
                cmdline=("train\\.py",),
                cgroup=("/user.slice/*",),
                gpus=("GPU-1",),
            ),
            exempt=Selector(uids=((0, 0),)),
            mode=Mode.ENFORCE,
            action=RuleAction.WARN,
            stages=(ListedStage.SIGTERM, ListedStage.SIGKILL, ListedStage.RESET),
            scope=Scope.TREE,
            sigterm_seconds=5.0,
            sigkill_seconds=6.0,
            even_if_allocated=True,
        ),
    )
    assert policy.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert policy.source == str(path)
    assert loaded.user_ids == {"root": 0}
    assert loaded.warnings == ()


def test_an_empty_file_is_the_built_in_policy(tmp_path: Path) -> None:
    """The file's defaults are the model's."""
    policy = load(written(tmp_path, ""), enforce_ownership=True).policy
    assert policy == Policy(digest=policy.digest, source=policy.source)


def test_no_default_file_is_the_built_in_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It works with nothing installed, and then enforces nothing."""
    monkeypatch.setattr(load_module, "DEFAULT_PATH", tmp_path / "none.toml")
    assert load(None, enforce_ownership=True) == LoadedPolicy(Policy())
    assert Policy().mode is Mode.OBSERVE


def test_a_default_file_that_is_there_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The default place is read when something stands there, and a dangling link is something."""
    monkeypatch.setattr(load_module, "DEFAULT_PATH", written(tmp_path))
    assert load(None, enforce_ownership=True).policy.mode is Mode.ENFORCE
    dangling = tmp_path / "dangling.toml"
    dangling.symlink_to(tmp_path / "nowhere")
    monkeypatch.setattr(load_module, "DEFAULT_PATH", dangling)
    with pytest.raises(ConfigError):
        load(None, enforce_ownership=True)


def test_a_named_file_must_exist(tmp_path: Path) -> None:
    """A slip in --config never means "the defaults"."""
    error = refusal(tmp_path / "none.toml")
    assert error.exit_code is ExitCode.USAGE
    assert "none.toml:1: file: it can't be read" in str(error)


def test_every_fault_is_in_the_error(tmp_path: Path) -> None:
    """A faulty file is refused as a whole, with one line for each fault."""
    error = refusal(written(tmp_path, '[daemon]\nmode = "x"\ninterval = "1ms"\n'))
    assert len(error.faults) == 2


@pytest.mark.parametrize("mode", [0o664, 0o646, 0o666])
def test_a_file_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    """Group or others with the right to write could set the policy: refused, or a warning for a check."""
    path = written(tmp_path)
    path.chmod(mode)
    assert "can be written by its group or by others; chmod go-w" in str(refusal(path))
    assert "chmod go-w" in load(path, enforce_ownership=False).warnings[0]


@pytest.mark.parametrize("mode", [0o775, 0o757])
def test_a_folder_that_others_may_write_is_refused(tmp_path: Path, mode: int) -> None:
    """Whoever may write a folder above can put another file in its place."""
    folder = tmp_path / "etc"
    inner = folder / "reclaimerd"
    inner.mkdir(parents=True)
    path = written(inner)
    folder.chmod(mode)
    assert f"folder {folder} can be written" in str(refusal(path))
    folder.chmod(0o1777)
    assert load(path, enforce_ownership=True).warnings == ()


def test_a_link_is_followed_and_its_folders_judged(tmp_path: Path) -> None:
    """A link to a sound file counts; one from or through a folder that others may write does not."""
    safe = tmp_path / "safe"
    open_folder = tmp_path / "open"
    safe.mkdir()
    open_folder.mkdir()
    open_folder.chmod(0o777)
    target = written(safe)
    good = tmp_path / "good.toml"
    good.symlink_to(Path("safe") / ".." / "safe" / "policy.toml")
    assert load(good, enforce_ownership=True).policy.source == str(good)
    bad = open_folder / "bad.toml"
    bad.symlink_to(target)
    assert f"folder {open_folder}" in str(refusal(bad))


@pytest.mark.root
@needs_root
def test_a_file_folder_or_link_of_another_user_is_refused(tmp_path: Path) -> None:
    """Only root's hands may make the policy that root's daemon obeys."""
    path = written(tmp_path)
    os.chown(path, 65534, 0)
    assert f"{path} belongs to uid 65534" in str(refusal(path))
    os.chown(path, 0, 0)
    folder = tmp_path / "theirs"
    folder.mkdir()
    inner = written(folder)
    os.chown(folder, 65534, 0)
    assert f"{folder} belongs to uid 65534" in str(refusal(inner))
    link = tmp_path / "link.toml"
    link.symlink_to(path)
    os.chown(link, 65534, 0, follow_symlinks=False)
    assert f"{link} belongs to uid 65534" in str(refusal(link))


def test_a_pipe_does_not_hang_the_load(tmp_path: Path) -> None:
    """What is no regular file is refused at once, without waiting for a writer."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    assert "not a regular file" in str(refusal(pipe))


def test_what_may_not_be_meant_is_a_warning(tmp_path: Path) -> None:
    """A rule that its daemon's mode caps, and one that leaves nobody out, are told."""
    rule = '[[rule]]\nname = "cap"\nabove = "1GiB"\nmode = "enforce"\n'
    warnings = load(written(tmp_path, rule + 'match = { exe = ["*"] }'), enforce_ownership=True).warnings
    assert len(warnings) == 2
    assert "caps it" in warnings[0]
    assert "leaves nobody out" in warnings[1]


def test_the_built_in_policy_costs_no_heavy_import(tmp_path: Path) -> None:
    """Without a file neither pydantic nor RE2 is imported: a kill in the foreground starts fast."""
    code = (
        "import sys, pathlib\n"
        "from reclaimerd.config import load\n"
        f"load.DEFAULT_PATH = pathlib.Path({str(tmp_path / 'none')!r})\n"
        "load.load(None, enforce_ownership=True)\n"
        "print(sorted({'pydantic', 're2', 'tomllib', 'asyncio'} & set(sys.modules)))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60
    )
    assert done.stdout == "[]\n"


def test_a_fault_rule_becomes_typed_values(tmp_path: Path) -> None:
    """Its words arrive as the catalogue and NVML have them; one text is a list of one."""
    text = """\
[daemon]
mode = "enforce"
[budgets]
resets_per_day = 5
[breaker]
failed_resets = 3
[reset]
stop_units = ["dcgm.service"]
unit_timeout = "10s"
verify = "2m"
peers = true
fence_hook = "/usr/libexec/fence"
[[rule]]
name = "cap"
above = "70%"
[[rule]]
name = "mend"
kind = "fault"
xid_class = "reset"
recovery_action = ["reset", "node_reboot"]
gpu = ["GPU-1"]
for = "1m"
mode = "dry-run"
stages = ["sigterm", "sigkill", "reset", "drain"]
grace = "5s"
sigkill = "6s"
"""
    policy = load(written(tmp_path, text), enforce_ownership=True).policy
    assert [rule.name for rule in policy.rules] == ["cap"]
    assert policy.fault_rules == (
        FaultRule(
            name="mend",
            xid_classes=("reset",),
            recovery_actions=("gpu_reset", "node_reboot"),
            gpus=("GPU-1",),
            for_seconds=60.0,
            mode=Mode.DRY_RUN,
            stages=(ListedStage.SIGTERM, ListedStage.SIGKILL, ListedStage.RESET, ListedStage.DRAIN),
            sigterm_seconds=5.0,
            sigkill_seconds=6.0,
        ),
    )
    assert policy.reset == ResetSettings(
        ("dcgm.service",),
        unit_seconds=10.0,
        verify_seconds=120.0,
        peers=True,
        fence_hook="/usr/libexec/fence",
    )
    assert (policy.budgets.resets_per_day, policy.breaker.failed_resets) == (5, 3)


def test_what_a_fault_rule_may_not_mean_is_said(tmp_path: Path) -> None:
    """A rule that is capped, and a service whose start touches every GPU, are warnings."""
    text = """\
[reset]
stop_units = ["nvidia-persistenced.service"]
[[rule]]
name = "mend"
kind = "fault"
xid_class = "reset"
mode = "enforce"
"""
    warnings = load(written(tmp_path, text), enforce_ownership=True).warnings
    assert len(warnings) == 2
    assert any('rule "mend" says mode "enforce"' in warning for warning in warnings)
    assert any("nvidia-persistenced.service" in warning for warning in warnings)
