"""Which rules enforce on a share of a fleet's hosts, and what this host is, in words."""

from collections.abc import Iterator

from reclaimerd.cli.http_socket import Json

ENFORCE = "enforce"


def staged_lines(body: Json) -> Iterator[str]:
    """Yield a line for each rule that does not enforce on every host."""
    for one in body.get("staged") or ():
        share = one.get("percent")
        hosts = f"{share:g} % of hosts enforce" if isinstance(share, int | float) else "some hosts enforce"
        if one.get("mode") != ENFORCE:
            what = f"{one.get('mode')}; once it enforces, {hosts}"
            what += ", this one too" if one.get("enforces_here") else ", not this one"
        else:
            what = f"{'enforces' if one.get('enforces_here') else 'dry run'} here: {hosts}"
        yield f"rule {one.get('rule')}: {what}"
