"""Every metric by brute force in plain NumPy float64, from the definitions alone: full sorts, explicit loops, no bins.

Written for clarity and for a few thousand pixels. Sums that may span many orders of magnitude use `math.fsum`.
"""

import itertools
import math

import numpy as np
import torch
from scipy import integrate, special

LEVELS = [i / 100 for i in range(1, 100)]


def float64(*arrays):
    return tuple(np.asarray(array, dtype=np.float64).reshape(-1) for array in arrays)


def mean(values):
    values = list(values)
    return math.fsum(values) / len(values) if values else math.nan


def trapezoid(values, step=0.01):
    return math.fsum(0.5 * (left + right) * step for left, right in itertools.pairwise(values))


def grouped(keys, values):
    """Values in the order of their keys; those with equal keys replaced by the mean of their group."""
    keys, values = float64(keys, values)
    means = {key: mean(values[keys == key]) for key in np.unique(keys)}
    return np.array([means[key] for key in np.sort(keys)])


_mean = mean  # where an argument is called `mean`

# Sparsification


def sparsification_curves(uncertainty, loss, error="rmse", convention="pooled"):
    uncertainty, loss = float64(uncertainty, loss)
    return _curve(grouped(uncertainty, loss), error, convention), _curve(np.sort(loss), error, convention)


def _curve(ranked, error, convention):
    size = len(ranked)
    if convention == "pooled":
        kept = [size - (cut * size) // 100 for cut in range(100)]
    else:
        kept = [int((1.0 - fraction) * size) for fraction in np.arange(start=0.0, stop=1.0, step=0.01)]
    errors = [mean(ranked[:count]) for count in kept]
    if errors[0] == 0:
        return np.array([0.0 if count else math.nan for count in kept])
    relative = np.array(errors) / errors[0]
    return np.sqrt(relative) if error == "rmse" else relative


def ause(uncertainty, loss, error="rmse", convention="pooled"):
    curve, oracle = sparsification_curves(uncertainty, loss, error, convention)
    return trapezoid(curve - oracle)


# Intervals


def coverage(mu, sigma, y):
    mu, sigma, y = float64(mu, sigma, y)
    rows = []
    for level in LEVELS:
        half_width = special.ndtri((level + 1) / 2)
        rows.append(mean(float(abs(b - m) <= half_width * s) for m, s, b in zip(mu, sigma, y, strict=True)))
    return np.array(rows)


def auce(mu, sigma, y):
    return trapezoid(np.abs(coverage(mu, sigma, y) - LEVELS))


def auce_signed(mu, sigma, y):
    return trapezoid(coverage(mu, sigma, y) - LEVELS)


def interval_lengths(sigma):
    (sigma,) = float64(sigma)
    return np.array([2 * special.ndtri((level + 1) / 2) * mean(sigma) for level in LEVELS])


# Confidences


def confidences(probs, target):
    probs = np.asarray(probs, dtype=np.float64)
    probs = probs.reshape(-1, probs.shape[-1])
    predicted = np.array([int(np.flatnonzero(row == row.max())[0]) for row in probs], dtype=np.int64)
    return probs.max(1), predicted == np.asarray(target).reshape(-1)


def reliability(probs, target, bins=10, convention="pooled"):
    """Mean confidence, accuracy and count of each bin, and the number of all pixels."""
    confidence, right = confidences(probs, target)
    rows = []
    for index in range(bins):
        inside = [
            pixel
            for pixel, c in enumerate(confidence)
            if min(math.floor(bins * c), bins - 1) == index and not (convention == "gustafsson2020" and c >= 1)
        ]
        rows.append((mean(confidence[inside]), mean(right[inside].astype(float)), len(inside)))
    return rows, len(confidence)


def ece(probs, target, bins=10, convention="pooled"):
    rows, total = reliability(probs, target, bins, convention)
    if total == 0:
        return math.nan
    return math.fsum(count / total * abs(confidence - right) for confidence, right, count in rows if count)


def ece_adaptive(probs, target, bins=10):
    """Bins of equal mass from the most confident pixel on."""
    confidence, right = confidences(probs, target)
    gap = grouped(1 - confidence, confidence - right)
    size = len(gap)
    if size == 0:
        return math.nan
    edges = [j * size // bins for j in range(bins + 1)]
    return math.fsum(abs(math.fsum(gap[a:b])) for a, b in itertools.pairwise(edges)) / size


def ence(mu, variance, y, bins=10):
    mu, variance, y = float64(mu, variance, y)
    errors = grouped(variance, (y - mu) ** 2)
    variance = np.sort(variance)
    size = len(variance)
    edges = [j * size // bins for j in range(bins + 1)]
    gaps = []
    for a, b in itertools.pairwise(edges):
        if a == b:
            continue
        predicted, seen = math.sqrt(mean(variance[a:b])), math.sqrt(mean(errors[a:b]))
        if predicted == 0:
            gaps.append(0.0 if seen == 0 else math.inf)
        else:
            gaps.append(abs(predicted - seen) / predicted)
    return math.inf if math.inf in gaps else mean(gaps)


# Errors


def rmse(mu, y):
    mu, y = float64(mu, y)
    return math.sqrt(mean((mu - y) ** 2))


def rmse_grouped(mu, y, image, group=4):
    """Mean RMSE of groups of 4 images, its mean over 100 shuffles of the images, and their population std."""
    mu, y = float64(mu, y)
    image = np.asarray(image).reshape(-1)
    used, values = np.unique(image), []
    for seed in range(100):
        order = used[torch.randperm(len(used), generator=torch.Generator().manual_seed(seed)).numpy()]
        members = [np.isin(image, order[start : start + group]) for start in range(0, len(order), group)]
        values.append(mean(rmse(mu[inside], y[inside]) for inside in members))
    return mean(values), float(np.std(values)) if values else math.nan


def mae(mu, y):
    mu, y = float64(mu, y)
    return mean(np.abs(mu - y))


def iou_per_class(probs, target):
    probs = np.asarray(probs, dtype=np.float64)
    classes = probs.shape[-1]
    predicted = [int(np.flatnonzero(row == row.max())[0]) for row in probs.reshape(-1, classes)]
    truth = [int(t) for t in np.asarray(target).reshape(-1)]
    rows = []
    for name in range(classes):
        both = sum(p == name and t == name for p, t in zip(predicted, truth, strict=True))
        either = sum(p == name or t == name for p, t in zip(predicted, truth, strict=True))
        rows.append(both / either if either else math.nan)
    return np.array(rows)


def miou(probs, target, convention="pooled"):
    rows = iou_per_class(probs, target)
    if np.asarray(target).size == 0:
        return math.nan
    if convention == "gustafsson2020":
        return mean(0.0 if math.isnan(row) else row for row in rows)
    return mean(row for row in rows if not math.isnan(row))


def accuracy(probs, target):
    return mean(confidences(probs, target)[1].astype(float))


# Scores: one number per pixel


def mean_score(scores):
    """The mean, or NaN if a score is infinite; and how many are."""
    infinite = int(np.isinf(scores).sum())
    return (math.nan if infinite else mean(scores)), infinite


def brier(probs, target):
    probs = np.asarray(probs, dtype=np.float64)
    classes = probs.shape[-1]
    onehot = np.eye(classes)[np.asarray(target, dtype=np.int64).reshape(-1)]
    return np.array([math.fsum(row) for row in (probs.reshape(-1, classes) - onehot) ** 2])


def categorical_nll(probs, target):
    probs = np.asarray(probs, dtype=np.float64)
    rows = probs.reshape(-1, probs.shape[-1])
    return np.array(
        [
            math.inf if row[name] == 0 else -math.log(row[name])
            for row, name in zip(rows, np.asarray(target, dtype=np.int64).reshape(-1), strict=True)
        ]
    )


def gaussian_nll(mu, variance, y):
    return np.array([_gaussian_nll(*pixel) for pixel in zip(*float64(mu, variance, y), strict=True)])


def _gaussian_nll(mu, variance, y):
    if variance == 0:
        return -math.inf if y == mu else math.inf
    with np.errstate(over="ignore"):  # an error that overflows is infinitely unlikely
        return float(0.5 * ((y - mu) ** 2 / variance + np.log(variance) + math.log(2 * math.pi)))


def mixture_nll(means, variances, weights, y):
    """means, variances: (member, pixel); weights: (member,)."""
    means, variances = (np.asarray(array, dtype=np.float64) for array in (means, variances))
    scores = []
    for pixel, truth in enumerate(float64(y)[0]):
        terms = [
            math.log(w) - _gaussian_nll(m, v, truth)
            for w, m, v in zip(weights, means[:, pixel], variances[:, pixel], strict=True)
            if w > 0
        ]
        scores.append(-special.logsumexp(terms) if math.inf not in terms else -math.inf)
    return np.array(scores)


def gaussian_crps(mu, variance, y):
    """Gneiting et al. 2005: σ (z(2Φ(z) − 1) + 2φ(z) − 1/√π)."""
    return np.array([_gaussian_crps(*pixel) for pixel in zip(*float64(mu, variance, y), strict=True)])


def _gaussian_crps(mu, variance, y):
    sigma = math.sqrt(variance)
    if sigma == 0:
        return abs(y - mu)
    z = (y - mu) / sigma
    return sigma * (z * (2 * special.ndtr(z) - 1) + 2 * _normal_density(z) - 1 / math.sqrt(math.pi))


def mixture_crps(means, variances, weights, y):
    """Grimit et al. 2006: Σ w A(y − μ, σ²) − ½ ΣΣ w w A(μ − μ′, σ² + σ′²) with A(d, v) = E|N(d, v)|."""
    means, variances = (np.asarray(array, dtype=np.float64) for array in (means, variances))
    members = range(len(weights))
    scores = []
    for pixel, truth in enumerate(float64(y)[0]):
        m, v = means[:, pixel], variances[:, pixel]
        near = [weights[i] * _folded_mean(truth - m[i], v[i]) for i in members]
        pair = [
            -0.5 * weights[i] * weights[j] * _folded_mean(m[i] - m[j], v[i] + v[j]) for i in members for j in members
        ]
        scores.append(math.fsum(near + pair))
    return np.array(scores)


def _folded_mean(distance, variance):
    sigma = math.sqrt(variance)
    if sigma == 0:
        return abs(distance)
    z = distance / sigma
    return 2 * sigma * _normal_density(z) + distance * (2 * special.ndtr(z) - 1)


def _normal_density(z):
    z = min(abs(z), 1e3)  # far beyond where it is 0
    return math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)


def crps_by_integration(means, variances, weights, y):
    """∫ (F(x) − 1{x ≥ y})² dx of one pixel's mixture, numerically."""
    sigmas = np.sqrt(np.asarray(variances, dtype=np.float64))

    def distribution(x):
        return float(np.dot(weights, special.ndtr((x - means) / sigmas)))

    low = min(np.min(means - 12 * sigmas), y)
    high = max(np.max(means + 12 * sigmas), y)
    corners = sorted(
        {
            float(low),
            float(y),
            float(high),
            *(
                float(m + s * t)
                for m, s in zip(means, sigmas, strict=True)
                for t in (-3, 0, 3)
                if low < m + s * t < high
            ),
        }
    )
    area = 0.0
    for a, b in itertools.pairwise(corners):
        step = float(a >= y)
        area += integrate.quad(lambda x, step=step: (distribution(x) - step) ** 2, a, b, epsabs=1e-12, epsrel=1e-12)[0]
    return area


def interval_score(mu, variance, y, alpha=0.1):
    """Winkler 1972: length of the central interval, plus 2/α times what the target lies below or above it."""
    scores = []
    for m, v, truth in zip(*float64(mu, variance, y), strict=True):
        half = special.ndtri(1 - alpha / 2) * math.sqrt(v)
        low, high = m - half, m + half
        scores.append(2 * half + 2 / alpha * max(low - truth, 0) + 2 / alpha * max(truth - high, 0))
    return np.array(scores)


# Depth


def depth_errors(mean, target):
    """Pixel by pixel. A target ≤ 0 counts nowhere, a prediction ≤ 0 where neither logarithm nor inverse is taken."""
    pixels = list(zip(*float64(mean, target), strict=True))
    true = [(d, g) for d, g in pixels if g > 0]
    positive = [(d, g) for d, g in true if d > 0]
    logs = [math.log(d) - math.log(g) for d, g in positive]
    shift = _mean(logs)
    return {
        "abs_rel": _mean(abs(d - g) / g for d, g in true),
        "sq_rel": _mean((d - g) ** 2 / g for d, g in true),
        **{f"delta{k}": _mean(float(d > 0 and max(d / g, g / d) < 1.25**k) for d, g in true) for k in (1, 2, 3)},
        "silog": 100 * math.sqrt(_mean((log - shift) ** 2 for log in logs)),
        "rmse_log": math.sqrt(_mean(log**2 for log in logs)),
        "log10": _mean(abs(math.log10(d) - math.log10(g)) for d, g in positive),
        "irmse": math.sqrt(_mean((1000 / d - 1000 / g) ** 2 for d, g in positive)),
        "depth_left_out": len(pixels) - len(positive),
        "depth_left_out_targets": len(pixels) - len(true),
    }
