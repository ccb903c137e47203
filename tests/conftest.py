import json
import os
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def found(request) -> dict:
    """What the test file prints when run as a program under Triton's interpreter, which has to be chosen
    before Triton is imported: hence a process of its own."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    run = subprocess.run([sys.executable, request.path], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)
