"""Compare what users see with another commit: small experiments on both sides.

    python benchmarks/golden.py compare main                   # both sides on this machine, minutes on one core
    python benchmarks/golden.py compare main --only texts methods --keep DIR    # with pictures of pages
    python benchmarks/golden.py collect --out DIR              # one side alone; then: show DIR OTHER

`collect` writes DIR/PART.jsonl, a `{"key": […], "value": …}` in each line, and pages as DIR/PART/*.png to look at. Bits
differ between machines, so no values are kept in the repository.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import difflib
import hashlib
import html
import importlib
import inspect
import io
import json
import multiprocessing
import os
import re
import resource
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

Key = tuple[str, ...]
Values = Iterator[tuple[Key, Any]]
MEASURED = "measured"  # recorded, never compared
TIMES = re.compile(r"\d+(\.\d+)?(?= ?(s|ms|min|B|kB|KB|MB|GB)\b)")
NOTHING: Any = object()

# What options of recipes become at most; epochs become a quarter, images 32×64.
TOY = {"num_members": 32, "num_passes": 16, "num_snapshots": 16}
IMAGES = {
    **{"num_members": 4, "num_networks": 2, "num_restarts": 1, "num_trunks": 2, "num_heads": 2, "num_chains": 2},
    **{"num_passes": 2, "num_samples": 2, "num_snapshots": 2, "num_cycles": 2, "refresh_batches": 2},
    **{"epoch_steps": 3, "num_images": 6, "num_pixels": 64, "draws": 3, "pictures": 1, "batch_size": 4},
}
COMMANDS = """
score|run|train|evaluate|merge|recipes|reference|export|video|report|data|data preview|data export|data check
""".strip()
MISTAKES = """
run|run street-dept|run nowhere.json|run QUICK --set typo=1|run QUICK --set ensemble.num_member=3|run QUICK --set typo
run QUICK --set ensemble.num_members=many|run QUICK --set methods=["ensembel"]|run QUICK --set members=[0]
run QUICK --device tpu|run QUICK --jobs 0|run QUICK --out file|run QUICK --executor slurm
run toy-regression-quick --set methods=["tta"]|run cityscapes-segmentation --out refused|train QUICK --only typo
train QUICK --only ensemble:99|train QUICK --shard 3/2|evaluate|evaluate nowhere|evaluate --model nowhere.pt
evaluate --model hf:nowhere --on val=camvid:nowhere|score|score nowhere.zarr|score file|score one.npz --members 9
score one.npz --plan typo|score one.npz --uncertainty entropy|score one.npz --convention typo|score one.npz --draws 0
score two.npz|report nowhere|report empty|export nowhere --csv tables|export empty|data check typo|data check cityscapes
data export street --layout kitti --out file --count 1|video nowhere --on clean|typo|--typo|recipes typo|reference typo
merge nowhere
""".strip()


class Golden:
    """The values of one part, and the counts of its trainings and passes."""

    def __init__(self) -> None:
        self.values: dict[Key, Any] = {}
        self.calls: list[tuple[str, int]] = []  # a list, since threads may add to it
        self.pages: dict[str, Path] = {}

    def add(self, *key: Any, value: Any) -> None:
        names = tuple(map(str, key))
        assert names not in self.values, f"two values of {names}"
        self.values[names] = value

    def command(self, *arguments: Any) -> tuple[int, str, str]:
        """Status, output and errors of `epibench …`, called in this process."""
        streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
        before, sys.argv, status = sys.argv, ["epibench", *map(str, arguments)], 0
        try:
            with contextlib.redirect_stdout(streams[0]), contextlib.redirect_stderr(streams[1]):
                runpy.run_module("epibench", run_name="__main__", alter_sys=True)
        except SystemExit as stop:
            status = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        finally:
            sys.argv = before
        output, errors = (stream.detach().getvalue().decode().replace(os.getcwd(), "HERE") for stream in streams)
        return status, output, errors

    def done(self, *arguments: Any) -> None:
        """Call a command, which must succeed, and keep its output without times."""
        status, output, errors = self.command(*arguments)
        assert status == 0, f"epibench {' '.join(map(str, arguments))}: {output}{errors}"
        self.add("text", "output", *arguments, value=TIMES.sub("#", output))

    def recipe(self, name: str, **changes: Any) -> Path:
        """Run a recipe that is made small; returns its folder."""
        toy, folder = name.startswith("toy"), Path("runs") / name
        recipe = smaller(json.loads(self.command("recipes", name)[1]), TOY if toy else IMAGES) | changes
        recipe |= {"members": [4, 8, 16], "draws": 4, "test_points": 100} if toy else {"members": [1, 2]}
        Path(f"{name}.json").write_text(json.dumps(recipe), encoding="utf-8")
        self.done("run", f"{name}.json", "--out", folder, "--jobs", 1, "--device", "cpu")
        self.keep(name, folder / "results.json", folder)
        return folder

    def keep(self, name: str, results: Path, folder: Path | None = None, settings: str | None = None) -> None:
        """Keep results, of some settings alone, what is exported of them, and weights and page of a folder."""
        content = json.loads(results.read_text(encoding="utf-8"))
        for (kind, *key), value in of_results(content, results.parent):
            if settings is None or (len(key) > 3 and key[2] == settings):
                self.add(kind, name, *key, value=value)
        for kind in ("csv", "latex"):
            self.command("export", results, f"--{kind}", f"{name}-{kind}")
            for path in sorted(Path(f"{name}-{kind}").iterdir()):
                text = path.read_text(encoding="utf-8")
                text = text if kind == "latex" else text.partition("\n")[0]  # its numbers are those of the results
                self.add("text", "export", kind, name, path.name, value=text)
        if folder is not None:
            for path in sorted(folder.rglob("members/*/*.safetensors")):
                self.add("weights", name, path.relative_to(folder), value=weights_hash(path))
            self.pages[name] = Path(shutil.copy(next(folder.glob("*.html")), f"{name}.html"))

    def watch(self) -> None:
        """Count trainings and passes in the functions that all of them go through."""

        def count(place: str, name: str, number: Callable[..., int]) -> None:
            wrap(place, lambda result, *given, **named: self.calls.append((name, number(*given))))

        count("training.network:train_network", "trainings", lambda *_: 1)
        count("training.stacked:train", "trainings", lambda *_: 1)
        count("members.stacked:StackedPool.outputs", "member × point", lambda _, x, m, *__: len(x) * (m.stop - m.start))
        count("members.formats:GivenNetwork.forward", "model × image", lambda _, x: len(next(iter(x.values()))))
        for kind in ("gaussian", "categorical", "ranking"):
            count(f"likelihoods:LIKELIHOODS.{kind}.image_outputs", "member × image", len)


def wrap(place: str, see: Callable[..., None]) -> None:
    """Let `see` have results and arguments of a function, before others import it; a missing one is passed over."""
    module, _, path = place.partition(":")
    *owners, name = path.split(".")
    try:
        owner: Any = importlib.import_module(f"epibench.{module}")
        for each in owners:
            owner = owner[each] if isinstance(owner, dict) else getattr(owner, each)
        function = getattr(owner, name)
    except (ImportError, AttributeError, KeyError):
        print(f"{place}: not found, so that nothing is counted there", file=sys.stderr)
        return

    def wrapper(*given: Any, **named: Any) -> Any:
        result = function(*given, **named)
        see(result, *given, **named)
        return result

    (setattr if isinstance(owner, type) else object.__setattr__)(owner, name, wrapper)


def smaller(value: Any, most: Mapping[str, int], name: str = "") -> Any:
    """A recipe, or a part of it, with small numbers."""
    if isinstance(value, dict):
        return {key: smaller(inner, most, key) for key, inner in value.items()}
    if name in ("num_epochs", "warm_up_epochs"):
        return -(-value // 4)
    if name in ("size", "crop"):
        return [32, 64]
    return min(value, most[name]) if type(value) is int and name in most else value


def digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()[:16]


def weights_hash(path: Path) -> str:
    """A hash of the tensors in a file, without its notes."""
    from safetensors.numpy import load_file

    arrays = sorted(load_file(path).items())
    return digest(b"".join(f"{name} {each.dtype} {each.shape}".encode() + each.tobytes() for name, each in arrays))


def decoded(picture: Any, folder: Path) -> Any:
    """A hash of pixels, with scale and offset, or of numbers. The picture is base64, or a file in the folder."""
    from PIL import Image

    if isinstance(picture, dict) and "png" in picture:
        return [picture["scale"], picture.get("offset", 0.0), decoded(picture["png"], folder)]
    if not isinstance(picture, str):
        return digest(json.dumps(picture).encode())
    path = folder / picture[:200]
    with Image.open(path if path.is_file() else io.BytesIO(base64.b64decode(picture))) as image:
        return [image.mode, image.size, digest(image.tobytes())]


def leaves(tree: Any, *key: str) -> Values:
    if isinstance(tree, dict):
        for name, value in tree.items():
            yield from leaves(value, *key, str(name))
    else:
        yield key, tree


def settings_text(kind: str, settings: Mapping[str, Any], post: str = "none") -> str:
    """The settings of an evaluation that are not the default ones."""
    default = {"precision": "32-true", "convention": "pooled", "post": "none", "window": None}
    default["uncertainty"] = {"gaussian": "total", "categorical": "entropy"}.get(kind)
    given = {name: settings.get(name) for name in ("precision", "convention", "uncertainty", "window")} | {"post": post}
    return ",".join(f"{name}={value}" for name, value in given.items() if value not in (None, default[name]))


def of_score(where: Key, score: Mapping[str, Any]) -> Values:
    """The `summary`, `draws` and `curves` of a method on a domain."""
    for m, metrics in score["summary"].items():
        for metric, stat in metrics.items():
            yield ("summary", *where, m, metric), [stat["mean"], stat["std"], stat["n"]]
    numbers: Counter[int] = Counter()  # draws of each M so far
    for draw in score["draws"]:
        place = (*where, str(draw["M"]), str(numbers[draw["M"]]))
        numbers[draw["M"]] += 1
        yield ("draw", *place), draw["members"]
        for metric, value in draw["metrics"].items():
            yield ("score", *place, metric), value
    for family, curves in score["curves"].items():
        yield ("curve", *where, family, "x"), curves["x"]
        for m, named in curves["M"].items():
            for name, curve in named.items():
                yield ("curve", *where, m, family, name), [curve["mean"], curve["std"], curve.get("draws")]


def of_facts(content: Mapping[str, Any], cost: Mapping[str, Any], training: Mapping[str, Any]) -> Values:
    """Facts on methods and domains, costs that are counted and not measured, and losses."""
    names = ("label", "num_networks", "plan", "notes", "role", "severity", "num_images", "classes")
    for name, facts in [*content["methods"].items(), *content["domains"].items()]:
        yield from ((("fact", name, fact), facts[fact]) for fact in names if fact in facts)
    for name in content["methods"]:
        for key, value in leaves(cost.get(name) or {}):
            if not re.search(r"seconds|peak_bytes", ".".join(key)):
                yield ("cost", name, *key), value
        for log in training.get(name) or ():
            yield ("loss", name, str(log["network"])), [log["steps"], log["loss"]]
    for key, value in leaves((content.get("reference") or {}).get("floor", {})):
        yield ("fact", "reference", *key), value


def of_pictures(where: Key, picture: Mapping[str, Any], image: str, folder: Path = Path()) -> Values:
    for name, value in picture.items():
        if name != "methods" and isinstance(value, str | dict):
            yield ("picture", *where, image, name), decoded(value, folder)


def of_results(content: Mapping[str, Any], folder: Path) -> Values:
    """Results of version 2, of any command (conventions: Results)."""
    methods, parts = content["methods"], ("cost", "training")
    yield from of_facts(content, *({name: each.get(part) for name, each in methods.items()} for part in parts))
    for name, method in methods.items():
        yield ("members", name), method["members"]
    for domain, facts in content["domains"].items():
        for number, picture in enumerate(facts.get("pictures") or ()):
            yield from of_pictures((domain,), picture, str(picture.get("image", number)), folder)
    for score in content["scores"]:
        where = score["method"], score["domain"]
        settings = settings_text(score["kind"], score["settings"], score["post"])
        yield from of_score((*where, settings), score)
        for number, picture in enumerate(score.get("pictures") or ()):
            yield from of_pictures(where, picture, str(picture.get("image", number)), folder)


def part_texts(golden: Golden) -> None:
    """Help, errors, lists, and signatures of public functions."""
    import numpy as np

    for command in ("", *COMMANDS.split("|")):
        golden.add("text", "help", command, value="\n".join(map(str, golden.command(*command.split(), "--help"))))
    Path("file").write_text("no results", encoding="utf-8")
    Path("empty").mkdir()
    ones, target = np.ones((2, 1, 4, 4)), np.zeros((1, 4, 4))
    np.savez("one.npz", mean=ones, variance=ones, target=target)
    np.savez("two.npz", mean=ones, variance=-ones, target=target)
    for mistake in re.split(r"[|\n]", MISTAKES.replace("QUICK", "street-depth-quick")):
        golden.add("text", "error", mistake, value="\n".join(map(str, golden.command(*mistake.split()))))
    for recipe in ([], ["toy-regression-quick"], ["street-depth-quick"], ["street-segmentation-methods"]):
        golden.done("recipes", *recipe)
    epibench = importlib.import_module("epibench")
    for owner in (epibench, epibench.metrics):
        for name in owner.__all__:
            if callable(function := getattr(owner, name)):
                golden.add("text", "signature", owner.__name__, name, value=str(inspect.signature(function)))


def part_stored(golden: Golden, name: str) -> None:
    """A run that stores its predictions, scores of these, and the run evaluated in other settings."""
    folder = golden.recipe(name, evaluation={"batch_size": 2, "pictures": 1, "store": True})
    stores, scored = sorted((folder / "predictions").glob("*/*.zarr")), Path(f"{name}-scored")
    golden.done("score", *stores, "--members", "1,2", "--json", "scored.json", "--report", scored)
    golden.keep(f"{name}-scored", Path("scored.json"), scored)
    published = "convention=gustafsson2020"
    golden.done("evaluate", folder, "--set", f"evaluation.{published}", "--device", "cpu")
    golden.keep(f"{name}-published", folder / "results.json", settings=published)


def part_evaluate(golden: Golden) -> None:
    """The networks of examples/outside.py, which are trained in plain PyTorch."""
    sys.path.insert(0, str(Path(str(importlib.import_module("epibench").__file__)).parents[2] / "examples"))
    outside: Any = importlib.import_module("outside")
    outside.STEPS, outside.NETWORKS = 10, 3
    size = ("--layout", "cityscapes", "--size", "48x96")
    for name, count, seed, domain in (("train", 8, 1, "clean"), ("clean", 3, 7, "clean"), ("wild", 3, 7, "wild")):
        scenes = ("--count", count, "--seed", seed, "--domain", domain)
        golden.done("data", "export", "street", "--out", name, *size, *scenes)
    outside.main("train", "weights")
    models = ("--model", "weights/*.pt,network=outside:Outside", "--mc-dropout", 2, "--tta", "flip", "--members", "1,2")
    data = ("--on", "clean=cityscapes:clean", "--on", "wild=cityscapes:wild", "--device", "cpu")
    golden.done("evaluate", *models, *data, "--out", "checked")
    golden.keep("evaluate", Path("checked/results.json"), Path("checked"))


PARTS: dict[str, Callable[[Golden], Any]] = {
    "texts": part_texts,
    "toy-regression": lambda golden: golden.recipe("toy-regression-quick"),
    "toy-classification": lambda golden: golden.recipe("toy-classification-quick"),
    "depth": lambda golden: part_stored(golden, "street-depth-quick"),
    "segmentation": lambda golden: part_stored(golden, "street-segmentation-quick"),
    "methods": lambda golden: golden.recipe("street-depth-methods"),
    "evaluate": part_evaluate,
}


def collect_part(name: str, out: Path, pages: bool) -> None:
    """Run a part in this process, in an empty folder, and write its values."""
    golden, begun = Golden(), time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="golden-") as folder, contextlib.chdir(folder):
        os.environ["EPIBENCH_CACHE"] = f"{folder}/cache"
        golden.watch() if name != "texts" else None
        PARTS[name](golden)
        used = resource.getrusage(resource.RUSAGE_SELF)
        measured = {"seconds": time.perf_counter() - begun, "CPU seconds": used.ru_utime + used.ru_stime}
        for what, number in {**measured, "peak MB": used.ru_maxrss / 1024}.items():
            golden.add(MEASURED, what, value=round(number))
        for what in dict.fromkeys(name for name, _ in golden.calls):
            golden.add("count", what, value=sum(number for name, number in golden.calls if name == what))
        lines = [json.dumps({"key": key, "value": value}) + "\n" for key, value in golden.values.items()]
        (out / f"{name}.jsonl").write_text("".join(lines), encoding="utf-8")
        print(f"{name}: {len(lines)} values in {measured['seconds']:.0f} s", flush=True)
        take_pictures(golden.pages if pages else {}, out / name)


def take_pictures(pages: Mapping[str, Path], out: Path) -> None:
    """Pictures of pages, to be looked at: wide and narrow, light, dark and as printed."""
    from PIL import Image, ImageChops

    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    dark, screen = "(prefers-color-scheme: dark)", "@media screen"
    looks = {"light": {dark: "(width < 0)"}, "dark": {dark: "(width > 0)"}}
    looks["print"] = {"@media print": "@media all", screen: "@media not all"}
    shots = [("light", 1200), ("light", 390), ("dark", 1200), ("dark", 390), ("print", 800)]
    for name, page, (look, width) in [(*each, shot) for each in pages.items() for shot in shots if chromium]:
        text, height = page.read_text(encoding="utf-8"), 16000
        for old, new in looks[look].items():
            text = text.replace(old, new)
        # A window has a least width, a frame has none.
        frame = f'<iframe width="{width}" height="{height}" style="border: 0" srcdoc="{html.escape(text)}"></iframe>'
        page.with_suffix(".frame.html").write_text(f'<!DOCTYPE html><body style="margin: 0">{frame}', encoding="utf-8")
        out.mkdir(exist_ok=True)
        file = out / f"{name}-{look}-{width}.png"
        with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as home:
            options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={home}"]
            options += [f"--window-size={max(width, 600)},{height}", f"--screenshot={file}"]
            command = [str(chromium), *options, page.with_suffix(".frame.html").resolve().as_uri()]
            environment = {**os.environ, "HOME": home, "TMPDIR": home}
            if subprocess.run(command, capture_output=True, env=environment).returncode or not file.exists():
                print(f"{file}: chromium has failed", file=sys.stderr)
                continue
        image = Image.open(file).convert("RGB").crop((0, 0, width, height))
        below = Image.new("RGB", image.size, image.getpixel((2, height - 2)))
        box = ImageChops.difference(image, below).getbbox() or (0, 0, 0, 0)
        image.crop((0, 0, width, min(height, box[3] + 20))).save(file)


def collect(out: Path, only: Sequence[str], pages: bool) -> None:
    """Every part in a process of its own, so that each has its own peak of memory."""
    out.mkdir(parents=True, exist_ok=True)
    os.environ |= {"OMP_NUM_THREADS": "1", "COLUMNS": "120", "NO_COLOR": "1", "TERM": "dumb"}
    for name in only or PARTS:
        process = multiprocessing.get_context("fork").Process(target=collect_part, args=(name, out.resolve(), pages))
        process.start()
        process.join()
        if process.exitcode:
            sys.exit(f"{name}: failed")


def compare(commit: str, only: Sequence[str], fresh: bool, keep: Path | None) -> int:
    """Collect of a commit and of this working tree, and print what differs; returns the number of values."""
    root, python = Path(__file__).resolve().parents[1], sys.executable
    with tempfile.TemporaryDirectory(prefix="golden-") as temporary:
        tree, venv, out = Path(temporary, "tree"), Path(temporary, "venv"), keep or Path(temporary, "values")
        subprocess.run(["git", "-C", root, "worktree", "add", "--quiet", "--detach", tree, commit], check=True)
        try:
            if fresh:
                subprocess.run([python, "-m", "venv", venv], check=True)
                python = str(venv / "bin" / "python")
                install = [python, "-m", "pip", "install", "--quiet", "--constraint", "constraints.txt", "-e", "."]
                subprocess.run(install, check=True, cwd=tree)
            for side, source, interpreter in (("before", tree, python), ("after", root, sys.executable)):
                options = [*(["--only", *only] if only else []), *(["--pages"] if keep else [])]
                command: list[Any] = [interpreter, __file__, "collect", "--out", out / side, *options]
                subprocess.run(command, check=True, env={**os.environ, "PYTHONPATH": str(source / "src")})
        finally:
            subprocess.run(["git", "-C", root, "worktree", "remove", "--force", tree], check=True)
        return show(out / "before", out / "after", only)


def show(before: Path, after: Path, only: Sequence[str], most: int = 20) -> int:
    """Print which values differ, in groups; returns their number."""
    total = 0
    for part in only or PARTS:
        old, new = (
            {tuple(each["key"]): each["value"] for each in map(json.loads, (side / f"{part}.jsonl").open())}
            for side in (before, after)
        )
        groups, sizes = defaultdict[str, list[Key]](list), Counter[str]()
        keys = [key for key in {**old, **new} if key[0] != MEASURED]
        for key in keys:
            group = f"{key[0]} {key[-1] if key[0] in ('score', 'summary', 'curve') else key[1]}"
            sizes[group] += 1
            if key not in old or key not in new or old[key] != new[key]:
                groups[group].append(key)
        different, total = sum(map(len, groups.values())), total + sum(map(len, groups.values()))
        measured = [f"{key[1]} {old[key]} → {new.get(key)}" for key in old if key[0] == MEASURED]
        print(f"{part}: {different} of {len(keys)} values differ ({', '.join(measured)})")
        for group, differing in groups.items():
            print(f"  {group}: {len(differing)} of {sizes[group]}")
            for key in differing[:most]:
                print(f"    {' | '.join(key[1:])}: {change(old.get(key, NOTHING), new.get(key, NOTHING))}")
            if len(differing) > most:
                print(f"    and {len(differing) - most} more")
    return total


def change(was: Any, now: Any) -> str:
    """What became of a value, in a line; of a text as a unified diff."""
    if was is NOTHING or now is NOTHING:
        return "only after" if was is NOTHING else "only before"
    if isinstance(was, str) and isinstance(now, str) and "\n" in was + now:
        lines = difflib.unified_diff(was.splitlines(), now.splitlines(), lineterm="", n=1)
        return "\n" + "\n".join(f"      {line}" for line in list(lines)[2:])
    if isinstance(was, float) and isinstance(now, float) and was:
        return f"{was!r} → {now!r} ({now / was - 1:+.2g})"
    return f"{json.dumps(was)[:100]} → {json.dumps(now)[:100]}"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    collecting = commands.add_parser("collect", help="write the values of the epibench that is importable")
    collecting.add_argument("--out", type=Path, required=True)
    collecting.add_argument("--pages", action="store_true", help="also take pictures of pages, with chromium")
    comparing = commands.add_parser("compare", help="collect of a commit and of the working tree, and compare")
    comparing.add_argument("commit")
    comparing.add_argument("--fresh", action="store_true", help="in a new environment, of the commit's constraints.txt")
    comparing.add_argument("--keep", type=Path, help="the folder for values and pictures of both sides")
    showing = commands.add_parser("show", help="compare what was collected in two folders")
    showing.add_argument("before", type=Path)
    showing.add_argument("after", type=Path)
    for each in (collecting, comparing, showing):
        each.add_argument("--only", nargs="+", choices=PARTS, default=[], help="these parts alone")
    given = parser.parse_args()
    if given.command == "collect":
        collect(given.out, given.only, given.pages)
    elif given.command == "compare":
        sys.exit(bool(compare(given.commit, given.only, given.fresh, given.keep)))
    else:
        sys.exit(bool(show(given.before, given.after, given.only)))


if __name__ == "__main__":
    main()
