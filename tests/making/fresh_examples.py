"""Examples that Hypothesis makes anew: of a hundred it makes seventeen, and tries five variants of each.

A variant has one part of an example a second time, in another one's place, and is the same otherwise. It finds what
needs a value twice; strategies of these tests draw from few values, so that fresh examples have values twice as well.
Half as many examples, all of them fresh, reach more: the model of both doors (``tests.model``) gets into 174 states of
its node in 43 fresh examples, and into 129 in 111 examples with variants, which take more than twice the time.
"""

from __future__ import annotations

from hypothesis.internal.conjecture.engine import ConjectureRunner

VARIANTS = "generate_mutations_from"


def make_no_variants() -> None:
    """Have Hypothesis make each example anew from here on."""
    assert callable(getattr(ConjectureRunner, VARIANTS))
    setattr(ConjectureRunner, VARIANTS, lambda _runner, _example: None)
