"""Networks from observations to distribution parameters and values. Acting and learning are in `vantage.learning`."""

from vantage.models.actor_critic import ActorCritic, make_model

__all__ = ["ActorCritic", "make_model"]
