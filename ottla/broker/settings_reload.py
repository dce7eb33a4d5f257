"""SIGHUP: reads the properties again, and applies those that may change at run time."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ottla.broker.settings.config import has_effect, why_unknown
from ottla.broker.settings.declaration import SettingsError
from ottla.broker.settings.listener_settings import is_secret
from ottla.broker.threads.slices import in_slices

if TYPE_CHECKING:
    from ottla.broker.listener_set import ListenerSet
    from ottla.broker.settings.config import BrokerConfig
    from ottla.replication.metadata import MetadataImage
    from ottla.replication.replicas import Replicas

log = logging.getLogger("ottla.server")


async def reload(
    config: BrokerConfig, image: MetadataImage, listeners: ListenerSet, replicas: Replicas
) -> None:
    """Apply what has changed. Each change and each refusal is logged; no error ends the broker."""
    try:
        reloaded = config.reload(config.sources.read(), image)
    except (SettingsError, OSError) as error:
        from ottla.client.errors import reason_of  # imported only after an error

        others = error.others if isinstance(error, SettingsError) else ()
        log.error("reload: %s; all settings are unchanged",
                  "; ".join(reason_of(each) + config.sources.details(each)
                            for each in (error, *others)))
        return
    for name, (old, new) in reloaded.changed.items():
        if is_secret(name):
            log.info("reload: %s has a new value", name)
            continue
        text = "its default" if new is None else new
        if any(name in layer for layer in config.layers(image)[:-1]):
            # In a cluster, min.insync.replicas in the file never applies: the first controller
            # writes a cluster-wide value into the metadata.
            log.warning(
                "reload: in the file, %s has changed to %s, but the value from kafka-configs stays"
                " in use",
                name, text,
            )
            continue
        log.info("reload: %s has changed from %s to %s", name, old or "its default", text)
    for name in reloaded.refused:
        needs = "and needs a restart" if has_effect(name) else "without effect in Ottla"
        [reason] = why_unknown([name]) or [f"{name} has changed {needs}"]
        log.warning("reload: %s", reason)
    renewed = listeners.renew_security(image)       # the same files may hold new certificates
    if not (reloaded.changed or reloaded.refused or renewed):
        log.info("reload: nothing has changed")
    if reloaded.changed:
        listeners.limits_changed()
        await in_slices(replicas.reconfigure(image))
