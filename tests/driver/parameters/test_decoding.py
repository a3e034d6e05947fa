from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from driver.claims.model import AllocatedConfig, ConfigSource
from driver.parameters.decoding import API_VERSION, GpuConfig, MigConfig, NicConfig, decode, doubled_keys, pairs
from driver.parameters.errors import ParameterError
from kube.bodies import Json, JsonObject

PLACE = "status.allocation.devices.config[0].opaque.parameters"


def written(parameters: Json, source: ConfigSource = ConfigSource.CLAIM) -> AllocatedConfig:
    return AllocatedConfig(source, (), parameters, PLACE)  # type: ignore[arg-type]


def config(kind: str, of: ConfigSource = ConfigSource.CLAIM, /, **fields: Json) -> AllocatedConfig:
    return written({"apiVersion": API_VERSION, "kind": kind, **fields}, of)


def problem(config: AllocatedConfig) -> str:
    with pytest.raises(ParameterError) as raised:
        decode(config)
    return str(raised.value)


def test_each_kind_is_read_with_every_field() -> None:
    of_class = config("GpuConfig", ConfigSource.CLASS, gdrcopy=True, gds=False, mofed=True)
    assert decode(of_class) == GpuConfig(True, False, True)
    assert decode(config("MigConfig", gdrcopy=True)) == MigConfig(gdrcopy=True)
    assert decode(config("NicConfig", rdma=True, vhostNet=False)) == NicConfig(True, False)


def test_what_is_not_written_is_left_open() -> None:
    assert decode(config("NicConfig")) == NicConfig(None, None)


def test_a_class_may_give_imex_channels() -> None:
    made = decode(config("GpuConfig", ConfigSource.CLASS, imexChannels=[0, 2047], imexRequired=True))
    assert made == GpuConfig(imex_channels=(0, 2047), imex_required=True)


@pytest.mark.parametrize("field", [{"imexChannels": [0]}, {"imexRequired": True}, {"mofed": True}])
def test_a_claim_may_not_give_itself_more_than_its_devices(field: dict[str, Json]) -> None:
    (name,) = field
    fix = "leave it out; an administrator writes it into a DeviceClass"
    assert problem(config("GpuConfig", ConfigSource.CLAIM, **field)) == f"{PLACE}.{name}: a claim may not set it; {fix}"


@pytest.mark.parametrize(
    ("parameters", "text"),
    [
        ({"kind": "GpuConfig"}, f"{PLACE}.apiVersion: is missing; write ostler.dev/v1alpha1"),
        (
            {"apiVersion": "resource.nvidia.com/v1beta1", "kind": "GpuConfig"},
            f'{PLACE}.apiVersion: "resource.nvidia.com/v1beta1" is not known; write ostler.dev/v1alpha1',
        ),
        ({"apiVersion": API_VERSION}, f"{PLACE}.kind: is missing; write one of GpuConfig, MigConfig, NicConfig"),
        (
            {"apiVersion": API_VERSION, "kind": "gpuconfig"},
            f'{PLACE}.kind: "gpuconfig" is not known; write one of GpuConfig, MigConfig, NicConfig',
        ),
        (
            {"apiVersion": API_VERSION, "kind": ["GpuConfig"]},
            f'{PLACE}.kind: ["GpuConfig"] is not known; write one of GpuConfig, MigConfig, NicConfig',
        ),
        (
            {"apiVersion": API_VERSION, "kind": "GpuConfig", "gdrCopy": True},
            f"{PLACE}.gdrCopy: GpuConfig has no such field; did you mean gdrcopy?",
        ),
        (
            {"apiVersion": API_VERSION, "kind": "NicConfig", "sharing": {}},
            f"{PLACE}.sharing: NicConfig has no such field; it has rdma, vhostNet, nccl, interface",
        ),
        (
            {"apiVersion": API_VERSION, "kind": "NicConfig", "gdrcopy": True},
            f"{PLACE}.gdrcopy: NicConfig has no such field; it has rdma, vhostNet, nccl, interface",
        ),
        (
            {"apiVersion": API_VERSION, "kind": "NicConfig", "rdma": "yes"},
            f'{PLACE}.rdma: "yes" is neither true nor false; write true or false',
        ),
        (
            {"apiVersion": API_VERSION, "kind": "NicConfig", "rdma": None},
            f"{PLACE}.rdma: null is neither true nor false; write true or false",
        ),
        (
            {"apiVersion": API_VERSION, "kind": "NicConfig", "rdma": 1},
            f"{PLACE}.rdma: 1 is neither true nor false; write true or false",
        ),
        ([1], f"{PLACE}: [1] is not an object; write an object with apiVersion ostler.dev/v1alpha1"),
    ],
)
def test_a_mistake_is_named_with_place_value_and_fix(parameters: Json, text: str) -> None:
    assert problem(written(parameters)) == text


@pytest.mark.parametrize(
    ("channels", "text"),
    [
        (0, "imexChannels: 0 is not a list; write a list of channel numbers, as [0]"),
        ([2048], "imexChannels[0]: 2048 is not a channel number; write whole numbers from 0 to 2047"),
        ([0, -1], "imexChannels[1]: -1 is not a channel number; write whole numbers from 0 to 2047"),
        ([True], "imexChannels[0]: true is not a channel number; write whole numbers from 0 to 2047"),
        ([0.5], "imexChannels[0]: 0.5 is not a channel number; write whole numbers from 0 to 2047"),
        ([3, 3], "imexChannels[1]: channel 3 is listed twice; write it once"),
    ],
)
def test_a_bad_channel_is_named(channels: Json, text: str) -> None:
    wrong = config("GpuConfig", ConfigSource.CLASS, imexChannels=channels)
    assert problem(wrong) == f"{PLACE} (from the DeviceClass).{text}"


def test_channels_that_are_required_must_be_named() -> None:
    wrong = config("GpuConfig", ConfigSource.CLASS, imexChannels=[], imexRequired=True)
    where = f"{PLACE} (from the DeviceClass).imexRequired"
    assert problem(wrong) == f"{where}: true without a channel in imexChannels; name the channels"


def test_a_doubled_key_is_refused() -> None:
    text = f'{{"apiVersion": "{API_VERSION}", "kind": "NicConfig", "rdma": true, "rdma": false}}'
    parsed: JsonObject = json.loads(text, object_pairs_hook=pairs)
    assert parsed["rdma"] is False, "read as every other reader does"
    assert problem(written(parsed)) == f"{PLACE}.rdma: the key occurs twice; write it once"


def test_doubled_keys_are_found_at_any_depth() -> None:
    text = '{"a": [{"b": 1}, {"b": {"c": 1, "c": 2, "c": 3}}], "a2": 1, "a2": 1}'
    assert doubled_keys(json.loads(text, object_pairs_hook=pairs)) == ("a2", "a[1].b.c")


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(json_values)
def test_objects_without_doubled_keys_are_plain(value: object) -> None:
    parsed = json.loads(json.dumps(value), object_pairs_hook=pairs)
    assert parsed == json.loads(json.dumps(value))
    assert doubled_keys(parsed) == ()


@given(
    st.dictionaries(
        st.sampled_from(
            ["apiVersion", "kind", "gdrcopy", "rdma", "vhostNet", "nccl", "imexChannels", "imexRequired", "x"]
        ),
        st.sampled_from([API_VERSION, "GpuConfig", "MigConfig", "NicConfig", True, False]) | json_values,
    ),
    st.sampled_from(list(ConfigSource)),
)
def test_whatever_is_written_is_read_or_refused_in_words(parameters: JsonObject, source: ConfigSource) -> None:
    text = PLACE
    try:
        decode(written(parameters, source))
    except ParameterError as error:
        text = str(error)
    assert text.startswith(PLACE)
    assert len(text) < 1000


def test_a_long_value_is_shown_cut() -> None:
    assert len(problem(config("NicConfig", rdma="x" * 5000))) < 300
    assert len(problem(config("NicConfig", ConfigSource.CLAIM, **{"y" * 5000: True}))) < 400
