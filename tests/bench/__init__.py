"""Measurements: `python -m tests.bench.bench_…`; each prints its conditions above its numbers."""
