from __future__ import annotations

import pytest

from scheduling.cel.errors import SyntaxFault
from scheduling.cel.lexer import BadLiteral, value_of
from scheduling.cel.parser import MAX_DEPTH, MAX_LENGTH, parse
from scheduling.cel.syntax import (
    Call,
    Expr,
    Identifier,
    ListLiteral,
    Literal,
    MapLiteral,
    MessageLiteral,
    Select,
    SourcePlace,
    Uint,
    postorder,
)


def shown(node: Expr) -> str:
    """A tree as calls, short enough to read in a test."""
    if isinstance(node, Literal):
        return f"{node.value.value}u" if isinstance(node.value, Uint) else repr(node.value)
    if isinstance(node, Identifier):
        return node.name
    if isinstance(node, Select):
        text = f"{shown(node.operand)}.{node.field}"
        return f"has({text})" if node.test_only else text
    if isinstance(node, Call):
        target = "" if node.target is None else f"{shown(node.target)}."
        return f"{target}{node.function}({', '.join(shown(each) for each in node.arguments)})"
    if isinstance(node, ListLiteral):
        marked = (("?" if index in node.optional else "") + shown(each) for index, each in enumerate(node.elements))
        return f"[{', '.join(marked)}]"
    if isinstance(node, MapLiteral):
        entries = (f"{'?' if each.optional else ''}{shown(each.key)}: {shown(each.value)}" for each in node.entries)
        return f"{{{', '.join(entries)}}}"
    if isinstance(node, MessageLiteral):
        fields = (f"{'?' if each.optional else ''}{each.name}: {shown(each.value)}" for each in node.fields)
        return f"{node.type_name}{{{', '.join(fields)}}}"
    variables = node.variable + (f", {node.variable2}" if node.variable2 else "")
    parts = ", ".join(shown(each) for each in (node.initial, node.condition, node.step, node.result))
    return f"fold({shown(node.range)}; {variables}; {node.accumulator}; {parts})"


def fault(source: str) -> tuple[int, str]:
    with pytest.raises(SyntaxFault) as raised:
        parse(source)
    return raised.value.issues[0].offset, raised.value.issues[0].message


@pytest.mark.parametrize(
    ("source", "tree"),
    [
        ("a ? b : c ? d : e", "_?_:_(a, b, _?_:_(c, d, e))"),
        ("a || b && c == d + e * f", "_||_(a, _&&_(b, _==_(c, _+_(d, _*_(e, f)))))"),
        ("a - b - c", "_-_(_-_(a, b), c)"),
        ("a < b in c", "@in(_<_(a, b), c)"),
        ("(a + b) * c", "_*_(_+_(a, b), c)"),
        ("a.b[c].d(e)", "_[_](a.b, c).d(e)"),
        ("a.?b[?c]", "_[?_](_?._(a, 'b'), c)"),
        ("a.`b-c/d`", "a.b-c/d"),
        ("[1, ?b,]", "[1, ?b]"),
        ("[,]", "[]"),
        ("{a: b, ?c: d}", "{a: b, ?c: d}"),
        ("a.B{c: 1, ?`d`: 2}", "a.B{c: 1, ?d: 2}"),
        (".a.b()", ".a.b()"),
        ("a.as", "a.as"),
    ],
)
def test_operators_bind_as_the_specification_says(source: str, tree: str) -> None:
    assert shown(parse(source).root) == tree


@pytest.mark.parametrize(
    ("source", "tree"),
    [
        ("!!a", "a"),
        ("!!!a", "!_(a)"),
        ("-1", "-1"),
        ("--1", "1"),
        ("---1", "-_(1)"),
        ("-1.b", "-1.b"),
        ("-a.b", "-_(a.b)"),
        ("1 -1", "_-_(1, 1)"),
        ("!-1", "!_(-1)"),
        ("-9223372036854775808", "-9223372036854775808"),
    ],
)
def test_signs_in_pairs_disappear_and_one_minus_belongs_to_its_number(source: str, tree: str) -> None:
    assert shown(parse(source).root) == tree


def test_chains_of_conditions_become_balanced_trees() -> None:
    assert shown(parse("a && b && c && d && e").root) == "_&&_(_&&_(_&&_(a, b), c), _&&_(d, e))"


@pytest.mark.parametrize(
    ("source", "value"),
    [
        ("0x1F", 31),
        ("17u", Uint(17)),
        ("0xFFU", Uint(255)),
        (".5e1", 5.0),
        (r'"\u00e9\x41\101\n\\"', "éAA\n\\"),
        (r'r"\n"', r"\n"),
        ("'''a'b\"\"\r\nc'''", 'a\'b""\nc'),
        (r'"\U0001F600"', "😀"),
        (r'b"\xff\377é\n"', b"\xff\xff\xc3\xa9\n"),
        (r'bR"\x"', b"\\x"),
        ("null", None),
        ("true // a comment", True),
    ],
)
def test_literals_mean_their_values(source: str, value: object) -> None:
    root = parse(source).root
    assert isinstance(root, Literal)
    assert root.value == value
    assert type(root.value) is type(value)


@pytest.mark.parametrize(
    ("source", "tree"),
    [
        ("has(a.b)", "has(a.b)"),
        ("a.all(x, p)", "fold(a; x; @result; True, @not_strictly_false(@result), _&&_(@result, p), @result)"),
        (
            "a.exists(i, x, p)",
            "fold(a; i, x; @result; False, @not_strictly_false(!_(@result)), _||_(@result, p), @result)",
        ),
        (
            "a.exists_one(x, p)",
            "fold(a; x; @result; 0, True, _?_:_(p, _+_(@result, 1), @result), _==_(@result, 1))",
        ),
        ("a.map(x, f)", "fold(a; x; @result; [], True, _+_(@result, [f]), @result)"),
        ("a.map(x, p, f)", "fold(a; x; @result; [], True, _?_:_(p, _+_(@result, [f]), @result), @result)"),
        ("a.filter(x, p)", "fold(a; x; @result; [], True, _?_:_(p, _+_(@result, [x]), @result), @result)"),
        ("a.transformList(i, x, f)", "fold(a; i, x; @result; [], True, _+_(@result, [f]), @result)"),
        ("a.transformMap(k, x, f)", "fold(a; k, x; @result; {}, True, cel.@mapInsert(@result, k, f), @result)"),
        (
            "a.transformMapEntry(k, x, p, f)",
            "fold(a; k, x; @result; {}, True, _?_:_(p, cel.@mapInsert(@result, f), @result), @result)",
        ),
        ("cel.bind(x, v, b)", "fold([]; #unused; x; v, False, x, b)"),
        (
            "a.optMap(x, f)",
            "_?_:_(a.hasValue(), optional.of(fold([]; #unused; x; a.value(), False, x, f)), optional.none())",
        ),
        (
            "a.optFlatMap(x, f)",
            "_?_:_(a.hasValue(), fold([]; #unused; x; a.value(), False, x, f), optional.none())",
        ),
        ("a.existsOne(x, p)", "a.existsOne(x, p)"),
        ("b.bind(x, v, b)", "b.bind(x, v, b)"),
    ],
)
def test_macros_become_what_costs_are_counted_on(source: str, tree: str) -> None:
    assert shown(parse(source).root) == tree


def test_every_node_has_a_number_a_place_and_a_text_of_its_own() -> None:
    tree = parse("a.optMap(x, x + 1).orValue(0) == [1, 2].map(y, y * 2)[0]")
    numbers = [node.id for node in postorder(tree.root)]
    assert len(set(numbers)) == len(numbers)
    assert all(number in tree.offsets and number in tree.spans for number in numbers)


def test_places_and_texts_are_those_of_the_source() -> None:
    tree = parse('a.b ==\n  (c.d("x") && e)')
    root = tree.root
    assert isinstance(root, Call)
    assert tree.place(root.id) == SourcePlace(1, 4)
    right = root.arguments[1]
    assert tree.place(right.id) == SourcePlace(2, 12)
    start, end = tree.spans[right.id]
    assert tree.source[start:end] == 'c.d("x") && e'


@pytest.mark.parametrize(
    ("source", "offset", "message"),
    [
        ("", 0, "the expression ends here, but a value is missing"),
        ("a b", 2, "unexpected 'b' where an operator or the end of the expression should be"),
        ("(a", 2, "the expression ends here, but ')' of the '(' at 1:1 is missing"),
        ("f(a", 3, "the expression ends here, but ',' or ')' of the '(' at 1:2 is missing"),
        ("f(a,)", 4, "unexpected ')' where a value should be"),
        ("a.", 2, "the expression ends here, but the name of a field or function is missing"),
        ("a ? b", 5, "the expression ends here, but ':' of the condition's other value is missing"),
        ("a ? b ? c : d : e", 6, "unexpected '?' where ':' of the condition's other value should be"),
        ("a = b", 2, "unexpected character '=': a single '=' is not an operator, write '==' to compare"),
        ("a & b", 2, "unexpected character '&': a single '&' is not an operator, write '&&'"),
        ("größe", 2, "unexpected character 'ö': names consist of the letters A to Z, digits and '_'"),
        ("“a”", 0, "unexpected character '“': write straight quotes (\") around strings"),
        ('"abc', 0, "unexpected character '\"': this string is not closed on its line, or holds an unknown escape"),
        (r'"\q"', 0, "unexpected character '\"': this string is not closed on its line, or holds an unknown escape"),
        ("-!a", 1, "'-' and '!' need parentheses between them"),
        ("for", 0, "'for' is a reserved word and cannot be used as a name"),
        ("9223372036854775808", 0, "integer 9223372036854775808 does not fit into 64 bits"),
        ("18446744073709551616u", 0, "unsigned integer 18446744073709551616u does not fit into 64 bits"),
        ("1e999", 0, "number 1e999 is too large"),
        (r'"\ud800"', 0, r"escape \ud800 does not name a character"),
        (r'b"\u0041"', 0, r"escape \u0041 is not allowed in bytes, write the bytes with \x"),
        ("has(a)", 4, 'has: it needs a field selection like has(a.b); other keys are tested by "key" in a'),
        ("a.all(b.c, true)", 7, "all: this argument names a variable of the macro and must be a simple name"),
        ("a.all(x, x, true)", 9, "all: both variables of the macro are named 'x'"),
        ("a.map(__result__, 1)", 6, "map: a variable of a macro cannot be named '__result__'"),
        ("cel.bind(1, 2, 3)", 9, "bind: the variable of cel.bind() must be a simple name"),
        ("{1: 2}.sortBy(x, x)", 0, "sortBy: sortBy() can only be called on a list"),
    ],
)
def test_what_is_wrong_is_told_with_its_place(source: str, offset: int, message: str) -> None:
    at, text = fault(source)
    assert at == offset
    assert text.startswith(message)


@pytest.mark.parametrize(
    ("deepest", "one_more"),
    [
        ("(" * 249 + "1" + ")" * 249, "(" * 250 + "1" + ")" * 250),
        ("1 + (" * 124 + "1" + ")" * 124, "1 + (" * 125 + "1" + ")" * 125),
        ("1" + " + 1" * 250, "1" + " + 1" * 251),
        ("a" + ".b" * 250, "a" + ".b" * 251),
        ("a ? b : " * 249 + "c", "a ? b : " * 250 + "c"),
        ("[" * 249 + "1" + "]" * 249, "[" * 250 + "1" + "]" * 250),
    ],
)
def test_depth_is_bounded_as_in_kubernetes(deepest: str, one_more: str) -> None:
    parse(deepest)
    assert fault(one_more)[1] == f"the expression is nested more than {MAX_DEPTH} levels deep"


@pytest.mark.parametrize(
    "source",
    ["!" * 99_000 + "a", "-" * 99_000 + "a", "||".join(["a"] * 33_000), "[" + "1," * 49_000 + "]"],
)
def test_long_flat_expressions_are_read(source: str) -> None:
    parse(source)


@pytest.mark.parametrize(
    "source", ["(" * 99_000, "[{" * 49_000, "a.b(" * 24_000, "!(" * 49_000, "'''" + "\\n" * 49_000]
)
def test_long_nested_garbage_is_refused(source: str) -> None:
    fault(source)


def test_a_source_that_is_too_long_is_refused() -> None:
    assert fault("1" * (MAX_LENGTH + 1))[1] == "the expression has 100001 characters; the limit is 100000"


def test_macros_that_grow_without_end_are_refused() -> None:
    assert fault("a" + ".optMap(x, x)" * 60)[1] == "the expression becomes too large when its macros are expanded"


def test_a_number_too_large_for_a_double_has_no_value() -> None:
    with pytest.raises(BadLiteral, match="too large"):
        value_of("float", "1e400", negative=False)
