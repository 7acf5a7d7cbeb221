"""Networks from observations to distribution parameters and values. See `actor_critic`."""
