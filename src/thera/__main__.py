"""`python -m thera`, and what `thera` starts with: quiet if it is interrupted before it has begun."""

import os
import signal

if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
    # An import that is interrupted would show a traceback. Nothing is open yet that has to be closed.
    signal.signal(signal.SIGINT, lambda number, frame: os._exit(130))


def main() -> None:
    from thera.cli.main import main

    main()


if __name__ == "__main__":
    main()
