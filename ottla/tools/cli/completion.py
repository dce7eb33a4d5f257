"""`ottla completion SHELL`: scripts that contain the words of the command table.

Only topics and groups are requested from a broker, with a deadline of 0.3 s and a cache of ten
seconds, so that an unreachable broker does not hang a shell.
"""

from __future__ import annotations

from argparse import Namespace
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
  local file=${{XDG_RUNTIME_DIR:-/tmp}}/ottla-$UID-$cluster-$1-names
  if [ ! -f "$file" ] || [ $(($(date +%s) - $(stat -c %Y "$file"))) -gt 10 ]; then
    timeout 1 ottla "$1" list -o name --timeout 0.3 2>/dev/null >"$file.new" || : >"$file.new"
    mv "$file.new" "$file" # a broker that does not answer is not asked again at once either
  fi
  cat "$file" 2>/dev/null
}}
_ottla() {{
  local word=${{COMP_WORDS[COMP_CWORD]}} noun=${{COMP_WORDS[1]}} verb=${{COMP_WORDS[2]}} words=
  if [ "$COMP_CWORD" = 1 ]; then words="{nouns}"
  else case "$noun $verb" in
{cases}
    esac
    if [ -z "$words" ] || [ "$COMP_CWORD" = 2 ]; then case "$noun" in
{verbs}
    esac; fi
    case "$word" in -*) ;; *) case "$noun $verb" in
{dynamic}
    esac ;; esac
  fi
  COMPREPLY=($(compgen -W "$words" -- "$word"))
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
    """topic or group if the command takes names of them."""
    for flag in command.flags:
        if (
            flag.positional
            and flag.names[0] in ("TOPIC", "GROUP")
            and command.words != "topic create"
        ):
            return flag.names[0].lower()
    return ""


def bash() -> str:
    """The script for bash."""
    commands = dict(table.read("ottla").items())
    verbs: dict[str, list[str]] = {"server": ["start"], "log": ["verify", "import", "dump"]}
    cases, dynamic = [], []
    for name, command in commands.items():
        noun, _, verb = name.partition(" ")
        if verb:
            verbs.setdefault(noun, []).append(verb)
        label = f'"{name}"' if verb else f'"{noun} "*'
        cases.append(f'      {label}) words="{" ".join(words_of(command))}" ;;')
        if kind := asks_for(command):
            dynamic.append(f'      {label}) words="$words $(_ottla_names {kind})" ;;')
    second = [f'      {noun}) words="{" ".join(found)}" ;;' for noun, found in verbs.items()]
    return BASH.format(
        nouns=" ".join(COMMANDS),
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
    for noun, (_, what) in COMMANDS.items():
        lines.append(f"complete -c ottla -n __fish_use_subcommand -a {noun} -d '{plain(what)}'")
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
                f"complete -c ottla -n '{seen}' -a '(timeout 1 ottla {kind} list -o name "
                "--timeout 0.3 2>/dev/null)'"
            )
    return "\n".join(lines) + "\n"


def plain(text: str) -> str:
    """Text that is safe between single quotes."""
    return text.replace("'", "")


def show(options: Namespace) -> None:
    print({"bash": bash, "zsh": lambda: ZSH + bash(), "fish": fish}[options.shell](), end="")
