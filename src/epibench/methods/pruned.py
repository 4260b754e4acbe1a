"""Pruning: trained networks without their smallest channels or weights, trained on for a short time."""

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
    """Another rule, for all parameters but those that are exactly 0 at the start: these stay 0."""

    rule: Rule

    @property
    def noisy(self) -> bool:
        """As the rule says."""
        return self.rule.noisy

    @property
    def decoupled(self) -> bool:
        """As the rule says."""
        return self.rule.decoupled

    def start(self, parameters: Tensor) -> RuleState:
        """What the rule remembers, and which parameters move."""
        return {**self.rule.start(parameters), "moving": parameters != 0}

    def update(self, parameters: Tensor, gradient: Tensor, state: RuleState, step: Step) -> None:
        """A step of the rule."""
        self.rule.update(parameters, gradient, state, step)
        parameters.mul_(state["moving"])


class Pruned(Ensemble):
    """Networks of another method (`of`) less a `share` of their channels or weights, each a member as in an ensemble.

    structure: "channels" takes whole channels out, as many of every layer and network, so that networks have fewer
    weights and operations (Li et al. 2017, Liu et al. 2017); "weights" sets the smallest single weights to 0 (Han et
    al. 2015), and nothing becomes smaller. multiple: channels that stay are a multiple of it where a layer has more,
    since GPUs take them 8 at a time; at least 8 always stay. num_epochs: of training after pruning; 0: none. On toy
    problems units are pruned instead of channels, and set to 0, so that networks remain stacked.
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
        """As the option says."""
        return self.of

    def begin(self, weights: Weights, network: Any) -> Weights:
        """The weights, pruned."""
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
        """That of the optimiser; single weights that are pruned stay 0."""
        return KeepZeros(super().rule) if self.share and self.structure == "weights" else super().rule
