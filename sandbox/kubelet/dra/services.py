"""Which of a driver's gRPC services a kubelet uses. Pure; texts are a kubelet's."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sandbox.kubelet.connections import Generation
from sandbox.kubelet.errors import RegistrationError

V1 = "v1.DRAPlugin"
V1BETA1 = "v1beta1.DRAPlugin"
KNOWN = (V1, V1BETA1)

HEALTH_V1 = "v1.DRAResourceHealth"
HEALTH_V1ALPHA1 = "v1alpha1.DRAResourceHealth"


def chosen(driver: str, endpoint: str, services: Sequence[str]) -> str:
    """The first service of the driver's list that the kubelet knows; raises ``RegistrationError``."""
    where = f"invalid supported gRPC versions of DRA driver plugin {driver} at endpoint {endpoint}"
    if not services:
        raise RegistrationError(f"{where}: empty list of supported gRPC services (aka supported versions)")
    for service in services:
        if service in KNOWN:
            return service
    raise RegistrationError(
        f"{where}: none of services supported by the plugin ({_quoted(services)}) "
        f"are supported by the kubelet ({_quoted(KNOWN)})"
    )


def health_service(generation: Generation, services: Sequence[str]) -> str | None:
    """The health service to watch, None for none.

    1.36 has only v1alpha1 and tries it whatever the driver lists; 1.37 chooses from the list; in 1.35 it is switched
    off by default.
    """
    if generation == "1.35":
        return None
    if generation == "1.36":
        return HEALTH_V1ALPHA1
    return next((service for service in (HEALTH_V1, HEALTH_V1ALPHA1) if service in services), None)


def _quoted(words: Iterable[str]) -> str:
    return "[" + " ".join(f'"{word}"' for word in words) + "]"
