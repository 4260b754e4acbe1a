"""Two processes, each with its part of the data, give the value of the whole."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from .cases import CASES, NUM_DRAWS, assert_close, take, updated

SIZE = 301
SPLITS = {"halves": 150, "uneven": 40, "one without data": 0}


def pixels_of(case, dtype=np.float64):
    return case.pixels(np.random.default_rng(0), SIZE, "continuous")


def compute_all(split, part):
    """Every case's values (and curves), from the pixels of `part`: 0, 1, or None for all."""
    index = {0: slice(0, split), 1: slice(split, SIZE), None: slice(0, SIZE)}[part]
    results = {}
    for case in CASES:
        metric = case.make(NUM_DRAWS)
        pixels = take(pixels_of(case), index)
        if part is None or len(range(SIZE)[index]):  # a process without data never calls update
            updated(metric, pixels)
        values = metric.compute()
        if hasattr(metric, "curves"):
            values = {**values, **{f"curve of {name}": curve for name, curve in metric.curves().items()}}
        results[case.name] = {name: value.numpy() for name, value in values.items()}
    return results


def work(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    results = {name: compute_all(split, rank) for name, split in SPLITS.items()}
    torch.save(results, f"{folder}/{rank}.pt")
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    """What each of two processes computes, for every split and case."""
    folder = tmp_path_factory.mktemp("processes")
    mp.spawn(work, args=(str(folder),), nprocs=2)
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


@pytest.fixture(scope="module")
def whole():
    return compute_all(0, None)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.xdist_group("processes")
def test_two_processes_give_the_value_of_the_whole(case, split, rank, shared, whole):
    assert_close(shared[rank][split][case.name], whole[case.name])
