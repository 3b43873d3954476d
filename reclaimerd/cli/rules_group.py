"""The group `rules`: what is said of, and done to, single rules. Its commands stand where they belong."""

import click

from reclaimerd.cli.options import common_options, needs_command


@click.group(invoke_without_command=True)
@common_options
def rules() -> int:
    """Look at single rules, hold one back, and take one further."""
    return needs_command()
