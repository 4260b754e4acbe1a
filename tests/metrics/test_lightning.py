"""Metrics within a LightningModule, logged as those of torchmetrics are."""

import csv

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.loggers import CSVLogger
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from epibench import metrics

SIZE, BATCH = 40, 10
pytestmark = pytest.mark.filterwarnings("ignore::lightning.fabric.utilities.warnings.PossibleUserWarning")


class Regression(LightningModule):
    """Predicts a mean; its std is 1. Metrics in every way that Lightning knows."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(1, 1)
        self.rmse = metrics.RootMeanSquaredError()["rmse"]  # one value, which is called
        self.calibration = metrics.IntervalCalibration()  # several values of one metric
        self.sparsification = metrics.Sparsification()
        self.seen = []

    def training_step(self, batch, index):
        mean = self.layer(batch[0])
        self.rmse(mean, batch[1])
        self.log("train_rmse", self.rmse, on_step=True, on_epoch=True)
        return nn.functional.mse_loss(mean, batch[1])

    def validation_step(self, batch, index):
        mean, target = self.layer(batch[0]), batch[1]
        self.seen.append((mean.detach(), target))
        self.calibration(mean, torch.ones_like(mean), target)
        self.log("auce", self.calibration["auce"], on_step=True, on_epoch=True)
        self.log("interval_length", self.calibration["interval_length"])
        self.sparsification.update(batch[0].abs(), (mean - target) ** 2)
        self.log("ause", self.sparsification["ause"], prog_bar=True)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def data():
    rng = np.random.default_rng(0)
    inputs = torch.from_numpy(rng.normal(size=(SIZE, 1))).float()
    return DataLoader(TensorDataset(inputs, 2 * inputs + 1), batch_size=BATCH)


def trainer(folder, **options):
    return Trainer(
        max_epochs=2,
        accelerator="cpu",
        logger=CSVLogger(folder, flush_logs_every_n_steps=1),
        log_every_n_steps=1,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
        **options,
    )


@pytest.fixture(scope="module")
def fitted(tmp_path_factory):
    torch.manual_seed(0)
    model, run = Regression(), trainer(tmp_path_factory.mktemp("fit"))
    run.fit(model, data(), data())
    return model, run


def logged(run, name):
    """What the logger has written under a name, in order."""
    with open(f"{run.logger.log_dir}/metrics.csv", encoding="utf-8") as file:
        return [float(row[name]) for row in csv.DictReader(file) if row[name]]


def last_epoch(model):
    mean, target = (torch.cat(parts) for parts in zip(*model.seen[-SIZE // BATCH :], strict=True))
    return mean, target


def test_the_value_of_an_epoch_is_that_of_all_its_pixels_and_of_no_others(fitted):
    model, run = fitted
    mean, target = last_epoch(model)
    inputs = torch.cat([batch[0] for batch in data()])
    values = run.callback_metrics
    assert values["auce"].item() == pytest.approx(metrics.auce(mean, torch.ones_like(mean), target).item())
    assert values["interval_length"].item() == pytest.approx(2 * 1.6448536269514722)
    exact = metrics.ause(inputs.abs(), (mean - target) ** 2).item()
    assert values["ause"].item() == pytest.approx(exact, abs=1e-3)


def test_each_step_logs_the_value_of_its_batch(fitted):
    model, run = fitted
    expected = [metrics.auce(m, torch.ones_like(m), t).item() for m, t in model.seen[-SIZE // BATCH :]]
    assert logged(run, "auce_step")[-SIZE // BATCH :] == pytest.approx(expected)
    assert len(logged(run, "train_rmse_step")) == 2 * SIZE // BATCH


def test_epochs_begin_anew(fitted):
    model, run = fitted
    epochs = logged(run, "train_rmse_epoch")
    assert len(epochs) == 2
    assert epochs[1] < epochs[0]  # it learns, and the first epoch is forgotten
    assert int(model.calibration.level_counts.sum()) == 0


def test_a_metric_that_was_never_called_is_not_found_to_be_logged(tmp_path):
    class Forgotten(Regression):
        def validation_step(self, batch, index):
            self.log("rmse", metrics.RootMeanSquaredError()["rmse"])  # of a metric that is no attribute

    with pytest.raises(Exception, match="Could not find the `LightningModule` attribute"):
        trainer(tmp_path).validate(Forgotten(), data(), verbose=False)
