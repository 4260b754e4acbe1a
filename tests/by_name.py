"""Scores of a results file as nested dictionaries, which tests can address by method and domain."""

from __future__ import annotations

from typing import Any


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
