"""Stages as doit tasks: the only home of doit."""
