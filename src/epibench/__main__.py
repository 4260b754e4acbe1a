"""`python -m epibench` is `epibench`."""

from epibench.cli import main

main()
