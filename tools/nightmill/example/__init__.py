"""The demo that ships with nightmill: a small old program (`v1/`), a mission, and replies written by hand (`replies/`)."""
