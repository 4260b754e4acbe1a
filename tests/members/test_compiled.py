"""Compiled members predict what plain ones do; one compilation serves all; what differs or fails is refused."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import pytest
import torch
from test_networks import METHODS, Stored, build, everything, network_pool, outputs
from torch import Tensor, fx

from epibench.errors import InputError
from epibench.members import compiled
from epibench.members.compiled import Speed
from epibench.members.networks import NetworkPool
from epibench.methods import Member

SIZES = [(32, 48), (48, 48), (32, 80), (64, 96), (80, 112), (96, 32)]


@dataclass
class Backend:
    """Compiles nothing, and counts how often it was asked to. factor: makes other numbers."""

    factor: float = 1.0
    graphs: list[fx.GraphModule] = field(default_factory=list)

    def __call__(self, graph: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        self.graphs.append(graph)
        return lambda *given: [self.factor * each for each in graph(*given)]


@pytest.fixture(autouse=True)
def nothing_compiled():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def images(size: tuple[int, int] = SIZES[0]) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(3)
    image = torch.randint(0, 256, (2, 3, *size), dtype=torch.uint8, generator=generator)
    return {"image": image, "sparse_depth": 20 * torch.rand(2, 1, *size, generator=generator)}


def compiled_pool(name: str, backend: Any) -> NetworkPool:
    return replace(network_pool(name)[0], speed=Speed(backend))


@pytest.mark.parametrize("name", ["ensemble", "dropout", "views"])
def test_all_members_predict_the_same_by_one_compilation(name: str) -> None:
    plain, _ = network_pool(name)
    expected = outputs(plain, images(), everything(plain), range(2))
    backend = Backend()
    pool = compiled_pool(name, backend)
    found = outputs(pool, images(), everything(pool), range(2))
    for key, values in expected.items():
        assert float((found[key] - values).norm()) <= 1e-6 * float(values.norm())
    assert len({tuple(member.flatten().tolist()) for member in found["mean"]}) == pool.num_members
    assert len(backend.graphs) == (2 if name == "dropout" else 1)  # what passes share, and the rest


def test_images_of_many_sizes_compile_a_few_times() -> None:
    backend = Backend()
    pool, (plain, _) = compiled_pool("ensemble", backend), network_pool("ensemble")
    for size in SIZES:
        found = outputs(pool, images(size), everything(pool), range(2))
        expected = outputs(plain, images(size), everything(plain), range(2))
        torch.testing.assert_close(found["mean"], expected["mean"], rtol=1e-4, atol=1e-4)
    assert len(backend.graphs) <= 3  # as it is, with one side that varies, with both


def test_other_numbers_are_refused() -> None:
    pool = compiled_pool("ensemble", Backend(factor=1.01))
    with pytest.raises(
        InputError, match=r"the mean of the first network differ .* 0.01 of their size, more than 1e-05"
    ):
        outputs(pool, images(), everything(pool), range(2))


def test_a_compiler_that_fails_is_one_line() -> None:
    def fails(graph: fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        raise RuntimeError("no C++ compiler\nfor 20 lines")

    pool = compiled_pool("dropout", fails)
    with pytest.raises(InputError, match=r"cannot be compiled or recorded .*no C\+\+ compiler.*leave these") as error:
        outputs(pool, images(), everything(pool), range(2))
    assert "\n" not in str(error.value)


def test_dropout_within_a_stage_is_refused() -> None:
    inside, method = partial(build, dropout_places=("encoder.2.0",)), METHODS["dropout"]
    table = method.members(range(method.num_trained))
    options = (table, inside, Stored().load, method.name, method.dropout)
    pool = NetworkPool("gaussian", *options, speed=Speed(Backend()))
    with pytest.raises(InputError, match="cannot be compiled"):
        outputs(pool, images(), everything(pool), range(2))
    assert pool.network(Member(0, 0)) is not None


def test_without_a_backend_nothing_is_compiled() -> None:
    pool = compiled_pool("ensemble", None)
    outputs(pool, images(), everything(pool), range(2))
    assert pool.compiled is None


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("name", ["ensemble", "dropout"])
def test_recorded_passes_predict_the_same(name: str) -> None:
    device = torch.device("cuda")
    plain = replace(network_pool(name)[0], device=device)
    pool = replace(network_pool(name)[0], device=device, speed=Speed(None, graphs=True))
    for size in SIZES:  # more than are recorded
        given = {key: values.to(device) for key, values in images(size).items()}
        found, expected = (outputs(each, given, everything(each), range(2)) for each in (pool, plain))
        torch.testing.assert_close(found["mean"], expected["mean"], rtol=1e-3, atol=1e-3)


@dataclass
class Replayed:
    """Stands for a CUDA graph, without a GPU. works: whether to replay it does anything."""

    function: Callable[[], Any]
    works: bool = True

    def __post_init__(self) -> None:
        self.result = self.function()

    def __call__(self) -> Any:
        return self.function() if self.works else self.result


@pytest.mark.parametrize("name", ["ensemble", "dropout"])
@pytest.mark.parametrize("works", [True, False])
def test_a_recording_that_does_nothing_is_noticed(name: str, works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compiled, "Graph", lambda function, device, warm_up: Replayed(function, works))
    plain = network_pool(name)[0]
    pool = replace(plain, speed=Speed(None, graphs=True))
    if works:
        found, expected = (outputs(each, images(), everything(each), range(2)) for each in (pool, plain))
        torch.testing.assert_close(found["mean"], expected["mean"])
    else:
        # Of several passes the second shows it.
        image = "the first image" if name == "dropout" else "the negative of the first image"
        with pytest.raises(InputError, match=f"on {image} the mean of the first network differ"):
            outputs(pool, images(), everything(pool), range(2))
