"""A run directory's memory: trees and hashes, the one door for writes, journal, events, stamps, lock."""
