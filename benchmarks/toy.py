"""Training the networks of the toy problems together, against an ordinary PyTorch loop for one after another.

    python benchmarks/toy.py                  # the table of docs/performance.md: some five minutes on two cores
    python benchmarks/toy.py --quick          # one minute, less exact
    python benchmarks/toy.py --device cuda    # ours on a GPU; the ordinary loops stay on the CPU

An ordinary loop trains one network: an nn.Module (for regression with two Sequentials, mean and log variance), autograd
and torch.optim.Adam; or, for chains, the step of SGLD or SGHMC on each of the parameters. `usual`: batches from a
DataLoader with shuffle, the prior in the loss, as in the published code. `lean`: batches by a random order of indices,
the prior as weight decay. Both run with one thread, which is their fastest, and take the same steps as ours. Two
networks (one chain) are measured for some epochs, and scaled to all networks and epochs. Ours trains the ensembles in
full and a slice of the chains' epochs, scaled. Ours and theirs are measured in turn; times are medians of the repeats.
Ratios of one run compare; seconds of two machines do not.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from epibench.data.sets.toy import ToyName, ToyProblem, make_toy
from epibench.methods import METHODS
from epibench.networks.mlp import StackedMLP
from epibench.training.stacked import OBJECTIVES, Keys, StackedTraining, trained

BATCH_SIZE = 32
CHAIN_EPOCHS = 256 * 150
Update = Callable[[int, int], None]  # (step from 1, number of steps), once the gradients are there
Batches = Callable[[ToyProblem], Iterator[tuple[Tensor, Tensor]]]


class Regressor(nn.Module):
    """Mean and log variance, by a network each."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.log_variance = (
            nn.Sequential(nn.Linear(1, 10), nn.ReLU(), nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 1)) for _ in range(2)
        )

    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        mean, log_variance = self.mean(inputs)[:, 0], self.log_variance(inputs)[:, 0]
        return 0.5 * torch.mean((target - mean) ** 2 * torch.exp(-log_variance) + log_variance)


class Classifier(nn.Module):
    """Logits of two classes."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Sequential(nn.Linear(2, 10), nn.ReLU(), nn.Linear(10, 10), nn.ReLU(), nn.Linear(10, 2))

    def loss(self, inputs: Tensor, target: Tensor) -> Tensor:
        return nn.functional.cross_entropy(self.logits(inputs), target)


def from_loader(toy: ToyProblem) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of an epoch as most people get them."""
    dataset = TensorDataset(toy.train.inputs, toy.train.target)
    yield from DataLoader(dataset, batch_size=BATCH_SIZE, shuffle=True)


def from_indices(toy: ToyProblem) -> Iterator[tuple[Tensor, Tensor]]:
    """The batches of an epoch without a DataLoader."""
    for batch in torch.split(torch.randperm(len(toy.train.target)), BATCH_SIZE):
        yield toy.train.inputs[batch], toy.train.target[batch]


def adam(model: nn.Module, num_points: int, decay: float) -> Update:
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3, weight_decay=decay)
    return lambda number, total: optimiser.step()


def sgld(model: nn.Module, num_points: int, decay: float) -> Update:
    def update(number: int, total: int) -> None:
        rate = 0.01 * (1 - number / total) ** 0.9
        for weight in model.parameters():
            assert weight.grad is not None
            weight.mul_(1 - rate * decay).add_(weight.grad, alpha=-rate)
            weight.add_(torch.randn_like(weight), alpha=math.sqrt(2 * rate / num_points))

    return update


def sghmc(model: nn.Module, num_points: int, decay: float) -> Update:
    momenta = [torch.zeros_like(weight) for weight in model.parameters()]

    def update(number: int, total: int) -> None:
        rate = 0.001 * (1 - number / total) ** 0.9
        for weight, momentum in zip(model.parameters(), momenta, strict=True):
            assert weight.grad is not None
            momentum.mul_(0.9).add_(weight.grad, alpha=-rate).add_(weight, alpha=-rate * decay)
            momentum.add_(torch.randn_like(weight), alpha=math.sqrt(2 * 0.1 * rate / num_points))
            weight.add_(momentum)

    return update


UPDATES: dict[str, Callable[[nn.Module, int, float], Update]] = {"ensemble": adam, "sgld": sgld, "sghmc": sghmc}


@dataclass(frozen=True)
class Loop:
    """An ordinary loop: where its batches come from, and where its prior is."""

    batches: Batches
    prior_in_loss: bool

    def train(self, toy: ToyProblem, method: str, num_epochs: int) -> None:
        """Train one network."""
        model = Regressor() if toy.kind == "gaussian" else Classifier()
        num_points, number = len(toy.train.target), 0
        total = num_epochs * -(-num_points // BATCH_SIZE)
        update = UPDATES[method](model, num_points, 0.0 if self.prior_in_loss else 1 / num_points)
        for _ in range(num_epochs):
            for inputs, target in self.batches(toy):
                loss = model.loss(inputs, target)
                if self.prior_in_loss:
                    prior = torch.stack([weight.square().sum() for weight in model.parameters()]).sum() / 2
                    loss = loss + prior / num_points
                model.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                number += 1
                with torch.no_grad():
                    update(number, total)


LOOPS = {"usual": Loop(from_loader, prior_in_loss=True), "lean": Loop(from_indices, prior_in_loss=False)}


@dataclass(frozen=True)
class Case:
    """Networks that are trained together, and how much of that, and of the ordinary loop, is measured."""

    problem: ToyName
    method: str
    num_networks: int
    num_epochs: int
    goal: int | None = None

    @property
    def label(self) -> str:
        word = "networks" if self.method == "ensemble" else f"{self.method.upper()} chains"
        return f"{self.num_networks:,} {self.problem.removeprefix('toy-')} {word} × {self.num_epochs:,} epochs"

    def ours(self, toy: ToyProblem, device: torch.device, num_epochs: int) -> None:
        """Train all networks for some epochs."""
        regression = toy.kind == "gaussian"
        network = StackedMLP(1, 1, heads=2) if regression else StackedMLP(2, 2)
        method = METHODS[self.method](num_epochs=num_epochs, batch_size=BATCH_SIZE)
        objective = OBJECTIVES[toy.kind]
        training = StackedTraining(**vars(method.training), network=network, objective=objective, data=toy.train)
        trained(training, Keys.of(0, method.name, range(self.num_networks), device)).sum().item()


CASES = [
    Case("toy-regression", "ensemble", 1024, 150, goal=200),
    Case("toy-classification", "ensemble", 1024, 150),
    Case("toy-regression", "sgld", 6, CHAIN_EPOCHS, goal=20),
    Case("toy-regression", "sgld", 24, CHAIN_EPOCHS),
    Case("toy-regression", "sghmc", 6, CHAIN_EPOCHS),
    Case("toy-regression", "sghmc", 24, CHAIN_EPOCHS),
    Case("toy-classification", "sgld", 6, CHAIN_EPOCHS),
    Case("toy-classification", "sgld", 24, CHAIN_EPOCHS),
    Case("toy-classification", "sghmc", 6, CHAIN_EPOCHS),
    Case("toy-classification", "sghmc", 24, CHAIN_EPOCHS),
]


def seconds(function: Callable[[], None]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def alone(function: Callable[[], None]) -> None:
    """With one thread: operations this small only wait for a second one."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    function()
    torch.set_num_threads(before)


def measure(case: Case, device: torch.device, repeats: int, quick: bool) -> tuple[float, dict[str, float]]:
    """Seconds that all networks and epochs of a case take: ours, and by each ordinary loop, scaled."""
    toy = make_toy(case.problem)
    ensemble = case.method == "ensemble"
    epochs = (10 if quick else case.num_epochs) if ensemble else (50 if quick else 300)
    plain_networks, plain_epochs = (2 if ensemble else 1), (3 if quick else 10)
    case.ours(toy, device, 2)  # the first call of each operation is slow
    for loop in LOOPS.values():
        alone(partial(loop.train, toy, case.method, 1))
    ours: list[float] = []
    theirs: dict[str, list[float]] = {name: [] for name in LOOPS}
    for _ in range(repeats):
        ours.append(seconds(partial(case.ours, toy, device, epochs)) / epochs)
        for name, loop in LOOPS.items():
            for _ in range(plain_networks):
                theirs[name].append(
                    seconds(partial(alone, partial(loop.train, toy, case.method, plain_epochs))) / plain_epochs
                )
    scaled = {name: statistics.median(times) * case.num_networks * case.num_epochs for name, times in theirs.items()}
    return statistics.median(ours) * case.num_epochs, scaled


def as_time(value: float) -> str:
    """Seconds, minutes or hours, to three digits."""
    size, unit = (3600.0, "h") if value >= 7200 else (60.0, "min") if value >= 120 else (1.0, "s")
    return f"{value / size:.3g} {unit}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    device, console = torch.device(arguments.device), Console(width=140)
    where = torch.cuda.get_device_name() if device.type == "cuda" else f"{torch.get_num_threads()} threads"
    console.print(f"torch {torch.__version__}, ours on {where}, ordinary loops on the CPU; {arguments.repeats} repeats")
    table = Table("training", "ours", "ordinary loop", "its time", "× faster", "goal")
    for case in CASES:
        ours, theirs = measure(case, device, arguments.repeats, arguments.quick)
        for name, spent in theirs.items():
            goal = f"{case.goal} ×" if case.goal else ""
            table.add_row(case.label, as_time(ours), name, as_time(spent), f"{spent / ours:,.0f}", goal)
        table.add_section()
    console.print(table)


if __name__ == "__main__":
    main()
