"""`python -m headrace` is the program `headrace`."""

from headrace.cli import main

main()
