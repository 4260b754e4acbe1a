"""Pruning: trained networks lose their smallest channels or weights, and train a little more."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field

from epibench.methods.ensemble import Ensemble
from epibench.training.rules import Rule, RuleState, Step
from epibench.training.state import Weights

if TYPE_CHECKING:
    from torch import Tensor

Structure = Literal["channels", "weights"]


@dataclass(frozen=True)
class KeepZeros:
    """Another rule, for parameters that are not 0 at the start. Zeros stay 0."""

    rule: Rule

    @property
    def noisy(self) -> bool:
        """The rule's `noisy`."""
        return self.rule.noisy

    @property
    def decoupled(self) -> bool:
        """The rule's `decoupled`."""
        return self.rule.decoupled

    def start(self, parameters: Tensor) -> RuleState:
        """Return the state of the rule, and which parameters move."""
        return {**self.rule.start(parameters), "moving": parameters != 0}

    def update(self, parameters: Tensor, gradient: Tensor, state: RuleState, step: Step) -> None:
        """Take a step of the rule."""
        self.rule.update(parameters, gradient, state, step)
        parameters.mul_(state["moving"])


class Pruned(Ensemble):
    """Networks of another method (`of`) without a `share` of their channels or weights.

    Each network is a member, as in an ensemble. On toy problems units are pruned instead of channels, and set to 0, so
    that networks remain stacked.

    Args:
        structure: "channels" removes whole channels, the same number in a layer of every network, so that networks have
            fewer weights and operations (Li et al. 2017, Liu et al. 2017). "weights" sets the smallest single weights
            to 0 (Han et al. 2015) and makes nothing smaller.
        multiple: Remaining channels of a layer are a multiple of it if possible, since GPUs process 8 at a time. At
            least 8 channels remain.
        num_epochs: Epochs of training after pruning; 0: none.
    """

    name: ClassVar[str] = "pruned"
    label: ClassVar[str] = "Pruned ensemble"

    of: str = "ensemble"
    share: float = Field(0.5, ge=0, lt=1)
    structure: Structure = "channels"
    multiple: int = Field(8, ge=1)
    num_epochs: int = Field(30, ge=0)

    @property
    def source(self) -> str:
        """The method of the option `of`."""
        return self.of

    def begin(self, weights: Weights, network: Any) -> Weights:
        """Return the pruned weights."""
        from epibench.networks import pruning
        from epibench.networks.mlp import StackedMLP

        if not self.share:
            return weights
        if isinstance(network, StackedMLP):
            prune = pruning.prune_units if self.structure == "channels" else pruning.prune_stacked_weights
            return {"parameters": prune(weights["parameters"], network, self.share)}
        if self.structure == "weights":
            return pruning.prune_weights(dict(weights), network, self.share)
        return pruning.prune_channels(dict(weights), network, self.share, self.multiple)

    @property
    def rule(self) -> Rule:
        """The optimiser's rule; pruned single weights stay 0."""
        return KeepZeros(super().rule) if self.share and self.structure == "weights" else super().rule
