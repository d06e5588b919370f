"""`python -m commonpool` is `commonpool`."""

from commonpool.cli import main

if __name__ == "__main__":
    main()
