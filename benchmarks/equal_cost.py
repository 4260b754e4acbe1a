"""Tables of a run that compares methods: each at the largest M that it can afford, at test time or in training.

    python benchmarks/equal_cost.py runs/street-depth-methods [--budgets 1 4] [--by test training] [--domains clean]

A budget is what so many networks of the ensemble cost: operations of a prediction, or operations of training (forward
and backward, three times a forward pass, of all networks behind M members and of those that they started from). A
method may exceed it by a tenth. Of those M that it can afford a method has the largest; one that can afford none is
left out. Mean ± std over draws; `–`: one draw.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import torch

from epibench.evaluation.cost import network_cost
from epibench.recipes import DenseRecipe, read_recipe
from epibench.results import RunResults, load_results

PASSES = 3  # of a step, in forward passes: one forward and twice as much backward
SPARE = 1.1
METRICS = {
    "gaussian": {"ause": "AUSE", "auce": "AUCE", "nll": "NLL", "rmse": "RMSE, m"},
    "categorical": {"ause": "AUSE", "ece": "ECE", "nll": "NLL", "miou": "mIoU, %"},
}


@dataclass(frozen=True)
class Comparison:
    """A run, and what its methods cost."""

    results: RunResults
    recipe: DenseRecipe

    @cached_property
    def step_costs(self) -> dict[str, float]:
        """Operations of a whole training of one network of each method, without what it started from."""
        recipe, classes = self.recipe, None if self.results.class_names is None else len(self.results.class_names)
        height, width = recipe.training.crop or (64, 128)
        batch = recipe.network.smallest_batch
        inputs = {
            "image": torch.zeros(batch, 3, height, width, dtype=torch.uint8),
            "sparse_depth": torch.zeros(batch, 1, height, width),
        }
        costs = {}
        for name in {*self.results.methods, *(each for one in self.results.methods for each in recipe.sources(one))}:
            method = recipe.method(name)
            if not recipe.training_steps(name):
                costs[name] = 0.0
                continue
            network = method.build(recipe.builder(classes, method=name)).eval()
            flops = network_cost(network, inputs)["flops"] / batch
            if recipe.method(name).name == "pruned":  # what is trained is as small as what predicts
                flops *= self.test_flops(name, 1) / self.test_flops("ensemble", 1)
            costs[name] = PASSES * flops * method.batch_size * recipe.training_steps(name)
        return costs

    def test_flops(self, name: str, m: int) -> float:
        """Operations of a prediction with M members."""
        flops = self.results.cost[name].per_image[m].flops
        assert flops is not None
        return flops

    def cost(self, by: str, name: str, m: int) -> float:
        """What M members cost, in networks of the ensemble."""
        if by == "test":
            return self.test_flops(name, m) / self.test_flops("ensemble", 1)
        one = sum(self.step_costs[each] for each in (name, *self.recipe.sources(name)))
        return one * self.results.cost[name].training[m].networks / self.step_costs["ensemble"]

    def affordable(self, by: str, budget: float) -> Iterator[tuple[str, int]]:
        """Methods with the largest M that they can afford."""
        for name in self.results.methods:
            sizes = [m for m in self.results.cost[name].training if self.cost(by, name, m) <= SPARE * budget]
            if sizes:
                yield name, max(sizes)

    def table(self, domain: str, by: str, budget: float) -> str:
        """One table in Markdown."""
        metrics = METRICS[self.results.kind]
        lines = [
            f"| | M | test-time cost | training cost | {' | '.join(metrics.values())} |",
            "|---" + "|--:" * (3 + len(metrics)) + "|",
        ]
        for name, m in self.affordable(by, budget):
            row = [self.results.methods[name].label, str(m)]
            row += [f"{self.cost(each, name, m):.2f}" for each in ("test", "training")]
            lines.append(f"| {' | '.join([*row, *(self.value(name, domain, m, metric) for metric in metrics)])} |")
        return "\n".join(lines)

    def value(self, name: str, domain: str, m: int, metric: str) -> str:
        """`0.123 ± 0.004`."""
        summary = self.results.summary[name][domain][m][metric]
        assert isinstance(summary.mean, float)
        scale = 100 if metric == "miou" else 1
        std = summary.std if isinstance(summary.std, float) and summary.n > 1 else None
        digits = 1 if metric in ("miou",) else 3 if abs(summary.mean) < 10 else 1
        spread = "–" if std is None else f"{scale * std:.{digits}f}"
        return f"{scale * summary.mean:.{digits}f} ± {spread}"


def print_tables(
    comparison: Comparison, domains: Sequence[str], budgets: Sequence[float], kinds: Sequence[str]
) -> None:
    """All tables that are asked for."""
    words = {"test": "at test time", "training": "in training"}
    for domain in domains or list(comparison.results.domains):
        for by in kinds:
            for budget in budgets:
                title = comparison.results.domains[domain].label
                print(f"\n**{title}: what {budget:g} networks cost {words[by]}**\n")
                print(comparison.table(domain, by, budget))


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
