"""Which files the trainings of networks that start from others read, and how they are shown."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from silent_reporter import Silent
from small_dense_recipe import small_dense
from small_recipes import small

from epibench.runs.checkpoints import Checkpoints
from epibench.runs.train import TrainingProgress
from epibench.runs.train_job import TrainJob, jobs_of, source_jobs
from trained_runs import train


@pytest.mark.parametrize("kind", ["toy", "images"])
def test_a_job_elsewhere_is_given_the_networks_that_it_starts_from(kind: str, tmp_path: Path) -> None:
    settings = ('methods=["pruned"]', "pruned.num_members=2", "pruned.num_epochs=0", "members=[1,2]")
    recipe = small("toy-regression", *settings) if kind == "toy" else small_dense(tmp_path / "cache", *settings)
    run = train(recipe, tmp_path / "run").run
    job = jobs_of(run, "pruned")[-1]

    def is_read(path: Path) -> bool:
        return path.relative_to(run.folder.path).as_posix().startswith(job.reads)

    needed = [source.files.weights(0) for source in source_jobs(job)]
    assert needed
    for path in needed:
        assert path.exists()
        assert is_read(path)
    if kind == "images":  # and no others
        assert not is_read(run.folder.members / "ensemble" / "0000.safetensors")


def test_sizes_are_read_only_of_networks_that_may_have_lost_channels(tmp_path: Path, monkeypatch: Any) -> None:
    recipe = small_dense(tmp_path / "cache", 'methods=["ensemble", "pruned"]', "pruned.num_epochs=0", "pruned.share=0")
    run = train(recipe, tmp_path / "run")
    read, load = list[Path](), Checkpoints.load_weights
    monkeypatch.setattr(Checkpoints, "load_weights", lambda own, at: read.append(own.folder) or load(own, at))
    sizes = [run.pool(name).sizes for name in recipe.methods]
    assert [folder.name for folder in read] == ["pruned"]
    assert [{key: each.shape for key, each in own.items()} for own in sizes[1:]] == [
        {key: each.shape for key, each in sizes[0].items()}
    ]


def test_methods_are_shown_from_the_first_beginning_to_the_last_end(tmp_path: Path) -> None:
    recipe = small_dense(tmp_path / "cache")
    networks = (("ensemble", 0), ("ensemble", 1), ("map", 0))
    jobs = [TrainJob(recipe, name, (number,), tmp_path, "cpu") for name, number in networks]
    seen = list[str]()

    class Noting(Silent):
        @contextmanager
        def step(self, name: str, total: int, done: int = 0) -> Iterator[Any]:
            seen.append(f"{name} begins")
            yield lambda units, note="", /: seen.append(f"{name}: {units} {note}".strip())
            seen.append(f"{name} ends")

    with ExitStack() as stack:
        shown, end = TrainingProgress(Noting(), stack, jobs), recipe.training_steps("ensemble")
        messages = [(0, (0, "")), (0, (1, "a")), (2, (0, "")), (0, None), (1, (0, "")), (1, None), (1, None)]
        for number, message in messages:
            shown.receive(number, message)
    first = ["train ensemble begins", "train ensemble: 0", "train ensemble: 1 a", "train map begins", "train map: 0"]
    rest = [f"train ensemble: {end - 1}", "train ensemble: 0", f"train ensemble: {end}", "train ensemble ends"]
    assert seen == [*first, *rest, "train ensemble: 0", "train map ends"]  # an end that comes twice changes nothing


def test_files_are_read_once_for_all_heads_of_a_trunk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = train(small_dense(tmp_path / "cache", 'methods=["shared_trunk"]'), tmp_path / "run")
    reads, load = list[Any](), Checkpoints.load_weights
    monkeypatch.setattr(Checkpoints, "load_weights", lambda own, snapshot: reads.append(own) or load(own, snapshot))
    pool = run.pool("shared_trunk")
    pool.load_all(pool.table.members)
    assert len(reads) <= 2
