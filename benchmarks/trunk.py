"""What members with a shared trunk save: M heads of one trunk against M networks, and operations of every stage.

    python benchmarks/trunk.py                                     # on a GPU: about two minutes
    python benchmarks/trunk.py --network depth                     # the published depth network
    python benchmarks/trunk.py --output-stride 32 --cuda-graphs    # another DeepLabv3; passes as CUDA graphs
    python benchmarks/trunk.py --only-stages                       # counts operations, measures nothing
    python benchmarks/trunk.py --tiny --device cpu                 # tries all of it, with small networks

Passes are those of a pool as it evaluates, in bf16 on a GPU: the trunk once for every batch of images, then one head
after another, as each has weights of its own. Networks have random weights. `operations` is the ratio that times would
have if every operation took the same time: (trunk + M · head) / (M · network). What lies behind the trunk limits it,
however heads are batched: at 512×1024, the fourth stage and the pyramid have 60 % of all operations of the published
DeepLabv3, whose output stride is 8, so that with M = 16 heads behind the third stage it is 0.63. At output stride 32
they have 16 % (0.21); in the published depth network, what follows the third of four stages has 27 % (0.32).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

from epibench.members.compiled import PLAIN, Speed
from epibench.members.networks import NetworkPool
from epibench.methods.contract import Member
from epibench.methods.shared_trunk import SharedTrunk
from epibench.networks.deeplabv3 import DeepLabV3
from epibench.networks.depth_completion import DepthCompletion
from epibench.networks.stages import Staged, first_modules, stages_up_to

CLASSES, SIZE, TINY_SIZE = 19, (512, 1024), (64, 128)
# Where trunks end, by network: the modules whose last stage is shared; "all but the last" leaves a layer to each head.
LAST = "all but the last"
CUTS = {
    "segmentation": (*(f"backbone.stages.{number}" for number in range(4)), LAST),
    "depth": ("encoder.2", "encoder.4", "joined.2", LAST),
}


@dataclass(frozen=True)
class Bench:
    """A network on images, (image, height, width), with M members."""

    network: str
    build: Callable[[], nn.Module]
    images: tuple[int, int, int]
    members: int
    device: torch.device
    speed: Speed
    repeats: int

    def inputs(self, device: torch.device | str) -> dict[str, Tensor]:
        number, height, width = self.images
        image = torch.randint(0, 256, (number, 3, height, width), dtype=torch.uint8, device=device)
        sparse = 80 * torch.rand(number, 1, height, width, device=device) if self.network == "depth" else None
        return {"image": image} if sparse is None else {"image": image, "sparse_depth": sparse}

    def pool(self, shared: int, weights: list[dict[str, Tensor]]) -> NetworkPool:
        """Heads of one trunk, or with 0 shared stages networks that share nothing."""
        method = SharedTrunk(num_trunks=1, num_heads=self.members, shared=shared)
        return NetworkPool(
            "gaussian" if self.network == "depth" else "categorical",
            method.members((0,)),
            self.build,
            lambda member: weights[member.number],
            method.name,
            shared_stages=method.shared_stages,
            device=self.device,
            precision=torch.bfloat16 if self.device.type == "cuda" else torch.float32,
            speed=self.speed,
        )

    def seconds(self, pool: NetworkPool) -> float:
        """The median time of all members on the images, after the first ones."""
        inputs, times = self.inputs(self.device), []
        for number in range(self.repeats + 2):
            self.wait()
            begun = time.perf_counter()
            pool.outputs(inputs, slice(0, self.members), range(self.images[0]))
            self.wait()
            if number > 1:
                times.append(time.perf_counter() - begun)
        return statistics.median(times)

    def wait(self) -> None:
        if self.device.type == "cuda":
            torch.cuda.synchronize()

    def stage_flops(self) -> dict[str, int]:
        """Operations of each stage on the images, a multiplication and an addition being two."""
        flops = {}
        with FakeTensorMode(), torch.no_grad():
            network = self.build().eval()
            state: Any = self.inputs("cpu")
            assert isinstance(network, Staged)
            for name, step in network.stages().items():
                with FlopCounterMode(display=False) as counter:
                    state = step(state)
                flops[name] = int(counter.get_total_flops())
        return flops


def parts_of(names: list[str], cuts: tuple[str, ...]) -> list[int]:
    """How many stages are shared at each cut."""
    ends = (len(names) - 1 if cut == LAST else stages_up_to(names, cut) for cut in cuts)
    return [end for end in ends if end is not None]


def print_stages(flops: dict[str, int], cuts: tuple[str, ...]) -> None:
    """Operations between the places where trunks may end."""
    names, total = list(flops), sum(flops.values())
    print(f"{'stages up to':24}{'GFLOP':>10}{'share':>9}{'shared so far':>16}")
    done, seen = 0, 0
    for end in (stages_up_to(names, "backbone.stem") or 1, *parts_of(names, cuts), len(names)):
        part = sum(flops[name] for name in names[done:end])
        seen += part
        print(f"{names[end - 1]:24}{part / 1e9:10.1f}{part / total:9.1%}{seen / total:16.1%}", flush=True)
        done = end
    print()


def random_weights(bench: Bench) -> list[dict[str, Tensor]]:
    """Of every member; all of them are the same, in memory of their own."""
    network = bench.build()
    return [{name: each.clone() for name, each in network.state_dict().items()} for _ in range(bench.members)]


def own_share(bench: Bench, shared: int) -> float:
    """The part of a network's weights that a head has for itself."""
    network = bench.build()
    assert isinstance(network, Staged)
    total = sum(each.numel() for each in network.parameters())
    trunk = [each for name in first_modules(network, shared) for each in network.get_submodule(name).parameters()]
    return 1 - sum(each.numel() for each in trunk) / total


def make_bench(given: argparse.Namespace) -> Bench:
    options: dict[str, Any] = {"depth": 18, "width": 8, "head_width": 16, "rates": (1, 2, 4)} if given.tiny else {}
    if given.network == "depth":
        sizes: dict[str, Any] = {"width": 8, "blocks": (1, 1, 1, 1)} if given.tiny else {}
        build: Callable[[], nn.Module] = partial(DepthCompletion, **sizes)
    else:
        build = partial(DeepLabV3, CLASSES, output_stride=given.output_stride, **options)
    size = TINY_SIZE if given.tiny else SIZE
    device = torch.device(given.device)
    speed = Speed("inductor" if given.compile else None, given.cuda_graphs) if device.type == "cuda" else PLAIN
    return Bench(
        given.network, build, (given.images, *size), given.members, device, speed, 2 if given.tiny else given.repeats
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=tuple(CUTS), default="segmentation")
    parser.add_argument("--output-stride", type=int, choices=(8, 16, 32), default=8, help="of DeepLabv3 (default: 8)")
    parser.add_argument("--members", type=int, default=16)
    parser.add_argument("--images", type=int, default=1, help="images of a batch (default: 1)")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--cuda-graphs", action="store_true")
    parser.add_argument("--only-stages", action="store_true", help="only count the operations of stages")
    parser.add_argument("--tiny", action="store_true", help="small networks and images")
    parser.add_argument("--repeats", type=int, default=10)
    given = parser.parse_args()
    bench = make_bench(given)
    name = torch.cuda.get_device_name() if bench.device.type == "cuda" else "CPU"
    print(f"{name}, torch {torch.__version__}; {bench.network}, M = {bench.members}, images {bench.images}\n")
    cuts, flops = CUTS[bench.network], bench.stage_flops()
    print_stages(flops, cuts)
    if given.only_stages:
        return
    weights, total, names = random_weights(bench), sum(flops.values()), list(flops)
    plain = bench.seconds(bench.pool(0, weights))
    print(f"{'trunk ends with':24}{'ms':>10}{'time':>9}{'operations':>13}{'own weights':>14}")
    print(f"{'(none: networks)':24}{1000 * plain:10.1f}{1:9.2f}{1:13.2f}{1:14.0%}", flush=True)
    for cut, shared in zip(cuts, parts_of(names, cuts), strict=True):
        trunk = sum(flops[each] for each in names[:shared])
        operations = (trunk + bench.members * (total - trunk)) / (bench.members * total)
        pool = bench.pool(shared, weights)
        seconds = bench.seconds(pool)
        assert len({id(pool.network(Member(0, 0, head))) for head in range(bench.members)}) == bench.members
        own = own_share(bench, shared)
        print(f"{cut:24}{1000 * seconds:10.1f}{seconds / plain:9.2f}{operations:13.2f}{own:14.1%}", flush=True)
        pool.forget()


if __name__ == "__main__":
    main()
