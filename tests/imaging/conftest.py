"""Pictures to write and read: smooth shapes with an edge, of every layout."""

from collections.abc import Callable

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageCms

from thera.imaging.metadata import Metadata, TiffTag
from thera.imaging.picture import CHANNELS, Colour, Picture
from thera.models import Model
from thera.models.engine import Head
from thera.networks.spec import Spec

MakePicture = Callable[..., Picture]


@pytest.fixture
def make_picture() -> MakePicture:
    def make(
        colour: Colour = "rgb",
        alpha: bool = False,
        dtype: str = "u1",
        size: tuple[int, int] = (37, 53),
        metadata: Metadata | None = None,
    ) -> Picture:
        channels = CHANNELS[colour] + alpha
        rows, cols = np.mgrid[: size[0], : size[1]]
        waves = [np.sin(rows / (5 + 2 * k) + k) * np.cos(cols / (7 + k)) for k in range(channels)]
        values = 0.5 + 0.45 * np.stack(waves, axis=2)
        values[10:20, 10:30] = np.linspace(0.1, 0.9, channels)
        kind = np.dtype(dtype)
        samples = values if kind.kind == "f" else np.rint(values * np.iinfo(kind).max)
        return Picture(samples.astype(kind), colour, alpha, metadata=metadata or Metadata())

    return make


@pytest.fixture(scope="session")
def carried() -> Metadata:
    """Everything a picture can carry: profile, EXIF with GPS and maker note, XMP, resolution, map tags."""
    exif = Image.Exif()
    exif[ExifTags.Base.Make] = "Acme"
    exif[ExifTags.Base.Orientation] = 1
    exif.get_ifd(ExifTags.IFD.Exif).update(
        {
            int(ExifTags.Base.ExifImageWidth): 53,
            int(ExifTags.Base.ExifImageHeight): 37,
            int(ExifTags.Base.ExposureTime): 0.01,
            int(ExifTags.Base.DateTimeOriginal): "2020:02:29 12:00:00",
            int(ExifTags.Base.MakerNote): b"secret\0recipe",
        }
    )
    exif.get_ifd(ExifTags.IFD.GPSInfo).update({1: "N", 2: (47.0, 22.0, 30.5)})
    return Metadata(
        icc=ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes(),
        exif=exif.tobytes(),
        xmp=b'<x:xmpmeta xmlns:x="adobe:ns:meta/"><a exif:PixelXDimension="53"/>'
        b"<exif:PixelYDimension>37</exif:PixelYDimension></x:xmpmeta>",
        dpi=(300.0, 200.0),
        text=(("Title", "Zürich"),),
        tiff_tags=(TiffTag(33550, 12, 3, (0.5, 0.25, 0.0)),),
    )


class Blurs:
    """An engine made of two zero-padded 3×3 averages: borders and neighbours matter, as in a network."""

    name, device, precision = "blurs", "cpu", "f32"

    def __init__(self) -> None:
        rng = np.random.default_rng(7)
        components = rng.uniform(-10, 10, (2, 32))
        weight = np.concatenate([0.05 * rng.standard_normal((9, 96)), rng.standard_normal((9, 32))], axis=1)
        self.head = Head(weight.astype(np.float32), np.zeros(128, np.float32), components, 0.03)

    def asarray(self, image: np.ndarray) -> np.ndarray:
        return np.array(image, np.float32)

    def features(self, image: np.ndarray) -> np.ndarray:
        def blurred(x: np.ndarray) -> np.ndarray:
            padded = np.pad(x, ((1, 1), (1, 1), (0, 0)))
            rows, cols = x.shape[:2]
            weights = np.arange(1, 10, dtype=np.float32).reshape(3, 3) / 45
            return sum(weights[i, j] * padded[i : i + rows, j : j + cols] for i in range(3) for j in range(3))

        once = np.tanh(3 * blurred(image) - 1)
        return np.concatenate([image - 0.5, once, blurred(once)], axis=2)


@pytest.fixture(scope="session")
def model() -> Model:
    """A model with the Air's halo and bank but without its cost."""
    return Model(Blurs(), {**Spec("edsr", "air").to_dict(), "name": "blurs", "parameters": 0})
