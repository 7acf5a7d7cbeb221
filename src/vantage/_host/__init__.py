"""This machine and process: cores, memory, signals, processes, terminal, optional libraries."""
