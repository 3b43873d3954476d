"""Pure: how a container was let at GPUs, in short words, by what its runtime was told when it made it.

Evidence for a record and never a verdict: the image and the pod's owner choose the environment. Of it
nothing leaves here but the names and values that the NVIDIA container toolkit goes by.
"""

from collections.abc import Iterator, Mapping

from reclaimerd.host.proc_text import printable

MOST_GRANTS = 8
_MOST_TEXT = 160
_TOOLKITS_OWN = ("NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES")
_LEGACY = "CUDA_VERSION"
"""Set in old images that say nothing else: the toolkit takes it for `all` (unless NVIDIA_REQUIRE_CUDA is)."""
_REQUIRES = "NVIDIA_REQUIRE_CUDA"
_ADMIN = "CAP_SYS_ADMIN"
"""In the bounding set it is what the toolkit calls privileged."""
_DRIVERS_MAJOR = 195
_SHOWN_DEVICES = 10


def grants_of_bundle(config: Mapping[str, object]) -> tuple[str, ...]:
    """Return what an OCI bundle's config says (runtime-spec, config.md and config-linux.md)."""
    process, linux = _object(config.get("process")), _object(config.get("linux"))
    return _bounded((*_environment(process.get("env")), *_capabilities(process), *_devices(linux)))


def grants_of_docker(config: Mapping[str, object]) -> tuple[str, ...]:
    """Return what the environment in the `Config` of Docker's config.v2.json says."""
    return _bounded(_environment(config.get("Env")))


def _environment(env: object) -> Iterator[str]:
    rows = [row.partition("=") for row in env if isinstance(row, str)] if isinstance(env, list) else []
    values = {name: value for name, _, value in rows}
    yield from (f"{name}={values[name]}" for name in _TOOLKITS_OWN if name in values)
    if _LEGACY in values and _TOOLKITS_OWN[0] not in values and _REQUIRES not in values:
        yield f"{_LEGACY} is set and {_TOOLKITS_OWN[0]} is not: the toolkit takes that for all"


def _capabilities(process: Mapping[str, object]) -> Iterator[str]:
    bounding = _object(process.get("capabilities")).get("bounding")
    if isinstance(bounding, list) and _ADMIN in bounding:
        yield f"{_ADMIN} in its bounding set, as a privileged container has"


def _devices(linux: Mapping[str, object]) -> Iterator[str]:
    made = linux.get("devices")
    paths = [_object(row).get("path") for row in made] if isinstance(made, list) else []
    nodes = [path for path in paths if isinstance(path, str) and path.startswith("/dev/nvidia")]
    if nodes:
        yield "device nodes " + " ".join(nodes[:_SHOWN_DEVICES])
    allowed = _object(linux.get("resources")).get("devices")
    rules = [_object(row) for row in allowed] if isinstance(allowed, list) else []
    opened = [rule for rule in rules if rule.get("allow") is True and "r" in str(rule.get("access", "rwm"))]
    if any(_is_every_device(rule) for rule in opened):
        yield "its device rules allow every device"
    minors = [_number(rule.get("minor")) for rule in opened if rule.get("major") == _DRIVERS_MAJOR]
    if minors:
        shown = " ".join(f"{_DRIVERS_MAJOR}:{minor}" for minor in minors[:_SHOWN_DEVICES])
        yield f"its device rules allow {shown}"


def _is_every_device(rule: Mapping[str, object]) -> bool:
    """Tell whether a rule names no device: absent and -1 are all of them."""
    return all(_number(rule.get(key)) == "*" for key in ("major", "minor"))


def _number(value: object) -> str:
    return str(value) if isinstance(value, int) and value >= 0 else "*"


def _object(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _bounded(lines: Iterator[str] | tuple[str, ...]) -> tuple[str, ...]:
    return tuple(printable(line[:_MOST_TEXT]) for line in tuple(lines)[:MOST_GRANTS])
