"""The topics to which the checkpoints of a log directory refer.

Kafka's checkpoint files identify a partition by its topic's name. A topic that was deleted and
recreated has the same name: its log must not get the old log's recovery point or log start. The
file `.ottla-topic-ids` says to which topics the entries belong. It has a version, the number of
topics, then one line per topic with its name, and its id or `-`.

    0
    1
    events AAECAwQFBgcICQoLDA0ODw

The file is written after the checkpoints to which it refers. A checkpoint's entry is used only if
this file has the id of the topic whose log is opened. A crash between the writes of the two files
may therefore hide a new entry, but never exposes an entry of a deleted topic.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping

TOPIC_IDS = ".ottla-topic-ids"
NO_ID = "-"


def id_text(topic_id: bytes | None) -> str:
    """A topic's id as Kafka writes it."""
    return NO_ID if topic_id is None else urlsafe_b64encode(topic_id).rstrip(b"=").decode()


def id_of(text: str) -> bytes | None:
    """The id that `id_text` wrote. Raises ValueError."""
    return None if text == NO_ID else urlsafe_b64decode(text + "==")


def encode(ids: Mapping[str, bytes | None]) -> bytes:
    """The text of the file."""
    lines = ["0", str(len(ids)), *(f"{topic} {id_text(each)}" for topic, each in ids.items())]
    return ("\n".join(lines) + "\n").encode()


def decode(data: bytes) -> dict[str, bytes | None]:
    """Parses the text of the file. Raises ValueError."""
    version, count, *lines = data.decode().split("\n")
    if version != "0":
        raise ValueError(f"the list of topic ids has version {version!r}, expected 0")
    pairs = [line.split(" ") for line in lines[:-1]]
    if len(pairs) != int(count):
        raise ValueError(f"the list of topic ids has {len(pairs)} entries, expected {count}")
    return {topic: id_of(text) for topic, text in pairs}
