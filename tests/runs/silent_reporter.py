"""A reporter for tests, and a whole run by its public function."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import epibench
from epibench.errors import InputError


class Silent:
    """Note steps, their units before and during the run, and messages; stop at a unit of a step."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self.steps: list[str] = []
        self.done: dict[str, int] = {}
        self.advanced: dict[str, int] = {}
        self.said: list[str] = []

    def say(self, text: str) -> None:
        self.said.append(text)

    @contextmanager
    def step(self, name: str, total: int, done: int = 0) -> Iterator[Any]:
        self.steps.append(name)
        self.done[name] = done
        self.advanced[name] = 0

        def advance(units: int, note: str = "") -> None:
            assert units >= 0
            self.advanced[name] += units
            if self.stop_at is not None and done + self.advanced[name] >= self.stop_at:
                raise KeyboardInterrupt

        yield advance

    @property
    def trained(self) -> list[str]:
        """The steps that trained anything."""
        return [name for name in self.steps if name.startswith("train ")]


def by_name(content: dict[str, Any]) -> dict[str, Any]:
    """The content with parts of its newest scores by method and domain, and facts on pools and images beside them."""
    newest = [one for one in content["scores"] if one["settings"] == content["scores"][0]["settings"]]
    parts: dict[str, Any] = {part: {} for part in ("summary", "draws", "curves")}
    for score in newest:
        for part, of_method in parts.items():
            of_method.setdefault(score["method"], {})[score["domain"]] = score[part]
    methods = {  # cost is measured, and members may be of older evaluations, too
        name: {key: value for key, value in facts.items() if key not in ("cost", "members")}
        for name, facts in content["methods"].items()
    }
    pools = {score["method"]: score["pool"] | {"overlap": score["overlap"]} for score in newest}
    sizes = {
        score["domain"]: {"num_images": score["num_images"], "num_pixels": score["pixels"]["valid"]} for score in newest
    }
    pictures = {}
    for name, facts in content["domains"].items():
        shown = {score["method"]: score["pictures"] for score in newest if score["domain"] == name}
        pictures[name] = [
            image | {"methods": {m: p for m, ps in shown.items() for p in ps if p["image"] == image["image"]}}
            for image in facts["pictures"]
        ]
    return {
        **{name: part for name, part in content.items() if name != "scores"},
        **parts,
        "pictures": pictures,
        "methods": {name: facts | pools[name] for name, facts in methods.items() if name in pools},
        "domains": {name: facts | sizes.get(name, {}) for name, facts in content["domains"].items()},
        "cost": {name: facts["cost"] for name, facts in content["methods"].items()},
        "training": {name: facts["training"] for name, facts in content["methods"].items()},
        "kind": newest[0]["kind"] if newest else None,
        "unit": newest[0]["unit"] if newest else None,
    }


def run_in(
    path: Path, recipe: Any, jobs: int = 1, reporter: Silent | None = None, settings: Sequence[str] = ()
) -> dict[str, Any]:
    """Return all results of a run in a folder, as its file has them; also where every method has failed."""
    try:
        results = epibench.run(recipe, path, settings, device="cpu", jobs=jobs, progress=reporter or Silent())
    except InputError as error:
        if not (path / "results.json").exists():
            raise
        results = epibench.load_results(path)
        if results.methods or str(error) != "; ".join(results.failed.values()):
            raise
    written: dict[str, Any] = json.loads((path / "results.json").read_text())
    checksum = written.pop("checksum")
    assert len(checksum) == 32
    assert written == results.model_dump(mode="json")
    return by_name(written)


def read_results(path: Path) -> dict[str, Any]:
    """Return the results in the folder of a run, as nested dictionaries."""
    return by_name(json.loads((path / "results.json").read_text(encoding="utf-8")))
