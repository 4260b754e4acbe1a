"""The format of a given model: its inputs, and the conversion of its outputs to maps.

Users declare the format; nothing is guessed from numbers. The outputs for the first image are described in one line,
and refused if they contradict the format: a built-in argmax, probabilities that do not sum to 1, logits that do, a
depth without a scale.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import torch
from PIL import Image
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor, nn

from epibench.data.batch import Batch
from epibench.data.classes import ClassTable
from epibench.errors import InputError, some_of
from epibench.imported import error_in_words

Side = Annotated[int, Field(ge=1, le=2**16)]
Channels = Annotated[tuple[float, ...], Field(min_length=1)]
# Common names of the relevant output, if a model returns several by name: of classes, and of numbers.
USUAL_OUTPUTS = {True: ("logits", "out", "probs", "classes"), False: ("mean", "predicted_depth", "depth", "out")}
RESAMPLE = {"nearest": 0, "lanczos": 1, "bilinear": 2, "bicubic": 3, "box": 4, "hamming": 5}  # Pillow's numbers
SUM_TOLERANCE = 1e-3
FAR_FROM_METRES = 20.0  # a depth whose median is wrong by a larger factor has no scale


class ModelFormat(BaseModel):
    """The format of a model's inputs and outputs.

    An 8-bit image is scaled to `size`, then becomes floats from 0 to `image_max` with channels in `order`, minus
    `mean`, divided by `std`. Other inputs are passed unchanged. Outputs of classes are (image, class, row, column).
    Outputs of numbers are a mean (image, row, column), alone or with its spread as a second channel or output.

    Args:
        inputs: Names of the data that are the arguments (`image`, `sparse_depth`), by default all; `mapping`: one
            argument with all inputs unchanged.
        image_max: Largest level of an 8-bit image.
        order: Order of channels.
        mean: Mean of each channel.
        std: Standard deviation of each channel.
        size: Height and width of the input; None: unchanged.
        resample: Filter for the size.
        output: Name or number of the relevant output, if a model returns several.
        values: Whether classes are `logits` or `probs`.
        spread: Kind of the spread. An `uncertainty` or a `confidence` of unknown scale, of numbers or classes, is
            scored on ranking alone.
        factor: Factor from predictions to the unit of the data, e.g. 0.001 for millimetres.
        align_corners: Whether the corners of a coarse grid lie on the corners of the image; by default the model's
            attribute of this name, otherwise false.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    inputs: Literal["mapping"] | tuple[str, ...] | None = None
    image_max: float = Field(1.0, gt=0, le=1e6)
    order: Literal["rgb", "bgr"] = "rgb"
    mean: Channels | None = None
    std: Channels | None = None
    size: tuple[Side, Side] | None = None
    resample: Literal["nearest", "lanczos", "bilinear", "bicubic", "box", "hamming"] = "bilinear"
    output: str | int | None = None
    values: Literal["logits", "probs"] = "logits"
    spread: Literal["log_variance", "variance", "std", "uncertainty", "confidence"] | None = None
    factor: float = Field(1.0, gt=0, le=1e9)
    align_corners: bool | None = None

    @property
    def ranks(self) -> bool:
        """Whether the model gives only a ranking of its certainty, not a distribution."""
        return self.spread in ("uncertainty", "confidence")


def fed_image(image: Tensor, read_as: ModelFormat) -> Tensor:
    """Return 8-bit images (image, channel, height, width) in the model's format."""
    if read_as.size is not None and tuple(image.shape[-2:]) != read_as.size:
        image = resized(image, read_as.size, RESAMPLE[read_as.resample])
    if read_as.order == "bgr":
        image = image.flip(1)
    values = image.float() * (read_as.image_max / 255)
    for change, given in ((torch.sub, read_as.mean), (torch.div, read_as.std)):
        if given is not None:
            if len(given) not in (1, image.shape[1]):
                raise InputError(f"mean or std has {len(given)} numbers, and an image {image.shape[1]} channels")
            values = change(values, torch.tensor(given, device=values.device).view(1, -1, 1, 1))
    return values


def resized(images: Tensor, size: tuple[int, int], resample: int) -> Tensor:
    """Resize by Pillow, as most training code does."""
    resized = [
        np.asarray(Image.fromarray(each.permute(1, 2, 0).cpu().numpy()).resize(size[::-1], Image.Resampling(resample)))
        for each in images
    ]
    return torch.from_numpy(np.stack(resized)).permute(0, 3, 1, 2).to(images.device)


class GivenNetwork(nn.Module):
    """A user's model for the evaluation: inputs by name in, named outputs (image, …, row, column) out.

    Args:
        model: A module or another callable.
        kind: Kind of the predictions.
        read_as: Format of the model.
        name: Name in messages.
        classes: Whether it predicts classes, also if it only ranks.
        in_python: Whether it is a Python object, not a text with settings.
    """

    def __init__(
        self, model: Any, kind: str, read_as: ModelFormat, name: str, classes: bool = False, in_python: bool = False
    ):
        super().__init__()
        self.in_python = in_python
        self.model, self.kind, self.read_as, self.name = model, kind, read_as, name
        self.classes = classes or kind == "categorical"
        said = getattr(model, "align_corners", False) if read_as.align_corners is None else read_as.align_corners
        self.align_corners = bool(said)

    def setting(self, key: str, value: Any) -> str:
        """Return the user's notation of a setting."""
        return f'model_format={{"{key}": {json.dumps(value)}}}' if self.in_python else f"{key}={value}"

    def forward(self, inputs: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return logits or probs, or mean and variance."""
        return self.read(self.call(inputs))

    def call(self, inputs: Mapping[str, Tensor]) -> Any:
        """Return the model's output unchanged."""
        if self.read_as.inputs == "mapping":
            return self.model(inputs)
        fed = {name: self._fed(values) for name, values in inputs.items()}
        names = self.read_as.inputs or tuple(fed)
        for name in names:
            if name not in fed:
                raise InputError(
                    f"{self.name}: it is fed '{name}', and the data has {', '.join(fed)}; give "
                    f"{self.setting('inputs', list(fed)[:1])}"
                )
        return self.model(*(fed[name] for name in names))

    def read(self, returned: Any) -> dict[str, Tensor]:
        """Convert the model's output to named outputs."""
        if self.kind == "ranking":
            return self._ranked(returned)
        if self.kind == "categorical":
            return {self.read_as.values: _as_map(self.chosen(returned), 4, self.name).float()}
        return self._numbers(returned)

    def _fed(self, values: Tensor) -> Tensor:
        image = values.dtype == torch.uint8 and values.dim() == 4
        return fed_image(values, self.read_as) if image else values

    def chosen(self, returned: Any) -> Tensor:
        """Return the relevant output."""
        if isinstance(returned, Tensor | np.ndarray):
            return torch.as_tensor(returned)
        name = self.read_as.output
        if isinstance(returned, Mapping):
            usual = next((each for each in USUAL_OUTPUTS[self.classes] if each in returned), None)
            chosen = usual if name is None else str(name)
            if chosen not in returned:
                known = ", ".join(map(str, returned))
                none = "" if name is None else f", and '{name}' is none of them"
                setting = self.setting("output", "NAME")
                raise InputError(f"{self.name}: returns {known}{none}; say which of them counts, as {setting}")
            return _tensor(returned[chosen], self.name)
        if isinstance(returned, Sequence) and returned:
            if name is None and len(returned) > 1 and self.read_as.spread is None:
                raise InputError(
                    f"{self.name}: returns {len(returned)} outputs; say which counts, as {self.setting('output', 0)}"
                )
            number = int(name or 0) if str(name or 0).isdigit() else -1
            if not 0 <= number < len(returned):
                raise InputError(f"{self.name}: returns {len(returned)} outputs; output={name} is none of them")
            return _tensor(returned[number], self.name)
        raise InputError(f"{self.name}: returns {type(returned).__name__}, no tensor of predictions")

    def _numbers(self, returned: Any) -> dict[str, Tensor]:
        """Return mean and variance; the variance is 0 without a spread."""
        mean, spread = self.chosen(returned), None
        if self.read_as.spread is not None:
            mean, spread = self._with_spread(returned, mean)
        elif mean.dim() == 4 and mean.shape[1] > 1:
            raise InputError(
                f"{self.name}: returns {mean.shape[1]} channels, and targets are floats; one is a mean, a second "
                f"one its spread: give {self.setting('spread', 'log_variance')}, variance or std. If these are "
                f"classes, targets must be integers: target.long()"
            )
        mean = _as_map(mean, 3, self.name).float() * self.read_as.factor
        if spread is None:
            return {"mean": mean, "variance": torch.zeros_like(mean)}
        spread = _as_map(spread, 3, self.name).float()
        variance = spread.exp() if self.read_as.spread == "log_variance" else spread
        variance = variance.square() if self.read_as.spread == "std" else variance
        return {"mean": mean, "variance": variance * self.read_as.factor**2}

    def _ranked(self, returned: Any) -> dict[str, Tensor]:
        """Return predictions, and their certainty on any scale.

        The model may return indices of classes, or scores of each class.
        """
        predicted, sure = self._with_spread(returned, self.chosen(returned))
        order = _as_map(sure, 3, self.name).float()
        name = str(self.read_as.spread)
        if self.classes:
            classes = predicted.argmax(1) if predicted.is_floating_point() else predicted
            return {"predicted": _as_map(classes, 3, self.name).long(), name: order}
        return {"mean": _as_map(predicted, 3, self.name).float() * self.read_as.factor, name: order}

    def _with_spread(self, returned: Any, mean: Tensor) -> tuple[Tensor, Tensor]:
        """Return the two outputs, or the two channels of one."""
        name = str(self.read_as.spread)
        if isinstance(returned, Mapping) and name in returned:
            return mean, _tensor(returned[name], self.name)
        if isinstance(returned, tuple | list) and len(returned) == 2:
            return _tensor(returned[0], self.name), _tensor(returned[1], self.name)
        if isinstance(returned, Tensor) and returned.dim() in (2, 4) and returned.shape[1] == 2:
            return returned[:, :1], returned[:, 1:]
        raise InputError(
            f"{self.name}: with spread={name}, it returns two outputs, one called '{name}' beside others, or one with "
            f"two channels; not {_described(returned)}"
        )


def _tensor(value: Any, name: str) -> Tensor:
    if not isinstance(value, Tensor | np.ndarray):
        raise InputError(f"{name}: its output is {type(value).__name__}, no tensor")
    return torch.as_tensor(value)


def _as_map(values: Tensor, axes: int, name: str) -> Tensor:
    """Return values with rows and columns. Numbers of a sample form one row; a channel of size 1 is dropped."""
    if axes == 3:
        if values.dim() == 4 and values.shape[1] == 1:
            return values[:, 0]
        if values.dim() <= 2:  # (image,) or (image, number)
            return values.view(len(values), 1, -1)
    elif values.dim() == 2:  # (image, class)
        return values[:, :, None, None]
    if values.dim() != axes:
        expected = "(image, class, row, column)" if axes == 4 else "(image, row, column)"
        raise InputError(f"{name}: returns shape {tuple(values.shape)}, not {expected}")
    return values


def _described(returned: Any) -> str:
    if isinstance(returned, Tensor):
        return f"a tensor of shape {tuple(returned.shape)}"
    if isinstance(returned, Mapping):
        return f"outputs {', '.join(map(str, returned))}"
    return type(returned).__name__


class CheckedModel(NamedTuple):
    """Facts about a model's prediction of the first image.

    Args:
        said: Description in one line.
        num_classes: Number of classes; 0 for numbers.
        grid: Predicted rows and columns.
    """

    said: str
    num_classes: int
    grid: tuple[int, int]


def check_model(network: GivenNetwork, first: Batch, classes: ClassTable | None, depth: bool) -> CheckedModel:
    """Let a model predict the first image, and describe it in one line.

    Args:
        network: The model.
        first: A batch of one image.
        classes: Expected classes; None if they are unknown.
        depth: Whether numbers are metres.

    Raises:
        InputError: The output contradicts the format.
    """
    _refuse_idle_settings(network, first)
    try:
        with torch.inference_mode():
            returned = network.call(first.inputs)
            _refuse_whole_numbers(network, returned)
            outputs = network.read(returned)
    except InputError:
        raise
    except Exception as error:
        shapes = ", ".join(f"{name} {tuple(values.shape)}" for name, values in first.inputs.items())
        raise InputError(f"{network.name}: fails on the first image ({shapes}): {error_in_words(error)}") from None
    for values in outputs.values():
        if not bool(torch.isfinite(values).all()):
            raise InputError(f"{network.name}: predicts NaN or infinite values for the first image")
    shape = next(iter(outputs.values())).shape
    grid = (shape[-2], shape[-1])
    if network.kind == "ranking":
        return CheckedModel(_check_ranking(network, outputs, first), 0, grid)
    if network.kind == "categorical":
        return CheckedModel(_check_classes(network, outputs, first, classes), shape[1], grid)
    return CheckedModel(_check_numbers(network, outputs, first, depth), 0, grid)


def _refuse_idle_settings(network: GivenNetwork, first: Batch) -> None:
    """Raise an InputError for image settings without effect, because the model gets other inputs."""
    read_as = network.read_as
    if read_as.mean is not None and max(map(abs, read_as.mean)) > read_as.image_max:
        raise InputError(
            f"{network.name}: its mean is {max(read_as.mean):g}, and images go up to {read_as.image_max:g}; give "
            f"{network.setting('image_max', 255)} for a mean of 8-bit levels"
        )
    given = read_as.model_fields_set & {"image_max", "mean", "std", "order", "size"}
    image = first.inputs.get("image")
    if "size" in given and image is not None and tuple(image.shape[-2:]) == read_as.size:
        given -= {"size"}
    eight_bit = any(values.dtype == torch.uint8 and values.dim() == 4 for values in first.inputs.values())
    if given and (read_as.inputs == "mapping" or not eight_bit):
        raise InputError(
            f"{network.name}: {', '.join(sorted(given))} act on 8-bit images alone, and it is fed what the data gives, "
            f"as it is; leave them out, or give the data as 8-bit images"
        )


def _refuse_whole_numbers(network: GivenNetwork, returned: Any) -> None:
    """Raise an InputError for class indices instead of scores of each class."""
    if network.kind == "categorical" and not (chosen := network.chosen(returned)).is_floating_point():
        raise InputError(
            f"{network.name}: returns whole numbers ({str(chosen.dtype).removeprefix('torch.')}): an argmax is baked "
            f"in; export it without, so that it returns logits or probabilities of every class"
        )


def _check_classes(
    network: GivenNetwork, outputs: Mapping[str, Tensor], first: Batch, classes: ClassTable | None
) -> str:
    name, (key, values) = network.name, next(iter(outputs.items()))
    if values.shape[1] == 1:
        raise InputError(
            f"{name}: returns one channel; classes of pixels need one for each class (of two classes, give both)"
        )
    if classes is not None and values.shape[1] != classes.num_classes:
        raise InputError(
            f"{name}: predicts {values.shape[1]} classes, and there are {classes.num_classes} "
            f"({some_of(classes.names, 3)}); give those that it was trained on as classes=… (a table or names)"
        )
    total = values.double().sum(1)
    low, high = (float(each) for each in values.aminmax())
    sums = float((total - 1).abs().max())
    if key == "probs" and (low < -SUM_TOLERANCE or sums > SUM_TOLERANCE):
        raise InputError(
            f"{name}: values=probs, but they are {low:.3g} to {high:.3g} and sum to {float(total.mean()):.4g}: "
            f"are they logits? give {network.setting('values', 'logits')}. Probabilities are to be divided by their sum"
        )
    if low >= 0 and high <= 1 and sums > SUM_TOLERANCE and high > low:
        raise InputError(
            f"{name}: all values are from 0 to 1 and do not sum to 1: a sigmoid of each class? Give what goes into it"
        )
    if key == "logits" and low >= 0 and sums < SUM_TOLERANCE:
        setting = network.setting("values", "probs")
        raise InputError(f"{name}: values=logits, but they are from 0 to 1 and sum to 1: give {setting}")
    return f"{values.shape[1]} classes at {_grid(values, first, network)}, {key} from {low:.3g} to {high:.3g}"


def _check_ranking(network: GivenNetwork, outputs: Mapping[str, Tensor], first: Batch) -> str:
    predicted, order = outputs.values()
    if network.classes and predicted.shape[-2:] != first.target.shape[-2:]:
        raise InputError(
            f"{network.name}: predicts classes at {predicted.shape[-2]}×{predicted.shape[-1]}, which cannot be "
            f"interpolated; let it predict them at the size of the target"
        )
    low, high = (float(each) for each in order.aminmax())
    what = "classes" if network.classes else "numbers"
    return f"{what} at {_grid(predicted, first, network)}, {network.read_as.spread} from {low:.3g} to {high:.3g}"


def _check_numbers(network: GivenNetwork, outputs: Mapping[str, Tensor], first: Batch, depth: bool) -> str:
    name, mean = network.name, outputs["mean"]
    low, high = (float(each) for each in mean.aminmax())
    if depth and bool(first.valid.any()):
        truth, predicted = float(first.target[first.valid].median()), float(mean.median())
        ratio = predicted / truth if truth > 0 else 1.0
        if not 1 / FAR_FROM_METRES < ratio < FAR_FROM_METRES:
            raise InputError(
                f"{name}: predicts {low:.3g} to {high:.3g} (median {predicted:.3g}) where the target's median is "
                f"{truth:.3g} m: a relative depth, or another unit? Give "
                f"{network.setting('factor', 0.001)} (for millimetres); a depth without a scale "
                f"cannot be scored in metres"
            )
    if network.read_as.spread is not None and float(outputs["variance"].min()) < 0:
        raise InputError(f"{name}: its variance is negative ({float(outputs['variance'].min()):.3g}); is it a log?")
    spread = "no spread of its own" if network.read_as.spread is None else f"std {_std_range(outputs['variance'])}"
    return f"numbers at {_grid(mean, first, network)}, from {low:.3g} to {high:.3g}, {spread}"


def _std_range(variance: Tensor) -> str:
    low, high = (float(each) for each in variance.sqrt().aminmax())
    return f"{low:.3g} to {high:.3g}"


def _grid(values: Tensor, first: Batch, network: GivenNetwork) -> str:
    rows, columns = values.shape[-2:]
    height, width = first.target.shape[-2:]
    if (rows, columns) == (height, width):
        return f"{height}×{width}"
    return f"{rows}×{columns} of {height}×{width}, corners {'aligned' if network.align_corners else 'not aligned'}"
