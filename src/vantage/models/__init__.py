"""Networks from observations to distribution parameters and values. Acting and learning are in `vantage.learning`."""
