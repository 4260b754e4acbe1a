"""Seeded dropout: the masks by themselves, then every way in which a network can ask for dropout."""

from __future__ import annotations

import copy
import math
import threading
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from torch import Tensor, nn
from torch.nn import functional

from epibench import randomness
from epibench.errors import InputError
from epibench.networks import dropout
from epibench.networks.dropout import SeededDropout, dropout_after, dropout_mask, insert_dropout

in_any_time = settings(deadline=None, max_examples=40)
KEYS = torch.tensor([randomness.key(0, "dropout", image) for image in range(6)])


class Foreign(nn.Module):
    """As people write them: modules and functional calls mixed, with batch normalisation."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.drop = nn.Dropout2d(0.3)
        self.head = nn.Conv2d(8, 4, 1)

    def forward(self, images: Tensor) -> Tensor:
        hidden = functional.dropout(self.norm(self.stem(images)).relu(), 0.5, training=self.training)
        return self.head(self.drop(hidden))


class Recorded(nn.Module):
    """Keeps which of its inputs were dropped."""

    def __init__(self, drop: nn.Module):
        super().__init__()
        self.drop = drop
        self.dropped: list[Tensor] = []

    def forward(self, inputs: Tensor) -> Tensor:
        outputs = self.drop(inputs)
        self.dropped.append((outputs == 0) & (inputs != 0))
        return outputs


def some_images(number: int = 6, seed: int = 0) -> Tensor:
    return torch.randn(number, 3, 9, 7, generator=torch.Generator().manual_seed(seed))


def foreign() -> Foreign:
    torch.manual_seed(0)
    return Foreign().eval()


def seeded(network: Callable[[Tensor], Tensor], inputs: Tensor, keys: Tensor, rate: float | None = None) -> Tensor:
    with torch.no_grad(), SeededDropout(keys, rate):
        return network(inputs)


def splitmix64(key: int, counter: int) -> int:
    word = (key + counter * 0x9E3779B97F4A7C15) % 2**64
    word = ((word ^ (word >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
    word = ((word ^ (word >> 27)) * 0x94D049BB133111EB) % 2**64
    return word ^ (word >> 31)


class TestMask:
    @in_any_time
    @given(
        key=st.integers(-(2**63), 2**63 - 1),
        place=st.integers(0, 2**23 - 1),
        size=st.integers(1, 23),
        rate=st.floats(0, 1),
    )
    def test_is_made_of_16_bits_of_splitmix64_for_each_element(self, key, place, size, rate) -> None:
        expected = []
        for element in range(size):
            piece = splitmix64(key, place * 2**40 + element // 4) >> 16 * (element % 4) & 0xFFFF
            expected.append((piece ^ 0x8000) < round(rate * 2**16))
        found = dropout_mask(torch.tensor([key]), place, (size,), rate)[0]
        assert (found == 0).tolist() == (expected if rate < 1 else [True] * size)

    @pytest.mark.parametrize("rate", [0.0, 1e-4, 0.1, 0.25, 0.5, 0.9, 1.0])
    def test_has_two_values(self, rate: float) -> None:
        mask = dropout_mask(KEYS, 3, (50, 41), rate, torch.float64)
        kept = 1 / (1 - rate) if rate < 1 else 0.0
        assert set(mask.unique().tolist()) <= {0.0, kept}

    @pytest.mark.parametrize("rate", [0.001, 0.1, 0.2, 0.5, 0.77, 0.999])
    def test_drops_at_the_rate(self, rate: float) -> None:
        dropped = (dropout_mask(KEYS, 0, (300_000,), rate) == 0).sum(1)
        assert all(stats.binomtest(count, 300_000, rate).pvalue > 1e-4 for count in dropped.tolist())

    @pytest.mark.parametrize("piece", range(4))
    def test_drops_at_the_rate_in_every_piece_of_a_word(self, piece: int) -> None:
        dropped = int((dropout_mask(KEYS, 1, (400_000,), 0.2)[:, piece::4] == 0).sum())
        assert stats.binomtest(dropped, 600_000, 0.2).pvalue > 1e-4

    def test_places_images_and_neighbours_are_independent(self) -> None:
        size = 200_000
        masks = torch.stack([dropout_mask(KEYS, place, (size,), 0.5, torch.float64) - 1 for place in range(4)])
        rows = masks.flatten(0, 1).numpy()
        between = np.corrcoef(rows)[np.triu_indices(len(rows), 1)]
        assert np.abs(between).max() < 4.5 / math.sqrt(size)
        for lag in (1, 2, 3, 4, 5, 64, 1000):
            assert abs((rows[:, lag:] * rows[:, :-lag]).mean()) < 4.5 / math.sqrt(rows.size)

    @in_any_time
    @given(first=st.integers(0, 5), number=st.integers(1, 6), shape=st.lists(st.integers(1, 9), min_size=0, max_size=3))
    def test_does_not_depend_on_the_other_images(self, first: int, number: int, shape: list[int]) -> None:
        among = dropout_mask(KEYS, 2, tuple(shape), 0.4)[first : first + number]
        assert torch.equal(dropout_mask(KEYS[first : first + number], 2, tuple(shape), 0.4), among)

    @pytest.mark.parametrize("words", [1, 7, 64, 10_000])
    def test_does_not_depend_on_the_slices_in_which_it_is_made(self, words: int, monkeypatch) -> None:
        whole = dropout_mask(KEYS, 2, (3, 5, 67), 0.4)
        monkeypatch.setitem(dropout._SLICE, "cpu", words)
        assert torch.equal(dropout_mask(KEYS, 2, (3, 5, 67), 0.4), whole)

    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
    def test_drops_the_same_in_every_type(self, dtype: torch.dtype) -> None:
        found = dropout_mask(KEYS, 2, (3, 5), 0.2, dtype)
        assert found.dtype == dtype
        assert torch.equal(found == 0, dropout_mask(KEYS, 2, (3, 5), 0.2) == 0)

    @pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
    def test_is_the_same_on_a_gpu(self) -> None:
        found = dropout_mask(KEYS, 5, (3, 100, 333), 0.2, device="cuda")
        assert torch.equal(found.cpu(), dropout_mask(KEYS, 5, (3, 100, 333), 0.2))


ELEMENTS: dict[str, Callable[[Tensor, float, bool], Tensor]] = {
    "module": lambda x, p, inplace: nn.Dropout(p, inplace).eval()(x),
    "module in training": lambda x, p, inplace: nn.Dropout(p, inplace)(x),
    "functional": lambda x, p, inplace: functional.dropout(x, p, training=False, inplace=inplace),
    "torch": lambda x, p, inplace: (torch.dropout_ if inplace else torch.dropout)(x, p, False),
    "torch with names": lambda x, p, inplace: (torch.dropout_ if inplace else torch.dropout)(input=x, p=p, train=False),
}
CHANNELS: dict[str, Callable[[Tensor, float, bool], Tensor]] = {
    "module": lambda x, p, inplace: nn.Dropout2d(p, inplace).eval()(x),
    "functional": lambda x, p, inplace: functional.dropout2d(x, p, training=False, inplace=inplace),
    "torch": lambda x, p, inplace: (torch.feature_dropout_ if inplace else torch.feature_dropout)(x, p, False),
    "1d": lambda x, p, inplace: nn.Dropout1d(p, inplace).eval()(x.flatten(2)).view(x.shape),
    "3d": lambda x, p, inplace: nn.Dropout3d(p, inplace).eval()(x[..., None])[..., 0],
}
ALPHA: dict[str, Callable[[Tensor, float, bool], Tensor]] = {
    "module": lambda x, p, inplace: nn.AlphaDropout(p, inplace).eval()(x),
    "functional": lambda x, p, inplace: functional.alpha_dropout(x, p, training=False, inplace=inplace),
    "torch": lambda x, p, inplace: (torch.alpha_dropout_ if inplace else torch.alpha_dropout)(x, p, False),
}
FEATURE_ALPHA: dict[str, Callable[[Tensor, float, bool], Tensor]] = {
    "module": lambda x, p, inplace: nn.FeatureAlphaDropout(p, inplace).eval()(x),
    "functional": lambda x, p, inplace: functional.feature_alpha_dropout(x, p, training=False, inplace=inplace),
    "torch": lambda x, p, inplace: (torch.feature_alpha_dropout_ if inplace else torch.feature_alpha_dropout)(
        x, p, False
    ),
}
both_ways = pytest.mark.parametrize("inplace", [False, True], ids=["new", "inplace"])


def affine_of_alpha(rate: float) -> tuple[float, float, float]:
    """a, b and what stands for dropped values, from the constants of SELU."""
    saturation = -1.6732632423543772848170429916717 * 1.0507009873554804934193349852946
    a = (1 - rate + rate * (1 - rate) * saturation**2) ** -0.5
    b = -a * rate * saturation
    return a, b, a * saturation + b


@both_ways
class TestFlavours:
    @pytest.mark.parametrize("name", ELEMENTS)
    def test_dropout_multiplies_with_the_mask(self, name: str, inplace: bool) -> None:
        inputs = some_images()
        expected = inputs * dropout_mask(KEYS, 0, (3, 9, 7), 0.3)
        assert torch.equal(seeded(lambda x: ELEMENTS[name](x, 0.3, inplace), inputs, KEYS), expected)
        assert torch.equal(inputs, expected if inplace else some_images())

    @pytest.mark.parametrize("name", CHANNELS)
    def test_dropout_of_channels_multiplies_with_a_mask_of_channels(self, name: str, inplace: bool) -> None:
        inputs = some_images()
        expected = inputs * dropout_mask(KEYS, 0, (3,), 0.3)[:, :, None, None]
        assert torch.equal(seeded(lambda x: CHANNELS[name](x, 0.3, inplace), inputs, KEYS), expected)
        assert torch.equal(inputs, expected if inplace else some_images())

    @pytest.mark.parametrize("flavours", [ALPHA, FEATURE_ALPHA], ids=["elements", "channels"])
    @pytest.mark.parametrize("name", ALPHA)
    def test_alpha_dropout_saturates_and_corrects(self, flavours, name: str, inplace: bool) -> None:
        inputs = some_images().double()
        shape = (3, 9, 7) if flavours is ALPHA else (3, 1, 1)
        dropped = (dropout_mask(KEYS, 0, shape, 0.3) == 0).expand(inputs.shape)
        a, b, saturated = affine_of_alpha(0.3)
        expected = torch.where(dropped, saturated, a * inputs + b)
        found = seeded(lambda x: flavours[name](x, 0.3, inplace), inputs, KEYS)
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
        changed = inplace and name != "module"  # torch's modules of alpha dropout do not pass their `inplace` on
        assert torch.equal(inputs, found if changed else some_images().double())

    @pytest.mark.parametrize("flavours", [ELEMENTS, CHANNELS, ALPHA, FEATURE_ALPHA], ids="ECAF")
    def test_rate_0_changes_nothing_and_rate_1_leaves_nothing(self, flavours, inplace: bool) -> None:
        for act in flavours.values():
            assert torch.equal(seeded(lambda x, act=act: act(x, 0.0, inplace), some_images(), KEYS), some_images())
            zeros = seeded(lambda x, act=act: act(x, 1.0, inplace), some_images(), KEYS)
            assert torch.equal(zeros, torch.zeros(6, 3, 9, 7))

    @pytest.mark.parametrize(("module", "shape"), [(nn.Dropout1d, (4, 5)), (nn.Dropout3d, (4, 2, 3, 5))])
    def test_an_input_without_batch_axis_is_one_image(self, module, shape: tuple[int, ...], inplace: bool) -> None:
        inputs = torch.rand(shape)
        expected = inputs * dropout_mask(KEYS[:1], 0, (4,), 0.5).view(4, *[1] * (len(shape) - 1))
        assert torch.equal(seeded(module(0.5, inplace).eval(), inputs, KEYS[:1]), expected)


def test_alpha_dropout_keeps_mean_and_variance() -> None:
    inputs = torch.randn(6, 100_000, dtype=torch.float64, generator=torch.Generator().manual_seed(1))
    found = seeded(nn.AlphaDropout(0.4), inputs, KEYS)
    assert abs(float(found.mean())) < 4.5 / math.sqrt(found.numel())
    assert abs(float(found.var()) - 1) < 0.02


class TestMode:
    def test_a_pass_is_reproducible_and_another_key_gives_another(self) -> None:
        network, inputs = foreign(), some_images()
        first = seeded(network, inputs, KEYS)
        torch.manual_seed(99)
        assert torch.equal(seeded(network, inputs, KEYS), first)
        assert not torch.equal(seeded(network, inputs, KEYS + 1), first)
        assert not torch.equal(network(inputs), first)

    def test_a_mode_that_is_entered_again_starts_anew(self) -> None:
        network, inputs, mode = foreign(), some_images(), SeededDropout(KEYS)
        with mode:
            first, second = network(inputs), network(inputs)
        with mode:
            again = network(inputs)
        assert torch.equal(first, again)
        assert not torch.equal(first, second)

    def test_torch_s_generator_is_left_alone(self) -> None:
        before = torch.get_rng_state()
        seeded(foreign().train(), some_images(), KEYS)
        assert torch.equal(torch.get_rng_state(), before)

    def test_nothing_acts_after_it(self) -> None:
        network, inputs = foreign(), some_images()
        before = network(inputs)
        seeded(network, inputs, KEYS)
        assert torch.equal(network(inputs), before)

    def test_batch_normalisation_keeps_its_mode_and_statistics(self) -> None:
        network = foreign()
        seeded(network, some_images(), KEYS)
        before = copy.deepcopy(network.state_dict())
        seeded(network, some_images(seed=3), KEYS)
        assert not any(module.training for module in network.modules())
        assert all(torch.equal(before[name], value) for name, value in network.state_dict().items())
        # An image of another batch would change the output if the statistics were those of the batch.
        changed = torch.cat((some_images()[:3], some_images(seed=5)[:3]))
        torch.testing.assert_close(
            seeded(network, changed, KEYS)[:3], seeded(network, some_images(), KEYS)[:3], rtol=0, atol=1e-6
        )

    def test_training_and_eval_mode_have_the_same_masks(self) -> None:
        network = nn.Sequential(nn.Conv2d(3, 8, 3), nn.Dropout(0.5), nn.Dropout2d(0.2), nn.Conv2d(8, 2, 1))
        inputs = some_images()
        assert torch.equal(seeded(network.train(), inputs, KEYS), seeded(network.eval(), inputs, KEYS))

    @pytest.mark.parametrize("batch", [[0], [5], [2, 3], [4, 0, 1], [3, 2, 1, 0, 5]])
    def test_an_image_meets_the_same_masks_in_any_batch(self, batch: list[int]) -> None:
        torch.manual_seed(0)
        drops = [Recorded(nn.Dropout(0.5)), Recorded(nn.Dropout2d(0.3)), Recorded(nn.Dropout(0.2))]
        layers = [nn.Conv2d(3, 8, 3), drops[0], nn.Conv2d(8, 9, 3), drops[1], nn.Conv2d(9, 4, 1), drops[2]]
        network = nn.Sequential(*layers).eval()
        together = seeded(network, some_images(), KEYS)
        alone = seeded(network, some_images()[batch], KEYS[batch])
        for drop in drops:
            whole, part = drop.dropped
            assert torch.equal(part, whole[batch])
        torch.testing.assert_close(alone, together[batch], rtol=1e-4, atol=1e-5)

    def test_the_place_is_the_number_of_the_call(self) -> None:
        inputs = torch.ones(6, 40)
        with SeededDropout(KEYS) as mode:
            found = [functional.dropout(inputs, rate) for rate in (0.5, 0.0, 0.25)]
        assert torch.equal(found[0], dropout_mask(KEYS, 0, (40,), 0.5))
        assert torch.equal(found[2], dropout_mask(KEYS, 2, (40,), 0.25))
        assert mode.calls == 2

    def test_a_network_without_dropout_has_no_calls(self) -> None:
        mode = SeededDropout(KEYS)
        with mode:
            nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.0))(torch.rand(6, 4))
        assert mode.calls == 0

    def test_the_rate_overrides_every_p(self) -> None:
        network = nn.Sequential(nn.Dropout(0.9), nn.Dropout(0.0)).eval()
        expected = dropout_mask(KEYS, 0, (40,), 0.25) * dropout_mask(KEYS, 1, (40,), 0.25)
        assert torch.equal(seeded(network, torch.ones(6, 40), KEYS, rate=0.25), expected)

    def test_the_windows_of_an_image_have_masks_of_their_own(self) -> None:
        found = seeded(nn.Dropout(0.5), torch.ones(24, 5, 3), KEYS)
        assert torch.equal(found, dropout_mask(KEYS, 0, (4, 5, 3), 0.5).flatten(0, 1))
        channels = seeded(nn.Dropout2d(0.5), torch.ones(24, 5, 3, 3), KEYS)
        assert torch.equal(channels[:, :, 0, 0], dropout_mask(KEYS, 0, (4, 5), 0.5).flatten(0, 1))

    def test_threads_run_passes_of_one_module_at_once(self) -> None:
        network, inputs = foreign(), some_images()
        plain = network(inputs)
        expected = [seeded(network, inputs, KEYS + number) for number in range(3)]
        wrong: list[int] = []
        start = threading.Barrier(4)

        def work(number: int) -> None:
            start.wait()
            for _ in range(20):
                if number == 3:  # a thread without the mode has no dropout
                    good = torch.equal(network(inputs), plain)
                else:
                    good = torch.equal(seeded(network, inputs, KEYS + number), expected[number])
                if not good:
                    wrong.append(number)

        threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not wrong

    def test_an_empty_batch_of_windows_stays_empty(self) -> None:
        assert seeded(nn.Dropout(0.5), torch.ones(0, 4), KEYS).shape == (0, 4)


class TestGradients:
    @pytest.mark.parametrize("module", [nn.Dropout, nn.Dropout2d, nn.AlphaDropout, nn.FeatureAlphaDropout])
    @both_ways
    def test_against_finite_differences(self, module, inplace: bool) -> None:
        inputs = some_images(2)[..., :2].double().requires_grad_()

        def act(values: Tensor) -> Tensor:
            with SeededDropout(KEYS[:2]):
                return module(0.4, inplace)(values * 1.5).square()

        assert torch.autograd.gradcheck(act, (inputs,))

    def test_of_everything_dropped_is_zero(self) -> None:
        inputs = torch.rand(6, 4, requires_grad=True)
        with SeededDropout(KEYS, rate=1.0):
            nn.Dropout()(inputs).sum().backward()
        assert torch.equal(inputs.grad, torch.zeros(6, 4))

    def test_training_goes_through_it(self) -> None:
        network = foreign().train()
        with SeededDropout(KEYS):
            network(some_images()).square().mean().backward()
        assert all(bool(parameter.grad.isfinite().all()) for parameter in network.parameters())
        assert float(network.stem.weight.grad.abs().sum()) > 0

    def test_the_mask_is_kept_in_one_byte_per_element(self) -> None:
        sizes = []

        def pack(kept: Tensor) -> Tensor:
            sizes.append(kept.nbytes)
            return kept

        inputs = torch.rand(6, 1000, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda kept: kept), SeededDropout(KEYS):
            functional.dropout(inputs, 0.5)
        assert sum(sizes) <= 6000


class TestTypesAndLayouts:
    @pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
    def test_types_are_kept_and_drop_the_same(self, dtype: torch.dtype) -> None:
        inputs = torch.ones(6, 3, 10, dtype=dtype)
        found = seeded(nn.Dropout(0.2), inputs, KEYS)
        assert found.dtype == dtype
        assert torch.equal(found, dropout_mask(KEYS, 0, (3, 10), 0.2, dtype))

    @pytest.mark.parametrize("module", [nn.Dropout(0.3), nn.Dropout2d(0.3), nn.AlphaDropout(0.3)])
    def test_values_do_not_depend_on_the_layout_which_is_kept(self, module: nn.Module) -> None:
        last = some_images().contiguous(memory_format=torch.channels_last)
        found = seeded(module, last, KEYS)
        assert found.is_contiguous(memory_format=torch.channels_last)
        assert torch.equal(found, seeded(module, some_images(), KEYS))

    @pytest.mark.parametrize(
        "view",
        [
            lambda x: x.transpose(1, 3),
            lambda x: x[:, :, ::2, 1:],
            lambda x: x[:, :1].expand(-1, 5, -1, -1),
            lambda x: x.movedim(0, 2).contiguous().movedim(2, 0),
        ],
        ids=["transposed", "strided", "expanded", "batch inside"],
    )
    @pytest.mark.parametrize("images", [6, 3])
    def test_any_view_can_be_dropped(self, view: Callable[[Tensor], Tensor], images: int) -> None:
        inputs = view(some_images())
        expected = seeded(nn.Dropout(0.3), inputs.contiguous(), KEYS[:images])
        assert torch.equal(seeded(nn.Dropout(0.3), inputs, KEYS[:images]), expected)

    def test_works_within_autocast(self) -> None:
        network = foreign()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            found = seeded(network, some_images(), KEYS)
        assert found.dtype == torch.bfloat16
        torch.testing.assert_close(found.float(), seeded(network, some_images(), KEYS), rtol=0.1, atol=0.1)

    def test_works_within_inference_mode(self) -> None:
        network = foreign()
        expected = seeded(network, some_images(), KEYS)
        with torch.inference_mode(), SeededDropout(KEYS):
            assert torch.equal(network(some_images()), expected)


class TestAttention:
    query, key, value = torch.randn(3, 6, 2, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    allowed = torch.rand(5, 5, generator=torch.Generator().manual_seed(3)) < 0.7
    allowed.fill_diagonal_(True)

    @pytest.mark.parametrize("mask", ["none", "bool", "float", "causal"])
    def test_drops_weights_by_the_mask(self, mask: str) -> None:
        allowed = {"none": torch.ones(5, 5).bool(), "causal": torch.ones(5, 5).tril().bool()}.get(mask, self.allowed)
        bias = torch.zeros(5, 5, dtype=torch.float64).masked_fill(~allowed, -math.inf)
        given = {"bool": allowed, "float": bias}.get(mask)
        with SeededDropout(KEYS):
            found = functional.scaled_dot_product_attention(
                self.query, self.key, self.value, given, dropout_p=0.3, is_causal=mask == "causal"
            )
        scores = self.query @ self.key.transpose(-2, -1) / math.sqrt(4) + bias
        expected = scores.softmax(-1) * dropout_mask(KEYS, 0, (2, 5, 5), 0.3, torch.float64) @ self.value
        torch.testing.assert_close(found, expected)

    def test_scale_and_shared_heads_are_those_of_torch(self) -> None:
        """At a rate that drops nothing, within the resolution, it is torch's attention."""
        options = {"scale": 0.7, "enable_gqa": True}
        key, value = self.key[:, :1], self.value[:, :1]
        with SeededDropout(KEYS):
            found = functional.scaled_dot_product_attention(self.query, key, value, dropout_p=1e-12, **options)
        expected = functional.scaled_dot_product_attention(self.query, key, value, **options)
        torch.testing.assert_close(found, expected)

    def test_a_query_that_may_look_nowhere_gives_zero(self) -> None:
        nowhere = self.allowed.clone()
        nowhere[2] = False
        with SeededDropout(KEYS):
            found = functional.scaled_dot_product_attention(
                self.query, self.key, self.value, attn_mask=nowhere, dropout_p=0.3
            )
        assert torch.equal(found[:, :, 2], torch.zeros(6, 2, 4, dtype=torch.float64))

    def test_without_dropout_it_is_torch_s_own(self) -> None:
        mode = SeededDropout(KEYS, rate=0.5)
        with mode:
            found = functional.scaled_dot_product_attention(self.query, self.key, self.value)
        assert torch.equal(found, functional.scaled_dot_product_attention(self.query, self.key, self.value))
        assert mode.calls == 0

    @pytest.mark.parametrize("training", [True, False])
    def test_multi_head_attention_drops_in_every_mode(self, training: bool) -> None:
        torch.manual_seed(0)
        attention = nn.MultiheadAttention(8, 2, dropout=0.4, batch_first=True).train(training)
        tokens = torch.randn(6, 5, 8)
        mode = SeededDropout(KEYS)
        with torch.no_grad(), mode:
            found, weights = attention(tokens, tokens, tokens, average_attn_weights=False)
        assert mode.calls == 1
        assert torch.equal(weights == 0, dropout_mask(KEYS, 0, (2, 5, 5), 0.4) == 0)
        with torch.no_grad(), mode:
            without, nothing = attention(tokens, tokens, tokens, need_weights=False)
        assert nothing is None
        torch.testing.assert_close(without, found)  # the two ways through torch's code meet the same mask

    @pytest.mark.parametrize("training", [True, False])
    def test_a_transformer_drops_in_every_mode_and_any_batch(self, training: bool) -> None:
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.3, batch_first=True)
        network = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).train(training)
        tokens = torch.randn(6, 5, 8)
        mode = SeededDropout(KEYS)
        with torch.no_grad(), mode:
            found = network(tokens)
        assert mode.calls == 8  # attention, after it, within and after the perceptron; two layers
        torch.testing.assert_close(seeded(network, tokens[2:4], KEYS[2:4]), found[2:4])

    @pytest.mark.parametrize("module", [nn.LSTM, nn.GRU, nn.RNN])
    def test_dropout_inside_recurrent_modules_is_refused(self, module) -> None:
        inputs = torch.rand(6, 5, 4)
        with SeededDropout(KEYS):
            module(4, 4, num_layers=2, batch_first=True)(inputs)
            with pytest.raises(InputError, match="set `dropout` of that module to 0"):
                module(4, 4, num_layers=2, dropout=0.2, batch_first=True).eval()(inputs)


class TestPlaces:
    def test_dropout_is_inserted_and_removed(self) -> None:
        network, inputs = foreign(), some_images()
        before = network(inputs)
        with dropout_after(network, ["stem", "head"], 0.4):
            assert not torch.equal(network(inputs), network(inputs))
        assert torch.equal(network(inputs), before)

    def test_it_acts_on_the_output_of_the_module(self) -> None:
        network = nn.Sequential(nn.Linear(4, 7), nn.Linear(7, 2)).eval()
        inputs = torch.rand(6, 4)
        expected = network[1](network[0](inputs) * dropout_mask(KEYS, 0, (7,), 0.4))
        with dropout_after(network, ["0"], 0.4):
            assert torch.equal(seeded(network, inputs, KEYS), expected)

    def test_it_counts_with_those_of_the_network(self) -> None:
        network, mode = foreign(), SeededDropout(KEYS)
        with dropout_after(network, ["stem"], 0.4), mode:
            network(some_images())
        assert mode.calls == 3

    def test_it_is_removed_after_an_error(self) -> None:
        network, inputs = foreign(), some_images()
        before = network(inputs)
        with pytest.raises(ZeroDivisionError), dropout_after(network, ["stem"], 0.4):
            raise ZeroDivisionError
        assert torch.equal(network(inputs), before)

    def test_handles_remove_it(self) -> None:
        network, inputs = foreign(), some_images()
        before = network(inputs)
        (handle,) = insert_dropout(network, ["stem"], 0.4)
        assert not torch.equal(network(inputs), before)
        handle.remove()
        assert torch.equal(network(inputs), before)

    def test_an_unknown_place_names_the_nearest_and_inserts_nothing(self) -> None:
        network = foreign()
        with pytest.raises(InputError, match=r"no module 'sten' in Foreign .* 'stem'"):
            insert_dropout(network, ["head", "sten"], 0.4)
        assert not network.head._forward_hooks

    def test_a_module_that_returns_no_tensor_is_named(self) -> None:
        network = nn.Sequential(nn.LSTM(4, 4))
        with dropout_after(network, ["0"], 0.4), pytest.raises(InputError, match="'0': LSTM returns tuple"):
            network(torch.rand(6, 4))


class TestErrors:
    @pytest.mark.parametrize("shape", [(), (4,), (4, 6), (7, 3, 2, 2)])
    def test_a_first_axis_that_does_not_fit_is_named(self, shape: tuple[int, ...]) -> None:
        with pytest.raises(ValueError, match=r"shape \(.*\) within SeededDropout of 6 keys"):
            seeded(nn.Dropout(0.5), torch.ones(shape), KEYS)

    def test_channels_need_an_axis(self) -> None:
        with pytest.raises(ValueError, match=r"expected \(image, channel, …\), got shape \(6,\)"):
            seeded(lambda x: torch.feature_dropout(x, 0.5, True), torch.ones(6), KEYS)

    @pytest.mark.parametrize("keys", [torch.zeros(2, 2, dtype=torch.int64), torch.zeros(2), KEYS[:0]])
    def test_wrong_keys(self, keys: Tensor) -> None:
        with pytest.raises(InputError, match="keys: expected int64 of shape"):
            SeededDropout(keys)

    @pytest.mark.parametrize("rate", [-0.1, 1.1, math.nan])
    def test_wrong_rates(self, rate: float) -> None:
        inputs = torch.ones(6)
        for act in (
            lambda: SeededDropout(KEYS, rate),
            lambda: dropout_mask(KEYS, 0, (3,), rate),
            lambda: insert_dropout(nn.Linear(1, 1), [""], rate),
            lambda: seeded(lambda x: functional.dropout(x, rate), inputs, KEYS),
        ):
            with pytest.raises(InputError, match="from 0 to 1"):
                act()


@pytest.mark.parametrize("place", ["", "layers", "nothing"])
def test_what_is_never_called_cannot_be_followed_by_dropout(place: str) -> None:
    network = nn.Module()
    network.layers = nn.ModuleList([nn.Linear(2, 2)])
    with pytest.raises(InputError, match=f"no module {place!r} in Module"):
        insert_dropout(network, [place], 0.5)
    assert insert_dropout(network, ["layers.0"], 0.5)
