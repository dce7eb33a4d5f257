"""The child's side of the pipes: reads commands, answers them, notices that the test process ended.

A line is one JSON object. A command's answer is one line, with the command's number and either `ok`
or `error`: `{"command": 7, "ok": …}`. Usually the pipe closes when the test process ends. A process
that the test process forked may keep the pipe open, so a pidfd watches the test process itself too.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

COMMANDS_FD = 0
ANSWERS_FD = 1
READ_SIZE = 1 << 16

Command = Callable[..., Awaitable[Any]]


class Control:
    """Runs the test process's commands on this process's loop, in order."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        commands: Mapping[str, Command],
        parent_pid: int,
        on_end: Callable[[], None],
    ) -> None:
        self.loop, self.commands, self.on_end = loop, commands, on_end
        self.received = b""
        self.waiting: asyncio.Queue[bytes] = asyncio.Queue()
        self.task = loop.create_task(self._run())
        self.parent_fd = -1
        loop.add_reader(COMMANDS_FD, self._read)
        self._watch(parent_pid)

    def say(self, answer: dict[str, Any]) -> None:
        """Write one line to the test process."""
        try:
            os.write(ANSWERS_FD, json.dumps(answer).encode() + b"\n")
        except BrokenPipeError:
            self._end()

    def _watch(self, parent_pid: int) -> None:
        if os.getppid() != parent_pid:      # the test process ended while this process started
            self._end()
        elif hasattr(os, "pidfd_open"):
            self.parent_fd = os.pidfd_open(parent_pid)
            self.loop.add_reader(self.parent_fd, self._end)

    def _end(self) -> None:
        self.loop.remove_reader(COMMANDS_FD)
        if self.parent_fd >= 0:
            self.loop.remove_reader(self.parent_fd)
        self.on_end()

    def _read(self) -> None:
        data = os.read(COMMANDS_FD, READ_SIZE)
        if not data:
            self._end()
            return
        *lines, self.received = (self.received + data).split(b"\n")
        for line in lines:
            self.waiting.put_nowait(line)

    async def _run(self) -> None:
        while True:
            fields = json.loads(await self.waiting.get())
            command = fields.pop("command")
            try:
                result = await self.commands[fields.pop("do")](**fields)
            except Exception as error:
                self.say({"command": command, "error": f"{type(error).__name__}: {error}"})
            else:
                self.say({"command": command, "ok": result})
