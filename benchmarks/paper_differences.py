"""The effect of what still differs from the published code, for the table in docs/paper.md.

    python benchmarks/paper_differences.py [tf32] [adam] [grey] [loss] [metrics] [--tiny]

`tf32` and `adam` need a GPU for the published sizes; `--tiny` tries them on a CPU. The networks have random weights and
the metrics are of synthetic predictions: the effects on trained networks and real data may differ.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator

import numpy as np
import torch
from torch import Tensor, nn

from epibench import metrics
from epibench.recipes import DenseRecipe, find_recipe
from epibench.recipes.images import CITYSCAPES_WEIGHTS
from epibench.street import StreetDataset
from epibench.training.network import mean_loss

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def network_of(recipe: str, num_classes: int | None, random: bool) -> nn.Module:
    """The published network, with weights that make every layer matter or as training starts."""
    torch.manual_seed(0)
    published = find_recipe(recipe)
    assert isinstance(published, DenseRecipe)
    network = published.network.build(num_classes)
    for name, values in network.state_dict().items() if random else ():
        if name.endswith("running_mean"):
            values.normal_(0, 0.3)
        elif name.endswith("running_var"):
            values.uniform_(0.5, 2)
        elif values.dim() == 4:
            nn.init.kaiming_normal_(values)
    return network.to(DEVICE)


def measure_tf32(tiny: bool) -> None:
    """Outputs of one image with TF32 convolutions against float32."""
    for recipe, num_classes, size in (
        ("kitti-depth", None, (352, 1216)),
        ("cityscapes-segmentation", 19, (1024, 2048)),
    ):
        network = network_of(recipe, num_classes, random=True).eval()
        height, width = (64, 96) if tiny else size
        sparse = torch.where(torch.rand(1, 1, height, width) < 0.05, 80 * torch.rand(1, 1, height, width), 0.0)
        inputs = {"image": torch.randint(0, 256, (1, 3, height, width), dtype=torch.uint8), "sparse_depth": sparse}
        inputs = {name: values.to(DEVICE) for name, values in inputs.items()}
        outputs = []
        for allowed in (False, True):
            torch.backends.cudnn.allow_tf32 = allowed
            with torch.inference_mode():
                outputs.append(network(inputs).double())
        plain, fast = outputs
        error = (fast - plain).square().mean().sqrt() / plain.std()
        changed = (fast.argmax(1) != plain.argmax(1)).double().mean()
        print(f"tf32, {recipe}: error {error:.1e} of the std of the outputs", end="")
        print(f", {changed:.2%} of the classes change" if num_classes else "")


def depth_batches(steps: int, side: int) -> Iterator[tuple[dict[str, Tensor], Tensor]]:
    """Smooth random depth, an image that shows it, and 5 % of it as sparse depth."""
    generator = torch.Generator().manual_seed(2)
    row, column = torch.meshgrid(torch.linspace(0, 1, side), torch.linspace(0, 1, side), indexing="ij")
    for _ in range(steps):
        tilt, middle = torch.rand(2, 4, 1, 1, generator=generator)
        depth = 4 + 70 * (tilt * (1 - row) ** 2 + (1 - tilt) * (middle - column).abs())
        image = (255 * (1 - depth / 80).clamp(0, 1))[:, None].repeat(1, 3, 1, 1).to(torch.uint8)
        sparse = torch.where(torch.rand(4, side, side, generator=generator) < 0.05, depth, 0.0)[:, None]
        yield {"image": image.to(DEVICE), "sparse_depth": sparse.to(DEVICE)}, depth.to(DEVICE)


def trained_by_adam(factor: float, epsilon: float, tiny: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Start, end and √v of the depth network's weights; the loss is multiplied by the factor."""
    network = network_of("kitti-depth", None, random=False).train()
    start = torch.cat([each.detach().flatten().clone() for each in network.parameters()])
    optimiser = torch.optim.Adam(network.parameters(), 1e-5, eps=epsilon, weight_decay=5e-4 * factor)
    for inputs, target in depth_batches(2 if tiny else 200, 64 if tiny else 352):
        mean, log_variance = network(inputs).unbind(1)
        loss = factor * ((target - mean) ** 2 * torch.exp(-log_variance) + log_variance).mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    second = torch.cat([optimiser.state[each]["exp_avg_sq"].flatten() for each in network.parameters()])
    return start, torch.cat([each.detach().flatten() for each in network.parameters()]), second.sqrt()


def measure_adam(tiny: bool) -> None:
    """How far weights lie apart that were trained on the loss and on half of it, relative to how far they moved."""
    torch.backends.cudnn.allow_tf32, torch.backends.cudnn.deterministic = False, True
    start, whole, second = trained_by_adam(1.0, 1e-8, tiny)
    moved = (whole - start).norm()
    for name, options in (("half the loss", (0.5, 1e-8)), ("ε 0.01 % larger", (1.0, 1.0001e-8))):
        print(f"adam: {name}: {(trained_by_adam(*options, tiny)[1] - whole).norm() / moved:.2f} of the distance moved")
    sample = second[torch.randperm(len(second))[:1_000_000]]
    low, middle = sample.quantile(torch.tensor([0.01, 0.5]).to(DEVICE)).tolist()
    print(f"adam: √v is {low:.1e} at 1 % of the weights, {middle:.1e} in the median")


def measure_grey(tiny: bool) -> None:
    """All colours: exact rounding against OpenCV's fixed-point formulas of 14 and of 15 bits."""
    red, green, blue = np.meshgrid(*[np.arange(0, 256, 8 if tiny else 1, dtype=np.int32)] * 3, indexing="ij")
    ours = (299 * red + 587 * green + 114 * blue + 500) // 1000
    for bits, weights in ((14, (4899, 9617, 1868)), (15, (9798, 19235, 3735))):
        theirs = (weights[0] * red + weights[1] * green + weights[2] * blue + (1 << (bits - 1))) >> bits
        gap = np.abs(ours - theirs)
        print(f"grey: {(gap > 0).mean():.3%} of the colours differ from {bits} bits, at most {gap.max()} level")


def measure_loss(tiny: bool) -> None:
    """One weighted mean over eight images against the mean of two means over four, on labels of street scenes."""
    scenes = StreetDataset("segmentation", "clean", length=8 if tiny else 64, size=(128, 256) if tiny else (256, 512))
    labels = torch.stack([scenes[index].target for index in range(len(scenes))])
    generator, gaps = torch.Generator().manual_seed(0), []
    for _ in range(200):
        target = labels[torch.randint(len(labels), (8,), generator=generator)]
        hard = torch.rand(target.shape, generator=generator) < 0.2 * torch.rand(8, 1, 1, generator=generator)
        weights = torch.tensor(CITYSCAPES_WEIGHTS)[target]
        losses = torch.where(hard, 3.0, 0.05)
        whole, parts = (float(mean_loss(losses, weights, number)) for number in (1, 2))
        gaps.append(abs(parts / whole - 1))
    print(f"loss: two parts differ by {np.median(gaps):.2%} in the median, {max(gaps):.2%} at most")


def measure_metrics(tiny: bool) -> None:
    """AUSE with NaN entropies and with ties in random order, and RMSE by groups of four."""
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(0)
    pixels, members = 20_000 if tiny else 1_000_000, 4
    target = torch.randint(0, 19, (pixels,), generator=generator)
    sure = torch.distributions.Gamma(1.0, 0.08).sample((pixels, 1))  # few pixels are hard, many are very easy
    logits = torch.randn(members, pixels, 19, generator=generator)
    logits.scatter_add_(2, target.expand(members, -1)[..., None], sure.expand(members, -1, 1) - 1)
    for number in (1, members):
        probs = torch.softmax(logits[:number], 2).mul(1 / number).sum(0)
        brier = (probs.double() - nn.functional.one_hot(target, 19)).square().sum(1)
        plain = -(probs * probs.log()).sum(1).double()
        entropy = torch.special.entr(probs).sum(1).double()
        most = plain.nan_to_num(nan=1e9)
        ours = float(metrics.ause(entropy, brier, error="brier"))
        theirs = float(metrics.ause(most, brier, error="brier"))
        orders = [torch.randperm(pixels, generator=generator).double() for _ in range(5)]
        ranks = [np.lexsort((order.numpy(), entropy.numpy())).argsort() for order in orders]
        ties = [float(metrics.ause(torch.from_numpy(rank).double(), brier, error="brier")) - ours for rank in ranks]
        print(
            f"metrics, M = {number}: {(probs.amax(1) == 1).double().mean():.1%} of the confidences are exactly 1; "
            f"{plain.isnan().double().mean():.3%} of the entropies are NaN: AUSE {ours:.4f} → {theirs:.4f}; "
            f"ties in random order move it by at most {max(map(abs, ties)):.1e}; ECE {metrics.ece(probs, target):.4f}, "
            f"published {metrics.ece(probs, target, convention='gustafsson2020'):.4f}"
        )
    images = 100 if tiny else 1000
    squares = torch.exp(0.8 * torch.randn(images, generator=generator).double())  # mean squared error of each image
    grouped = metrics.GroupedRootMeanSquaredError(images)
    grouped.update(squares.sqrt(), torch.zeros(images), torch.arange(images))
    found, pooled = grouped.compute(), squares.mean().sqrt()
    print(
        f"metrics: RMSE of {images} images by groups of four {found['rmse'] / pooled:.4f} of the pooled RMSE, "
        f"spread over 100 shuffles {found['rmse_spread'] / found['rmse']:.2%}"
    )


PARTS = {
    "tf32": measure_tf32,
    "adam": measure_adam,
    "grey": measure_grey,
    "loss": measure_loss,
    "metrics": measure_metrics,
}


def main() -> None:
    """Measure the parts that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], help="by default all")
    parser.add_argument("--tiny", action="store_true", help="small sizes, to try the script")
    options = parser.parse_args()
    for part in options.parts or PARTS:
        PARTS[part](options.tiny)


if __name__ == "__main__":
    main()
