"""`ottla topic browse`: draws the screen, waits for a key and handles it."""

from __future__ import annotations

import os
import sys
from argparse import Namespace

from ottla.client.errors import ClientError
from ottla.tools.browse.browser import Browser
from ottla.tools.browse.source import Source
from ottla.tools.browse.terminal import Terminal
from ottla.tools.cli.bootstrap import connect
from ottla.tools.cli.offset_text import check_offset
from ottla.tools.usage import WrongUsage

SECONDS = 0.5
"""The time between two fetches of new records, and between two checks of the screen's size."""


def browse(options: Namespace) -> None:
    if options.partition is not None and not options.topic:
        raise WrongUsage(
            "--partition was given without a topic: use `ottla topic browse TOPIC --partition N`"
        )
    if options.offset is not None:
        check_offset(options.offset, "--offset", ("beginning", "end"))
    if not (sys.stdin.isatty() and sys.stdout.isatty()) or os.environ.get("TERM") == "dumb":
        raise ClientError(
            "browsing needs a terminal; in scripts and pipes use `ottla consume TOPIC --exit`"
        )
    with connect(options) as cluster:
        terminal = Terminal(
            sys.stdin.fileno(), sys.stdout.fileno(), colours=not os.environ.get("NO_COLOR")
        )
        browser = Browser(Source(cluster), terminal.size()[1], options.offset or "beginning")
        if not options.topic:
            browser.open_topics()
        elif options.partition is None:
            browser.open_topic(options.topic)
        else:
            browser.open_partition(options.topic, options.partition)
        with terminal:
            run(browser, terminal)


def run(browser: Browser, terminal: Terminal) -> None:
    """Run until q is pressed, or the terminal is closed."""
    height = terminal.size()[1]
    while not browser.over:
        width, now = terminal.size()
        if now != height:
            height = now
            browser.resize(height)
        terminal.draw(*browser.screen(width))
        keys = terminal.keys(SECONDS if browser.waits else 0)
        if keys is None:
            return
        for key in keys:
            browser.press(key)
            if browser.over:
                return
        browser.tick()
