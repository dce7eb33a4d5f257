"""The log directories that a broker has, as each remembers them: a missing one is noticed.

What lived in a directory that is not mounted, or was left out of `log.dirs`, must not begin anew,
empty, somewhere else. The file `.ottla-directories` of every log directory names all of them:
version, number of directories, then the id in `meta.properties` and the path a line.

    0
    2
    nWN5bA5XQdO1tVQ0vFPnGg /data/a
    4yRzc2WnTkeS1x7tPz6TTw /data/b
"""

from collections.abc import Collection, Mapping, Sequence

from ottla.log.disk import Disk
from ottla.log.log_directory import LogDirectory, StorageRefused

DIRECTORIES = ".ottla-directories"


def encode(paths: Mapping[str, str]) -> bytes:
    """The text of the file, from paths by directory id."""
    lines = ["0", str(len(paths)), *(f"{each} {path}" for each, path in sorted(paths.items()))]
    return ("\n".join(lines) + "\n").encode()


def read(disk: Disk, directory: LogDirectory) -> dict[str, str]:
    """Paths by directory id, as one directory remembers them; none where it does not, or the file
    is damaged: the others remember them too. Raises OSError."""
    try:
        version, count, *lines = disk.read_bytes(directory.file(DIRECTORIES)).decode().split("\n")
        pairs = [line.split(" ", 1) for line in lines[:-1]]
        if version == "0" and len(pairs) == int(count):
            return dict(pairs)
    except (FileNotFoundError, ValueError):
        pass
    return {}


def remembered(disk: Disk, opened: Sequence[LogDirectory]) -> dict[str, str]:
    """Paths by id of all directories that those at hand remember. Raises OSError."""
    known: dict[str, str] = {}
    for directory in opened:
        if directory.offline is None:
            known |= read(disk, directory)
    return known


def away(directory: LogDirectory, known: Mapping[str, str], forgotten: Collection[str]) -> str:
    """The id of the directory that was at this path and is not, as where nothing is mounted; else
    an empty string. Raises OSError, StorageRefused."""
    if directory.offline is not None or directory.known_ids():
        return ""
    was = (each for each, path in known.items() if path == directory.path)
    return next((each for each in was if each not in forgotten), "")


def missing(
    disk: Disk, opened: Sequence[LogDirectory], known: Mapping[str, str],
    forgotten: Collection[str],
) -> list[LogDirectory]:
    """A stand-in for each directory that is remembered and not there; it is offline.

    Raises StorageRefused if one is there that the operator has given up.
    """
    here = {each.directory_id for each in opened}
    for directory in opened:
        if directory.directory_id and directory.directory_id in forgotten:
            raise StorageRefused(
                f"{directory.path} has the id {directory.directory_id}, which"
                " ottla.forget.directories gives up. Take it out of that setting, or the directory"
                " out of log.dirs."
            )
    # One that could not be opened stands for itself: its id is not known.
    unknown = {each.path for each in opened if not each.directory_id}
    used = {each.path for each in opened}
    found = []
    for each, path in sorted(known.items()):
        if each in here or each in forgotten or path in unknown:
            continue
        reason = FileNotFoundError(
            f"it is missing. Mount it and have it in log.dirs. If it will never be back, set"
            f" ottla.forget.directories={each}: what was in it is lost, and begins empty"
        )
        label = f"{path} ({each})" if path in used else path
        found.append(LogDirectory.unusable(disk, label, reason))
    return found


def remember(
    disk: Disk, opened: Sequence[LogDirectory], known: Mapping[str, str],
    forgotten: Collection[str],
) -> None:
    """Let every directory at hand remember all of them. Raises OSError."""
    paths = {each: path for each, path in known.items() if each not in forgotten}
    online = [each for each in opened if each.offline is None]
    paths |= {each.directory_id: each.path for each in online}
    for directory in online:
        if read(disk, directory) != paths:
            disk.write_atomically(directory.file(DIRECTORIES), encode(paths))
