"""Settings of a reference. Reading them needs no sampler."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from epibench.errors import InputError

HIDDEN = (10, 10)  # the hidden layers of the networks whose posterior is sampled
OUTPUTS = {"gaussian": ("mean", "log_variance"), "categorical": ("probability",)}
# A reference has converged if this share of its traced points has an R-hat within the limit.
R_HAT_LIMIT, SHARE_GOAL = 1.05, 0.95


@dataclass(frozen=True)
class TemperingSettings:
    """The cooling of a population.

    Args:
        networks: Size of the population.
        effective_share: Effective share of the population after each reweighting.
        moves: Moves at each temperature.
        leapfrog_steps: Steps of a move.
        hottest: Power β of the likelihood to which trained networks are heated before they are cooled again.
    """

    networks: int = 16384
    effective_share: float = 0.7
    moves: int = 5
    leapfrog_steps: int = 24
    hottest: float = 1e-5


@dataclass(frozen=True)
class NutsSettings:
    """The length of chains."""

    rounds: int = 2
    warmup: int = 10
    samples: int = 50
    max_tree_depth: int = 10


@dataclass(frozen=True)
class ReferenceSettings:
    """Everything that fixes a reference: the same settings give the same predictions on a CPU.

    Args:
        seed: Seed.
        prior_scale: Scale of the prior.
        batches: Number of batches. Even ones start from the prior, odd ones from trained networks; each cools its own
            population.
        chains: NUTS chains of each batch.
        group: Neighbouring points of the regression that form one point before NUTS.
        tempering: Cooling of a population.
        nuts: Length of chains.
        trace_chains: Chains with traces.
        trace_draws: Draws of each trace.
    """

    seed: int = 0
    prior_scale: float = 1.0
    batches: int = 10
    chains: int = 256
    group: int = 4
    tempering: TemperingSettings = field(default_factory=TemperingSettings)
    nuts: NutsSettings = field(default_factory=NutsSettings)
    trace_chains: int = 32
    trace_draws: int = 50

    def __post_init__(self) -> None:
        """Raise an InputError for impossible settings."""
        if not 1e-6 <= self.prior_scale <= 1e6:
            raise InputError(f"--prior-scale {self.prior_scale}: must be between 1e-6 and 1e6")
        if self.batches < 2:
            raise InputError(f"--batches {self.batches}: at least 2, to be compared with each other")
        if self.chains < 2:
            raise InputError(f"--chains {self.chains}: at least 2")
        if self.nuts.samples < 4:
            raise InputError(f"--samples {self.nuts.samples}: at least 4 draws of each chain")


DEFAULTS = {
    "toy-regression": ReferenceSettings(),
    "toy-classification": ReferenceSettings(
        batches=4,
        chains=512,
        group=1,
        tempering=TemperingSettings(8192, 0.6, 4, 16),
        nuts=NutsSettings(samples=150, max_tree_depth=9),
    ),
}
# About a minute on two cores: enough to check that everything works, too little to converge.
_SHORT = NutsSettings(rounds=1, warmup=10, samples=20, max_tree_depth=6)
QUICK = {
    name: replace(settings, batches=2, chains=16, tempering=TemperingSettings(64, 0.4, 2, 8), nuts=_SHORT)
    for name, settings in DEFAULTS.items()
}
