"""Run directories: config, checkpoints and metrics on disk. The only package that writes there."""
