"""Pictures to write and read: smooth shapes with an edge, of every layout."""

from collections.abc import Callable

import numpy as np
import pytest
from PIL import ExifTags, Image, ImageCms

from thera.imaging.metadata import Metadata, TiffTag
from thera.imaging.picture import CHANNELS, Colour, Picture

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
