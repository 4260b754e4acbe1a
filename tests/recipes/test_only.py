"""The networks of a shard."""

from __future__ import annotations

from pathlib import Path

from small_dense_recipe import small_dense

from epibench.recipes.only import networks_of_shard


def test_a_shard_has_networks_with_those_that_they_start_from(tmp_path: Path) -> None:
    recipe = small_dense(tmp_path / "cache", 'methods=["ensemble", "pruned"]', "pruned.num_members=2")
    shards = [networks_of_shard(recipe, number, 2) for number in (1, 2)]
    number = recipe.method("ensemble").num_trained
    assert sorted(network for shard in shards for network in shard.get("ensemble") or ()) == list(range(number))
    for shard in shards:
        assert set(shard.get("pruned") or ()) == set(shard.get("ensemble") or ()) & {0, 1}
