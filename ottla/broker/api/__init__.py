"""One file for each area of the protocol, imported at the first request for one of its APIs.

The second line of an API's schema names the file that serves the API.
"""

from importlib import import_module

from ottla.broker.dispatch import expect
from ottla.wire.apis import APIS

AREAS = sorted({api.served_by for api in APIS.values() if api.served_by})

for _api in APIS.values():
    if _api.served_by:
        expect(_api.key, f"{__name__}.{_api.served_by}")


def load() -> None:
    """Import every area now."""
    for area in AREAS:
        import_module(f"{__name__}.{area}")
