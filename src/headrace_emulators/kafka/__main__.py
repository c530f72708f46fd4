"""Run a Kafka broker on this machine, to try something with: `python -m headrace_emulators.kafka FOLDER`."""

from __future__ import annotations

import argparse
import signal
import sys

from headrace.errors import HeadraceError
from headrace_emulators.kafka.broker import KafkaBroker


def main() -> int:
    """Start it, print where it answers, and stop it when the process is asked to end; its topics stay in the folder."""
    parser = argparse.ArgumentParser(prog="python -m headrace_emulators.kafka", description=__doc__)
    parser.add_argument("folder", help="for its topics; used again when it has a broker's")
    # What ends a process ends the broker, too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with KafkaBroker(parser.parse_args().folder) as broker:
            print(f"bootstrap.servers: {broker.bootstrap} (Ctrl-C ends it)", flush=True)
            signal.pause()
    except KeyboardInterrupt:
        return 0
    except HeadraceError as error:
        print(error, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main())
