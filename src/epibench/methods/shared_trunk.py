"""A shared trunk: members of one trained network share its first stages and have later ones of their own.

Between one network and an ensemble: the future work of Gustafsson et al. (2020); "TreeNets" of Lee et al. (2015).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from pydantic import Field, StrictInt, StrictStr, model_validator

from epibench.errors import InputError
from epibench.methods.contract import AFTER_TRAINING, Member, TrainedNetwork
from epibench.methods.optimised import Optimised
from epibench.plans import Plan
from epibench.training.state import Weights

if TYPE_CHECKING:
    from torch import nn

    from epibench.training.stacked import StackedTraining


class SharedTrunk(Optimised):
    """Draws are the first M heads of each trunk; all heads of a trunk are trained together, on the same batches.

    shared: how many of the network's first stages (`networks.stages`; on toy problems, layers) members share: a number,
    −1 for all but the last, or the module with which they end, as "backbone.stages.2"; with 0, members share nothing
    but their batches. The loss is the sum of the heads', and the trunk's gradient their mean: a rate means the same for
    both. frozen: heads are trained behind the trunk of a trained network `of` another method, which stays as it is.
    """

    name: ClassVar[str] = "shared_trunk"
    label: ClassVar[str] = "Shared trunk"
    pool_option: ClassVar[str | None] = "num_heads"

    num_trunks: Annotated[int, AFTER_TRAINING] = Field(10, ge=1)
    num_heads: int = Field(256, ge=1)
    shared: StrictInt | StrictStr = -1
    frozen: bool = False
    of: str = "ensemble"

    @model_validator(mode="after")
    def _something_frozen(self) -> SharedTrunk:
        if self.frozen and self.shared == 0:
            raise ValueError("frozen: there is no trunk to freeze with shared=0; share a stage, or leave frozen out")
        return self

    @property
    def num_trained(self) -> int:
        """Every trunk, with its heads."""
        return self.num_trunks

    @property
    def plan(self) -> Plan:
        """The first M heads of each trunk."""
        return "prefix"

    @property
    def passes(self) -> tuple[int, int]:
        """The heads of a trunk."""
        return (self.num_heads, 1)

    @property
    def source(self) -> str | None:
        """The method that trains the trunks, where they are frozen."""
        return self.of if self.frozen else None

    def shared_stages(self, names: Sequence[str]) -> int:
        """As the option says, of a network with stages of these names."""
        from epibench.networks.stages import stages_up_to

        if isinstance(self.shared, str):
            number = stages_up_to(names, self.shared)
        else:
            number = self.shared + len(names) if self.shared < 0 else self.shared
        if number is None or not 0 <= number < len(names):
            most = len(names) - 1
            raise InputError(
                f"shared: {self.shared!r} is not possible; give 0 to {most} (-1 is {most}), or one of the "
                f"first stages of the network, {', '.join(names[:most])}, or a module that they lie in"
            )
        if self.frozen and not number:
            raise InputError(f"frozen: there is no trunk to freeze with shared={self.shared}; share a stage")
        return number

    def build(self, make: Callable[[], nn.Module]) -> nn.Module:
        """One trunk with heads that start from different weights."""
        from epibench.networks.stages import Staged
        from epibench.networks.trunk import TrunkWithHeads

        networks = [make() for _ in range(self.num_heads)]
        if not isinstance(networks[0], Staged):
            kind = type(networks[0]).__name__
            raise InputError(f"shared_trunk: {kind} has no stages() that could be shared (docs/networks.md)")
        return TrunkWithHeads(networks, self.shared_stages(list(networks[0].stages())), self.frozen)

    def stack(self, training: StackedTraining) -> StackedTraining:
        """The same with members of a trunk side by side."""
        from epibench.training.stacked import Tied

        training, network = super().stack(training), training.network
        tied = Tied(self.num_heads, self.shared_stages(network.layer_names), self.frozen)
        return replace(training, network=replace(network, heads=self.num_heads * network.heads), tied=tied)

    def begin(self, weights: Weights, network: Any) -> Weights:
        """The trunk of a network, with heads as they were built; on toy problems these are added by the trainer."""
        from epibench.networks.trunk import TrunkWithHeads

        return network.with_trunk(weights) if isinstance(network, TrunkWithHeads) else weights

    def weights(self, member: Member, trained: TrainedNetwork) -> Weights:
        """Those of the trunk, and of the member's head."""
        from epibench.networks.trunk import head_weights

        kept = trained.kept(member.snapshot)
        if "parameters" in kept:
            return {"parameters": kept["parameters"].view(self.num_heads, -1)[member.number]}
        return head_weights(kept, member.number)
