"""`python -m hsimhash`: the command line."""

from hsimhash.cli import main

if __name__ == "__main__":
    main(prog_name="hsimhash")
