"""Conventions and uncertainties: what can be asked for is what the likelihoods have."""

import pytest

from epibench.conventions import CONVENTIONS, UNCERTAINTIES, check_convention, check_uncertainty
from epibench.errors import InputError


def test_uncertainties_are_those_of_the_likelihoods() -> None:
    of_classes = ("entropy", "mutual_information", "confidence")
    assert {
        "gaussian": ("total", "aleatoric", "epistemic"),
        "categorical": of_classes,
        "ranking": ("given", "spread"),
    } == UNCERTAINTIES


@pytest.mark.parametrize("kind", UNCERTAINTIES)
def test_the_first_is_the_default(kind: str) -> None:
    assert check_uncertainty(kind, None) == UNCERTAINTIES[kind][0]
    assert [check_uncertainty(kind, name) for name in UNCERTAINTIES[kind]] == list(UNCERTAINTIES[kind])


def test_what_is_unknown_is_named_with_what_there_is() -> None:
    with pytest.raises(InputError, match=r"entropy.*total"):
        check_uncertainty("gaussian", "entropy")
    with pytest.raises(ValueError, match=r"median.*pooled"):
        check_convention("median")
    assert [check_convention(name) for name in CONVENTIONS] == list(CONVENTIONS)
