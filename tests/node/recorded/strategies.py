"""Facts of every shape, made from the dataclasses' own type hints."""

from __future__ import annotations

from hypothesis import strategies as st

from node.inventory.facts import GpuFacts, MigFacts, NodeFacts, NvmlFacts

# Texts of a driver: any character that UTF-8 has.
texts = st.text(st.characters(codec="utf-8"), max_size=12)
integers = st.integers(min_value=-(2**63), max_value=2**64 - 1)

st.register_type_strategy(
    str, texts | st.sampled_from(["null", "~", "true", "0x10de", "1:30", "01", "=", "- a", "#", " "])
)
st.register_type_strategy(int, integers)

facts = st.from_type(NodeFacts)

_hexadecimal = "0123456789abcdef"


def _hex(size: int) -> st.SearchStrategy[str]:
    # The first digit keeps it from being all zeros, which means "none".
    return st.builds(
        lambda first, rest: first + rest,
        st.sampled_from("123abc"),
        st.text(_hexadecimal, min_size=size - 1, max_size=size - 1),
    )


uuids = st.builds("-".join, st.tuples(_hex(8), _hex(4), _hex(4), _hex(4), _hex(12)))
serials = st.text("0123456789", min_size=13, max_size=13)
parts = st.builds("900-2G{}-0000-000".format, st.text("0123456789", min_size=4, max_size=4))

identified_gpus = st.builds(
    GpuFacts,
    index=st.integers(0, 7),
    uuid=uuids.map("GPU-{}".format),
    serial=serials,
    board_part_number=parts,
    mig_devices=st.lists(st.builds(MigFacts, index=st.integers(0, 6), uuid=uuids.map("MIG-{}".format)), max_size=3).map(
        tuple
    ),
)
identified_nodes = st.builds(
    lambda gpus: NodeFacts(nvml=NvmlFacts(gpus=tuple(gpus))), st.lists(identified_gpus, min_size=1, max_size=4)
)
