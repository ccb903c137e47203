"""The public validator of the Image API (iiif-validator-ng) against the running server."""

import random
import shutil
from importlib.resources import files

import pytest

pytest.importorskip("pyvips", reason="the IIIF validator needs libvips: pip install pyvips-binary")
from iiif_client import Counted
from iiif_validator.tests.test import IIIFVersion, TargetServer, get_tests

IDENTIFIER = "67352ccc-d1b0-11e1-89ae-279075081939"
#: Formats that level 2 does not ask for and that are not served.
NOT_SERVED = ("gif", "jp2", "pdf", "tif")
TESTS = [test for test in get_tests(IIIFVersion.V3) if test.extra_name not in NOT_SERVED]


@pytest.fixture(scope="module")
def target(serve_in_session, model, tmp_path_factory) -> TargetServer:
    """A server with the validator's own image, by a model that adds no detail."""
    folder = tmp_path_factory.mktemp("validation")
    shutil.copy(str(files("iiif_validator") / "validation_image.png"), folder / IDENTIFIER)
    running = serve_in_session(folder, by=Counted(model))
    return TargetServer(f"{running.url}/iiif/3", IDENTIFIER, IIIFVersion.V3)


def test_validator_has_all_tests_of_level_2_and_of_enlarging():
    names = {test.__name__ for test in TESTS}
    assert len(names) >= 42
    assert {"SizeUpTest", "SizeNoUpTest", "RotationFullNon90Test", "TestInfoJsonStructure"} <= names


def test_validator_finds_nothing_wrong(target):
    """One test, so that one server reads the image once however many processes run the suite."""
    random.seed(0)  # the angles and regions that some of them draw
    failures = []
    for test in TESTS:
        found = test.run(target)
        results = found if isinstance(found, list) else [found]
        assert results, test.__name__
        failures += [(test.__name__, result) for result in results if not result.success]
    assert failures == []
