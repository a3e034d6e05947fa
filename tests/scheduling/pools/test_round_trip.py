"""Documents, converted and allocated by Kubernetes' rules, give what the pools allow; `make judge-pools` tries more."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings

from tests.scheduling.pools.round_trips import PoolCase, RoundTrips, cases

TRIPS = RoundTrips()


@settings(max_examples=100, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(cases())
def test_pools_and_the_allocator_agree_and_a_compiled_claim_gets_what_was_promised(case: PoolCase) -> None:
    TRIPS.judge(case)
    TRIPS.judge_compiled(case)
