"""Make small stores of predictions, then score them as a user would.

Two problems on small images, one of regression and one of classification, with inputs inside the training region
(`clean`) and half outside of it (`shifted`). Two methods give 16 members each: `ensemble` (every member has its own
random features) and `bootstrap` (one set of random features, refitted to resampled data). Only NumPy; a stand-in for
networks, and fitted for real: nothing in the report is made up.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from epibench.store import StoreWriter

Array = npt.NDArray[Any]

NUM_MEMBERS = 16
NUM_IMAGES = 12
HEIGHT, WIDTH = 48, 96
NUM_FEATURES = 60
NUM_POINTS = 1500
CLASS_NAMES = ("road", "building", "tree", "sky")


def inputs_of_images(domain: str, rng: np.random.Generator) -> Array:
    """Smooth fields of two inputs, (image, height, width, 2): within ±2.5 if clean, up to ±5 if shifted."""
    rows, columns = np.meshgrid(np.linspace(0, 1, HEIGHT), np.linspace(0, 2, WIDTH), indexing="ij")
    reach = 2.5 if domain == "clean" else 5.0
    images = []
    for _ in range(NUM_IMAGES):
        waves = rng.uniform(1, 5, (2, 2))
        phases = rng.uniform(0, 2 * np.pi, (2, 2))
        fields = zip(waves, phases, strict=True)
        images.append([np.sin(w[0] * rows + p[0]) * np.cos(w[1] * columns + p[1]) for w, p in fields])
    return reach * np.moveaxis(np.asarray(images), 1, -1)


def depth_of(inputs: Array) -> Array:
    """The true depth in metres."""
    depth: Array = 20.0 + 8 * np.sin(inputs[..., 0]) + 4 * np.cos(1.5 * inputs[..., 1])
    return depth


def noise_of(inputs: Array) -> Array:
    """The standard deviation of measured depths: larger to one side."""
    std: Array = 0.2 + 1.0 / (1 + np.exp(-2 * inputs[..., 0]))
    return std


def class_of(inputs: Array) -> npt.NDArray[np.int64]:
    """The true class: sectors around the origin, bent."""
    angle = np.arctan2(inputs[..., 1], inputs[..., 0]) + 0.5 * np.hypot(inputs[..., 0], inputs[..., 1])
    return (np.floor(angle / (2 * np.pi) * len(CLASS_NAMES)) % len(CLASS_NAMES)).astype(np.int64)


def random_features(rng: np.random.Generator) -> Callable[[Array], Array]:
    """A random hidden layer of tanh units, (…, 2) → (…, feature)."""
    slopes, offsets = rng.normal(0, 1.0, (2, NUM_FEATURES)), rng.uniform(-3, 3, NUM_FEATURES)

    def features(inputs: Array) -> Array:
        return np.concatenate([np.tanh(inputs @ slopes + offsets), np.ones((*inputs.shape[:-1], 1))], -1)

    return features


def ridge(features: Array, targets: Array) -> Array:
    """Least squares with a small penalty."""
    gram = features.T @ features + 1e-3 * len(features) / 100 * np.eye(features.shape[1])
    return np.linalg.solve(gram, features.T @ targets)


def logistic(features: Array, labels: npt.NDArray[np.int64], steps: int = 300) -> Array:
    """Multinomial logistic regression by gradient descent with momentum."""
    weights = np.zeros((features.shape[1], len(CLASS_NAMES)))
    velocity, onehot = np.zeros_like(weights), np.eye(len(CLASS_NAMES))[labels]
    for _ in range(steps):
        gradient = features.T @ (softmax(features @ weights) - onehot) / len(features) + 1e-4 * weights
        velocity = 0.9 * velocity - 0.5 * gradient
        weights = weights + velocity
    return weights


def softmax(logits: Array) -> Array:
    """Probabilities over the last axis."""
    powers: Array = np.exp(logits - logits.max(-1, keepdims=True))
    powers /= powers.sum(-1, keepdims=True)
    return powers


def members_of(method: str, seed: int) -> list[tuple[Callable[[Array], Array], npt.NDArray[np.int64]]]:
    """For each member its hidden layer and the numbers of the training points that it is fitted to."""
    rng = np.random.default_rng(seed)
    shared, every = random_features(rng), np.arange(NUM_POINTS)
    if method == "ensemble":
        return [(random_features(rng), every) for _ in range(NUM_MEMBERS)]
    return [(shared, rng.integers(0, NUM_POINTS, NUM_POINTS)) for _ in range(NUM_MEMBERS)]


def write_depth(path: Path, method: str, domain: str) -> None:
    """Fit the members on noisy depths and store what they predict for each image."""
    rng = np.random.default_rng(1)
    points = rng.uniform(-3, 3, (NUM_POINTS, 2))
    measured = depth_of(points) + noise_of(points) * rng.normal(size=NUM_POINTS)
    images = inputs_of_images(domain, rng)
    targets = depth_of(images) + noise_of(images) * rng.normal(size=images.shape[:-1])
    with StoreWriter(
        path,
        kind="gaussian",
        num_members=NUM_MEMBERS,
        num_images=len(images),
        method=method,
        domain=domain,
        unit="m",
        overwrite=True,
    ) as store:
        for number, target in enumerate(targets):
            store.write_target(number, target)
        for member, (features, chosen) in enumerate(members_of(method, seed=2)):
            hidden = features(points[chosen])
            mean_weights = ridge(hidden, measured[chosen])
            residuals = np.log((measured[chosen] - hidden @ mean_weights) ** 2 + 1e-6) + 1.27  # E log χ² = −1.27
            variance_weights = ridge(hidden, residuals)
            for number, image in enumerate(images):
                outputs = features(image)
                variance = np.exp(np.clip(outputs @ variance_weights, -8, 8))
                store.write(member, number, mean=outputs @ mean_weights, variance=variance)


def write_classes(path: Path, method: str, domain: str) -> None:
    """Fit the members on labelled points and store what they predict for each image."""
    rng = np.random.default_rng(4)
    points = rng.uniform(-3, 3, (NUM_POINTS, 2))
    images = inputs_of_images(domain, rng)
    with StoreWriter(
        path,
        kind="categorical",
        num_members=NUM_MEMBERS,
        num_images=len(images),
        method=method,
        domain=domain,
        class_names=CLASS_NAMES,
        overwrite=True,
    ) as store:
        for number, image in enumerate(images):
            store.write_target(number, class_of(image))
        for member, (features, chosen) in enumerate(members_of(method, seed=5)):
            weights = logistic(features(points[chosen]), class_of(points[chosen]))
            for number, image in enumerate(images):
                store.write(member, number, probs=softmax(features(image) @ weights))


def main() -> None:
    """Write eight stores, then call `epibench score` on them as a user would."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0] if __doc__ else None)
    parser.add_argument("--out", type=Path, default=Path("scored"))
    out: Path = parser.parse_args().out
    stores = []
    for problem, write in (("depth", write_depth), ("classes", write_classes)):
        for domain in ("clean", "shifted"):
            for method in ("ensemble", "bootstrap"):
                path = out / f"{problem}-{domain}-{method}.zarr"
                print(f"fitting {NUM_MEMBERS} members: {path.stem}", flush=True)
                write(path, method, domain)
                stores.append(str(path))
    command = ["epibench", "score", *stores, "--json", str(out / "results.json"), "--report", str(out)]
    print("\n$ " + " ".join(command) + "\n", flush=True)
    sys.exit(subprocess.call([sys.executable, "-m", *command]))


if __name__ == "__main__":
    main()
