"""One line for each command in `--help`: whole, never cut; what has none here shows its first sentence.

May not import anything heavy: every call of reclaimctl passes here.
"""

import click

LONGEST = 58
"""Columns that a terminal of 80 leaves beside the longest name of a command."""
HEADLINES = {
    "audit": "Read, check and export the record of every act",
    "breaker": "Show what stopped because too much went wrong; close it",
    "completion": "Print what bash, zsh or fish need to complete commands",
    "config": "The same as `policy`",
    "demo": "Show the whole ladder on a simulated GPU host",
    "doctor": "Ask whether this host is ready, with the mends",
    "drain": "Ask the scheduler to drain this node",
    "evidence": "Collect what shows of one stuck process, for a report",
    "explain": "Say what rules and gates make of a process or a reset",
    "healthcheck": "Say in one line whether a person is needed; for monitors",
    "incidents": "List incidents, open ones and ended ones; show one",
    "inspect": "Show all that is known of one process",
    "kill": "Take GPUs back: SIGTERM, wait, and say what was proven",
    "pause": "Stop every act by rule; your own `kill` still works",
    "policy": "Check a policy file, and test what it would decide",
    "ps": "Show who holds which GPU, and what the policy makes of it",
    "release-driver": "Close the daemon's client of the driver for a while",
    "reload": "Let the daemon take its policy file anew",
    "reset": "Reset one GPU, when nothing speaks against it",
    "resume": "End a pause; an administrator's closes the breaker too",
    "rollout": "Say what enforcing would have done",
    "rules": "List rules, suspend one, and let one enforce",
    "slurm-unkillable": "For Slurm: tell the daemon that a step can't be ended",
    "snapshot": "Record one look at the host, for `policy test`",
    "status": "Show the daemon, the GPUs and what needs a person",
    "top": "Watch GPUs and their holders live; no key acts",
    "undrain": "Take this node's drain request back",
    "version": "Print the version",
    "why": "Tell who ended a job, pod or process, and why",
}


def give_headlines(group: click.Group) -> None:
    """Give every command below the group the line by which a list of commands tells of it."""
    for name, command in group.commands.items():
        command.short_help = HEADLINES.get(name) or first_sentence(command.help or "")
        if isinstance(command, click.Group):
            _give_first_sentences(command)


def first_sentence(text: str) -> str:
    """Return the first sentence without its full stop."""
    paragraph = " ".join(text.strip().partition("\n\n")[0].split())
    return paragraph.partition(". ")[0].removesuffix(".")


def _give_first_sentences(group: click.Group) -> None:
    for command in group.commands.values():
        command.short_help = first_sentence(command.help or "")
