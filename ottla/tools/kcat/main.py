"""kcat's command line. As in kcat, getopt reads the options; the mode selects the action."""

from __future__ import annotations

import getopt
import os
import sys
from pathlib import Path

from ottla import __version__
from ottla.client.command_line import INT32_MOST, INT64_MOST, is_at_most
from ottla.client.interrupts import interruptible
from ottla.tools.kcat.options import Chosen, Misused
from ottla.tools.printable import printable
from ottla.tools.standard_output import discard_output

FLAGS = "b:t:p:o:eED:K:H:OX:d:G:r:c:Tm:uk:vqlf:F:z:s:JVhZCPLQ"
USAGE = """usage: ottla kcat -b BROKERS [-C | -P | -L | -Q | -G GROUP] [-t TOPIC] … [FILE | TOPIC …]

  -C consume (the default if standard input is a terminal), -P produce, -L list, -Q offsets by
  time (-t TOPIC:PARTITION:MS), -G consume as a group
  -b BROKERS   -t TOPIC   -p PARTITION   -F FILE of properties   -X NAME=VALUE   -m SECONDS
  -o OFFSET    beginning, end, stored, N, -N, s@MS, e@MS      -e end when everything is read
  -c COUNT     -f FORMAT   -J JSON   -K, -D delimiters   -Z NULL   -s pack-str   -u
  -k KEY       -H NAME=VALUE   -z CODEC   -l lines of a file   -T tee
  -q quiet     -V version     -E, -O, -d and -v are accepted, without effect

Records are read and sent with librdkafka, as in kcat, but keys choose partitions as in Java's
clients.
Not supported: -r and -s avro (schema registry), -M (use `ottla server dev`)."""


def main(arguments: list[str]) -> int:
    """Runs `ottla kcat …`. Returns the exit status: 0, or 1 after any failure."""
    from ottla.client.errors import ClientError, reason_of
    from ottla.wire.errors import NumberOutOfRange

    given = arguments[1:]
    if given in (["-h"], ["--help"], []):
        print(USAGE)
        return 0 if given else 1
    try:
        chosen = parse(given)
        if chosen is None:
            print(f"ottla {__version__} as kcat 1.7.1")
            return 0
        with interruptible():
            run(chosen)
            sys.stdout.flush()
            return 0
    except Misused as wrong:
        print(f"Error: {wrong}\n\n{USAGE}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        discard_output()
        return 1
    except (ClientError, OSError) as failed:
        sys.stdout.flush()
        print(f"% ERROR: {printable(' '.join(reason_of(failed).split()))}", file=sys.stderr)
        return 1
    except NumberOutOfRange as wrong:
        print(f"% ERROR: {wrong.sentence}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 0                # as in kcat: Ctrl-C is the usual end of a consumer


def run(chosen: Chosen) -> None:
    """Performs the action of the mode."""
    if not chosen.brokers:
        raise Misused("-b <broker,..> missing")
    if chosen.rest and chosen.mode not in "PG":
        raise Misused(f"{chosen.rest[0]}: only -P takes files, and only -G takes topics without -t")
    if chosen.mode in "LQ":
        from ottla.tools.kcat import listing

        (listing.metadata if chosen.mode == "L" else listing.offsets_by_time)(chosen)
        return
    from ottla.tools.kcat import records

    (records.produce if chosen.mode == "P" else records.consume)(chosen)


def parse(arguments: list[str]) -> Chosen | None:
    """The options; None if -V is one of them. Raises Misused."""
    from ottla.tools.kcat.text import escaped

    try:
        pairs, rest = getopt.gnu_getopt(arguments, FLAGS)
    except getopt.GetoptError as wrong:
        raise Misused(str(wrong)) from None
    chosen = Chosen(rest=rest)
    settings: list[str] = []
    named, searched = False, True
    for flag, value in pairs:
        letter = flag[1:]
        if letter == "V":
            return None
        if letter in "CPLQ":
            if chosen.mode not in ("", letter):
                raise Misused(f"-{chosen.mode} and -{letter} are different modes: give only one of"
                             " them")
            chosen.mode = letter
        elif letter == "K":
            chosen.key_delimiter = escaped(value)
        elif letter == "D":
            chosen.delimiter = escaped(value)
        elif letter == "H":
            name, equals, text = value.partition("=")
            chosen.headers.append((name, text.encode() if equals else None))
        elif letter == "X":
            settings.append(value)
        elif letter == "F" and value in ("-", "none"):
            searched = False
        elif letter == "F":
            settings, named = settings + from_file(value), True
        else:
            take(chosen, letter, value)
    for setting in [*([] if named else default_file(searched)), *settings]:
        name, equals, text = setting.partition("=")
        if not equals:
            raise Misused(f"-X {setting}: expected NAME=VALUE")
        chosen.properties[name.removeprefix("topic.").strip()] = text.strip()
    chosen.brokers = chosen.brokers or chosen.properties.get("bootstrap.servers", "") or (
        chosen.properties.pop("metadata.broker.list", ""))
    if chosen.group and chosen.mode in ("", "C"):
        chosen.mode = "G"
    if not chosen.mode:
        chosen.mode = "C" if sys.stdin.isatty() else "P"
    return chosen


def take(chosen: Chosen, letter: str, value: str) -> None:
    """Stores the value of an option that needs no further work."""
    texts = {"b": "brokers", "f": "format", "z": "codec", "G": "group"}
    switches = {
        "e": "exit", "J": "json", "Z": "null", "u": "unbuffered",
        "l": "lines", "T": "tee", "q": "quiet",
    }
    lists = {"t": chosen.topics, "o": chosen.offsets, "s": chosen.serdes}
    if letter in texts:
        setattr(chosen, texts[letter], value)
    elif letter in switches:
        setattr(chosen, switches[letter], True)
    elif letter in lists:
        lists[letter].append(value)
    elif letter == "k":
        chosen.key = value.encode()
    elif letter in ("p", "c", "m"):
        if not value.removeprefix("-").isdecimal():
            raise Misused(f"-{letter} {value}: expected a number")
        most = INT64_MOST if letter == "c" else INT32_MOST
        if not is_at_most(value, most):
            raise Misused(f"-{letter} {value}: expected a number from {-most} to {most}")
        if letter == "p":
            chosen.partition = int(value)
        elif letter == "c":
            chosen.count = int(value)
        else:
            chosen.seconds = float(value)
    elif letter == "h":
        raise Misused("-h must be the only argument")
    elif letter == "r":
        raise Misused("-r: a schema registry is not supported")


def from_file(name: str) -> list[str]:
    """The settings of a configuration file. Each line has one setting."""
    lines = (line.strip() for line in Path(name).read_text(encoding="utf-8").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def default_file(searched: bool) -> list[str]:
    """The settings in the file that $KCAT_CONFIG names, or else, if `searched`, in kcat's own file
    if it exists."""
    named = os.environ.get("KCAT_CONFIG")
    usual = Path.home() / ".config" / "kcat.conf"
    if named or (searched and usual.is_file()):
        return from_file(named or str(usual))
    return []
