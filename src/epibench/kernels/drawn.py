"""Draws in the format of kernels: in groups, with the members of any draw of a group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor
from torch.utils.weak import WeakTensorKeyDictionary

DRAWS_AT_ONCE = 4
_KNOWN = WeakTensorKeyDictionary()


def drawn_members(weights: Tensor) -> DrawnMembers:
    """Return the draws of weights (draw, member), computed once for a tensor."""
    if weights not in _KNOWN:
        _KNOWN[weights] = DrawnMembers.of(weights)
    return cast(DrawnMembers, _KNOWN[weights])


@dataclass(frozen=True)
class DrawnMembers:
    """Draws in groups that are averaged together; draws with equally many members are neighbours.

    Args:
        rows: (group, draw), number of each draw, −1 for none.
        sizes: (group,), number of members of any draw in the group.
        members: (group, number), these members, in order.
        weights: (group, number, draw).
    """

    rows: Tensor
    sizes: Tensor
    members: Tensor
    weights: Tensor

    @classmethod
    def of(cls, weights: Tensor, together: int = DRAWS_AT_ONCE) -> DrawnMembers:
        """Return the groups of the rows of (draw, member)."""
        draws, members = weights.shape
        table = weights.cpu().to(torch.float64)
        order = torch.argsort(table.count_nonzero(1), stable=True)
        rows = torch.full((-(-draws // together) * together,), -1)
        rows[:draws] = order
        padded = torch.cat([table, table.new_zeros((1, members))])[rows].view(-1, together, members)
        drawn = (padded != 0).any(1)
        sizes = drawn.sum(1)
        # Members of a group come first, in their order; other members have weight 0.
        chosen = torch.argsort((~drawn).to(torch.uint8), dim=1, stable=True)[:, : int(sizes.max())]
        shares = padded.gather(2, chosen[:, None].expand(-1, together, -1)).movedim(1, 2)
        numbers = (each.to(weights.device, torch.int32) for each in (rows.view(-1, together), sizes, chosen))
        group, size, member = (each.contiguous() for each in numbers)
        return cls(group, size, member, shares.to(weights.device).contiguous())

    @property
    def tables(self) -> tuple[Tensor, Tensor, Tensor, Tensor, int]:
        """The arguments of kernels; the last one is the stride of the lists of members."""
        return self.rows, self.sizes, self.members, self.weights, self.members.shape[1]
