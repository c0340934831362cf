"""The stages of nightmill's pipelines, one file each."""
