from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from scheduling.cel.compiler import ProgramCache


class Maker:
    """Makes a text of its key; counts how often."""

    def __init__(self, weight: int) -> None:
        self.weight = weight
        self.made: list[str] = []

    def get(self, cache: ProgramCache[str], key: str) -> str:
        def make() -> tuple[str, int]:
            self.made.append(key)
            return f"made of {key}", self.weight

        return cache.get(key, make)


def test_what_is_known_is_not_made_again() -> None:
    cache, maker = ProgramCache[str](10), Maker(1)
    assert [maker.get(cache, "a") for _ in range(3)] == ["made of a"] * 3
    assert maker.made == ["a"]


def test_the_least_recently_used_is_forgotten() -> None:
    cache, maker = ProgramCache[str](10), Maker(5)
    for key in ("a", "b", "a", "c", "a", "b"):
        maker.get(cache, key)
    assert maker.made == ["a", "b", "c", "b"]


def test_all_that_fits_is_kept() -> None:
    cache, maker = ProgramCache[str](10), Maker(5)
    for key in ("a", "b", "a", "b"):
        maker.get(cache, key)
    assert maker.made == ["a", "b"]


def test_what_is_too_heavy_is_made_but_not_kept() -> None:
    cache, maker = ProgramCache[str](10), Maker(11)
    assert [maker.get(cache, "a") for _ in range(2)] == ["made of a"] * 2
    assert maker.made == ["a", "a"]


def test_threads_get_what_belongs_to_their_key() -> None:
    cache, maker = ProgramCache[str](3), Maker(1)
    keys = [str(number % 7) for number in range(2000)]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda key: maker.get(cache, key), keys)) == [f"made of {key}" for key in keys]
    # Who came last may have put another key in the place of the last one.
    maker.get(cache, keys[-1])
    last = len(maker.made)
    maker.get(cache, keys[-1])
    assert len(maker.made) == last, "the weights still add up"
