"""What tests, benches and stress programs share: servers to start, stand-ins, processes, the command line, data."""
