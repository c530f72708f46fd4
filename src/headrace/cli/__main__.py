"""`python -m headrace.cli`: the command line without its script."""

from headrace.cli import main

if __name__ == "__main__":
    main()
