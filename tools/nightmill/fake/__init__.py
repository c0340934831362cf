"""A model server that never computes anything: OpenAI-compatible and llama-server's routes, with every fault on demand."""
