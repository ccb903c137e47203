"""Sentinel-2 products: the bands of one resolution in a SAFE folder, as one raster."""

import re
from html import escape
from pathlib import Path
from typing import Any

from thera.errors import ImageFileError

#: The name of a product, and of one of its resolutions.
_NAME = re.compile(r"(.*\.SAFE)(?::(10|20|60)m)?", re.IGNORECASE)
#: The bands of each resolution in metres.
NATIVE = {
    10: ("B02", "B03", "B04", "B08"),
    20: ("B05", "B06", "B07", "B8A", "B11", "B12"),
    60: ("B01", "B09", "B10"),
}


def parts(path: str | Path) -> tuple[Path, int] | None:
    """The folder and the resolution that a name like PRODUCT.SAFE or PRODUCT.SAFE:20m stands for.

    It is None for other names. The resolution is 10 m unless given.

    >>> parts(Path("S2A_T32.SAFE:20m"))
    (PosixPath('S2A_T32.SAFE'), 20)
    """
    found = _NAME.fullmatch(str(path))
    return (Path(found[1]), int(found[2] or 10)) if found else None


def is_product(path: Path) -> bool:
    """True if a name is that of a SAFE folder, which is one raster and no folder of pictures."""
    return _NAME.fullmatch(str(path)) is not None


def virtual(folder: Path, resolution: int) -> str:
    """GDAL's description, a VRT, of the bands of a resolution in a SAFE folder."""
    import rasterio

    files = {}
    for file in sorted(folder.glob("GRANULE/*/IMG_DATA/**/*.jp2")):
        band = re.search(r"_(B\d[\dA])(?:_(\d+)m)?\.jp2$", file.name, re.IGNORECASE)
        # Level 2 also has bands of 10 m reduced to 20 m and 60 m.
        if band and band[1].upper() in NATIVE[resolution] and band[2] in (None, str(resolution)):
            if band[1].upper() in files:
                raise ImageFileError(f"{folder} holds several tiles: scale the files in its GRANULE folders.")
            files[band[1].upper()] = file
    if not files:
        raise ImageFileError(f"{folder} has no bands of {resolution} m (GRANULE/*/IMG_DATA/*.jp2).")
    with rasterio.open(next(iter(files.values()))) as first:
        height, width, dtype = first.height, first.width, first.dtypes[0]
        numbers, system = first.transform.to_gdal(), first.crs
    kind = {"uint8": "Byte", "uint16": "UInt16", "int16": "Int16"}.get(dtype, "UInt16")
    bands = "".join(_band(name, file, number, kind) for number, (name, file) in enumerate(files.items(), 1))
    srs = f"<SRS>{escape(system.to_wkt(), quote=False)}</SRS>" if system else ""
    place = ", ".join(map(repr, numbers))
    return (
        f'<VRTDataset rasterXSize="{width}" rasterYSize="{height}">{srs}'
        f"<GeoTransform>{place}</GeoTransform>{bands}</VRTDataset>"
    )


def _band(name: str, file: Any, number: int, kind: str) -> str:
    path = escape(str(file.resolve()), quote=False)
    return (
        f'<VRTRasterBand dataType="{kind}" band="{number}"><Description>{name}</Description>'
        f"<NoDataValue>0</NoDataValue><SimpleSource><SourceFilename>{path}"
        "</SourceFilename><SourceBand>1</SourceBand></SimpleSource></VRTRasterBand>"
    )
