"""What members that rank their pixels predict together."""

import torch

from epibench.likelihoods import LIKELIHOODS, ranking


def test_votes_go_to_the_first_of_equals_and_spread_is_the_share_of_others():
    outputs = {"predicted": torch.tensor([[2, 1], [0, 1], [1, 1]]), "uncertainty": torch.zeros(3, 2)}
    weights = torch.tensor([[1 / 3] * 3, [0.5, 0.5, 0.0]], dtype=torch.float64)
    predictive = ranking.combine(outputs, weights)
    assert predictive.predicted.tolist() == [[0, 1], [0, 1]]
    assert torch.allclose(predictive.spread, torch.tensor([[2 / 3, 0], [0.5, 0]], dtype=torch.float64))


def test_likelihoods_have_the_uncertainties_that_commands_offer():
    """tests/test_conventions.py has the same names, which are checked without torch."""
    assert {kind: likelihood.uncertainties for kind, likelihood in LIKELIHOODS.items()} == {
        "gaussian": ("total", "aleatoric", "epistemic"),
        "categorical": ("entropy", "mutual_information", "confidence"),
        "ranking": ("given", "spread"),
    }
