from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from driver.slices.controller import Controller
from driver.slices.errors import DroppedFieldsError, GenerationExhausted, NodeWithoutUid, WrongPools
from driver.slices.model import DriverResources, Pool, Slice, Stats, node_owner
from driver.slices.options import Options
from sandbox.apiserver.server import GATES_OFF, ApiServer
from tests.making.resource_api import api_of
from tests.waiting import until

SLICES = "resourceslices"
DRIVER = "led.example.com"
Json = dict[str, Any]


def pool(*names: Sequence[str], **fields: Any) -> Pool:
    return Pool(tuple(Slice(tuple({"name": name} for name in each)) for each in names), all_nodes=True, **fields)


def run(server: ApiServer, errors: list[Exception], resources: DriverResources, **fields: Any) -> Controller:
    def told(error: Exception, work: str) -> None:
        errors.append(error)

    options = Options(api_of(server), DRIVER, resources=resources, error_handler=told, sync_delay=0.05, **fields)
    made = Controller(options).start()
    assert made.wait_synced(10.0)
    return made


def test_a_controller_of_one_pool_takes_no_other_and_keeps_what_it_has(server: ApiServer) -> None:
    errors: list[Exception] = []
    controller = run(server, errors, DriverResources({"p": pool(["a"])}), reconcile_pool_with_name="p")
    controller.update(DriverResources({"p": pool(["b"]), "q": pool(["c"])}))
    assert controller.wait_idle(120.0)
    controller.stop()
    assert [type(error) for error in errors] == [WrongPools]
    assert str(errors[0]) == "this controller publishes pool p alone and was given 2 pools (p, q); give it p, or none"
    assert controller.get_stats() == Stats(creates=1)


def test_a_pool_at_the_highest_generation_says_how_to_begin_again(server: ApiServer) -> None:
    errors: list[Exception] = []
    first = run(server, errors, DriverResources({"p": pool(["a"], ["b"], generation=2**63 - 1)}))
    assert first.wait_idle(120.0)
    first.update(DriverResources({"p": pool(["x"], ["y"])}))
    assert first.wait_idle(120.0)
    assert [type(error) for error in errors] == [GenerationExhausted]
    assert str(errors[0]) == (
        "pool p: spec.pool.generation: 9223372036854775807 is the highest there is and this change needs a higher "
        "one; delete the pool's slices, and it begins at 1 again"
    )
    assert first.get_stats() == Stats(creates=2)
    for each in server.store.list(SLICES):
        server.store.delete(SLICES, each["metadata"]["name"])
    until(lambda: first.get_stats() == Stats(creates=4))
    first.stop()
    assert {each["spec"]["pool"]["generation"] for each in server.store.list(SLICES)} == {1}


def test_a_node_without_uid_is_asked_for_again(server: ApiServer) -> None:
    errors: list[Exception] = []
    answers: list[Json] = [{"metadata": {"name": "n"}}, {"metadata": {"name": "n", "uid": "1-2-3"}}]

    def told(error: Exception, work: str) -> None:
        errors.append(error)

    class Strange:
        """An API whose first Node has no uid."""

        def __init__(self) -> None:
            self._api = api_of(server)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._api, name)

        def node(self, name: str) -> Json:
            return answers.pop(0)

    resources = DriverResources({"n": Pool((Slice(({"name": "a"},)),))})
    options = Options(Strange(), DRIVER, node_owner("n"), resources, error_handler=told)
    controller = Controller(options).start()
    assert controller.wait_idle(120.0)
    controller.stop()
    assert [type(error) for error in errors] == [NodeWithoutUid]
    assert (
        str(errors[0])
        == "Node n: metadata.uid is missing in the API server's answer; slices need it to name their owner"
    )
    (made,) = server.store.list(SLICES)
    assert made["metadata"]["ownerReferences"][0]["uid"] == "1-2-3"


def test_dropped_fields_are_told_once_for_every_time_they_are_asked_for() -> None:
    errors: list[Exception] = []
    tainted: Json = {"name": "a", "taints": [{"key": "example.com/broken", "effect": "NoSchedule"}]}
    resources = DriverResources({"p": Pool((Slice((tainted,)),), all_nodes=True)})
    with ApiServer(GATES_OFF) as server:
        controller = run(server, errors, resources)
        assert controller.wait_idle(120.0)
        controller.update(resources)
        assert controller.wait_idle(120.0)
        (status,) = controller.status()
        assert status.in_order
        assert status.dropped == ("DRADeviceTaints",)
        assert controller.get_stats() == Stats(creates=1)
        assert [type(error) for error in errors] == [DroppedFieldsError] * 2
        controller.update(DriverResources({"p": pool(["a"])}))
        assert controller.wait_idle(120.0)
        assert controller.status()[0].dropped == ()
        controller.stop()
    assert controller.get_stats() == Stats(creates=1)
    assert len(errors) == 2
