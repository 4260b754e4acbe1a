"""After any sequence of events the same command ends in the numbers of a run to which nothing happened.

EPIBENCH_TEST_SEQUENCES=200 tries 200 sequences.
"""

from __future__ import annotations

import faulthandler
import itertools
import os
import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fault_injection import save_often

import epibench
from street_runs import RECIPE, SETTINGS, as_options, epibench_command, flip_bit, numbers, scenes, texts

SEQUENCES = int(os.environ.get("EPIBENCH_TEST_SEQUENCES", "5"))
NETWORKS = (2, 3)
DOMAINS = {"clean": scenes(num_images=3), "wild": scenes("wild", num_images=3), "fog": scenes("haze")}
KILLED = 99  # the status of a process that ends at a file
LAST_FILE = 16  # of a killed command; a whole run writes more
COMMANDS = ("run", "run", "train", "train --only", "evaluate", "evaluate --shard", "merge")


def settings(networks: int, domains: int) -> list[str]:
    """Settings of the run after it has grown to these numbers."""
    few = {"methods": ["ensemble", "laplace"], "variants": {}, "training.epoch_steps": 3, "evaluation.batch_size": 1}
    grown = {"ensemble.num_members": networks, "data.domains": dict(itertools.islice(DOMAINS.items(), domains))}
    return texts({**SETTINGS, **few, **grown})


@pytest.fixture(scope="module", autouse=True)
def small_steps() -> Iterator[None]:
    """Save after every step of training and every image, and evaluate in parts of two images."""
    with pytest.MonkeyPatch.context() as patch:
        save_often(patch.setattr, log_every=1)
        patch.setattr("epibench.runs.stretches.STRETCH_PIXELS", 1)
        patch.setattr("epibench.runs.stretches.STRETCH_IMAGES", 2)
        yield


Fresh = Callable[[int, int], dict[str, Any]]


@pytest.fixture(scope="module")
def fresh(small_steps: None, tmp_path_factory: pytest.TempPathFactory) -> Fresh:
    """The numbers of a run to which nothing happened, by its numbers of networks and domains."""
    place, made = tmp_path_factory.mktemp("fresh"), dict[tuple[int, int], dict[str, Any]]()

    def make(*size: int) -> dict[str, Any]:
        if size not in made:
            results = epibench.run(RECIPE, place / f"{size}", settings(*size), device="cpu", jobs=1)
            assert results.failed == {}
            made[size] = numbers(results)
        return made[size]

    make(NETWORKS[-1], len(DOMAINS))  # draws all scenes
    return make


class Story:
    """A run, and the events that happen to it."""

    def __init__(self, folder: Path, seed: int):
        self.folder, self.random = folder, random.Random(seed)
        self.networks, self.domains = NETWORKS[0], 1
        self.told = list[str]()
        self.damaged = set[Path]()

    def arguments(self, command: str) -> list[object]:
        """A command with random options, and the settings that the run has now."""
        name, _, option = command.partition(" ")
        count = self.random.randint(1, 4)
        values = {
            "--only": self.random.choice(["ensemble", "laplace", f"ensemble:{self.networks - 1}", "laplace:1"]),
            "--shard": f"{self.random.randint(1, count)}/{count}",
        }
        options = [option, values[option]] if option else []
        given = [self.folder] if name in ("evaluate", "merge") else [RECIPE, "--out", self.folder, "--jobs", "1"]
        self.told.append(" ".join([name, *options]))
        return [name, *given, "--device", "cpu", *options, *as_options(settings(self.networks, self.domains))]

    def command(self) -> None:
        """Carry a command out. It may refuse damaged or missing files, in one line."""
        status, said = epibench_command(*self.arguments(self.random.choice(COMMANDS)))
        assert status in (0, 2), f"{self.told}\n{said}"
        assert "Traceback" not in said, f"{self.told}\n{said}"

    def killed_command(self) -> None:
        """Kill the process of a command before it puts its n-th file in place."""
        arguments, last = self.arguments(self.random.choice(COMMANDS)), self.random.randint(1, LAST_FILE)
        self.told[-1] += f", killed at file {last}"
        if not (child := os.fork()):
            faulthandler.dump_traceback_later(600, exit=True)  # a child that hangs fails
            files = itertools.count(1)

            def or_die(function: Callable[..., None]) -> Callable[..., None]:
                return lambda *paths: os._exit(KILLED) if next(files) == last else function(*paths)

            os.replace, os.link = or_die(os.replace), or_die(os.link)
            try:
                os._exit(epibench_command(*arguments)[0])
            finally:
                os._exit(1)
        status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert status in (0, 2, KILLED), self.told

    def some_file(self) -> Path | None:
        """Any file of the run but its recipe."""
        files = sorted(path for path in self.folder.rglob("*") if path.is_file() and path.name != "recipe.json")
        return self.random.choice(files) if files else None

    def delete(self) -> None:
        if path := self.some_file():
            self.told.append(f"delete {path.relative_to(self.folder)}")
            path.unlink()

    def damage(self) -> None:
        if path := self.some_file():
            if self.random.random() < 0.1 and (self.folder / "members").is_dir():
                path = self.folder / "recipe.json"
            flip = self.random.random() < 0.7 and path.stat().st_size > 0
            self.told.append(f"{'flip a bit of' if flip else 'cut'} {path.relative_to(self.folder)}")
            flip_bit(path) if flip else os.truncate(path, path.stat().st_size // 2)
            self.damaged.add(path)

    def grow(self) -> None:
        self.networks, self.domains = self.random.choice([(NETWORKS[-1], self.domains), (self.networks, len(DOMAINS))])
        self.told.append(f"grow to {self.networks} networks and {self.domains} domains")

    def end(self) -> None:
        """Run to the end. A damaged file that is refused by its name is removed, as the message advises."""
        status, said, arguments = 2, "", self.arguments("run")
        while status:
            status, said = epibench_command(*arguments)
            if status:
                line = said.splitlines()[-1]
                named = {Path(text) for text in re.findall(rf"{re.escape(str(self.folder))}[^\s:;,]+", line)}
                assert named, f"{self.told}\n{said}"
                assert named & self.damaged, f"{self.told}\n{said}"
                assert "remove it" in line, line
                for path in named & self.damaged:
                    self.damaged.remove(path)
                    path.unlink()


@pytest.mark.parametrize("seed", range(SEQUENCES))
def test_any_sequence_of_events_ends_in_the_numbers_of_a_fresh_run(seed: int, fresh: Fresh, tmp_path: Path) -> None:
    story = Story(tmp_path / "run", seed)
    events = [story.command, story.killed_command, story.killed_command, story.delete, story.damage, story.grow]
    for event in story.random.choices(events, k=story.random.randint(2, 8)):
        event()
    story.end()
    found = numbers(epibench.load_results(story.folder))
    wanted = fresh(story.networks, story.domains)
    assert [name for name in wanted if found[name] != wanted[name]] == [], story.told
    assert not list(story.folder.rglob(".*")), story.told
