"""Options, phases and snapshots of all methods that run chains."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field, model_validator

from epibench.methods.contract import AFTER_TRAINING, Member, Method, TrainedNetwork
from epibench.plans import Plan, evenly_spaced
from epibench.training.rules import Adam, Pace, Rule, RuleState, Schedule, Step, poly, zeros_like
from epibench.training.state import Weights

if TYPE_CHECKING:
    from torch import Tensor

    from epibench.training.stacked import StackedTraining


@dataclass(frozen=True)
class WarmedUp:
    """Adam for some epochs, then a sampler from Adam's last parameters.

    With `preconditioned`, the sampler moves φ = P^(−½) θ with a fixed diagonal P, which samples the same posterior. P =
    1 / (s + damping·s̄). s is the root of Adam's second moment, by which Adam divides its steps, and s̄ is its mean
    over all parameters of the network. Rates then have the size of Adam's rates.
    """

    sampler: Rule
    epochs: int
    preconditioned: bool = False
    damping: float = 0.1
    noisy = True
    decoupled = False

    def start(self, parameters: Tensor) -> RuleState:
        """Return the state of Adam and of the sampler."""
        adam = {f"adam.{name}": each for name, each in Adam().start(parameters).items()}
        return adam | self.sampler.start(parameters)

    def update(self, parameters: Tensor, gradient: Tensor, state: RuleState, step: Step) -> None:
        """Take a step of Adam or of the sampler."""
        adam, warm_up = Adam(), self.epochs * step.epoch_steps
        if step.number <= warm_up:
            adam.update(parameters, gradient, {name: state[f"adam.{name}"] for name in ("first", "second")}, step)
        elif not self.preconditioned:
            self.sampler.update(parameters, gradient, state, step)
        else:
            scale = (state["adam.second"] / (1 - adam.beta2**warm_up)).sqrt_()
            root = (scale + self.damping * scale.mean(-1, keepdim=True)).rsqrt_()
            move = zeros_like(parameters)
            self.sampler.update(move, gradient * root, state, step)
            parameters.addcmul_(root, move)


class Chains(Method):
    """Chains that follow a sampler's rule on U/N. Members are snapshots at ends of epochs.

    The rate is the rate of the mean loss: for U itself the step is rate/N, as published. A warm-up by Adam takes the
    first `warm_up_epochs` of the `num_epochs`, at a rate that falls from `warm_up_rate` to 0. `burn_in`, the decay of
    the rate and cycles refer to the epochs after the warm-up.

    Args:
        temperature: The chain samples exp(−U/temperature).
        refresh_batches: Batches for each snapshot's own statistics of batch norm; 0: the chain's statistics.
    """

    samples: ClassVar[bool] = True
    version: ClassVar[str] = "2"
    pool_option: ClassVar[str | None] = "num_snapshots"

    num_chains: Annotated[int, AFTER_TRAINING] = Field(6, ge=1)
    num_epochs: int = Field(256 * 150, ge=1)
    warm_up_epochs: int = Field(0, ge=0)
    warm_up_rate: float = Field(1e-3, gt=0, le=1e6)
    learning_rate: float = Field(0.01, gt=0, le=1e6)
    power: float = Field(0.9, ge=0, allow_inf_nan=False)
    temperature: float = Field(1.0, ge=0, le=1e6)
    preconditioned: bool = False
    burn_in: float = Field(0.75, ge=0, lt=1)
    num_snapshots: int = Field(256, ge=1)
    refresh_batches: Annotated[int, AFTER_TRAINING] = Field(0, ge=0)

    @model_validator(mode="after")
    def _samples(self) -> Chains:
        if self.warm_up_epochs >= self.num_epochs:
            raise ValueError(
                f"warm_up_epochs: {self.warm_up_epochs} of {self.num_epochs} epochs leave none to sample in; "
                f"give fewer, or a larger num_epochs"
            )
        if self.preconditioned and not self.warm_up_epochs:
            raise ValueError("preconditioned: it takes what Adam has seen in a warm-up; give warm_up_epochs")
        return self

    @property
    def num_trained(self) -> int:
        """One network per chain."""
        return self.num_chains

    @property
    def plan(self) -> Plan:
        """Evenly spaced snapshots of a chain."""
        return "spread"

    @property
    def sampling_epochs(self) -> int:
        """The number of epochs after the warm-up."""
        return self.num_epochs - self.warm_up_epochs

    @property
    @abstractmethod
    def sampling_rule(self) -> Rule:
        """The update rule of the sampler."""

    @property
    def sampling_schedule(self) -> Schedule:
        """The step size over the sampling steps: poly decay; power 0 keeps it constant."""
        return poly(self.learning_rate, self.power)

    @property
    def sampling_keep(self) -> tuple[int, ...]:
        """The snapshots among the sampling epochs: evenly spaced from int(burn_in·T) to T."""
        first = max(1, int(self.burn_in * self.sampling_epochs))
        length = self.sampling_epochs - first + 1
        return tuple(first + position for position in evenly_spaced(length, min(self.num_snapshots, length)))

    @property
    def rule(self) -> Rule:
        """The sampler's rule, after Adam if there is a warm-up."""
        sampler = self.sampling_rule
        return WarmedUp(sampler, self.warm_up_epochs, self.preconditioned) if self.warm_up_epochs else sampler

    @property
    def schedule(self) -> Schedule:
        """The step size and temperature over all steps. The temperature is 0 in the warm-up."""
        sampling, warming = self.sampling_schedule, poly(self.warm_up_rate)

        def pace(step: int, total: int) -> Pace:
            warm_up = total // self.num_epochs * self.warm_up_epochs
            if 0 < step <= warm_up:
                return Pace(warming(step, warm_up).rate, 0.0)
            rate, temperature = sampling(step - warm_up, total - warm_up)
            return Pace(rate, temperature * self.temperature)

        return pace

    def stack(self, training: StackedTraining) -> StackedTraining:
        """On toy problems the poly decay counts steps as published, with T one larger."""
        published = type(self).sampling_schedule is Chains.sampling_schedule and not self.warm_up_epochs
        return training.count_steps_as_published(extra=1) if published else training

    @property
    def keep(self) -> tuple[int, ...]:
        """The epochs of the snapshots, all after the warm-up."""
        return tuple(self.warm_up_epochs + epoch for epoch in self.sampling_keep)

    @property
    def fits(self) -> bool:
        """Whether each snapshot has its own statistics of batch norm."""
        return self.refresh_batches > 0

    def posterior(self, trained: TrainedNetwork) -> Weights:
        """Return the statistics of batch norm of every snapshot."""
        return trained.refresh(trained.kept, len(self.keep), self.refresh_batches)

    def weights(self, member: Member, trained: TrainedNetwork) -> Weights:
        """Return the weights of the snapshot, with its own statistics of batch norm."""
        return trained.refreshed(trained.kept(member.snapshot), member.snapshot)
