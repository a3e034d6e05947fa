"""What things cost, in units: the rates that the worst cost of an expression and the cost of an evaluation share.

Source: cel-go's `common` costs and the API server's cost estimator. Factors are kept as the doubles they are there, so
that rounding agrees.
"""

from __future__ import annotations

TEXT = 0.1
"""Units per character gone through."""
REGEX = 0.25
"""Units per character of a regular expression: about four of them make one instruction."""
LIST = 10
"""Making a list."""
MAP = 30
"""Making a map."""
MESSAGE = 40
"""Making a message."""
AUTHORIZATION_CHECK = 350_000
"""Asking an authorizer, which no selector has: two of these are more than an expression may cost."""

NOMINAL = frozenset(
    (
        *("masked", "prefixLength", "family", "isUnspecified", "isLoopback"),
        *("isLinkLocalMulticast", "isLinkLocalUnicast", "isGlobalUnicast", "format.named"),
        *("sign", "asInteger", "isInteger", "asApproximateFloat", "isGreaterThan", "isLessThan", "compareTo"),
        *("add", "sub", "major", "minor", "patch"),
        *("getScheme", "getHostname", "getHost", "getPort", "getEscapedPath", "getQuery"),
    )
)
"""Functions of one unit, whatever their arguments."""

PARSERS = frozenset(("ip", "cidr", "isIP", "isCIDR", "quantity", "isQuantity", "semver", "isSemver"))
"""Functions that go through their first argument once."""

TEXT_ORDERS = frozenset(
    f"{order}_{kind}" for order in ("less", "greater", "less_equals", "greater_equals") for kind in ("string", "bytes")
)
"""Overloads of comparisons that go through both arguments, as far as the shorter goes."""
