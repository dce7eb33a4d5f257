"""`ottla completion SHELL`: scripts that contain the words of the command table.

The scripts ask a broker only for the names of topics and groups. Such a request must not make the
shell hang. It fails if no broker is reached within 0.3 s, and ends after 2 s in any case. bash and
zsh use its result for ten seconds.
"""

from __future__ import annotations

import re
from argparse import Namespace
from importlib import import_module
from typing import TYPE_CHECKING

from ottla.tools.cli.grammar import common_flags
from ottla.tools.command import COMMANDS
from ottla.tools.commands import table

if TYPE_CHECKING:
    from ottla.tools.commands.table import Command

BASH = """\
# Completion of ottla for bash: eval "$(ottla completion bash)"
_ottla_names() {{ # _ottla_names topic|group: from a cache, or from a broker that answers at once
  local cluster=${{OTTLA_BOOTSTRAP_SERVERS//[^[:alnum:]]/_}}
  local folder=${{XDG_RUNTIME_DIR:-${{XDG_CACHE_HOME:-$HOME/.cache}}}}/ottla
  local file=$folder/$cluster-$1-names
  mkdir -p -m 700 "$folder" 2>/dev/null || return
  if [ ! -f "$file" ] || [ $(($(date +%s) - $(stat -c %Y "$file"))) -gt 10 ]; then
    timeout 2 ottla "$1" list -o name --timeout 0.3 2>/dev/null >"$file.new" || : >"$file.new"
    mv "$file.new" "$file" # even if empty, so that no broker is asked for ten seconds
  fi
  # Leave out unsafe names: a group id may contain $(…), which the shell would execute.
  grep -E '^[[:alnum:]._-]+$' "$file" 2>/dev/null | sed "s|^|$2|"
}}
_ottla() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} noun=${{COMP_WORDS[1]}} verb=${{COMP_WORDS[2]}} words=
  if [ "$COMP_CWORD" = 1 ]; then words="{nouns}"
  else case "$noun $verb" in
{cases}
{kafka}
    esac
    if [ -z "$words" ] || [ "$COMP_CWORD" = 2 ]; then case "$noun" in
{verbs}
    esac; fi
    case "$word" in -*) ;; topic/*) words="$(_ottla_names topic topic/)" ;; *) case "$noun $verb" in
{dynamic}
    esac ;; esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
  case "${{COMPREPLY[*]}}" in */) compopt -o nospace 2>/dev/null ;; esac
}}
complete -o default -F _ottla ottla
"""
ZSH = """\
# Completion of ottla for zsh: eval "$(ottla completion zsh)"
autoload -Uz compinit bashcompinit && compinit && bashcompinit
"""


def words_of(command: Command) -> list[str]:
    """The flags and choices of a command."""
    found = []
    for flag in [*command.flags, *common_flags(command)]:
        found += [name for name in flag.names if name.startswith("-")]
        found += flag.choices if flag.positional else []
    return [*found, "--help"]


def asks_for(command: Command) -> str:
    """Returns "topic" or "group" if the command takes names of topics or groups, else ""."""
    for flag in command.flags:
        if (
            flag.positional
            and flag.names[0] in ("TOPIC", "GROUP")
            and command.words != "topic create"
        ):
            return flag.names[0].lower()
    return ""


def entities_of(command: Command) -> list[str]:
    """The kinds of entities that a command accepts, such as topic/ in `config show
    topic/orders`."""
    for flag in command.flags:
        if flag.positional and flag.names[0] in ("ENTITY", "RESOURCE"):
            return [f"{kind}/" for kind in re.findall(r"([a-z]+)/", flag.help)]
    return []


def pipelines() -> list[str]:
    """The verbs of `ottla pipeline`; none if Spark is not installed."""
    try:
        steps = import_module(COMMANDS["pipeline"][0].replace("command", "steps"))
    except ImportError:
        return []
    return [*(step.name for step in steps.STEPS), "run"]


def bash() -> str:
    """The script for bash."""
    commands = dict(table.read("ottla").items())
    verbs: dict[str, list[str]] = {
        "server": ["start"], "log": ["verify", "import", "dump"], "pipeline": pipelines()}
    cases, dynamic = [], []
    for name, command in commands.items():
        noun, _, verb = name.partition(" ")
        if verb:
            verbs.setdefault(noun, []).append(verb)
        label = f'"{name}"' if verb else f'"{noun} "*'
        cases.append(f'      {label}) words="{" ".join(words_of(command))}" ;;')
        if kind := asks_for(command):
            dynamic.append(f'      {label}) words="$words $(_ottla_names {kind})" ;;')
        elif entities := entities_of(command):
            dynamic.append(f'      {label}) words="$words {" ".join(entities)}" ;;')
    second = [f'      {noun}) words="{" ".join(found)}" ;;' for noun, found in verbs.items()]
    kafka = table.read("kafka")
    return BASH.format(
        nouns=" ".join([*COMMANDS, *kafka]),
        kafka="\n".join(
            f'      "{name} "*) words="{" ".join(words_of(one))}" ;;' for name, one in kafka.items()
        ),
        cases="\n".join(cases),
        verbs="\n".join(second),
        dynamic="\n".join(dynamic),
    )


def fish() -> str:
    """The script for fish."""
    lines = [
        "# Completion of ottla for fish: ottla completion fish | source",
        "complete -c ottla -f",
    ]
    tools = {name: (one.target, one.about) for name, one in table.read("kafka").items()}
    for noun, (_, what) in {**COMMANDS, **tools}.items():
        lines.append(f"complete -c ottla -n __fish_use_subcommand -a {noun} -d '{plain(what)}'")
    for name in pipelines():
        lines.append(f"complete -c ottla -n '__fish_seen_subcommand_from pipeline' -a {name}")
    for name, command in table.read("ottla").items():
        noun, _, verb = name.partition(" ")
        seen = f"__fish_seen_subcommand_from {noun}"
        if verb:
            lines.append(f"complete -c ottla -n '{seen}' -a {verb} -d '{plain(command.about)}'")
            seen += f"; and __fish_seen_subcommand_from {verb}"
        for flag in command.flags:
            for one in flag.names if not flag.positional else []:
                form = f"-l {one[2:]}" if one.startswith("--") else f"-s {one[1:]}"
                lines.append(f"complete -c ottla -n '{seen}' {form} -d '{plain(flag.help)}'")
        if kind := asks_for(command):
            lines.append(
                f"complete -c ottla -n '{seen}' -a '(timeout 2 ottla {kind} list -o name "
                "--timeout 0.3 2>/dev/null)'"
            )
        elif entities := entities_of(command):
            lines.append(f"complete -c ottla -n '{seen}' -a '{' '.join(entities)}'")
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """Text that is safe between single quotes."""
    return text.replace("'", "")


def show(options: Namespace) -> None:
    print({"bash": bash, "zsh": lambda: ZSH + bash(), "fish": fish}[options.shell](), end="")
