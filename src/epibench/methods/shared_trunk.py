"""A shared trunk: members share the first stages of one trained network.

Each member has its own later stages. This is the future work of Gustafsson et al. (2020), and the "TreeNets" of Lee et
al. (2015).
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
    """Draws are the first M heads of each trunk. All heads of a trunk train together on the same batches.

    The loss is the sum of the heads' losses, and the trunk's gradient is their mean, so that a rate means the same for
    both.

    Args:
        shared: First stages of the network that members share (`networks.stages`; on toy problems, layers). A number,
            −1 for all but the last, or the module that ends them, e.g. "backbone.stages.2". With 0, members share only
            batches.
        frozen: Whether heads are trained behind the trunk of a trained network of `of`, which does not change.
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
        """The number of trunks, each with its heads."""
        return self.num_trunks

    @property
    def plan(self) -> Plan:
        """The first M heads of each trunk."""
        return "prefix"

    @property
    def passes(self) -> tuple[int, int]:
        """The number of heads of a trunk."""
        return (self.num_heads, 1)

    @property
    def source(self) -> str | None:
        """The method that trains frozen trunks."""
        return self.of if self.frozen else None

    def shared_stages(self, names: Sequence[str]) -> int:
        """Return the number of shared stages for a network with stages of these names."""
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
        """Return one trunk with heads that start from different weights."""
        from epibench.networks.stages import Staged
        from epibench.networks.trunk import TrunkWithHeads

        networks = [make() for _ in range(self.num_heads)]
        if not isinstance(networks[0], Staged):
            kind = type(networks[0]).__name__
            raise InputError(f"shared_trunk: {kind} has no stages() that could be shared (docs/networks.md)")
        return TrunkWithHeads(networks, self.shared_stages(list(networks[0].stages())), self.frozen)

    def stack(self, training: StackedTraining) -> StackedTraining:
        """Return the training with the members of a trunk tied together."""
        from epibench.training.stacked import Tied

        training, network = super().stack(training), training.network
        tied = Tied(self.num_heads, self.shared_stages(network.layer_names), self.frozen)
        return replace(training, network=replace(network, heads=self.num_heads * network.heads), tied=tied)

    def begin(self, weights: Weights, network: Any) -> Weights:
        """Return the trunk of a network with new heads. On toy problems the trainer adds the heads."""
        from epibench.networks.trunk import TrunkWithHeads

        return network.with_trunk(weights) if isinstance(network, TrunkWithHeads) else weights

    def weights(self, member: Member, trained: TrainedNetwork) -> Weights:
        """Return the weights of the trunk and of the member's head."""
        from epibench.networks.trunk import head_weights

        kept = trained.kept(member.snapshot)
        if "parameters" in kept:
            return {"parameters": kept["parameters"].view(self.num_heads, -1)[member.number]}
        return head_weights(kept, member.number)
