"""Settings that each listener may have for itself, `listener.name.<name>.` before Kafka's name.

A listener's own setting wins over the broker's, whatever set either of them: the file or an
administrator at run time.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from ottla.broker.settings.declaration import Long, Names, Password, Settings, setting

PREFIX = re.compile(r"listener\.name\.([^.]+)\.")
OF_MECHANISM = (
    "sasl.jaas.config", "connections.max.reauth.ms", "sasl.server.callback.handler.class",
)
"""Settings that a mechanism may have for itself: `plain.sasl.jaas.config`."""


class ListenerSettings(Settings):
    """How the clients of one listener authenticate."""

    sasl_enabled_mechanisms: Names = setting(
        "sasl.enabled.mechanisms", ("GSSAPI",),
        help="Mechanisms that clients may log in with: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512."
        " Kafka's default, GSSAPI, is not served: a SASL listener has to name others.")
    sasl_jaas_config: Password | None = setting(
        "sasl.jaas.config", None,
        help="A login module with its options, as Java's JAAS writes it; for a server it needs the"
        " prefix listener.name.<listener>.<mechanism>. and holds the users of PLAIN.")
    sasl_server_max_receive_size: int = setting(
        "sasl.server.max.receive.size", 524_288,
        help="The largest frame, in bytes, from a client that has not authenticated.")
    connections_max_reauth_ms: Long = setting(
        "connections.max.reauth.ms", 0,
        help="How long a client may use a connection before it has to authenticate again (KIP-368);"
        " 0 is as long as it likes. Tokens that expire earlier end it earlier.")


def for_listener(listener: str, texts: Mapping[str, str]) -> dict[str, str]:
    """The properties as one listener has them: its own ones in the place of the broker's."""
    prefix = f"listener.name.{listener.lower()}."
    shared = {name: text for name, text in texts.items() if name in ListenerSettings.declared}
    own = {name[len(prefix) :]: text for name, text in texts.items() if name.startswith(prefix)}
    return {**shared, **own}


def for_mechanism(mechanism: str, texts: Mapping[str, str]) -> dict[str, str]:
    """A listener's properties as one of its mechanisms has them."""
    prefix = f"{mechanism.lower()}."
    own = {name: texts[prefix + name] for name in OF_MECHANISM if prefix + name in texts}
    # Kafka ignores a server's JAAS text without its mechanism's name.
    return {**{k: v for k, v in texts.items() if k != "sasl.jaas.config"}, **own}


def bare_name(name: str) -> str:
    """A property's name without its listener and mechanism."""
    bare = PREFIX.sub("", name)
    if bare != name:
        for each in OF_MECHANISM:
            if bare.endswith(f".{each}"):
                return each
    return bare


def idle(names: Iterable[str], protocols: Mapping[str, str]) -> list[str]:
    """Settings of listeners that decide nothing: no listener is there that would go by them.

    `protocols` has the security protocol of each listener.
    """
    of = {listener.lower(): protocol for listener, protocol in protocols.items()}
    found = []
    for name in names:
        match = PREFIX.match(name)
        bare = bare_name(name)
        if match is None and bare not in ListenerSettings.declared:
            continue
        concerned = of.values() if match is None else [of.get(match[1], "")]
        if (
            bare not in {*ListenerSettings.declared, *OF_MECHANISM}
            or not any(_counts(bare, protocol) for protocol in concerned)
            or bare == "sasl.jaas.config" in (name, PREFIX.sub("", name))
        ):
            found.append(name)
    return found


def _counts(name: str, protocol: str) -> bool:
    """Whether a setting means something for listeners of this protocol."""
    if name.startswith("ssl."):
        return protocol in ("SSL", "SASL_SSL")
    return protocol in ("SASL_PLAINTEXT", "SASL_SSL")
