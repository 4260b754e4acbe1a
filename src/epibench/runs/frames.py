"""Predictions of a finished run for a domain, one image at a time to bound the memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from epibench.data.batch import notes_on
from epibench.data.loading import InOrder, batches
from epibench.errors import InputError
from epibench.files import fingerprint
from epibench.members.maps import GroupedMaps
from epibench.results import Picture, PredictedPicture, ShownPicture
from epibench.runs.domains import DomainData
from epibench.runs.image_evaluation import DrawnMethod, digest_of
from epibench.runs.image_experiment import ImageExperiment
from epibench.runs.observers import Gallery
from epibench.runs.train import collect_trained
from epibench.runs.train_job import jobs_of


class FrameSequence:
    """The images of a domain with the predictions of some methods.

    Each method predicts with its first draw of the largest M.
    """

    def __init__(self, experiment: ImageExperiment, methods: Sequence[str], domain: str):
        self.experiment, self.domain = experiment, domain
        self.data: DomainData = experiment.data.domain(domain)
        self.methods = [self._pool(name, 1 / len(methods)) for name in methods]

    def _pool(self, name: str, share: float) -> DrawnMethod:
        """Return a method's members. `share` is their share of the memory for weights."""
        run = self.experiment.run
        if not all(job.ended for job in jobs_of(run, name)):
            raise InputError(
                f"{name}: its networks are not trained to the end with these settings; run the recipe again"
            )
        return self.experiment.drawn(name, collect_trained(run, name), share)

    @property
    def fingerprint(self) -> str:
        """The fingerprint of everything that decides the predictions."""
        recipe = self.experiment.recipe
        source = recipe.data.domains[self.domain]
        settings = source.model_dump(mode="json", exclude={"title", "num_images", "root", "raw_root"})
        in_files = digest_of(self.data.samples) if getattr(source, "root", None) is not None else ()
        more = (settings, source.version, len(self.data.samples), *notes_on(self.data.samples), *in_files)
        return fingerprint([each.fingerprint(self.experiment.options, *more) for each in self.methods])

    def pictures(self, images: Sequence[int]) -> Iterator[ShownPicture]:
        """Yield the images, each with the prediction of every method."""
        workers = self.experiment.run.machine.workers
        loaded = batches(InOrder(self.data.samples), images, 1, workers, uneven=True)
        for image, batch in zip(images, loaded, strict=True):
            place, pictures = range(image, image + 1), dict[str, tuple[Picture, PredictedPicture]]()
            for method in self.methods:
                on_device = batch.to(method.pool.device)
                gallery = Gallery([image], method.shown, self.experiment.recipe.likelihood)
                for members in method.pool.slices_of(method.shown):
                    maps = method.pool.outputs(on_device.inputs, members, place)
                    groups = self.data.class_groups
                    gallery.see(on_device, place, members, maps if groups is None else GroupedMaps(maps, groups))
                pictures[method.name] = gallery.pictures()[0]
            predicted = {name: one for name, (_, one) in pictures.items()}
            yield ShownPicture(**dict(next(iter(pictures.values()))[0]), methods=predicted)
