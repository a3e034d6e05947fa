"""CDI specs made by hand, and arbitrary ones."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import strategies as st

from node.cdi.spec import STAGES, CdiDevice, Spec
from node.edits.model import ContainerEdits, HookEdit, MountEdit, NodeEdit

KIND = "k8s.device-plugin.nvidia.com/gpu"


def node(path: str = "/dev/nvidia0", host: str = "", permissions: str = "rw") -> NodeEdit:
    """A device node, at the same path on the host unless told otherwise."""
    return NodeEdit(path, host or path, permissions)


def device(name: str = "GPU-0", edits: ContainerEdits | None = None) -> CdiDevice:
    """A device with one node."""
    return CdiDevice(name, edits if edits is not None else ContainerEdits(nodes=(node(),)))


def spec(*devices: CdiDevice, kind: str = KIND, edits: ContainerEdits | None = None) -> Spec:
    """A spec with one device unless told otherwise."""
    return Spec(kind, devices or (device(),), edits or ContainerEdits())


def padded(size: int, value: str = "x") -> Spec:
    """A spec of at least ``size`` bytes."""
    return spec(edits=ContainerEdits(env=(("PADDING", value * size),)))


anything = st.text(st.characters(), max_size=8)
"""Any text, also such as JSON cannot spell."""
good_names = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9_.:-]{0,6}[A-Za-z0-9])?", fullmatch=True)
good_texts = st.text(st.characters(exclude_characters="\0=", exclude_categories=["Cs"]), min_size=1, max_size=8)
good_paths = good_texts.map(lambda text: f"/{text}")
good_kinds = st.sampled_from([KIND, "nvidia.com/gpu", "a.b/c.d", "vendor/cla_ss", "a/b"])
good_permissions = st.sampled_from(["", "r", "rw", "rwm", "mm"])
good_stages = st.sampled_from(STAGES)


@dataclass(frozen=True)
class _Parts:
    """What specs are made of; ``fewest`` devices, and device nodes in each of their edits."""

    kinds: st.SearchStrategy[str] = good_kinds
    names: st.SearchStrategy[str] = good_names
    texts: st.SearchStrategy[str] = good_texts
    paths: st.SearchStrategy[str] = good_paths
    permissions: st.SearchStrategy[str] = good_permissions
    stages: st.SearchStrategy[str] = good_stages
    options: st.SearchStrategy[str] = good_texts
    fewest: int = 1


def specs_of(parts: _Parts) -> st.SearchStrategy[Spec]:
    """Specs out of these parts."""
    words = st.lists(parts.options, max_size=2).map(tuple)
    edits = st.builds(
        ContainerEdits,
        env=st.lists(st.tuples(parts.texts, parts.texts), max_size=2).map(tuple),
        nodes=st.lists(
            st.builds(NodeEdit, parts.paths, parts.paths, parts.permissions), min_size=parts.fewest, max_size=2
        ).map(tuple),
        mounts=st.lists(st.builds(MountEdit, parts.paths, parts.paths, words), max_size=2).map(tuple),
        hooks=st.lists(st.builds(HookEdit, parts.stages, parts.paths, words), max_size=2).map(tuple),
    )
    unique = (lambda each: each.name) if parts.fewest else None
    devices = st.lists(st.builds(CdiDevice, parts.names, edits), min_size=parts.fewest, max_size=3, unique_by=unique)
    return st.builds(Spec, parts.kinds, devices.map(tuple), edits)


good_specs = specs_of(_Parts())
any_specs = st.one_of(
    good_specs,
    specs_of(_Parts(kinds=anything | st.builds("{}/{}".format, anything, anything))),
    specs_of(_Parts(names=anything)),
    specs_of(_Parts(texts=anything)),
    specs_of(_Parts(paths=anything | anything.map(lambda text: f"/{text}"))),
    specs_of(_Parts(permissions=anything | st.text("rwmx"))),
    specs_of(_Parts(stages=anything)),
    specs_of(_Parts(options=anything)),
    specs_of(_Parts(fewest=0)),
)
"""Specs that are wrong in one kind of part at most, so that many of them are just right."""
