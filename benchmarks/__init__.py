"""The rows of NUMBERS.md, measured: ``python -m benchmarks`` prints ours beside the peer (README.md here)."""
