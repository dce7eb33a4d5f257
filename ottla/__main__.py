"""`python -m ottla` is the command `ottla`."""

import sys

from ottla.tools.command import main

if __name__ == "__main__":
    sys.exit(main())
