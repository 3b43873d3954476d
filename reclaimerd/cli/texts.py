"""The words of the command line: option texts, the exit codes, and the manual made from them.

`--help` and docs/reclaimctl.md say the same because both are made here; a test compares the file.
"""

from collections.abc import Iterator

import click

from reclaimerd.errors import ExitCode

PATH_OPTIONS = (
    (
        "--config",
        "Policy file of commands without the daemon (default /etc/reclaimerd/reclaimerd.toml).",
    ),
    ("--state-dir", "State directory (default /var/lib/reclaimerd)."),
    ("--log-dir", "Audit directory (default /var/log/reclaimerd)."),
    ("--socket", "Control socket of the daemon (default /run/reclaimerd/reclaimerd.sock)."),
    (
        "--simulate",
        "Work on the simulated host of this directory: state, log and socket lie below it unless named.",
    ),
)
JSON_OPTION = "Print one JSON object; times are RFC 3339 in UTC, sizes bytes."
DURATION = "DURATION"

PID = "Process that shall give its GPUs back; with @START it must be the one that ps showed. May be repeated."
KILL_GPU = (
    "Everybody who holds this GPU: by UUID, its beginning, or an index that means one. May be repeated."
)
KILL_CONTAINER = (
    "Everybody who holds a GPU in this container: by its name, or the first 6 characters of its id or more. "
    "May be repeated."
)
KILL_JOB = (
    "Everybody who holds a GPU in this Slurm job: its number as `squeue -o %A` shows it. May be repeated."
)
KILL_POD = "Everybody who holds a GPU in this pod: by namespace and name, or by its uid. May be repeated."
KILL_YES = "Do not ask."
KILL_WAIT = "Wait for the end of each; or end as soon as each was accepted, and print how to follow it."
FORCE = "After SIGTERM and the grace, send SIGKILL. Cuts patience and budgets, never a safety check."
REASON = "Why; it is recorded."
GRACE = "From SIGTERM to SIGKILL (default: the policy's, 30s as shipped), such as 1s or 2m."
TIMEOUT = "Limit of the whole (default: the grace and 60s)."
SCOPE = "What one target takes with it: itself, its descendants, or its whole container, job or unit."
DRY_RUN = "Say and record what would be done; send nothing."
EXPECT_USER = "Refuse unless the process, and all that goes along with it, is this user's (name or uid)."
MAX_TARGETS = "Refuse to signal more processes than this, all that goes along with --scope counted."
TAKEOVER = "When the daemon is alive but silent: end it with SIGKILL, on record, and go on in the foreground."
GPU = "GPU by UUID, by the beginning of its UUID, or by index."
PAUSE_FOR = "Resume by itself after this long (default: only on `resume`)."
SUSPEND_FOR = "Let it go on by itself after this long (default: only on `rules resume`)."
RELEASE_FOR = "Open it again by itself after this long, at most 24h."
RELEASE_END = "Take it back now."
RESUME_GPU = "Close this GPU's own breaker, which failed resets tripped."
DRAIN_REASON = "Why; whoever is asked reads it, with your name, and it is recorded."
DRAIN_DRY_RUN = "Say and record what would be sent; ask nobody."
DRAIN_WAIT = "Whether to wait until everybody was asked, at most a minute; the request goes on without."
BREAKER_GPU = "This GPU's own breaker, which failed resets tripped, in place of the host's."
BREAKER_SINCE = "Only the opening that `breaker` showed, by its time; a newer one stays open."
BREAKER_YES = "Do not ask."
UNDRAIN_INCIDENT = "The incident that asked for the drain, or joined it; see `status`."
UNDRAIN_GIVE_UP = "Do not wait for this target: a person takes the request back there by hand. Repeatable."
UNDRAIN_WAIT = "Whether to wait until everybody has taken it back, at most a minute."
LIMIT = "At most so many, the newest."
FORCE_RESET = "Waive the budget and the cool-down of resets, and nothing else."
DRY_RUN_RESET = (
    "Look, ask the gate and print its answer as a checklist; put that on record, change nothing else."
)
ANCHOR = "Compare with these too: an anchor_file, what a webhook's receiver kept, or log lines `audit_head`."
ANCHOR_HOST = "Of anchors of several hosts only those of this one; its name is in each record's `host`."
TOP_INTERVAL = "How often the daemon is asked."
TOP_ONCE = "Print one screen as plain text with every row, and end; as JSON with --json."
SECONDS = "Limit of the whole demonstration."
OUT = "Write it to this file (JSON where it ends in .json), readable by its owner alone."
PERF = "As root: sample the CPU of tasks in R for a second, whose stack shows nowhere else."
EXPLAIN_PID = "The process whose judgement is to be explained; with @START it must be the one that ps showed."
SNAPSHOT_FILE = "Judge this recorded look (`reclaimctl snapshot --out FILE`) in place of the present one."
SNAPSHOT_OUT = "Write it to this file, readable by its owner alone, in place of printing it."
ROLLOUT_SINCE = "From so long ago, or from this time on, until now."
ROLLOUT_RULE = "Only this rule, with every story that was kept."
ROLLOUT_YES = "Do not ask."
ROLLOUT_WRITE = "Change that line in place: as root, and only where file and result have no fault."
WHY_JOB = "A Slurm job, by its number as `squeue -o %A` shows it."
WHY_POD = "A pod, by namespace and name, or by its uid."
WHY_PID = "A process; without @START each that had this number is told by itself."
WHY_SINCE = "Only what was recorded since then: RFC 3339, or an age such as 30d."
WHY_LIMIT = "At most so many incidents, the newest."
WHY_VERIFY = "Check that the record is whole, however long it is; a shorter one (128 MiB) always is checked."
STUCK = (
    "List every task that is stuck or leaves for too long and touches a GPU driver; exit 10 if there is one, "
    "or if something could not be looked at."
)

EXIT_CODES = {
    ExitCode.OK: "done: proven, verified, permitted (dry run), healthy, or intact",
    ExitCode.INTERNAL: "internal error",
    ExitCode.USAGE: "wrong usage, a policy with faults, or a host that can't be worked on",
    ExitCode.REFUSED: "refused; the reasons are printed",
    ExitCode.NOT_ALLOWED: "you are not allowed to",
    ExitCode.TIME_UP: "time is up and it still holds its GPU; the state of its tasks is printed",
    ExitCode.NO_TARGET: "no such process, or it holds no GPU",
    ExitCode.NO_DAEMON: "no daemon answers, and you are not root",
    ExitCode.UNVERIFIED: "gone, but the return of its memory is not proven; a reset not verified",
    ExitCode.AUDIT_BROKEN: "the audit log is broken",
    ExitCode.ATTENTION: "status, doctor: something needs a person",
    ExitCode.CORRUPT_STORE: "the store is corrupt",
}
INTERRUPTED_TEXT = "interrupted by Ctrl-C; an incident that was opened goes on in the daemon"
GRAVEST = "With several targets the gravest of 1, 4, 3, 5, 8, 6, 0, in this order, counts."
MANUAL_FORMAT = "As Markdown on standard output, or as manual pages of man(7) in --out."
MANUAL_OUT = "Folder for the manual pages; it is made."
SEE_MANUAL = "Exit codes are listed by `reclaimctl --help`."

INTRODUCTION = """reclaimctl asks the daemon `reclaimerd` through its control socket. Where no daemon
answers within 2 seconds, root gets the same engine in the foreground: one fresh look, the same
policy, the same record. Others get exit code 7.

Tables fit the terminal, or the columns that COLUMNS says: long words are shortened, columns left out (a
line names them) and texts go on below, but never a pid or an incident's name. In a pipe without COLUMNS each
row is one whole line. Colours are for terminals alone, and NO_COLOR ends them."""

EXAMPLES = (
    ("Who holds which GPU, and what the policy thinks of it", "reclaimctl ps"),
    ("The same, live: sort, filter, inspect; no key acts", "reclaimctl top"),
    ("Ask a process to give its GPUs back, and wait for the proof", "reclaimctl kill --pid 4242"),
    ("The same, with SIGKILL after ten seconds", "reclaimctl kill --pid 4242@918273 --force --grace 10s"),
    ("What would be done", "reclaimctl kill --pid 4242 --force --dry-run"),
    ("Everybody who holds a GPU, or holds one in a Slurm job", "reclaimctl kill --gpu 0 --job 4711"),
    ("A pod, from a script that does not wait", "reclaimctl kill --pod team/train-0 --yes --no-wait --json"),
    ("Hold one rule back for two hours", "reclaimctl rules suspend idle --for 2h --reason 'course today'"),
    ("Why a process was, or was not, taken by a rule", "reclaimctl explain pid 4242"),
    ("What a policy would decide about the present look", "reclaimctl policy test new.toml"),
    ("Ask that this node be drained, by hand", "reclaimctl drain --reason 'fan broken' --yes"),
    ("What stopped by itself because too much went wrong at once", "reclaimctl breaker"),
    ("Why a GPU can't be reset now", "reclaimctl explain reset --gpu 0"),
    ("What a reset would do, step by step, without doing it", "reclaimctl reset --gpu 0 --dry-run"),
    (
        "Close our own client of the driver, to reset, unload or upgrade it by hand",
        "reclaimctl release-driver --for 30m --reason upgrade",
    ),
    ("Whether this host is ready, with the mend beside what is wrong", "reclaimctl doctor"),
    ("What is stuck in the kernel, also while daemon and driver hang", "reclaimctl doctor --stuck"),
    ("Evidence of one stuck process, for a report", "reclaimctl evidence 4242 --out stuck.txt"),
    ("Who ended my job, and why; or that it was not reclaimerd", "reclaimctl why --job 4711"),
    ("The same by process, months later", "reclaimctl why --pid 4242@918273"),
    ("The whole story of one incident", "reclaimctl audit show inc-6a1b2c3d-0f1e2d3c"),
    ("Whether the record is intact", "reclaimctl audit verify"),
    ("What a rule in dry run would have done in a week", "reclaimctl rollout report --since 7d"),
    ("Which line of the policy lets it act", "reclaimctl rules mode login-cap enforce"),
)


def exit_code_lines() -> tuple[str, ...]:
    """Return the table of exit codes, a line each."""
    lines = [f"{int(code):>3}  {EXIT_CODES[code]}" for code in ExitCode]
    return (*lines, f"130  {INTERRUPTED_TEXT}")


def epilog() -> str:
    """Return the end of `--help`, in click's marks for text that is not to be filled."""
    return "\b\nExit codes:\n" + "\n".join(exit_code_lines()) + f"\n\n{GRAVEST}"


def manual(group: click.Group) -> str:
    """Return the manual page as Markdown, made from the commands themselves."""
    ctx = click.Context(group, info_name="reclaimctl")
    lines = ["# reclaimctl(1)", "", f"{group.help}", "", INTRODUCTION, ""]
    lines += ["## Options of every command", "", *_option_lines(ctx, shared=True), "", "## Commands", ""]
    for command_ctx in _commands(ctx):
        lines += _section(command_ctx)
    lines += ["## Exit codes", "", "| code | meaning |", "| ---: | --- |"]
    lines += [f"| {int(code)} | {EXIT_CODES[code]} |" for code in ExitCode]
    lines += [f"| 130 | {INTERRUPTED_TEXT} |", "", GRAVEST, "", "## Examples", ""]
    for what, command in EXAMPLES:
        lines += [f"{what}:", "", f"    {command}", ""]
    return "\n".join(lines).rstrip("\n") + "\n"


def groups(group: click.Group) -> Iterator[tuple[str, click.Group]]:
    """Yield each visible group of commands below the whole, by the words that call it."""
    ctx = click.Context(group, info_name="reclaimctl")
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group) and not command.hidden:
            yield f"reclaimctl {name}", command


def group_manual(group: click.Group, path: str) -> str:
    """Return the page of one group as Markdown: what `manual` says of it and of the commands in it."""
    ctx = click.Context(group, info_name="reclaimctl")
    command = dict(groups(group))[path]
    lines = [f"# {path.replace(' ', '-')}(1)", "", *_paragraphs((command.help or "").strip()), ""]
    lines += ["## Commands", ""]
    for command_ctx in _commands(ctx):
        if f"{command_ctx.command_path} ".startswith(f"{path} "):
            lines += _section(command_ctx)
    lines += ["## Options of every command", "", *_option_lines(ctx, shared=True)]
    return "\n".join(lines) + "\n"


def _section(ctx: click.Context) -> list[str]:
    """Return what the manual says of one command."""
    usage = " ".join(ctx.command.collect_usage_pieces(ctx))
    lines = [f"### {ctx.command_path}", "", f"    {ctx.command_path} {usage}", ""]
    lines += [*_paragraphs((ctx.command.help or "").strip()), ""]
    own = _option_lines(ctx, shared=False)
    return [*lines, *own, ""] if own else lines


def _paragraphs(text: str) -> list[str]:
    """Return a help text without click's marks."""
    return [line.strip() for line in text.replace("\b\n", "").splitlines()]


def _commands(ctx: click.Context) -> Iterator[click.Context]:
    """Yield a context for each visible command, groups before what they hold."""
    group = ctx.command
    if not isinstance(group, click.Group):
        return
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if command is None or command.hidden:
            continue
        below = click.Context(command, info_name=name, parent=ctx)
        if not isinstance(command, click.Group) or command.invoke_without_command:
            yield below
        yield from _commands(below)


def _option_lines(ctx: click.Context, *, shared: bool) -> list[str]:
    """Return the options that are, or are not, the same on every command."""
    common = {name for name, _ in PATH_OPTIONS} | {"--json"}
    lines = []
    for param in ctx.command.get_params(ctx):
        record = param.get_help_record(ctx)
        if (
            isinstance(param, click.Argument)
            or record is None
            or "--help" in param.opts
            or "--version" in param.opts
        ):
            continue
        if bool(common & set(param.opts)) == shared:
            lines.append(f"- `{record[0]}`: {record[1]}")
    return lines
