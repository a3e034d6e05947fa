"""The metadata files of claims, and the CDI specs that mount them: one of each for every request.

Blocking; for worker threads. A container has the file itself (a bind mount), so a file that a container may have is
never replaced: new content is written over the old with one ``write``, and padded with newlines so that it never
becomes shorter. A reader that meets half of it finds no JSON and reads again. The ``generation`` in the file says how
often its content has changed; it is read from the file, so that it grows across restarts.

The folder of a claim is named after namespace and name, like those of other drivers. A later claim of that name must
not change or lose files because an earlier one ends, so every file is checked for the UID of its claim. A power cut may
lose files: it voids the preparation as well.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path

from driver.claims.disk import ClaimSpecs
from driver.claims.model import ClaimReference, Unavailable
from driver.metadata.content import path_in_container, stream
from driver.metadata.model import ClaimMetadata, DescribedRequest, cdi_entry, cdi_kind
from driver.names import metadata_prefix
from kube.bodies import Json
from node.files import WriteFailed, write_whole
from node.opening import opened, read_regular
from node.values import Value, value

FOLDER = "dra-device-metadata"
LARGEST = 4 << 20
"""Bytes of a file: all devices that a claim can have, with as many and as long attributes as the API allows, twice."""
_MODE = 0o644
"""Containers run as any user; the attributes are no secret, since every node reads slices."""
_NAME_BYTES = 255
"""Longest name of a file or folder."""
_HEAD = re.compile(r'"uid":"([^"]{1,128})","generation":([0-9]{1,15})\}')
"""In every file of ours, also in one that a kill left half written."""
_EMPTY: Mapping[str, Json] = {}


@value
class _Stored(Value):
    """A file: the claim's UID and the generation are empty and 0 if it is not one of ours."""

    uid: str
    generation: int
    text: str


class MetadataFiles:
    """Files ``<folder>/dra-device-metadata/<namespace>_<claim>/<request>/metadata.json``, and their specs."""

    def __init__(self, folder: Path, cdi_dir: Path, driver: str) -> None:
        self._root = folder / FOLDER
        self._driver = driver
        self._specs = ClaimSpecs(cdi_dir, metadata_prefix(driver))
        self._lock = threading.Lock()
        """A file is read and written in one go, by one thread."""
        self._known: set[str] | None = None
        """UIDs of claims that may have a file or a spec; None until somebody has looked."""

    def paths(self, claim: ClaimReference, metadata: ClaimMetadata) -> tuple[Path, ...]:
        """The claim's files on the host."""
        return tuple(self._path(claim, main) for main in metadata.mains)

    def ensure(self, claim: ClaimReference, metadata: ClaimMetadata) -> None:
        """Write what is missing or differs; interfaces that the files have stay. Raises Unavailable with the fix."""
        with self._lock:
            if self._known is not None:
                self._known.add(claim.uid)
            for request in metadata.requests:
                path = self._path(claim, request.main)
                stored = _stored(path)
                if stored is not None and stored.uid == claim.uid:
                    self._update(path, stored, claim, metadata, request, networks=_networks(stored.text))
                else:
                    text = stream(claim, metadata, request, driver=self._driver, generation=1, networks=_EMPTY)
                    self._create(path, text)
                self._specs.ensure(cdi_entry(claim.uid, request.main), self._spec(path, claim, metadata, request))

    def set_networks(self, claim: ClaimReference, metadata: ClaimMetadata, networks: Mapping[str, Json]) -> None:
        """Write these interfaces into the claim's files, and no others. Raises Unavailable with the fix.

        A file that is missing stays so: no container has it, and the claim may be released at this moment.
        """
        with self._lock:
            for request in metadata.requests:
                path = self._path(claim, request.main)
                stored = _stored(path)
                if stored is not None and stored.uid == claim.uid:
                    self._update(path, stored, claim, metadata, request, networks=networks)

    def is_whole(self, claim: ClaimReference, metadata: ClaimMetadata) -> bool:
        """Whether every file and every spec of the claim is there."""
        entries = [self._specs.path(cdi_entry(claim.uid, main)) for main in metadata.mains]
        return all(path.exists() for path in (*self.paths(claim, metadata), *entries))

    def remove(self, claim: ClaimReference, metadata: ClaimMetadata) -> None:
        """Remove the claim's specs and files; they may be gone already. Raises Unavailable with the fix.

        Removes the specs first: none may name a file that is missing.
        """
        with self._lock:
            for main in metadata.mains:
                self._specs.remove(cdi_entry(claim.uid, main))
            for path in self.paths(claim, metadata):
                stored = _stored(path)
                if stored is not None and stored.uid == claim.uid:
                    _remove(path)

    def remove_any(self, uid: str) -> None:
        """Remove the specs and files of a claim of which only the UID is known. Raises Unavailable with the fix."""
        with self._lock:
            if self._known is not None and uid not in self._known:
                return
            for entry in self._specs.uids():
                if entry.rpartition("_")[0] == uid:
                    self._specs.remove(entry)
            for path, found in self._found():
                if found == uid:
                    _remove(path)

    def uids(self) -> frozenset[str]:
        """Claims that have a file or a spec."""
        with self._lock:
            named = {entry.rpartition("_")[0] for entry in self._specs.uids()}
            self._known = named | {uid for _, uid in self._found()}
            return frozenset(self._known)

    def sweep_unfinished(self) -> None:
        """Remove what a killed process left unfinished; call it only while no other process of ours writes."""
        self._specs.sweep_unfinished()
        for path in self._root.glob("*/*/.*.tmp"):
            with contextlib.suppress(OSError):  # No container has it; the next start tries again.
                path.unlink()

    def _path(self, claim: ClaimReference, request: str) -> Path:
        name = f"{claim.namespace}_{claim.name}"
        return self._root / (name if len(name) <= _NAME_BYTES else claim.uid) / request / "metadata.json"

    def _found(self) -> Iterator[tuple[Path, str]]:
        """Every file, and the UID of its claim: empty for one that ostler did not write."""
        for path in self._root.glob("*/*/metadata.json"):
            stored = _stored(path)
            yield path, stored.uid if stored is not None else ""

    def _create(self, path: Path, text: str) -> None:
        try:
            for folder in reversed((path.parent, *path.parent.parents)):
                if not folder.is_dir():
                    folder.mkdir(exist_ok=True)
                    folder.chmod(0o755)
            write_whole(path, text.encode(), _MODE, durable=False, sweep=False)
        except (WriteFailed, OSError) as error:
            raise _fault(path, "written", error) from error

    def _update(
        self,
        path: Path,
        stored: _Stored,
        claim: ClaimReference,
        metadata: ClaimMetadata,
        request: DescribedRequest,
        *,
        networks: Mapping[str, Json],
    ) -> None:
        def text(generation: int) -> str:
            return stream(claim, metadata, request, driver=self._driver, generation=generation, networks=networks)

        if stored.text.rstrip("\n") == text(stored.generation).rstrip("\n"):
            return
        data = text(stored.generation + 1).encode().ljust(len(stored.text.encode()), b"\n")
        try:
            with opened(path, os.O_WRONLY) as descriptor:
                if os.pwrite(descriptor, data, 0) != len(data):
                    raise OSError("not all of it was written")
        except OSError as error:
            raise _fault(path, "written", error) from error

    def _spec(self, path: Path, claim: ClaimReference, metadata: ClaimMetadata, request: DescribedRequest) -> str:
        from node.cdi.spec import CdiDevice, Spec, encode  # The start does not need it.
        from node.edits.model import ContainerEdits, MountEdit

        inside = path_in_container(metadata, claim, request, self._driver)
        mount = MountEdit(str(path), inside, ("ro", "bind"))
        entry = CdiDevice(cdi_entry(claim.uid, request.main), ContainerEdits(mounts=(mount,)))
        return encode(Spec(cdi_kind(self._driver), (entry,), version="0.5.0")).decode()


def _stored(path: Path) -> _Stored | None:
    """The file's content; None if it cannot be read."""
    try:
        text = read_regular(path, LARGEST).decode(errors="replace")
    except OSError:
        return None
    head = _HEAD.search(text)
    return _Stored(head[1], int(head[2]), text) if head is not None else _Stored("", 0, text)


def _networks(text: str) -> Mapping[str, Json]:
    """``networkData`` by device in a file's text; none if the text is only half there."""
    try:
        first, _ = json.JSONDecoder().raw_decode(text)
        devices = [device for request in first["requests"] for device in request["devices"]]
        return {device["name"]: device["networkData"] for device in devices if "networkData" in device}
    except (ValueError, TypeError, KeyError, RecursionError):
        return _EMPTY


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise _fault(path, "removed", error) from error
    with contextlib.suppress(OSError):  # Another request's file is there, or a later claim's.
        path.parent.rmdir()
        path.parent.parent.rmdir()


def _fault(path: Path, done: str, error: WriteFailed | OSError) -> Unavailable:
    reason = error.reason if isinstance(error, WriteFailed) else error.strerror or str(error)
    return Unavailable(f"metadata file {path} cannot be {done} ({reason}); check the folder and its disk")
