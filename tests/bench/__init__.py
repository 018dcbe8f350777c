"""Measurements: `python -m tests.bench.bench_…`; each prints its conditions before its numbers."""
