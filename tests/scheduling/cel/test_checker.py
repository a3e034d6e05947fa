from __future__ import annotations

import pytest

from scheduling.cel.checker import check
from scheduling.cel.compiler import checked
from scheduling.cel.environment import CelFeatures, environment
from scheduling.cel.errors import CompileError, TypeFault
from scheduling.cel.parser import parse

STORED = CelFeatures()
NEW = CelFeatures(stored=False)


def type_of(source: str, features: CelFeatures = STORED) -> str:
    return str(check(parse(source), environment(features)).result)


def faults(source: str, features: CelFeatures = STORED) -> list[str]:
    with pytest.raises(TypeFault) as raised:
        check(parse(source), environment(features))
    return [each.message for each in raised.value.issues]


def refused(source: str, features: CelFeatures = STORED) -> str:
    with pytest.raises(CompileError) as raised:
        checked(source, features)
    return str(raised.value)


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ("1 + 2", "int"),
        ("1.5 < 2u", "bool"),
        ("[1, 2].map(x, string(x))", "list(string)"),
        ('{"a": [1]}', "map(string, list(int))"),
        ("[]", "list(dyn)"),
        ("[[], [1]]", "list(list(int))"),
        ('["a", 1]', "list(dyn)"),
        ("true ? [] : [1u]", "list(uint)"),
        ("optional.of(1)", "optional_type(int)"),
        ("optional.of({1: 2}).?a", "optional_type(int)"),
        ("[optional.of(1)][?0]", "optional_type(optional_type(int))"),
        ("[?optional.of(1)]", "list(int)"),
        ("optional.of(1).optMap(x, x == 1)", "optional_type(bool)"),
        ("cel.bind(x, 1, [x])", "list(int)"),
        ("device.capacity[device.driver].memory", "kubernetes.Quantity"),
        ('device.attributes["a"]', "map(string, dyn)"),
        ('device.attributes["a"].b + 1', "int"),
        ('device.attributes["a"].b.includes(1)', "bool"),
        ('"a,b".split(",")', "list(string)"),
        ("[3, 1].sortBy(x, -x)", "list(int)"),
        ("{1: 2}.transformMap(k, v, string(v))", "map(int, string)"),
        ("{1: 2}.transformMapEntry(k, v, {v: k})", "map(int, int)"),
        ('ip("::1")', "net.IP"),
        ('type(ip("::1")) == net.IP', "bool"),
        ('format.uuid().validate("x")', "optional_type(list(string))"),
        ("timestamp(0) - timestamp(1)", "google.protobuf.Duration"),
        ("dyn(1) == 'a'", "bool"),
        ("null == duration('1s')", "bool"),
        ("[1].all(i, x, i == 0 && x == 1)", "bool"),
        ("google.protobuf.Timestamp{seconds: 1}", "google.protobuf.Timestamp"),
        ("google.protobuf.NullValue.NULL_VALUE", "int"),
    ],
)
def test_types_are_inferred(source: str, result: str) -> None:
    assert type_of(source) == result


def test_an_attribute_taken_for_a_field_is_told_how_to_read_it() -> None:
    assert faults("device.model == 1")[0].endswith('an attribute is read as device.attributes["<domain>"].model')


def test_overloads_are_kept_in_the_order_of_their_declaration() -> None:
    tree = check(parse('device.attributes["a"].b.indexOf("c")'), environment(STORED))
    assert tree.references[tree.ast.root.id].overloads == ("string_index_of_string", "list_a_index_of_int")
    tree = check(parse('device.attributes["a"].b.indexOf("c")'), environment(NEW))
    assert tree.references[tree.ast.root.id].overloads == ("list_a_index_of_int", "string_index_of_string")


def test_a_function_with_a_namespace_keeps_its_name() -> None:
    tree = check(parse("optional.of(1)"), environment(STORED))
    reference = tree.references[tree.ast.root.id]
    assert (reference.name, reference.overloads) == ("optional.of", ("optional_of",))


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("driver == 'a'", "there is no name 'driver'; did you mean 'device.driver'?"),
        ("devise.driver == 'a'", "there is no name 'devise'; did you mean 'device'?"),
        ("size2(1) == 1", "there is no function 'size2'; did you mean 'size'?"),
        ("'a'.startWith('a')", "there is no function 'startWith'; did you mean 'startsWith'?"),
        (
            "device.model == 'a'",
            "devices have no field 'model': they have 'allowMultipleAllocations', 'attributes', 'capacity', 'driver'",
        ),
        ("1 == 'a'", "cannot compare int with string by '=='; convert one of them"),
        ("1 + 'a' == 1", "'+' cannot be applied to int and string"),
        ("1 && true", "'&&' joins conditions, but this is of type int"),
        ("1 ? true : false", "the condition before '?' is of type int, not bool"),
        ("(true ? 1 : 'a') == 1", "the values of '? :' are of different types, int and string; wrap them in dyn()"),
        ("[1]['a'] == 1", "cannot take an element of list(int) by string"),
        ("1 in 2", "cannot look for int in int"),
        (
            "'a'.substring('b') == ''",
            "'substring' cannot be called on string with (string): there is string.substring(int), string.substring(",
        ),
        ("contains('a', 'b')", "'contains' cannot be called with (string, string): it is written as x.contains(…)"),
        ("1.b", "a value of type int has no fields"),
        ("1.all(x, true)", "a value of type int has no elements: only lists and maps have"),
        ("[?1] == []", "'?' needs an optional value, but this is of type int"),
        ("[1].all(x, x) ", "'&&' joins conditions, but this is of type int"),
        ("foo.Bar{a: 1} == 1", "there is no message type 'foo.Bar'"),
        ("int{} == 1", "'int' is not a message type"),
        ("google.protobuf.Timestamp{second: 1} == null", "google.protobuf.Timestamp has no field 'second'"),
        ("kubernetes.DRADevice{driver: 1} == null", "field 'driver' is of type string, but int is given"),
    ],
)
def test_what_does_not_fit_is_told_with_what_would(source: str, message: str) -> None:
    assert faults(source)[0].startswith(message)


def test_several_faults_are_told_in_order_of_their_places() -> None:
    assert [each[:21] for each in faults("a == 1 && b == 2")] == ["there is no name 'a'", "there is no name 'b'"]


def test_many_faults_end_early() -> None:
    assert len(faults(" && ".join(["a"] * 1000))) == 20


def test_new_expressions_know_what_the_older_control_plane_knows() -> None:
    source = 'device.attributes["a"].b.includes(1)'
    assert faults(source, NEW) == [
        "there is no function 'includes' before Kubernetes 1.37 while list attributes are off"
    ]
    assert type_of(source, CelFeatures(stored=False, list_attributes=True)) == "bool"
    assert faults('device.attributes["a"].b.exists(x, x == 1)', NEW) == [
        "the elements of an attribute can be used only while list attributes are on"
    ]
    assert faults("device.allowMultipleAllocations", CelFeatures(stored=False, consumable_capacity=False)) == [
        "devices have no field 'allowMultipleAllocations' while consumable capacity is off"
    ]
    assert type_of("device.allowMultipleAllocations", CelFeatures(consumable_capacity=False)) == "bool"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("[1, 'a'].size() == 2", "1:5: the elements of a list must be of one type, but string follows int; wrap each"),
        ("{1: 1, 'a': 1} == {}", "1:8: the keys of a map must be of one type, but string follows int"),
        ("{1: 1, 2: 'a'} == {}", "1:11: the values of a map must be of one type, but string follows int"),
        ("duration('x') == null", "1:10: duration() fails: "),
        ("timestamp('x') == null", "1:11: timestamp() fails: "),
        ("'a'.matches('(')", "1:13: matches() needs a regular expression: "),
        ("'%d'.format(['a']) == ''", "1:14: '%d' cannot format a value of type string"),
        ("'%q'.format(['a']) == ''", "1:12: the format has no clause '%q'"),
        ("'%d%d'.format([1]) == ''", "1:14: the format has more clauses than arguments (1)"),
        ("'%d'.format([1, 2]) == ''", "1:12: the format has 1 clauses, but 2 arguments are given"),
        ("'%'.format([1]) == ''", "1:11: the format ends inside a clause; a percent sign is written '%%'"),
        ("'%.f'.format([1.0]) == ''", "1:13: a precision in the format is not a number"),
        ("1", "a selector must be true or false, but this is of type int"),
        ("device.attributes", "a selector must be true or false, but this is of type map(string, map(string, dyn))"),
    ],
)
def test_what_kubernetes_refuses_beside_types_is_told(source: str, message: str) -> None:
    assert refused(source).startswith(message)


def test_the_arguments_of_format_may_be_mixed() -> None:
    checked('"%s-%d %%".format(["x", 5]) == "x-5 %"')


def test_a_result_without_a_static_type_is_accepted_where_attributes_have_none() -> None:
    assert str(checked('device.attributes["a"].b').result) == "dyn"
    assert str(checked('device.attributes["a"].b', NEW).result) == "google.protobuf.Any"
    assert refused("dyn(true)", NEW) == "a selector must be true or false, but this is of type dyn"


def test_types_may_nest_as_deep_as_expressions_and_no_deeper() -> None:
    checked("[" * 240 + "]" * 240 + " == " + "[" * 240 + "]" * 240)
    chain = "[1]" + ".map(x, [[[[[x]]]]])" * 100
    assert "nested too deeply" in refused(f"{chain} == []")
