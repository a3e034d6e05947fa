"""What can be wrong with opaque parameters: one error, whose text goes into the events of the claim's pods."""

from __future__ import annotations

from driver.claims.errors import ClaimError


class ParameterError(ClaimError):
    """Parameters of ours that cannot be used: ``field`` below ``place`` holds ``found``; ``fix`` says what to do.

    ``place`` is the path inside the claim (``status.allocation.devices.config[0].opaque.parameters``) and, where the
    administrator wrote it, says so. ``field`` is empty for the whole of it, ``found`` where nothing was found.
    """

    def __init__(self, place: str, field: str, found: str, fix: str) -> None:
        where = f"{place}.{field}" if field else place
        super().__init__(f"{where}: {found}; {fix}" if found else f"{where}: {fix}")
        self.place = place
        self.field = field
        self.found = found
        self.fix = fix


class UnservedParameter(ParameterError):
    """Parameters for another driver, whose claims run on ours, ask for what nothing here serves."""
