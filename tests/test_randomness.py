"""Random numbers by key and counter: SplitMix64 in exact integers, and what each distribution promises."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor

from epibench import randomness

in_any_time = settings(deadline=None, max_examples=50)
int64 = st.integers(-(2**63), 2**63 - 1)
KEYS = torch.tensor([randomness.key(0, "test", member) for member in range(16)])


def splitmix64(key: int, counter: int) -> int:
    """Steele, Lea, Flood (2014), Figure 16 with the mix of Vigna's splitmix64.c, on integers of any size."""
    word = (key + counter * 0x9E3779B97F4A7C15) % 2**64
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) % 2**64
    return word ^ (word >> 31)


def split(function, keys: Tensor, start: int, sizes: list[int]) -> Tensor:
    """The numbers of consecutive stretches, one call each."""
    parts = []
    for size in sizes:
        parts.append(function(keys, start, size))
        start += size
    return torch.cat(parts, -1)


@in_any_time
@given(key=int64, start=st.integers(0, 2**48), count=st.integers(1, 20))
def test_bits_are_splitmix64(key: int, start: int, count: int) -> None:
    found = randomness.bits(torch.tensor([key]), start, count)[0].tolist()
    assert [word % 2**64 for word in found] == [splitmix64(key, start + number) for number in range(count)]


def test_the_known_first_numbers_of_splitmix64() -> None:
    """What splitmix64.c prints for the seed 1234567; it steps before its first number."""
    found = randomness.bits(torch.tensor([1234567]), 1, 3)[0].tolist()
    assert [word % 2**64 for word in found] == [6457827717110365317, 3203168211198807973, 9817491932198370423]


@pytest.mark.parametrize("function", [randomness.bits, randomness.uniform, randomness.normal])
@in_any_time
@given(start=st.integers(0, 10**9), sizes=st.lists(st.integers(1, 40), min_size=2, max_size=5))
def test_numbers_do_not_depend_on_where_a_stretch_is_cut(function, start: int, sizes: list[int]) -> None:
    whole = function(KEYS[:3], start, sum(sizes))
    assert torch.equal(split(function, KEYS[:3], start, sizes), whole)


@pytest.mark.parametrize("function", [randomness.bits, randomness.uniform, randomness.normal, randomness.permutations])
@in_any_time
@given(first=st.integers(0, 15), number=st.integers(1, 16), count=st.integers(1, 300))
def test_numbers_do_not_depend_on_the_other_keys(function, first: int, number: int, count: int) -> None:
    among = function(KEYS, 7, count)[first : first + number]
    assert torch.equal(function(KEYS[first : first + number], 7, count), among)


def test_different_names_give_different_keys() -> None:
    names = [(0, "a", 1), (0, "a", 2), (0, "b", 1), (1, "a", 1), (0, 1, "a"), (0, "a"), (0, "a", 1, "order")]
    assert len({randomness.key(*each) for each in names}) == len(names)


def test_a_key_is_the_same_in_every_process() -> None:
    """Saved states go on with these numbers: they must never change."""
    assert randomness.key(0, "sgld", 3, "noise") == -3955918470586206715


def test_the_keys_of_members_are_their_own() -> None:
    alone = randomness.member_keys(5, "sgld", "noise", [3])
    assert torch.equal(randomness.member_keys(5, "sgld", "noise", range(6))[3:4], alone)


class TestUniform:
    numbers = randomness.uniform(KEYS, 0, 20_000)

    def test_lies_in_0_to_1_without_1(self) -> None:
        assert 0 <= float(self.numbers.min()) < 1e-4
        assert 1 - 1e-4 < float(self.numbers.max()) < 1

    def test_the_largest_bits_stay_below_1(self, monkeypatch) -> None:
        monkeypatch.setattr(randomness, "bits", lambda keys, start, count: torch.tensor([[-1, 0]]))
        assert randomness.uniform(KEYS[:1], 0, 2).tolist() == [[1 - 2**-24, 0.0]]

    def test_is_uniform(self) -> None:
        assert stats.kstest(self.numbers.flatten().double(), "uniform").pvalue > 1e-3

    def test_every_key_has_the_mean_of_the_uniform(self) -> None:
        error = (self.numbers.double().mean(1) - 0.5) / np.sqrt(1 / 12 / 20_000)
        assert float(error.abs().max()) < 4.5

    def test_neighbouring_counters_are_uncorrelated(self) -> None:
        for lag in (1, 2, 3, 16, 141):
            centred = self.numbers.double().flatten() - 0.5
            found = float((centred[lag:] * centred[:-lag]).mean() * 12)
            assert abs(found) < 4.5 / np.sqrt(centred.numel())

    def test_neighbouring_keys_are_uncorrelated(self) -> None:
        keys = torch.arange(-8, 8)
        numbers = randomness.uniform(keys, 0, 20_000).double()
        between = np.corrcoef(numbers)[np.triu_indices(16, 1)]
        assert np.abs(between).max() < 4.5 / np.sqrt(20_000)


class TestNormal:
    numbers = randomness.normal(KEYS, 0, 20_000)

    def test_there_are_two_for_each_counter(self) -> None:
        assert self.numbers.shape == (16, 2, 20_000)
        assert self.numbers.dtype == torch.float32

    @pytest.mark.parametrize(("power", "moment", "variance"), [(1, 0, 1), (2, 1, 2), (3, 0, 15), (4, 3, 96)])
    def test_moments(self, power: int, moment: float, variance: float) -> None:
        values = self.numbers.double().flatten() ** power
        assert abs(float(values.mean()) - moment) < 4.5 * np.sqrt(variance / values.numel())

    @pytest.mark.parametrize("half", [0, 1])
    def test_both_halves_are_normal(self, half: int) -> None:
        assert stats.kstest(self.numbers[:, half].flatten().double(), "norm").pvalue > 1e-3

    def test_both_of_a_pair_are_independent(self) -> None:
        first, second = self.numbers.double().movedim(1, 0).flatten(1)
        squares = ((first.square() - 1) * (second.square() - 1)).mean() / 2
        limit = 4.5 / np.sqrt(first.numel())
        assert abs(float((first * second).mean())) < limit
        assert abs(float(squares)) < limit

    @pytest.mark.parametrize("beyond", [2.0, 3.0, 4.0])
    def test_tails(self, beyond: float) -> None:
        expected = 2 * stats.norm.sf(beyond) * self.numbers.numel()
        found = int((self.numbers.abs() > beyond).sum())
        assert abs(found - expected) < 4.5 * np.sqrt(expected)

    @pytest.mark.parametrize("word", [0, -1, 2**63 - 1, -(2**63), 2**32 - 1, -(2**32)])
    def test_extreme_bits_give_finite_numbers(self, word: int, monkeypatch) -> None:
        monkeypatch.setattr(randomness, "bits", lambda keys, start, count: torch.tensor([[word]]))
        found = randomness.normal(KEYS[:1], 0, 1)
        assert torch.isfinite(found).all()
        assert float(found.norm()) < 6.8


class TestPermutations:
    @in_any_time
    @given(epoch=st.integers(0, 40_000), length=st.one_of(st.integers(1, 70), st.sampled_from([1000, 1024, 1039])))
    def test_every_row_is_an_order_of_all(self, epoch: int, length: int) -> None:
        found = randomness.permutations(KEYS, epoch, length)
        assert torch.equal(found.sort(1).values, torch.arange(length).expand(16, -1))

    @pytest.mark.parametrize("length", [3, 4, 5])
    def test_every_order_is_as_likely(self, length: int) -> None:
        keys = torch.tensor([randomness.key(1, member) for member in range(24_000)])
        rows = randomness.permutations(keys, 3, length).tolist()
        counts = np.unique(np.array(rows), axis=0, return_counts=True)[1]
        orders = int(np.prod(np.arange(1, length + 1)))
        assert len(counts) == orders
        assert stats.chisquare(counts).pvalue > 1e-3

    def test_every_position_is_as_likely_for_every_epoch(self) -> None:
        """Of one key over many epochs, where counters run on from epoch to epoch."""
        length, epochs = 13, 8_000
        rows = torch.cat([randomness.permutations(KEYS[:1], epoch, length) for epoch in range(epochs)])
        counts = np.stack([np.bincount(column, minlength=length) for column in rows.T.numpy()])
        # Rows and columns both sum to the number of epochs: (length − 1)² degrees of freedom after this factor.
        statistic = (length - 1) / length * ((counts - epochs / length) ** 2 / (epochs / length)).sum()
        assert stats.chi2.sf(statistic, (length - 1) ** 2) > 1e-3

    def test_epochs_differ(self) -> None:
        rows = torch.cat([randomness.permutations(KEYS, epoch, 100) for epoch in range(20)])
        assert len(torch.unique(rows, dim=0)) == len(rows)
