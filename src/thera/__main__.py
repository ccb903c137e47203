"""`python -m thera`."""

from thera.cli.main import main

main()
