"""Last-layer Laplace (MacKay 1992; Daxberger et al. 2021): a Gaussian around the last layer of a trained network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from epibench.methods.contract import AFTER_TRAINING, Member, TrainedNetwork
from epibench.methods.optimised import Optimised
from epibench.plans import Plan
from epibench.training.state import Weights


class Laplace(Optimised):
    """Networks of another method. Members are samples of the weights of their last layer.

    Args:
        of: Method whose networks these are, or start from if `num_epochs` is above 0.
        mixed: Whether draws mix the samples of all networks; otherwise a draw is the first M samples of one network.
        curvature: The whole matrix of the last layer, or the product of two factors; `auto`: the whole matrix if small.
        precision: Of the prior on the last layer: by the marginal likelihood, by training images that are held out of
            the curvature (one of five), or a number.
        observations: Number of observations that an image counts as, whatever its number of pixels.
        num_pixels: Approximate number of random pixels that stand for each image; None: all pixels.
    """

    name: ClassVar[str] = "laplace"
    label: ClassVar[str] = "Last-layer Laplace"
    pool_option: ClassVar[str | None] = "num_samples"
    of_last_layers: ClassVar[bool] = True

    of: str = "ensemble"
    num_epochs: int = Field(0, ge=0)
    num_networks: Annotated[int, AFTER_TRAINING] = Field(10, ge=1)
    num_samples: Annotated[int, AFTER_TRAINING] = Field(256, ge=1)
    mixed: Annotated[bool, AFTER_TRAINING] = False
    curvature: Annotated[Literal["auto", "full", "kronecker"], AFTER_TRAINING] = "auto"
    precision: Annotated[Literal["marginal", "validation"] | Annotated[float, Field(gt=0, le=1e12)], AFTER_TRAINING] = (
        "marginal"
    )
    observations: Annotated[float, AFTER_TRAINING] = Field(1.0, gt=0, le=1e12)
    num_pixels: Annotated[int | None, AFTER_TRAINING] = Field(1024, ge=1)

    @property
    def source(self) -> str | None:
        """The method of the option `of`."""
        return self.of

    @property
    def num_trained(self) -> int:
        """The number of networks; samples need no training."""
        return self.num_networks

    @property
    def plan(self) -> Plan:
        """The first samples of each network, or random samples of all networks."""
        return "random" if self.mixed else "prefix"

    @property
    def passes(self) -> tuple[int, int]:
        """The number of samples of a network."""
        return (self.num_samples, 1)

    def shared_stages(self, names: Sequence[str]) -> int:
        """All stages but the last: only the last layer differs."""
        return len(names) - 1

    def posterior(self, trained: TrainedNetwork) -> Weights:
        """Return the Gaussian of the last layers: curvature and prior precision of each."""
        from epibench.parallel import silenced_torch_threads
        from epibench.training.laplace import Fit, TrainingPixels

        weights = trained.kept(len(self.keep) - 1)
        fit = Fit(trained.likelihood, self.curvature, self.precision, self.observations)
        with silenced_torch_threads():  # on a CPU the numbers must not depend on the number of threads
            network = trained.last_layers(weights)
            pixels = TrainingPixels(
                network.apart() if trained.likelihood == "gaussian" else network,
                trained.batches,
                trained.key("pixels"),
                self.num_pixels,
                trained.class_weights(),
            )
            return fit(pixels, weights)

    def weights(self, member: Member, trained: TrainedNetwork) -> Weights:
        """Return the weights of the network, with a sample in its last layers."""
        from functools import partial

        from epibench.parallel import silenced_torch_threads
        from epibench.training.laplace import sampled

        key = partial(trained.key, "sample", member.number)
        with silenced_torch_threads():
            return sampled(trained.posterior, trained.kept(member.snapshot), key)
