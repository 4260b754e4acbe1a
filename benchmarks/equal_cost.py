"""Tables of a run that compares methods: each at the largest M that it can afford, at test time or in training.

    python benchmarks/equal_cost.py runs/street-depth-methods [--budgets 1 4] [--by test training] [--domains clean]

A budget is what so many networks of the ensemble cost: operations of a prediction, or operations of training (forward
and backward of all networks behind M members and of those that they started from, and what is fitted to them). A
method may exceed it by a tenth. Of those M that it can afford a method has the largest; one that can afford none is
marked by `–`. Mean ± std over draws; without std: one draw.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch
from torch.utils.flop_counter import FlopCounterMode

from epibench.methods.laplace import Laplace
from epibench.methods.swag import SWA
from epibench.recipes import DenseRecipe, read_recipe
from epibench.results import Cost, Results, load_results
from epibench.runs.image_training import network_as_trained, open_training_data

SPARE = 1.1
METRICS = {
    "gaussian": {"ause": "AUSE", "auce": "AUCE", "nll": "NLL", "rmse": "RMSE, m"},
    "categorical": {"ause": "AUSE", "ece": "ECE", "nll": "NLL", "miou": "mIoU, %"},
}


@dataclass(frozen=True)
class Comparison:
    """A run, and what its methods cost."""

    results: Results
    recipe: DenseRecipe

    @cached_property
    def classes(self) -> int | None:
        """How many classes networks predict."""
        names = next(iter(self.results.domains.values())).class_names
        return None if names is None else len(names)

    @cached_property
    def trainings(self) -> dict[str, float]:
        """Operations of a whole training of one network of each method, without what it started from."""
        names = {each for name in self.results.methods for each in (name, *self.recipe.sources(name))}
        return {name: self.steps(name) + self.fit(name) for name in names}

    def steps(self, name: str) -> float:
        """Operations of all steps of a training, counted on one of them: forward and backward."""
        number = self.recipe.training_steps(name)
        if not number:
            return 0.0
        network = network_as_trained(self.recipe, name, self.classes).train()
        counter = FlopCounterMode(display=False)
        with counter:
            network(self.crops(name)).sum().backward()
        return float(counter.get_total_flops() * number)

    def fit(self, name: str) -> float:
        """Operations of what a method fits to a trained network: forward passes."""
        method, image = self.recipe.method(name), self.test_flops("ensemble", 1)
        if isinstance(method, Laplace):  # of all training images, and once more to compare precisions
            images = len(open_training_data(self.recipe))
            return float(images * image * (2 if method.precision == "validation" else 1))
        if isinstance(method, SWA):  # statistics of batch norm, for every sample
            network = self.recipe.builder(self.classes, method=name)().eval()
            with torch.inference_mode(), FlopCounterMode(display=False) as counter:
                network(self.crops(name))
            return float(method.of_network * method.refresh_batches * counter.get_total_flops())
        assert not method.fits, f"what {name} fits is not counted here"
        return 0.0

    def crops(self, name: str) -> dict[str, torch.Tensor]:
        """A batch as the method is trained on."""
        batch, (height, width) = self.recipe.method(name).batch_size, self.recipe.training.crop or (64, 128)
        image = torch.zeros(batch, 3, height, width, dtype=torch.uint8)
        return {"image": image, "sparse_depth": torch.zeros(batch, 1, height, width)}

    def test_flops(self, name: str, m: int) -> float:
        """Operations of a prediction with M members."""
        flops = self.cost_of(name).per_image[m].flops
        assert flops is not None
        return flops

    def cost_of(self, name: str) -> Cost:
        """The cost of a method."""
        cost = self.results.methods[name].cost
        assert cost is not None
        return cost

    def cost(self, by: str, name: str, m: int) -> float:
        """What M members cost, in networks of the ensemble."""
        if by == "test":
            return self.test_flops(name, m) / self.test_flops("ensemble", 1)
        one = sum(self.trainings[each] for each in (name, *self.recipe.sources(name)))
        return one * self.cost_of(name).training[m].networks / self.trainings["ensemble"]

    def affordable(self, by: str, name: str, budget: float) -> int | None:
        """The largest M that a method can afford."""
        sizes = [m for m in self.cost_of(name).training if self.cost(by, name, m) <= SPARE * budget]
        return max(sizes, default=None)

    def costs(self) -> str:
        """What M members cost, at test time and in training, in networks of the ensemble; in Markdown."""
        sizes = sorted({m for name in self.results.methods for m in self.cost_of(name).training})
        titles = [f"{word}, M = {m}" for word in ("test", "training") for m in sizes]
        return self.markdown(
            titles,
            lambda name: [
                f"{self.cost(by, name, m):.2f}" if m in self.cost_of(name).training else ""
                for by in ("test", "training")
                for m in sizes
            ],
        )

    def table(self, domain: str, kinds: Sequence[str], budget: float) -> str:
        """One table in Markdown: what every method reaches for a budget at test time, and for one in training."""
        metrics = METRICS[self.results.scores[0].kind]
        titles = [title for by in kinds for title in (f"{by}: M", *metrics.values())]

        def cells(name: str) -> Iterator[str]:
            for by in kinds:
                m = self.affordable(by, name, budget)
                yield "–" if m is None else str(m)
                yield from ("" if m is None else self.value(name, domain, m, each) for each in metrics)

        return self.markdown(titles, cells)

    def markdown(self, titles: Sequence[str], cells: Callable[[str], Iterable[str]]) -> str:
        """A table in Markdown with a row for every method; cells: those of a method."""
        lines = [f"| | {' | '.join(titles)} |", "|---" + "|--:" * len(titles) + "|"]
        rows = ((facts.label, *cells(name)) for name, facts in self.results.methods.items())
        return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])

    def value(self, name: str, domain: str, m: int, metric: str) -> str:
        """`0.123 ± 0.004`."""
        score = self.results.score(name, domain)
        assert score is not None
        summary = score.summary[m][metric]
        if not isinstance(summary.mean, float):  # it is not finite
            return "∞"
        scale = 100 if metric == "miou" else 1
        digits = 1 if metric == "miou" else 3 if abs(summary.mean) < 10 else 1
        spread = f" ± {scale * summary.std:.{digits}f}" if isinstance(summary.std, float) and summary.n > 1 else ""
        return f"{scale * summary.mean:.{digits}f}{spread}"


def print_tables(
    comparison: Comparison, domains: Sequence[str], budgets: Sequence[float], kinds: Sequence[str]
) -> None:
    """All tables that are asked for."""
    print(f"**What M members cost, in networks of the ensemble**\n\n{comparison.costs()}")
    for domain in domains or list(comparison.results.domains):
        for budget in budgets:
            title = comparison.results.domains[domain].label
            price = "one network costs" if budget == 1 else f"{budget:g} networks cost"
            print(f"\n**{title}, for what {price}**\n\n{comparison.table(domain, kinds, budget)}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--budgets", type=float, nargs="+", default=[1, 4])
    parser.add_argument("--by", nargs="+", choices=["test", "training"], default=["test", "training"])
    parser.add_argument("--domains", nargs="+", default=[])
    options = parser.parse_args()
    recipe = read_recipe(options.run)
    assert isinstance(recipe, DenseRecipe)
    results = load_results(options.run / "results.json")
    print_tables(Comparison(results, recipe), options.domains, options.budgets, options.by)


if __name__ == "__main__":
    main()
