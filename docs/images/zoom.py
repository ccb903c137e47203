"""Makes zoom.jpg: held-out pairs of City100 by bicubic, by edsr-plus and by zoom, and the larger picture.

City100: Chen et al., Camera Lens Super-Resolution, CVPR 2019, github.com/ngchc/CameraSR, MIT licence.

python docs/images/zoom.py heldout/City100-Nikon
"""

import sys
from pathlib import Path

import numpy as np
from PIL import Image

import thera
from thera.evaluation.pairs import matched

HERE = Path(__file__).parent
SIZE, GAP = (264, 198), 6
PARTS = {"060": (745, 210), "098": (430, 130)}  # left and top in the larger picture


def main(folder: Path) -> None:
    sheet = Image.new("RGB", (4 * (SIZE[0] + GAP) - GAP, len(PARTS) * (SIZE[1] + GAP) - GAP), "white")
    for row, (name, (left, top)) in enumerate(PARTS.items()):
        pair = matched(folder / f"{name}L.PNG", folder / f"{name}H.PNG")
        low, (height, width) = Image.fromarray(pair.low), pair.high.shape[:2]
        ways = [low.resize((width, height), Image.Resampling.BICUBIC)]
        ways += [thera.upscale(low, size=(height, width), model=model) for model in ("edsr-plus", "zoom")]
        ways.append(Image.fromarray(np.asarray(pair.high)))
        for column, image in enumerate(ways):
            part = image.crop((left, top, left + SIZE[0], top + SIZE[1]))
            sheet.paste(part, ((SIZE[0] + GAP) * column, (SIZE[1] + GAP) * row))
    sheet.save(HERE / "zoom.jpg", quality=90, subsampling=0)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
