"""Kills, fuzz and comparisons at scale: `python -m tests.stress.…`; short forms run with the tests."""
