import sys

from nightmill.cli import main

sys.exit(main())
