"""``python -m goodwatch``."""

from goodwatch.cli import main

main(prog_name="goodwatch")
