"""Networks: from observations to distribution parameters and values. What acts or learns with them is not here."""

from vantage.models.actor_critic import ActorCritic, make_model

__all__ = ["ActorCritic", "make_model"]
