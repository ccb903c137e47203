import json
import os
import signal
import subprocess
import sys

import pytest

# A suite that runs in the background ignores Ctrl-C, and so would the programs that it starts to interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="module")
def found(request) -> dict:
    """What the test file prints when run as a program under Triton's interpreter, which has to be chosen
    before Triton is imported: hence a process of its own."""
    environment = os.environ | {"TRITON_INTERPRET": "1"}
    run = subprocess.run([sys.executable, request.path], env=environment, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)
