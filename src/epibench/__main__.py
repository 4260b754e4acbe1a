"""`python -m epibench` is `epibench`."""

from epibench.cli import main

if __name__ == "__main__":  # processes that train networks import this file, too
    main()
