"""The references that ship with the package."""

import pytest

from epibench.reference.predictions import check_fits, load_reference, shipped_reference
from toy_points import toy_problem

# What docs/reference.md states, for the convention under which the variance is finite, in both directions.
STATED = {"toy-regression": 0.13, "toy-classification": 4e-5}


@pytest.mark.parametrize("name", sorted(STATED))
def test_a_shipped_reference_fits_its_problem_and_states_its_floor(name: str) -> None:
    path = shipped_reference(name)
    reference = load_reference(path)
    check_fits(reference, toy_problem(name))
    assert path.stat().st_size < 300_000
    for regions in reference.floor()["gustafsson2020"].values():
        assert regions["grid"] is not None
        assert regions["grid"] <= STATED[name]
        assert regions["train"] is not None
        assert regions["train"] <= 0.001
