"""Interrupts engines at random moments, in processes of their own, and counts crashes.

    python benchmarks/interrupts.py [--engine ncnn] [--model edsr-air] [--runs 40] [--seed 0]

Each run does one of three things while the engine encodes: Ctrl-C in the main thread, an interrupt of another
thread again and again, or the end of the program while a daemon thread still computes. A run is good if its
process ends by itself within a minute, neither by a signal nor with an error that is not expected.
"""

from __future__ import annotations

import argparse
import collections
import random
import signal
import subprocess
import sys
import time

START = """
import signal, sys, threading, time
import numpy as np, thera
from thera.models.engine import interrupt
signal.signal(signal.SIGINT, signal.default_int_handler)
model = thera.load(sys.argv[1], sys.argv[2], "cpu", threads=2)
pause = float(sys.argv[3])
image = np.random.default_rng(0).random((160, 160, 3), np.float32)
model.encode(image[:16, :16])
print("ready", flush=True)
"""
#: Name → the rest of the program, and whether it gets a Ctrl-C.
RUNS = {
    "Ctrl-C": ("while True: model.encode(image)", True),
    "interrupted thread": (
        """
def work():
    while not done:
        try: model.encode(image)
        except RuntimeError as error:
            assert "cancel" in str(error).lower() or "terminate" in str(error).lower(), error
done = False
thread = threading.Thread(target=work)
thread.start()
for _ in range(20):
    time.sleep(pause / 5)
    interrupt(thread.ident)
done = True
interrupt(thread.ident)
thread.join()
""",
        False,
    ),
    "exit beside a daemon": (
        """
def work():
    while True: model.encode(image)
threading.Thread(target=work, daemon=True).start()
time.sleep(pause)
""",
        False,
    ),
}


def run(code: str, model: str, engine: str, pause: float, ctrl_c: bool) -> tuple[int | None, str]:
    """The exit status of a program, None if it hangs, and what it says on stderr."""
    process = subprocess.Popen(
        [sys.executable, "-c", START + code, model, engine, str(pause)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    process.stdout.readline()
    if ctrl_c:
        time.sleep(pause)
        process.send_signal(signal.SIGINT)
    try:
        return process.wait(60), process.communicate()[1]
    except subprocess.TimeoutExpired:
        process.kill()
        return None, process.communicate()[1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--engine", default="ncnn")
    parser.add_argument("--model", default="edsr-air")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    asked = parser.parse_args()
    pauses = random.Random(asked.seed)
    results: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for number in range(asked.runs):
        name = list(RUNS)[number % len(RUNS)]
        code, ctrl_c = RUNS[name]
        status, text = run(code, asked.model, asked.engine, pauses.uniform(0, 0.5), ctrl_c)
        # A program that ends by KeyboardInterrupt does so by the signal itself.
        good = status in (1, 130, -signal.SIGINT) and "KeyboardInterrupt" in text if ctrl_c else status == 0
        results[name]["good" if good else f"BAD, status {status}"] += 1
        if not good:
            print(f"{name}: status {status}\n{text[-2000:]}", flush=True)
    for name, counts in results.items():
        print(name, dict(counts))


if __name__ == "__main__":
    main()
