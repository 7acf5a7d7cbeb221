"""This machine and process: cores, memory, signals, child processes, the terminal, optional libraries."""
