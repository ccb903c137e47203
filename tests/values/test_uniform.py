"""Where an image is flat, against the definition."""

import numpy as np
import pytest

from thera.values.alpha import extreme, uniform


@pytest.mark.parametrize("reach", [(1, 1), (2, 1), (1, 4), (3, 3)])
@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 9, 3), (8, 2, 4), (13, 17, 3)])
@pytest.mark.parametrize("differing", [0, 1, 3])
def test_flat_cells_are_those_whose_extremes_around_them_are_equal(shape, reach, differing):
    random = np.random.default_rng(differing)
    cells = np.full(shape, 0.25, np.float32)
    for _ in range(differing):
        cells[tuple(random.integers(0, shape))] += random.random()
    lowest, highest = (extreme(cells, reach, pick) for pick in (np.minimum, np.maximum))
    assert np.array_equal(uniform(cells, reach), (lowest == highest).all(axis=-1))
