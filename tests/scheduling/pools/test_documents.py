"""Documents: what the prototype's decoder answered, both spellings, and every error by its text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.api.quantities import parse
from scheduling.pools.claim_documents import DeviceClaim
from scheduling.pools.documents import COUNT, DevicePool, PoolAttribute, PoolDeviceClass
from scheduling.pools.fields import DocumentError, Spelling
from scheduling.pools.reading import decode, encode, read, read_text
from scheduling.pools.text import DEEPEST, parse_documents
from tests.making.pool_documents import document, recorded

Json = dict[str, Any]


def plain(value: Any) -> Any:
    """An object without the peculiarities of the recorded encoder (see the vectors' README)."""
    if isinstance(value, list):
        return [plain(each) for each in value]
    if not isinstance(value, dict):
        return value
    found = {{"Driver": "driver", "DeviceType": "deviceType"}.get(key, key): plain(each) for key, each in value.items()}
    return {
        key: each
        for key, each in found.items()
        if each is not None and each != {} and not (key in ("driver", "deviceType") and each == "")
    }


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in recorded("document")])
@pytest.mark.parametrize("mode", ["strict", "lenient"])
def test_document_is_decoded_as_recorded(case: Json, mode: str) -> None:
    strict = mode == "strict"
    expected = case["expect"][mode]

    def reading() -> Any:
        found = parse_documents(case["document"], strict=strict)
        return decode(case["kind"], found[0] if found else None, strict=strict, spelling=Spelling.REFERENCE)

    if "error" in expected:
        with pytest.raises(DocumentError):
            reading()
    else:
        assert plain(encode(reading())) == plain(expected["object"])


@pytest.mark.parametrize("case", [pytest.param(case, id=case["name"]) for case in recorded("attributes")])
def test_attributes_are_equal_as_recorded(case: Json) -> None:
    first, second = (
        decode("DevicePool", {"spec": {"attributes": [case[key]]}}).spec.attributes[0] for key in ("a", "b")
    )
    assert {
        "equal": first.equal(second),
        "equalValue": first.equal_value(second),
        "equalReversed": second.equal(first),
    } == case["expect"]


def test_value_of_an_attribute_is_the_first_of_its_kinds() -> None:
    assert PoolAttribute("x", string="a", integer=1).value == "a"
    assert PoolAttribute("x", integer=0, quantity=parse("5")).kind == "int"
    assert PoolAttribute("x").value is None
    assert PoolAttribute("x").kind == ""


LATER_CLAIM = """
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClaim
metadata: {name: trainer, namespace: team-a}
spec:
  matchAttributes: [pcieRoot]
  devices:
  - name: gpus
    allOf:
    - class: big-gpu
      maxDevices: 8
      adminAccess: false
      requests: {memory: 128Gi, devices: 2}
    - class: nic
    oneOf:
    - {class: fast-disk}
    - {class: disk, constraints: device.size > 2}
  - {name: clock, class: clock}
"""


def test_later_spelling_gives_the_same_values() -> None:
    (found,) = read_text(LATER_CLAIM)
    assert isinstance(found, DeviceClaim)
    first, second = found.spec.claims
    assert [each.device_class for each in first.all_of] == ["big-gpu", "nic"]
    assert first.all_of[0].requests == {"memory": parse("128Gi"), COUNT: parse("2")}
    assert first.all_of[0].limits == {COUNT: parse("8")}
    assert first.all_of[0].admin_access is False
    assert [each.device_class for each in first.one_of] == ["fast-disk", "disk"]
    assert (second.name, second.all_of[0].device_class) == ("clock", "clock")


LATER_POOL = """
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DevicePool
metadata: {name: nics}
spec:
  nodeName: node-1
  driver: nic.example.com
  sharedResources: {vfs: 2}
  devices:
  - name: pf
    sharedResourcesConsumed: {vfs: 2}
    claimResourcesProvided: [{name: bandwidth, capacity: 10G, blockSize: 1G}]
status:
  deviceStatuses: [{name: pf, claimUIDs: [u-1], conditions: []}]
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClass
metadata: {name: one}
spec:
  definition: {driver: nic.example.com, constraints: device.kind == 'pf'}
---
apiVersion: devmgmtproto.k8s.io/v1alpha1
kind: DeviceClass
metadata: {name: many}
spec:
  selector:
    matchLabels: {type: nic}
    matchExpressions: [{key: vendor, operator: In, values: [a, b]}]
"""


def test_later_spelling_of_pools_and_classes() -> None:
    pool, one, many = read_text(LATER_POOL)
    assert isinstance(pool, DevicePool)
    assert [(each.name, each.capacity) for each in pool.spec.resources] == [("vfs", parse("2"))]
    assert pool.spec.devices[0].requests == {"vfs": parse("2")}
    assert pool.spec.devices[0].resources[0].block_size == parse("1G")
    assert pool.status.device_statuses[0].claim_uids == ("u-1",)
    assert isinstance(one, PoolDeviceClass)
    assert (one.spec.driver, one.spec.constraints) == ("nic.example.com", "device.kind == 'pf'")
    assert isinstance(many, PoolDeviceClass)
    assert many.spec.selector is not None
    assert many.spec.selector.match_labels == {"type": "nic"}


def test_documents_of_other_groups_and_empty_ones_are_left_out() -> None:
    assert read_text("---\n---\napiVersion: v1\nkind: Pod\n") == []


def claim_of(need: Any, **spec: Any) -> Json:
    return document("DeviceClaim", "k", {"claims": [need], **spec})


def pool_of(**spec: Any) -> Json:
    return document("DevicePool", "p", {"driver": "d", **spec})


def class_of(**spec: Any) -> Json:
    return document("DeviceClass", "c", {"driver": "d", **spec})


BROKEN: list[tuple[Any, str]] = [
    ([], "document: must be a map with apiVersion and kind, not a list"),
    ({"apiVersion": "v1"}, 'document: apiVersion must be devmgmtproto.k8s.io/v1alpha1, not "v1"'),
    (document("Pool", "p", {}), 'document: kind must be one of DevicePool, DeviceClass, DeviceClaim, not "Pool"'),
    (document("DevicePool", "", {"driver": "d"}), "metadata.name is missing; name the document"),
    (document("DevicePool", "p", {}), "spec.driver is missing; name the driver that publishes the pool"),
    (pool_of(devces=[]), "spec.devces: unknown field devces; did you mean devices?"),
    (pool_of(devices={}), "spec.devices must be a list, not a map"),
    (pool_of(devices=[1]), "spec.devices[0] must be a map, not 1"),
    (pool_of(nodeName=["n"]), "spec.nodeName must be a text, not a list"),
    (
        pool_of(resources=[{"name": "m", "capacity": True}]),
        "capacity must be a quantity such as 2, 500m or 8Gi, not true",
    ),
    (pool_of(resources=[{"name": "m", "capacity": "8GB"}]), 'spec.resources[0].capacity: "8GB" is not a quantity'),
    (pool_of(resources=[{"name": "m", "capacity": -1}]), "spec.resources[0].capacity is -1; it must not be negative"),
    (
        pool_of(resources=[{"name": "m", "capacity": 1, "blockSize": 0}]),
        "spec.resources[0].blockSize is 0; it must be above zero, or absent for no rounding",
    ),
    (pool_of(resources=[{"name": "count", "capacity": 1}]), "spec.resources[0].name is count, which stands for"),
    (pool_of(resources=[], sharedResources=[]), "spec.sharedResources: resources and sharedResources name the same"),
    (pool_of(devices=[{"name": "a"}, {"name": "a"}]), "spec.devices: device a is listed 2 times; keep one"),
    (pool_of(devices=[{}]), "spec.devices: the name of one device is missing; add it"),
    (
        pool_of(devices=[{"name": "a", "requests": {"slice": 1}}], resources=[{"name": "slices", "capacity": 1}]),
        "spec.devices[0].requests.slice: the pool has no resource slice; add it to spec.resources, which has slices",
    ),
    (
        pool_of(attributes=[{"name": "a"}]),
        "spec.attributes[0] (a) must have one of stringValue, intValue, quantityValue, semVerValue",
    ),
    (
        pool_of(attributes=[{"name": "a", "intValue": "1"}]),
        'must be a whole number of 64 bits, without quotes, not "1"',
    ),
    (document("DeviceClass", "c", {}), "spec.driver is missing; name the driver of the class's devices"),
    (class_of(adminAccess="yes"), 'spec.adminAccess must be true or false, without quotes, not "yes"'),
    (class_of(selector={}), "spec.selector stands for other classes; remove every other field of spec"),
    (class_of(definition={"driver": "d"}), "spec: move the fields beside definition into it"),
    (
        document("DeviceClass", "c", {"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}),
        'spec.selector.matchExpressions[0].operator must be one of In, NotIn, Exists, DoesNotExist, not "Is"',
    ),
    (
        document("DeviceClass", "c", {"selector": {"matchExpressions": [{"operator": "In"}]}}),
        "matchExpressions[0].key is missing; name a label; spec.selector.matchExpressions[0].values: In needs values",
    ),
    (class_of(configs=[{"apiVersion": "v1", "kind": "Foo", "name": "f"}]), "spec.configs[0].namespace is missing"),
    (document("DeviceClaim", "k", {}), "spec.claims is empty; add what the claim needs, such as {deviceClass: NAME}"),
    (claim_of({}), "spec.claims[0].deviceClass is missing; name a DeviceClass, or set deviceType"),
    (
        claim_of({"deviceClass": "a", "oneOf": [{"deviceClass": "b"}]}),
        "spec.claims[0].oneOf stands beside another need; move that one into oneOf, or into an entry of its own",
    ),
    (claim_of({"oneOf": [{"constraints": "true"}]}), "spec.claims[0].oneOf[0].deviceClass is missing"),
    (claim_of({"class": "a"}), "the other spelling of the document calls this field class; write deviceClass"),
    (claim_of({"deviceClass": "a", "adminAccess": 1}), "adminAccess must be true or false, without quotes, not 1"),
    (claim_of({"name": "n", "class": "a"}), "the other spelling of the document calls this field class"),
    (claim_of({"deviceClass": "a", "allowShared": True}), "remove it: a claim that requests an amount"),
    (claim_of({"deviceClass": "a"}, devices=[]), "spec.devices: claims and devices name the same field"),
    (claim_of({"deviceClass": "a", "requests": []}), "spec.claims[0].requests must be a map, not a list"),
    (
        claim_of({"deviceClass": "a", "requests": {"count": "500m"}}),
        "spec.claims[0].requests.count must be a whole number from 1 to 10000, not 500m",
    ),
    (
        claim_of({"deviceClass": "a", "requests": {"count": 3}, "limits": {"count": 2}}),
        "spec.claims[0].limits.count is 2, below requests.count 3; raise it or remove it",
    ),
    (
        claim_of({"deviceClass": "a", "requests": {"memory": -1}}),
        "spec.claims[0].requests.memory is -1; it must not be",
    ),
    (
        claim_of({"deviceClass": "a", "requests": {"": 1}}),
        "spec.claims[0].requests has an empty key; name the resource",
    ),
    (claim_of({"deviceClass": "a", "matchAttributes": [""]}), "spec.claims[0].matchAttributes[0] is empty; name an"),
    (claim_of({"deviceClass": "a", "configs": [{"kind": "A", "name": "b"}]}), "configs[0].apiVersion is missing"),
    (
        document("DeviceClaim", "k", {"devices": [{"name": "a", "class": "x", "allOf": [{"class": "y"}]}]}),
        "spec.devices[0]: class beside allOf; move it into allOf",
    ),
    (
        claim_of({"deviceClass": "a"}) | {"status": {"allocations": [{"devicePoolName": "p"}]}},
        "status.allocations[0].deviceName is missing; name the allocated device by its pool and its name",
    ),
    (
        claim_of({"deviceClass": "a"})
        | {
            "status": {
                "allocations": [
                    {"devicePoolName": "p", "deviceName": "d", "allocations": [{"name": "m", "allocation": -1}]}
                ]
            }
        },
        "status.allocations[0].allocations[0].allocation is -1; it must not be negative",
    ),
]


@pytest.mark.parametrize(("value", "text"), BROKEN)
def test_broken_document_is_refused_with_field_value_and_fix(value: Any, text: str) -> None:
    with pytest.raises(DocumentError) as refused:
        read(value)
    assert text in str(refused.value)


def test_error_names_the_document_and_all_its_problems() -> None:
    with pytest.raises(DocumentError) as refused:
        read(pool_of(devices=[{"name": "a"}, {"name": "a"}], attributes=[{"name": "x"}]))
    assert str(refused.value).startswith("DevicePool p: spec.attributes[0] (x)")
    assert len(refused.value.problems) == 2


def test_error_names_the_file_and_the_place_in_it() -> None:
    text = "---\n---\napiVersion: devmgmtproto.k8s.io/v1alpha1\nkind: DevicePool\nmetadata: {name: p}\n"
    with pytest.raises(DocumentError, match=r"^pools.yaml, document 2, DevicePool p: spec.driver is missing"):
        read_text(text, "pools.yaml")
    with pytest.raises(DocumentError, match=r"^pools.yaml, document 2: spec.devces: unknown field"):
        read_text(f"{text}spec: {{devces: []}}\n", "pools.yaml")


def test_a_list_stands_for_its_items() -> None:
    pools = [pool_of(), {"apiVersion": "v1", "kind": "Pod"}, document("DevicePool", "q", {"driver": "d"})]
    whole = {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": pools}
    assert [each.metadata.name for each in read_text(json.dumps(whole))] == ["p", "q"]
    broken = {**whole, "items": [*pools, document("DevicePool", "r", {})]}
    with pytest.raises(DocumentError, match=r"^f.yaml, document 1, items\[3\], DevicePool r: spec.driver is missing"):
        read_text(json.dumps(broken), "f.yaml")


BROKEN_TEXTS = [
    ("a: [1", "f.yaml: line 2: not valid YAML: "),
    ("a: 1\na: 2", "f.yaml: line 2: the map has the key a twice; keep one"),
    ("[" * (DEEPEST + 1), f"f.yaml: line 1: nested deeper than {DEEPEST} levels"),
    ("? [a]\n: b", "f.yaml: line 1: the key of a map must be a text"),
    ("a: &a {}\nb: {<<: *a}", "f.yaml: line 2: merge keys (<<) are not supported; write the fields out"),
    ("a: &a [*a]", "f.yaml: line 1: the alias *a is inside its own value; write the value out"),
    ("- *a", "f.yaml: line 1: the alias *a stands before its anchor; write the value out"),
    ("a: &a 1\n---\nb: *a", "f.yaml: line 3: the alias *a stands before its anchor; write the value out"),
    ("a:\n\t- b", "f.yaml: line 2: not valid YAML: found character that cannot start any token; check indentation"),
    ("a: 1\nb: \0", "f.yaml: line 2: not valid YAML: the character U+0000 is not allowed; remove it"),
    ("~: 1", "f.yaml: line 1: the key of a map must be a text"),
]


@pytest.mark.parametrize(("text", "message"), BROKEN_TEXTS)
def test_text_that_is_no_data_is_refused_with_its_line(text: str, message: str) -> None:
    with pytest.raises(DocumentError) as refused:
        parse_documents(text, "f.yaml")
    assert message in str(refused.value)


def test_aliases_that_multiply_end_the_reading() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 8)]
    with pytest.raises(DocumentError, match="line 6: aliases make more than 1000000 values; write the values out"):
        parse_documents("\n".join(lines))


def test_an_alias_stands_for_its_value() -> None:
    text = "a: &a {b: [1]}\nc: *a\nd: &d yes\n*d : 2\ne: &a 3\nf: *a"
    assert parse_documents(text) == [{"a": {"b": [1]}, "c": {"b": [1]}, "d": True, "true": 2, "e": 3, "f": 3}]


def test_a_number_is_a_text_where_it_is_tagged_so_or_beyond_all_floats() -> None:
    assert parse_documents("[!!str 5, 1e400, 1e3]") == [["5", "1e400", 1000.0]]


@pytest.mark.parametrize(
    "need",
    [{"deviceClass": "a", "adminAccess": True}, {"allOf": [{"deviceClass": "a"}]}, {"name": "n", "deviceClass": "a"}],
)
def test_reference_page_knows_no_field_of_the_later_spelling(need: Json) -> None:
    with pytest.raises(DocumentError, match=r"this spelling of the document has no field|unknown field"):
        decode("DeviceClaim", claim_of(need), spelling=Spelling.REFERENCE)
    assert isinstance(read(claim_of(need)), DeviceClaim)


NAMES = st.sampled_from(["a", "b", "memory"])
AMOUNTS = st.dictionaries(NAMES, st.sampled_from(["1", "2Gi", "500m"]), max_size=2)
DETAILS = st.fixed_dictionaries(
    {"deviceClass": NAMES},
    optional={
        "constraints": st.just("device.a == 'x'"),
        "requests": AMOUNTS,
        "limits": st.just({"count": "4"}),
        "matchAttributes": st.lists(NAMES, min_size=1, max_size=2),
        "adminAccess": st.booleans(),
    },
)
SEVERAL = st.lists(DETAILS, min_size=1, max_size=2)
NEEDS = st.one_of(
    DETAILS,
    st.fixed_dictionaries({"oneOf": SEVERAL}),
    st.fixed_dictionaries({"name": NAMES, "allOf": SEVERAL}, optional={"oneOf": SEVERAL}),
)


@given(st.lists(NEEDS, min_size=1, max_size=3))
def test_document_that_is_written_reads_as_the_same(needs: list[Json]) -> None:
    found = read(document("DeviceClaim", "k", {"claims": needs}))
    assert read(encode(found)) == found


def test_documents_of_the_later_spelling_are_written_and_read_as_the_same() -> None:
    for found in [*read_text(LATER_CLAIM), *read_text(LATER_POOL)]:
        assert read(encode(found)) == found
