"""The effect of what still differs from the published code, for the table in docs/paper.md.

    python benchmarks/paper_differences.py [tf32] [adam] [grey] [loss] [metrics] [--tiny] [--kitti DIR] [--store DIR]

`tf32` and `adam` need a GPU for the published sizes; `--tiny` tries them on a CPU. The networks have random weights and
the metrics are of synthetic predictions: the effects on trained networks and real data may differ. `--kitti` and
`--store` add metrics of real frames and of stored logits.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from typing import get_args

import numpy as np
import torch
from scipy.ndimage import distance_transform_edt  # type: ignore[import-untyped]
from torch import Tensor, nn

from epibench import metrics
from epibench.conventions import Convention
from epibench.data.sets.kitti import KittiSource
from epibench.members.stored import StoredPredictions
from epibench.recipes import DenseRecipe, find_recipe
from epibench.recipes.images import CITYSCAPES_WEIGHTS
from epibench.store import open_store
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
    """Distance between weights trained on the loss and on half of it, relative to the distance moved."""
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


def synthetic_logits(pixels: int, rate: float) -> tuple[Tensor, Tensor]:
    """Logits of four members and targets of 19 classes; a smaller rate makes members more certain."""
    generator = torch.Generator().manual_seed(0)
    torch.manual_seed(0)
    target = torch.randint(0, 19, (pixels,), generator=generator)
    sure = torch.distributions.Gamma(1.0, rate).sample((pixels, 1))  # few pixels are hard, many are very easy
    logits = torch.randn(4, pixels, 19, generator=generator)
    logits.scatter_add_(2, target.expand(4, -1)[..., None], sure.expand(4, -1, 1) - 1)
    return logits, target


def stored_logits(path: str, pixels: int) -> tuple[Tensor, Tensor]:
    """Logits of a prediction store at random pixels, (member, pixel, class), and their targets."""
    outputs, targets, generator = [], [], torch.Generator().manual_seed(0)
    stored = StoredPredictions(open_store(path))
    share = min(1.0, pixels / stored.store.num_pixels)
    for block in stored:
        kept = torch.rand(len(block.target), generator=generator) < share
        outputs.append(block.outputs["logits"][:, kept].float())
        targets.append(block.target[kept].long())
    return torch.cat(outputs, 1), torch.cat(targets)


def measure_classes(name: str, logits: Tensor, target: Tensor) -> None:
    """Changes of AUSE by NaN entropies, ties in random order and float32. logits: (member, pixel, class)."""
    one_hot, generator = nn.functional.one_hot(target, logits.shape[2]), torch.Generator().manual_seed(0)

    def ause(uncertainty: Tensor, probs: Tensor) -> float:
        return float(metrics.ause(uncertainty.double(), (probs - one_hot).square().sum(1), error="brier"))

    for number in (1, len(logits)):
        probs, exact = (
            torch.stack([torch.softmax(each.to(dtype), 1) / number for each in logits[:number]]).sum(0)
            for dtype in (torch.float32, torch.float64)
        )
        plain, entropy = -(probs * probs.log()).sum(1), torch.special.entr(probs).sum(1).clamp(min=0)
        ours = ause(entropy, probs)
        last = ause(plain.nan_to_num(nan=1e9), probs) - ours
        double = ause(torch.special.entr(exact).sum(1).clamp(min=0), exact) - ours
        orders = [torch.randperm(len(target), generator=generator).numpy() for _ in range(5)]
        ranks = [torch.from_numpy(np.lexsort((order, entropy.numpy())).argsort()) for order in orders]
        ties = max(abs(ause(rank, probs) - ours) for rank in ranks)
        pooled, published = (float(metrics.ece(probs, target, convention=each)) for each in get_args(Convention))
        print(
            f"metrics, {name}, M = {number}: {(probs.amax(1) == 1).double().mean():.1%} of the confidences are 1, "
            f"{plain.isnan().double().mean():.3%} of the entropies NaN; AUSE {ours:.4f}, NaN last {last:+.1e}, "
            f"ties in random order ±{ties:.0e}, float64 {double:+.0e}; ECE {pooled:.4f}, published {published:.4f}"
        )


def nearest_point_errors(folder: str) -> tuple[Tensor, Tensor]:
    """Mean squared error and number of valid pixels of every KITTI frame, with the depth of the nearest point."""
    errors, counts, least = [], [], []
    frames = KittiSource(root=folder).read()
    for frame in (frames[index] for index in range(len(frames))):
        sparse = frame.inputs["sparse_depth"][0].numpy()
        nearest = distance_transform_edt(sparse == 0, return_distances=False, return_indices=True)
        error = (torch.from_numpy(sparse[tuple(nearest)]) - frame.target)[frame.valid].double().square()
        errors.append(error.mean())
        counts.append(error.numel())
        least.append(float(frame.target[frame.valid].min()))
    print(f"metrics: {sum(counts):,} targets of {len(counts)} frames, the nearest at {min(least):.1f} m")
    return torch.stack(errors), torch.tensor(counts)


def measure_groups(name: str, errors: Tensor, counts: Tensor) -> None:
    """The published RMSE of images with these mean squared errors and numbers of pixels, against the pooled RMSE."""
    images = torch.repeat_interleave(torch.arange(len(errors)), counts)
    grouped = metrics.GroupedRootMeanSquaredError(len(errors))
    grouped.update(errors.sqrt()[images], torch.zeros(len(images)), images)
    found, pooled = grouped.compute(), (errors @ counts.double() / counts.sum()).sqrt()
    groups = zip(torch.split(errors, 4), torch.split(counts.double(), 4), strict=True)
    in_order = torch.stack([(error @ count / count.sum()).sqrt() for error, count in groups]).mean()
    print(
        f"metrics, {name}: RMSE by groups of four {found['rmse'] / pooled - 1:+.2%} of the pooled RMSE, spread over "
        f"100 shuffles {found['rmse_spread'] / found['rmse']:.2%}, groups of neighbours {in_order / pooled - 1:+.2%}"
    )


def measure_metrics(tiny: bool, kitti: str | None = None, store: str | None = None) -> None:
    """AUSE with NaN entropies, ties in random order and float32, and RMSE by groups of four."""
    pixels, images = (20_000, 100) if tiny else (1_000_000, 1000)
    for rate in (0.08, 0.05, 0.03):
        measure_classes(f"synthetic logits, rate {rate}", *synthetic_logits(pixels, rate))
    if store is not None:
        measure_classes("stored logits", *stored_logits(store, pixels))
    generator, equal = torch.Generator().manual_seed(0), torch.full((images,), 100)
    spread = torch.exp(0.8 * torch.randn(images, generator=generator).double())
    measure_groups(f"{images} synthetic images", spread, equal)
    if kitti is not None:
        errors, counts = nearest_point_errors(kitti)
        measure_groups(f"{len(errors)} KITTI frames", errors, counts)
        drawn = errors[torch.randint(len(errors), (images,), generator=generator)]
        measure_groups(f"{images} images with errors of these frames", drawn, equal)


PARTS: dict[str, Callable[[bool], None]] = {
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
    parser.add_argument("--kitti", metavar="DIR", help="metrics: frames of KITTI depth completion, the selection")
    parser.add_argument("--store", metavar="DIR", help="metrics: logits of several members on labelled images")
    options = parser.parse_args()
    for part in options.parts or PARTS:
        if part == "metrics":
            measure_metrics(options.tiny, options.kitti, options.store)
        else:
            PARTS[part](options.tiny)


if __name__ == "__main__":
    main()
