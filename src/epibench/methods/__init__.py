"""Methods that estimate epistemic uncertainty, one file each, behind one contract."""

from __future__ import annotations

from epibench.methods.batch_ensemble import BatchEnsemble
from epibench.methods.contract import AFTER_TRAINING, Member, MemberTable, Method, TrainedNetwork
from epibench.methods.cyclical import Cyclical
from epibench.methods.ensemble import Ensemble
from epibench.methods.laplace import Laplace
from epibench.methods.map import MAP, MaximumLikelihood
from epibench.methods.mc_dropout import MCDropout
from epibench.methods.pruned import Pruned
from epibench.methods.sghmc import SGHMC
from epibench.methods.sgld import SGLD
from epibench.methods.shared_trunk import SharedTrunk
from epibench.methods.snapshot import Snapshot
from epibench.methods.swag import SWA, SWAG, MultiSWAG
from epibench.methods.tta import TTA

METHODS: dict[str, type[Method]] = {
    "map": MAP,
    "ml": MaximumLikelihood,
    "ensemble": Ensemble,
    "mc_dropout": MCDropout,
    "sgld": SGLD,
    "sghmc": SGHMC,
    "cyclical": Cyclical,
    "snapshot": Snapshot,
    "swa": SWA,
    "swag": SWAG,
    "multi_swag": MultiSWAG,
    "pruned": Pruned,
    "shared_trunk": SharedTrunk,
    "batch_ensemble": BatchEnsemble,
    "tta": TTA,
    "laplace": Laplace,
}

__all__ = ["AFTER_TRAINING", "METHODS", "Member", "MemberTable", "Method", "TrainedNetwork"]
