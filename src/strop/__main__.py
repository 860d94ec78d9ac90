"""`python -m strop`, the same as `strop`."""

from strop.cli import main

main()
