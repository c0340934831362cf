"""Small tasks with given tests: tried one at a time, or many to compare strategies and models."""
