"""What decides: compilers and tests, run in a sandbox. Models comment; only this package says green."""
