"""A SegFormer with random weights, as a network of one's own and as a folder of Hugging Face."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def segformer(num_classes: int, names: tuple[str, ...] | None = None) -> nn.Module:
    import transformers

    labels = dict(enumerate(names or [f"class {number}" for number in range(num_classes)]))
    config = transformers.SegformerConfig(
        depths=[1, 1, 1, 1],
        hidden_sizes=[8, 16, 16, 24],
        num_attention_heads=[1, 1, 2, 2],
        sr_ratios=[2, 1, 1, 1],
        decoder_hidden_size=16,
        id2label=labels,
        label2id={name: number for number, name in labels.items()},
    )
    return transformers.SegformerForSemanticSegmentation(config)  # type: ignore[no-any-return]


def save_folder(path: Path, seed: int, names: tuple[str, ...], size: tuple[int, int] | None) -> Path:
    """As `save_pretrained` writes model and processor."""
    import transformers

    torch.manual_seed(seed)
    model = segformer(len(names), names)
    with torch.no_grad():  # so that classes differ
        model.decode_head.classifier.weight.mul_(30)  # type: ignore[union-attr,operator]
    model.save_pretrained(path)  # type: ignore[operator]
    sized = {"size": {"height": size[0], "width": size[1]}} if size else {"do_resize": False}
    processor = transformers.SegformerImageProcessorPil(**sized, image_mean=list(MEAN), image_std=list(STD))
    processor.save_pretrained(path)
    return path


class SegFormer(nn.Module):
    """A network for recipes."""

    align_corners = False

    def __init__(self, num_classes: int):
        super().__init__()
        self.model = segformer(num_classes)
        for name, values in (("mean", MEAN), ("std", STD)):
            self.register_buffer(name, torch.tensor(values).view(1, 3, 1, 1), persistent=False)

    def forward(self, inputs: Mapping[str, Tensor]) -> Tensor:
        image = (inputs["image"].float() / 255 - self.mean) / self.std  # type: ignore[operator]
        logits: Tensor = self.model(pixel_values=image).logits
        return logits
