"""Each log directory remembers all log directories of the broker, so that a missing one is noticed.

Partitions of a directory that is not mounted, or was left out of `log.dirs`, must not be recreated
empty somewhere else. The file `.ottla-directories` in every log directory lists all log
directories. It has a version, the number of directories, then one line for each directory with its
id (from `meta.properties`) and its path.

    0
    2
    nWN5bA5XQdO1tVQ0vFPnGg /data/a
    4yRzc2WnTkeS1x7tPz6TTw /data/b
"""

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from ottla.log.files.disk import Disk
from ottla.log.storage.log_directory import LogDirectory, StorageRefused

DIRECTORIES = ".ottla-directories"


def encode(paths: Mapping[str, str]) -> bytes:
    """The text of the file, from paths by directory id."""
    lines = ["0", str(len(paths)), *(f"{each} {path}" for each, path in sorted(paths.items()))]
    return ("\n".join(lines) + "\n").encode()


def read(disk: Disk, directory: LogDirectory) -> dict[str, str]:
    """Paths by directory id, from the file of one directory. A missing or damaged file counts as
    empty, since the other directories have the same list. Raises OSError."""
    try:
        version, count, *lines = disk.read_bytes(directory.file(DIRECTORIES)).decode().split("\n")
        pairs = [line.split(" ", 1) for line in lines[:-1]]
        if version == "0" and len(pairs) == int(count):
            return dict(pairs)
    except (FileNotFoundError, ValueError):
        pass
    return {}


def remembered(disk: Disk, opened: Sequence[LogDirectory]) -> dict[str, str]:
    """The paths of all directories that any available directory remembers, by directory id. Raises
    OSError."""
    known: dict[str, str] = {}
    for directory in opened:
        if directory.offline is None:
            known |= read(disk, directory)
    return known


def remembered_by_readable(disk: Disk, opened: list[LogDirectory]) -> dict[str, str]:
    """Like `remembered`; in `opened`, a directory that cannot be read is replaced by an offline
    placeholder."""
    known: dict[str, str] = {}
    for at, directory in enumerate(opened):
        try:
            known |= remembered(disk, [directory])
        except OSError as error:
            directory.close()
            opened[at] = LogDirectory.unusable(disk, directory.path, error)
    return known


def cluster_of(opened: Sequence[LogDirectory]) -> str | None:
    """The cluster that the available directories belong to; None if all of them are new. Raises
    StorageRefused."""
    for directory in opened:
        if directory.offline is None:
            with suppress(OSError):     # `identify` reads the file again later, and may raise then
                if known := directory.known_ids():
                    return known["cluster.id"]
    return None


def away(directory: LogDirectory, known: Mapping[str, str], forgotten: Collection[str]) -> str:
    """The id of the log directory that was at this path before, if `directory` is open but has no
    `meta.properties`. Perhaps the disk of the former directory is not mounted.

    Returns an empty string in all other cases, and if the former directory is in `forgotten`.
    Raises OSError, StorageRefused.
    """
    if directory.offline is not None or directory.known_ids():
        return ""
    was = (each for each, path in known.items() if path == directory.path)
    return next((each for each in was if each not in forgotten), "")


def missing(
    disk: Disk, opened: Sequence[LogDirectory], known: Mapping[str, str],
    forgotten: Collection[str],
) -> list[LogDirectory]:
    """An offline LogDirectory for each directory that is remembered but missing.

    Raises StorageRefused if a directory is present that is listed in ottla.forget.directories.
    """
    here = {each.directory_id for each in opened}
    for directory in opened:
        if directory.directory_id and directory.directory_id in forgotten:
            raise StorageRefused(
                f"{directory.path} has the id {directory.directory_id}, which is listed in"
                    " ottla.forget.directories. Remove the id from that setting, or remove the"
                    " directory from log.dirs."
            )
    # A directory that could not be opened is not missing. Its id is not known, so it is recognized
    # by its path.
    unknown = {each.path for each in opened if not each.directory_id}
    used = {each.path for each in opened}
    directories = []
    for each, path in sorted(known.items()):
        if each in here or each in forgotten or path in unknown:
            continue
        reason = FileNotFoundError(
            f"it is missing. Mount it and list it in log.dirs. If it is lost for good, set"
            f" ottla.forget.directories={each}: its partitions then begin empty"
        )
        label = f"{path} ({each})" if path in used else path
        absent = LogDirectory.unusable(disk, label, reason)
        absent.directory_id = each
        directories.append(absent)
    return directories


def name(opened: Sequence[LogDirectory], known: Mapping[str, str]) -> None:
    """Sets the id of each directory that could not be opened, if another directory remembers it."""
    ids = {path: each for each, path in known.items()}
    for directory in opened:
        directory.directory_id = directory.directory_id or ids.get(directory.path, "")


def remember(
    disk: Disk, opened: Sequence[LogDirectory], known: Mapping[str, str],
    forgotten: Collection[str],
) -> None:
    """Writes the list of all directories to every available directory. Raises OSError."""
    paths = {each: path for each, path in known.items() if each not in forgotten}
    online = [each for each in opened if each.offline is None]
    paths |= {each.directory_id: each.path for each in online}
    for directory in online:
        if read(disk, directory) != paths:
            disk.write_atomically(directory.file(DIRECTORIES), encode(paths))
