"""Models in files: state dicts, ONNX files, folders of Hugging Face. No file is executed."""

from __future__ import annotations

import hashlib
import importlib
import json
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import ValidationError
from torch import Tensor, nn

from epibench.data.classes import ClassTable, table_of_names
from epibench.errors import InputError, some_of
from epibench.files import fingerprint
from epibench.members.formats import RESAMPLE, ModelFormat
from epibench.members.given import GivenModel
from epibench.networks.own import make_network
from epibench.networks.weight_files import KEYS_SHOWN, check_dtype, read_weights

PICKLED = (".pt", ".pth", ".bin", ".ckpt")
WEIGHTS = (*PICKLED, ".safetensors")
HUB_EXAMPLE = "nvidia/segformer-b0-finetuned-ade-512-512"
HUB_SECONDS = 5.0
UNREACHABLE = (
    "not in the local cache, and the hub could not be reached. Fix: check the name and the connection, or download the "
    "model and give its folder."
)
ONNX_TYPES: dict[str, Any] = {
    "tensor(float)": np.float32,
    "tensor(float16)": np.float16,
    "tensor(double)": np.float64,
    "tensor(uint8)": np.uint8,
}


# State dicts


def load_weights(network: nn.Module, weights: Mapping[str, Tensor], name: str) -> None:
    """Load a state dict whose names may share a prefix, e.g. `module.` or `model.`."""
    own = network.state_dict()
    try:
        prefix = _prefix(list(own), list(weights))
    except InputError as error:
        raise InputError(f"{name}: {error}") from None
    if prefix is None:
        missing = [key for key in own if key not in weights]
        raise InputError(
            f"{name}: does not fit {type(network).__name__}: it lacks {some_of(missing, KEYS_SHOWN)}, and has "
            f"{some_of([key for key in weights if key not in own], KEYS_SHOWN) or 'nothing else'}"
        )
    fitting = {key: weights[prefix + key] for key in own}
    further = [key for key in weights if key.startswith(prefix) and key[len(prefix) :] not in own]
    if further:
        raise InputError(
            f"{name}: does not fit {type(network).__name__}, which has no {some_of(further, KEYS_SHOWN)}; "
            f"is it another network, or one with other options?"
        )
    wrong = [key for key in own if own[key].shape != fitting[key].shape]
    if wrong:
        there, here = tuple(fitting[wrong[0]].shape), tuple(own[wrong[0]].shape)
        raise InputError(
            f"{name}: does not fit {type(network).__name__}: {wrong[0]} is {there} in the file and {here} in it"
        )
    for key, tensor in own.items():
        check_dtype(name, key, fitting[key], tensor)
    network.load_state_dict(fitting)


def _prefix(wanted: list[str], there: list[str]) -> str | None:
    """Return the prefix of all names; None if names are missing with every prefix."""
    if not wanted:
        return ""
    known = set(there)
    candidates = {key[: -len(wanted[0])] for key in there if key.endswith(wanted[0])}
    whole = sorted(prefix for prefix in candidates if all(prefix + key in known for key in wanted))
    if len(whole) > 1 and "" not in whole:
        raise InputError(
            f"it holds several networks ({', '.join(whole)}); save the one that counts in a file of its own"
        )
    return whole[0] if whole else None


def weights_model(path: Path, maker: str, options: Mapping[str, Any], read_as: ModelFormat) -> GivenModel:
    """Return a network of `package.module:name` with the weights of a file."""
    weights_name = str(path)
    if not path.is_file():
        raise InputError(f"{path}: there is no such file of weights")

    def build() -> nn.Module:
        network = make_network(maker, options, f"network={maker}:", f"network={maker}:")
        load_weights(network, read_weights(path), weights_name)
        return network

    identity = fingerprint(file_digest(path), maker, dict(options), read_as.model_dump(mode="json"))
    return GivenModel(weights_name, build, read_as, identity, facts={"weights": weights_name, "network": maker})


def file_digest(path: Path) -> str:
    """Return a hash of the content of a file, or of all files of a folder."""
    digest = hashlib.sha256()
    files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
    for each in files:
        with each.open("rb") as stream:
            digest.update(hashlib.file_digest(stream, "sha256").digest())
    return digest.hexdigest()


# ONNX


class OnnxModel(nn.Module):
    """An ONNX file run by onnxruntime.

    Images are passed one by one if the file has a fixed batch of one.
    """

    def __init__(self, path: Path):
        super().__init__()
        self.path = path
        self.session = _onnx_session(path)
        self.given = self.session.get_inputs()
        self.returned = [each.name for each in self.session.get_outputs()]
        self.one_by_one = self.given[0].shape[:1] == [1]

    @property
    def size(self) -> tuple[int, int] | None:
        """The size of images, if the file fixes it."""
        shape = self.given[0].shape
        fixed = len(shape) == 4 and all(isinstance(side, int) for side in shape[2:])
        return (shape[2], shape[3]) if fixed else None

    def forward(self, *inputs: Tensor) -> Tensor | dict[str, Tensor]:
        """Return outputs by name, or the only output."""
        if len(inputs) != len(self.given):
            names = ", ".join(each.name for each in self.given)
            raise InputError(f"onnx:{self.path}: takes {len(self.given)} inputs ({names}), and is fed {len(inputs)}")
        arrays = [_onnx_array(tensor, each.type) for tensor, each in zip(inputs, self.given, strict=True)]
        parts = range(len(arrays[0])) if self.one_by_one else [slice(None)]
        ran = [self._run([array[[part]] if self.one_by_one else array for array in arrays]) for part in parts]
        device = inputs[0].device
        outputs = {
            name: torch.from_numpy(np.concatenate([each[number] for each in ran])).to(device)
            for number, name in enumerate(self.returned)
        }
        return next(iter(outputs.values())) if len(outputs) == 1 else outputs

    def _run(self, arrays: list[Any]) -> list[Any]:
        named = {each.name: array for each, array in zip(self.given, arrays, strict=True)}
        try:
            return list(self.session.run(None, named))
        except Exception as error:  # onnxruntime's own classes
            raise InputError(f"onnx:{self.path}: {_one_line(error)}") from None


def _onnx_array(tensor: Tensor, wanted: str) -> Any:
    array = tensor.detach().cpu().numpy()
    return np.ascontiguousarray(array.astype(ONNX_TYPES.get(wanted, array.dtype), copy=False))


def _onnx_session(path: Path) -> Any:
    onnxruntime = _package("onnxruntime", f"onnx:{path}", "onnx")
    available = onnxruntime.get_available_providers()
    providers = [each for each in ("CUDAExecutionProvider", "CPUExecutionProvider") if each in available]
    try:
        return onnxruntime.InferenceSession(str(path), providers=providers)
    except Exception as error:  # onnxruntime's own classes
        raise InputError(f"onnx:{path}: cannot be opened ({_one_line(error)})") from None


def onnx_model(path: Path, settings: Mapping[str, Any]) -> GivenModel:
    """Return the model of an ONNX file."""
    if not path.is_file():
        raise InputError(f"onnx:{path}: there is no such file")
    size = OnnxModel(path).size
    read_as = read_format({"size": size, **settings}, f"onnx:{path}")
    beside = sorted(path.parent.glob(f"{path.name}*"))  # large weights have separate files
    identity = fingerprint("onnx", [file_digest(each) for each in beside], read_as.model_dump(mode="json"))
    return GivenModel(f"onnx:{path}", partial(OnnxModel, path), read_as, identity, facts={"onnx": str(path)})


# Hugging Face


class HuggingFaceModel(nn.Module):
    """A model of transformers, called with images only."""

    def __init__(self, model: nn.Module):
        super().__init__()
        self.model = model

    def forward(self, image: Tensor) -> Any:
        """Return its outputs by name."""
        return self.model(pixel_values=image)


def hf_model(name: str, task: str, settings: Mapping[str, Any]) -> GivenModel:
    """Return a model of `transformers` by folder or name, with classes and normalisation from its config files."""
    name = str(Path(name).expanduser()) if name.startswith("~") else name
    is_folder = is_model_folder(name)
    transformers = _transformers(name)
    loaders = {
        "segmentation": transformers.AutoModelForSemanticSegmentation,
        "depth": transformers.AutoModelForDepthEstimation,
    }
    if task not in loaders:
        raise InputError(f"hf:{name}: models for classes of pixels and for depth are understood, not for {task}")
    local = is_folder or not hub_answers(name)
    try:
        config = transformers.AutoConfig.from_pretrained(name, trust_remote_code=False, local_files_only=local)
    except (OSError, ValueError, KeyError) as error:
        raise InputError(f"hf:{name}: {_one_line(error) if is_folder or not local else UNREACHABLE}") from None
    if getattr(config, "depth_estimation_type", None) == "relative":
        raise InputError(
            f"hf:{name}: predicts a relative depth, without a scale: it cannot be scored in metres; take one that was "
            f"trained for metric depth"
        )

    def load() -> nn.Module:
        try:
            model = loaders[task].from_pretrained(name, trust_remote_code=False, local_files_only=local)
        except Exception as error:  # a damaged file can raise anything
            raise InputError(f"hf:{name}: {_one_line(error)}") from None
        return HuggingFaceModel(model)

    fed = {"inputs": ("image",), **_processing(name, transformers, settings, local)}
    read_as = read_format({**fed, **settings}, f"hf:{name}")
    folder = Path(name)
    identity = fingerprint("hf", file_digest(folder), read_as.model_dump(mode="json")) if folder.is_dir() else None
    facts = {"hf": name, "architecture": getattr(config, "architectures", None)}
    return GivenModel(
        f"hf:{name}", load, read_as, identity, _hf_classes(config) if task == "segmentation" else None, facts
    )


def is_model_folder(name: str) -> bool:
    """Return whether a folder of this name exists.

    Raises an InputError for a name that the hub does not allow.
    """
    if name and (path := Path(name)).exists():
        if path.is_dir():
            return True
        raise InputError(f"hf:{name}: a file, not a folder. Fix: give the folder that holds its config.json.")
    try:
        _package("huggingface_hub", f"hf:{name}", "hf").utils.validate_repo_id(name)
    except ValueError:
        raise InputError(
            f"hf:{name}: no such folder, and no name that the hub allows (OWNER/NAME of letters, digits, '-', '_' and "
            f"'.'). Fix: give the folder of a model, or its name on the hub, e.g. {HUB_EXAMPLE}."
        ) from None
    return False


def hub_answers(name: str) -> bool:
    """Return whether the hub answers one request; its library would try six times, over 30 s."""
    hub = _package("huggingface_hub", f"hf:{name}", "hf")
    try:
        hub.utils.get_session().head(hub.hf_hub_url(name, "config.json"), timeout=HUB_SECONDS)
    except Exception:  # exceptions of the hub's HTTP library, which differs between its major versions
        return False
    return True


def _package(module: str, name: str, extra: str) -> Any:
    """Import a package that only some models need."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InputError(f"{name}: needs {module}: pip install 'epibench[{extra}]'") from None


def _transformers(name: str) -> Any:
    transformers = _package("transformers", f"hf:{name}", "hf")
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    return transformers


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__


def _hf_classes(config: Any) -> ClassTable | None:
    """Return the class names of the config; None if they are only numbers."""
    names = [str(config.id2label[number]) for number in sorted(config.id2label, key=int)]
    generic = all(name == f"LABEL_{number}" for number, name in enumerate(names))
    return None if generic or len(set(names)) < len(names) else table_of_names(tuple(names), "hf")


def _processing(name: str, transformers: Any, given: Mapping[str, Any], local: bool) -> dict[str, Any]:
    """Return the image processing of its config file, without settings that the user gives."""
    try:
        file = transformers.utils.cached_file(
            name, "preprocessor_config.json", local_files_only=local, _raise_exceptions_for_missing_entries=False
        )
    except OSError:
        file = None
    if file is None:
        if not {"mean", "image_max"} & set(given):
            raise InputError(
                f"hf:{name}: has no preprocessor_config.json, which says how images are fed; give mean=… and std=…, or "
                f"image_max=1 for images from 0 to 1"
            )
        return {}
    try:
        config = json.loads(Path(file).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise InputError(f"hf:{name}: preprocessor_config.json cannot be read ({error})") from None
    if not isinstance(config, dict):
        raise InputError(f"hf:{name}: preprocessor_config.json holds no settings")
    settings: dict[str, Any] = {}
    if config.get("do_rescale", True):
        settings["image_max"] = 255 * float(config.get("rescale_factor", 1 / 255))
    else:
        settings["image_max"] = 255.0
    if config.get("do_normalize", True) and config.get("image_mean"):
        settings |= {"mean": tuple(config["image_mean"]), "std": tuple(config["image_std"])}
    if "size" in given:
        return settings
    if config.get("do_resize", True) and config.get("size") is not None:
        settings |= {"size": _hf_size(config, name)}
        numbers = {number: word for word, number in RESAMPLE.items()}
        settings["resample"] = numbers.get(config.get("resample") or 2, "bilinear")
    if config.get("ensure_multiple_of") or config.get("do_pad") or config.get("do_center_crop"):
        raise InputError(
            f"hf:{name}: its processor pads, crops or rounds sizes, which is not understood; give size=[height, width] "
            f"of what it is fed"
        )
    return settings


def _hf_size(config: Mapping[str, Any], name: str) -> tuple[int, int]:
    size = config["size"]
    if isinstance(size, int):
        return (size, size)
    if "height" in size and "width" in size:
        return (int(size["height"]), int(size["width"]))
    raise InputError(f"hf:{name}: its processor scales to {size}; give size=[height, width] of what it is fed")


def read_format(settings: Mapping[str, Any], name: str) -> ModelFormat:
    """Return the format from settings; an error is one line."""
    try:
        return ModelFormat.model_validate(dict(settings))
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(str(part) for part in first["loc"])
        if first["type"] == "extra_forbidden":
            known = ", ".join(ModelFormat.model_fields)
            raise InputError(f"{name}: '{key}' is unknown; there are {known}") from None
        raise InputError(f"{name}: {key}: {first['msg'][:1].lower() + first['msg'][1:]}") from None
