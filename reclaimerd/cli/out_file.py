"""`--out FILE`: what a command writes in place of printing it, readable by its owner alone."""

from pathlib import Path

from reclaimerd.errors import ExitCode, ReclaimerdError


class OutFileError(ReclaimerdError):
    """The file that was named can't be written: wrong usage, and no fault of ours."""

    exit_code = ExitCode.USAGE


def refuse_missing_folder(path: Path) -> None:
    """Raise OutFileError when the file's folder is not there: before the work, not after it."""
    if not path.parent.is_dir():
        what = f"{path} can't be written: there is no directory {path.parent}"
        raise OutFileError(what, "name another file")


def write_out(path: Path, content: str) -> None:
    """Write the file whole, readable by its owner alone; a link in its place is replaced, not followed."""
    from reclaimerd.host.files import write_durably  # noqa: PLC0415  # only for --out

    try:
        write_durably(path.parent.resolve() / path.name, content.encode("utf-8", "backslashreplace"))
    except OSError as error:
        raise OutFileError(
            f"{path} can't be written: {error.strerror or error}", "name another file"
        ) from None
