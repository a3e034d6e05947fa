"""Generated documents, and whether pools and Kubernetes' allocator agree on what they mean.

Three questions about one case. Does every allocation of the converted claims keep the documents' rules (judged by
`brute_force`, never by the search)? Does the allocator find one whenever the search does, if nothing was lost? Do the
slices, read back as pools, answer the documents' claims as the pools did that they were made from?
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import Any

from hypothesis import strategies as st

from scheduling.allocator.allocator import Allocator
from scheduling.allocator.pools import SliceIndex
from scheduling.allocator.reading import FatalError, Object
from scheduling.api.validation.objects import VALIDATORS
from scheduling.api.versions import with_defaults
from scheduling.pools.claim_documents import DeviceClaim, DeviceClaimDetail
from scheduling.pools.claim_writer import PART, CompilerInput
from scheduling.pools.compiler import claim_of, compile_claim
from scheduling.pools.conversion import convert
from scheduling.pools.documents import DevicePool, PoolDeviceClass
from scheduling.pools.lost import LeftOut
from scheduling.pools.matching import MatchingError, PooledDevice, candidate_classes, devices_of, has_admin_access
from scheduling.pools.matching import is_eligible as eligible
from scheduling.pools.publication import published_pools
from scheduling.pools.published import ledger_of
from scheduling.pools.published_classes import ClusterClasses
from scheduling.pools.published_documents import published_documents
from scheduling.pools.reading import encode, read
from scheduling.pools.resource_claims import NO_PART
from scheduling.pools.search import PoolSearch, PoolSolution, occupying, pools_at, search
from tests.making.pool_documents import DRIVER, claim, class_, document
from tests.scheduling.pools.brute_force import Need, is_way

NIC = "nic.example.com"
NODE = "node-1"
ROOT = "resource.kubernetes.io/root"
Json = dict[str, Any]


@dataclass(frozen=True)
class PoolCase:
    """Documents: what is published, what is in use, and what is asked for."""

    pools: tuple[DevicePool, ...]
    classes: tuple[PoolDeviceClass, ...]
    claims: tuple[DeviceClaim, ...]
    others: tuple[DeviceClaim, ...] = ()

    @property
    def here(self) -> list[DevicePool]:
        """The pools of the node that is asked."""
        return pools_at(self.pools, NODE)

    def solution(self) -> PoolSolution | None:
        """What the search finds for the claims."""
        return search(self.claims, self.classes, self.here, self.others)


CLASSES = (
    class_("gpu"),
    class_("red", constraints="device.color == 'red'"),
    class_("new", constraints="device.release == '2.0.0'", deviceType="new"),
    class_("nic", NIC, deviceType="nic"),
)
CONSTRAINTS = (
    "device.color == 'red'",
    "device.size > 1",
    "has(device.lone) && device.lone == 'x'",
    "'lone' in device",
    "device.?lone.orValue('y') == 'x'",
    "device.release != '1.0.0' && ['red', 'blue'].exists(each, device.color == each)",
    f"device['{ROOT}'] == 'r1'",
    "device.lone == 'x'",
)


@st.composite
def devices(draw: st.DrawFn, number: int) -> Json:
    facts: list[Json] = [
        {"name": "color", "stringValue": draw(st.sampled_from(["red", "blue"]))},
        {"name": "size", "intValue": draw(st.integers(1, 2))},
        {"name": "release", "semVerValue": draw(st.sampled_from(["1.0.0", "2.0.0"]))},
        {"name": ROOT, "stringValue": draw(st.sampled_from(["r1", "r2"]))},
        {"name": "lone", "stringValue": draw(st.sampled_from(["x", "y"]))},
    ]
    kept = [each for each in facts if each["name"] != "lone" or draw(st.booleans())]
    amounts: list[Json] = []
    for name, chance in (("memory", 6), ("cores", 1)):
        if draw(st.integers(1, 8)) <= chance:
            block = draw(st.sampled_from([None, 1, 2, 4]))
            amounts.append(
                {"name": name, "capacity": draw(st.sampled_from([6, 4, 8, 5, 0]))}
                | ({"blockSize": block} if block else {})
            )
    requests = draw(st.sampled_from([{}, {}, {"slots": 1}, {"slots": 1}, {"slots": 3}]))
    return {"name": f"dev-{number}", "attributes": kept, "resources": amounts, "requests": requests}


@st.composite
def pools(draw: st.DrawFn, number: int) -> DevicePool:
    block = draw(st.sampled_from([None, 2]))
    slots = {"name": "slots", "capacity": draw(st.sampled_from([1, 3, 6, 6]))} | ({"blockSize": block} if block else {})
    spec = {
        "driver": draw(st.sampled_from([DRIVER, DRIVER, NIC])),
        "resources": [slots],
        "attributes": draw(st.sampled_from([[], [{"name": "lone", "stringValue": "x"}]])),
        "devices": [draw(devices(each)) for each in range(draw(st.sampled_from([1, 3, 4])))],
    }
    node = draw(st.sampled_from([NODE] * 5 + ["node-2", None]))
    found = read(document("DevicePool", f"pool-{number}", spec | ({"nodeName": node} if node else {})))
    assert isinstance(found, DevicePool)
    return found


@st.composite
def needs(draw: st.DrawFn) -> Json:
    least = draw(st.sampled_from([1, 1, 1, 1, 2, 3]))
    found: Json = {"requests": {"count": least}}
    found |= {"deviceType": "gpu"} if draw(st.integers(1, 6)) == 1 else {"deviceClass": draw(_CLASS_NAMES)}
    if draw(st.integers(1, 2)) == 1:
        found["requests"]["memory"] = draw(st.sampled_from([1, 2, 3, 5, 7, 0]))
    if draw(st.integers(1, 8)) == 1:
        found["requests"]["cores"] = draw(st.integers(1, 3))
    if draw(st.integers(1, 3)) == 1:
        found["limits"] = {"count": least + draw(st.integers(0, 2))}
    if draw(st.integers(1, 4)) == 1:
        found["constraints"] = draw(st.sampled_from(CONSTRAINTS))
    if draw(st.integers(1, 3)) == 1:
        found["matchAttributes"] = [draw(st.sampled_from(["color", ROOT, "lone", "release"]))]
    if draw(st.integers(1, 10)) == 1:
        found["adminAccess"] = True
    return found


_CLASS_NAMES = st.sampled_from(["gpu", "gpu", "gpu", "red", "new", "nic"])


@st.composite
def claims(draw: st.DrawFn, name: str) -> DeviceClaim:
    entries = []
    for _ in range(draw(st.sampled_from([1, 1, 2]))):
        several = draw(st.integers(1, 3)) == 1
        entries.append({"oneOf": [draw(needs()), draw(needs())]} if several else draw(needs()))
    matched = draw(st.sampled_from([(), (), (), ("color",), (ROOT,)]))
    return claim(*entries, name=name, **({"matchAttributes": list(matched)} if matched else {}))


@st.composite
def cases(draw: st.DrawFn) -> PoolCase:
    """Documents with some devices in use, as the search would have allocated them."""
    published = tuple(draw(pools(each)) for each in range(draw(st.integers(1, 3))))
    wanted = tuple(draw(claims(f"claim-{each}")) for each in range(draw(st.sampled_from([1, 1, 1, 2]))))
    case = PoolCase(published, CLASSES, wanted)
    if draw(st.booleans()):
        earlier = replace(case, claims=(draw(claims("earlier")),))
        try:
            found = earlier.solution()
        except MatchingError:
            found = None
        if found is not None:
            (holder,) = earlier.claims
            status = replace(holder.status, allocations=found.allocations(holder))
            case = replace(case, others=(replace(holder, status=status),))
    return case


@dataclass
class RoundTrips:
    """What came of the cases; a generator that has become blind is seen in the counts."""

    counts: Counter[str] = field(default_factory=Counter)

    def judge(self, case: PoolCase) -> None:
        """Answers the three questions; an assertion fails where one is answered with no."""
        conversion = convert([*case.pools, *case.classes, *case.claims, *case.others])
        for each in conversion.objects:
            found = VALIDATORS[each["kind"]](without_status(each), admin_namespace=True)
            assert not found, (each, [str(one) for one in found])
        asked = [each.metadata.name for each in case.claims]
        objects = [with_defaults(each) for each in conversion.objects]
        wanted = [each for name in asked for each in objects if each["metadata"]["name"] == name]
        try:
            solution = case.solution()
        except MatchingError:
            solution = None
            self.counts["a constraint fails"] += 1
            failing = True
        else:
            failing = False
        if any(each.left_out for each in conversion.lost):
            self.counts["a claim is left out"] += 1
            return
        results = self._allocate(objects, wanted, case, failing=failing)
        if failing:
            return
        lost = [each for each in conversion.lost if not each.document.endswith(" earlier") or NO_PART in each.why]
        if results is not None:
            self.counts["allocated"] += 1
            assert is_allowed(case, results), results
            assert solution is not None
        elif not lost:
            self.counts["no way, and nothing lost"] += 1
            assert solution is None, solution
        else:
            self.counts["no way, and something lost" if solution is None else "lost by the conversion"] += 1
        if not any(each.document.startswith("DevicePool") or NO_PART in each.why for each in conversion.lost):
            self._read_back(objects, case, solution)

    def _allocate(
        self, objects: Sequence[Object], wanted: Sequence[Object], case: PoolCase, *, failing: bool
    ) -> list[Json] | None:
        by_kind: dict[str, list[Object]] = {}
        for each in objects:
            by_kind.setdefault(each["kind"], []).append(each)
        held = [each for each in by_kind.get("ResourceClaim", ()) if each["metadata"]["name"] == "earlier"]

        class Held:
            def list_all_allocated(self) -> list[Object]:
                return held

        classes = {each["metadata"]["name"]: each for each in by_kind["DeviceClass"]}
        try:
            allocator = Allocator(wanted, Held(), classes, by_kind.get("ResourceSlice", ()))
            return allocator.allocate({"metadata": {"name": NODE}})
        except FatalError:
            assert failing
            return None

    def judge_compiled(self, case: PoolCase) -> None:
        """Compiles the first claim for what the documents publish; what is promised keeps the documents' rules."""
        conversion = convert([*case.pools, *case.others])
        objects = [with_defaults(each) for each in conversion.objects]
        slices = SliceIndex(each for each in objects if each["kind"] == "ResourceSlice")
        held = [each for each in objects if each["kind"] == "ResourceClaim"]
        if any(
            each.left_out or each.document.startswith("DevicePool") or NO_PART in each.why for each in conversion.lost
        ):
            self.counts["not published as it is"] += 1
            return
        case = replace(case, claims=case.claims[:1])
        plain = with_flat_root(case.claims[0])
        try:
            cluster = CompilerInput.of(slices, written=case.classes, claims=held, nodes=[{"metadata": {"name": NODE}}])
            compiled = compile_claim(plain, cluster, [NODE])
            solution = case.solution()
        except LeftOut:
            self.counts["v1 cannot say it"] += 1
            return
        except (MatchingError, FatalError):
            self.counts["a constraint fails"] += 1
            return
        found = VALIDATORS["ResourceClaimTemplate"](compiled.template, admin_namespace=True)
        assert not found, (compiled.template, [str(one) for one in found])
        if compiled.node is None:
            self.counts["no way" if solution is None else "a way that v1 cannot say"] += 1
            assert solution is None or compiled.lost, compiled
            return
        self.counts["promised exactly" if compiled.exact else "promised"] += 1
        allocator = Allocator(
            [claim_of(compiled.template)], cluster.allocated, cluster.class_objects, cluster.index, cluster.features
        )
        results = allocator.allocate({"metadata": {"name": NODE}})
        assert results is not None
        given = [(each["pool"], each["device"]) for each in results[0]["devices"]["results"]]
        assert given == [(each.pool, each.device) for each in compiled.devices]
        assert is_allowed(case, results) or any("all of a device" in each.why for each in compiled.lost), results

    def _read_back(self, objects: Sequence[Object], case: PoolCase, solution: PoolSolution | None) -> None:
        slices = [each for each in objects if each["kind"] == "ResourceSlice"]
        held = [each for each in objects if each["kind"] == "ResourceClaim" and each["metadata"]["name"] == "earlier"]
        back = [each for each in published_pools(slices, held) if each.node in (NODE, None)]
        known = ClusterClasses((), back, written=case.classes)
        plain = [with_flat_root(each) for each in case.claims]
        found = PoolSearch(ledger_of(back), eligible=known.is_eligible).run(plain, known.documents)
        assert (found is None) == (solution is None), (found, solution)
        back_documents = published_documents(back, [each for each in objects if each["kind"] == "DeviceClass"], held)
        # Its class compares versions, which pools do not.
        if _names_class(case, "new") or any(each.document != "DeviceClass new" for each in back_documents.lost):
            self.counts["lost on the way back"] += 1
            return
        again = [read(encode(each)) for each in back_documents.documents]
        found = search(
            plain,
            [each for each in again if isinstance(each, PoolDeviceClass)] if not _by_type(case) else case.classes,
            pools_at([each for each in again if isinstance(each, DevicePool)], NODE),
            [each for each in again if isinstance(each, DeviceClaim)],
        )
        assert (found is None) == (solution is None), (found, solution)
        self.counts["read back"] += 1


def _details(case: PoolCase) -> list[DeviceClaimDetail]:
    instances = [one for wanted in case.claims for one in wanted.spec.claims]
    return [each for one in instances for each in (*one.all_of, *one.one_of)]


def _by_type(case: PoolCase) -> bool:
    """True if a need names a type; in Kubernetes a class's name says its type."""
    return any(each.device_type for each in _details(case))


def _names_class(case: PoolCase, name: str) -> bool:
    return any(each.device_class == name for each in _details(case))


def without_status(obj: Object) -> Object:
    """Validators judge what users write; the API server keeps status apart."""
    return {key: value for key, value in obj.items() if key != "status"}


def with_flat_root(wanted: DeviceClaim) -> DeviceClaim:
    """The claim with the name that the standard attribute has in published pools."""

    def flat(names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple("root" if each == ROOT else each for each in names)

    def detail(each: DeviceClaimDetail) -> DeviceClaimDetail:
        text = each.constraints and each.constraints.replace(f"device['{ROOT}']", "device.root")
        return replace(each, constraints=text, match_attributes=flat(each.match_attributes))

    instances = tuple(
        replace(each, all_of=tuple(map(detail, each.all_of)), one_of=tuple(map(detail, each.one_of)))
        for each in wanted.spec.claims
    )
    spec = replace(wanted.spec, claims=instances, match_attributes=flat(wanted.spec.match_attributes))
    return replace(wanted, spec=spec)


def is_allowed(case: PoolCase, results: Sequence[Json]) -> bool:
    """True if the allocation keeps every rule of the documents, with some entry of each `oneOf`."""
    here = [each for pool in case.here for each in devices_of(pool)]
    numbers = {each.name: number for number, each in enumerate(here)}
    classes = {each.metadata.name: each for each in case.classes}
    others = [each for each in case.others if occupying(each, classes)]
    slots: list[list[tuple[Need, tuple[int, ...]]]] = []
    for owner, (wanted, result) in enumerate(zip(case.claims, results, strict=True)):
        given: dict[str, list[Json]] = {}
        for each in result["devices"].get("results", ()):
            given.setdefault(each["request"].partition("/")[0].partition(PART)[0], []).append(each)
        for name, details in requests_of(wanted):
            taken = given.pop(name, [])
            chosen = tuple(numbers[each["pool"], each["device"]] for each in taken)
            admin = bool(taken and taken[0].get("adminAccess"))
            slots.append(
                [
                    (Need(owner, each, place, admin, chosen), chosen)
                    for place, each in enumerate(details)
                    if takes(each, [here[number] for number in chosen], classes, admin=admin)
                ]
            )
        assert not given, given
    return any(
        is_way([need for need, _ in each], tuple(chosen for _, chosen in each), here, case.claims, others)
        for each in product(*slots)
    )


def requests_of(wanted: DeviceClaim) -> list[tuple[str, list[DeviceClaimDetail]]]:
    """The requests of a converted claim by name, with the needs of which one must be met."""
    found: list[tuple[str, list[DeviceClaimDetail]]] = []
    for number, instance in enumerate(wanted.spec.claims):
        found.append((f"need-{number + 1}", list(instance.one_of or instance.all_of)))
    return found


def takes(
    detail: DeviceClaimDetail, chosen: Sequence[PooledDevice], classes: Mapping[str, PoolDeviceClass], *, admin: bool
) -> bool:
    """True if a need can have so many devices, each through a class."""
    least = detail.requests["count"].value()
    most = detail.limits["count"].value() if "count" in detail.limits else least
    named = [each for each in candidate_classes(detail, classes) if has_admin_access(detail, each) == admin]
    return least <= len(chosen) <= most and all(any(eligible(one, each, detail) for each in named) for one in chosen)
