"""`python -m geartrain` is the command `geartrain`."""

from geartrain.cli import main

if __name__ == "__main__":
    main()
