"""Names of keys and commands in other libraries, and what a user of Vantage gives instead."""

from __future__ import annotations

from collections.abc import Mapping

_PRIVILEGED = (
    "is {critic_obs}: parts of a Dict observation for the critic alone, with {separate} true")

_RESUME = ("is `vantage resume RUN` or `vantage.resume(run)`, which continue a run; leave it out "
           "here")

LIBRARIES: Mapping[str, Mapping[str, str]] = {
    "Stable-Baselines3's": {
        "learning_rate": "is {lr}",
        "n_steps": "is {rollout_length}",
        "n_epochs": "is {epochs}",
        "batch_size": "is {minibatch_size} of ppo",
        "clip_range": "is {clip}",
        "clip_range_vf": "is {value_clip}",
        "ent_coef": "is {entropy_coef}",
        "vf_coef": "is {value_coef}: value_coef = 2 x vf_coef, as Vantage halves the squared error",
        "target_kl": "is {max_kl}",
        "normalize_advantage": "is {advantage_norm}",
        "total_timesteps": "is {steps}",
        "n_timesteps": "is {steps}",
        "n_envs": "is {num_envs}",
        "policy": "is {network}, such as mlp or nature",
        "features_extractor_class": "is {network}: a class built from the shape of its input",
        "features_extractor_kwargs":
            "are arguments in {network}: lambda shape: MyNetwork(shape, width=64)",
        "wrapper_class": "is part of {env}: lambda: MyWrapper(MyEnv())",
        "env_wrapper": "is part of {env}: lambda: MyWrapper(MyEnv())",
        "vec_env_cls": "is {vector}: sync, or async for processes",
        "eval_env": "is not needed: {eval_every} plays environments like {env}",
        "optimizer_class": "is {optimizer}",
        "progress_bar": "is progress of `vantage.train`, shown by default",
        "reset_num_timesteps":
            "is `vantage.resume` with the new total of {steps} and extend_schedule=True; without, "
            "a run begins anew",
        "log_interval": "is {log_every_seconds}",
        "stats_window_size": "is {return_window}",
        "save_freq": "is {save_every}",
        "policy_kwargs": "are keys: {network}, {hidden}, {activation}, {memory}",
        "net_arch": "is {hidden}, such as 64,64",
        "activation_fn": "is {activation}",
        "ortho_init": "is {init} orthogonal",
        "tensorboard_log":
            "is not needed: event files are in the run, unless {tensorboard} is false",
        "buffer_size": "is {replay_size} of acer",
        "learning_starts": "is {replay_start} of acer",
        "info_keywords":
            "is not needed: numbers in the last info of an episode are metrics; leave it out",
        "callback": "is the body of a loop over a `vantage.Trainer`",
        "verbose": "has no counterpart; leave it out",
        "eval_freq": "is {eval_every}",
        "n_eval_episodes": "is {eval_episodes}",
        "n_stack": "is {frame_stack}",
        "n_trials": "is --trials of `vantage search`",
    },
    "CleanRL's": {
        "env_id": "is {env}",
        "num_steps": "is {rollout_length}",
        "num_minibatches":
            "is {minibatch_size}, in steps: rollout_length times num_envs over their number",
        "update_epochs": "is {epochs}",
        "clip_coef": "is {clip}",
        "norm_adv": "is {advantage_norm}",
        "anneal_lr": "is {lr} with a schedule such as linear:7e-4:0",
        "cuda": "is {device} cuda, or {device} cpu without",
        "torch_deterministic":
            "is not needed: a run on one device repeats bit for bit; leave it out",
        "wandb": "is {track} wandb",
        "wandb_project_name": "is the environment variable WANDB_PROJECT, with {track} wandb",
        "wandb_entity": "is the environment variable WANDB_ENTITY, with {track} wandb",
        "capture_video": "is `vantage record RUN -o game.mp4` at any time",
        "exp_name": "is {run} DIR of `vantage train`",
    },
    "RLlib's": {
        "train_batch_size": "is {rollout_length} times {num_envs}",
        "rollout_fragment_length": "is {rollout_length}",
        "lambda_": "is {gae_lambda}",
        "entropy_coeff": "is {entropy_coef}",
        "clip_param": "is {clip}",
        "grad_clip": "is {max_grad_norm}",
        "num_env_runners": "is {num_workers}",
        "num_envs_per_env_runner": "is {envs_per_worker}",
        "num_envs_per_worker": "is {envs_per_worker}",
        "num_sgd_iter": "is {epochs}",
        "vf_loss_coeff":
            "is {value_coef}: value_coef = 2 x vf_loss_coeff, as Vantage halves the squared error",
        "use_lstm": "is {memory} lstm",
        "num_gpus": "is {device} cuda, or a list such as cuda:0,cuda:1",
    },
    "rsl_rl's": {
        "num_steps_per_env": "is {rollout_length}",
        "num_learning_epochs": "is {epochs}",
        "num_mini_batches":
            "is {minibatch_size}, in steps: rollout_length times num_envs over their number",
        "lam": "is {gae_lambda}",
        "init_noise_std": "is {log_std_init}, its logarithm: 0 for 1.0",
        "desired_kl": "is {lr} kl:0.01",
        "schedule": "is {lr}: kl:0.01 for adaptive, a number for fixed",
        "value_loss_coef":
            "is {value_coef}: value_coef = 2 x value_loss_coef, as Vantage halves the squared "
            "error",
        "use_clipped_value_loss": "is {value_clip} with the number of {clip}",
        "max_iterations": "is {steps}: iterations times rollout_length times num_envs",
        "actor_hidden_dims": "is {hidden}, such as 256,128",
        "critic_hidden_dims": "is {hidden}, of policy and critic alike",
        "rnn_type": "is {memory}: lstm or gru",
        "rnn_hidden_size": "is {memory_size}",
        "empirical_normalization": "is {obs_norm}",
        "num_privileged_obs": _PRIVILEGED,
        "privileged_obs": _PRIVILEGED,
        "asymmetric": _PRIVILEGED,
        "save_interval": "is {save_every}, in steps",
        "experiment_name": "is the folder that `vantage train --run` names",
    },
    "rl_games'": {
        "horizon_length": "is {rollout_length}",
        "mini_epochs": "is {epochs}",
        "e_clip": "is {clip}",
        "critic_coef": "is {value_coef}",
        "clip_value": "is {value_clip} with the number of {clip}",
        "bounds_loss_coef": "has no counterpart, as actions are clipped to bounds; leave it out",
        "kl_threshold": "is {lr} kl:0.008",
        "lr_schedule": "is {lr}: kl:0.008 for adaptive, linear:3e-4:0 for linear",
        "grad_norm": "is {max_grad_norm}",
        "truncate_grads": "is {max_grad_norm}",
        "normalize_input": "is {obs_norm}",
        "normalize_value": "is {value_norm} popart",
        "value_bootstrap": "is not needed, as time limits always bootstrap; leave it out",
        "central_value_config": _PRIVILEGED,
        "num_actors": "is {num_envs}",
        "max_epochs": "is {steps}: epochs times rollout_length times num_envs",
        "score_to_win": "is {stop_at_return}",
        "games_to_track": "is {return_window}",
    },
    "older A3C scripts'": {
        "t_max": "is {rollout_length}",
        "tau": "is {gae_lambda}",
        "hidden_size": "is {memory_size}",
        "num_processes": "is {num_envs} with a2c and ppo, {num_workers} with a3c",
        "max_steps": "is {steps}",
        "no_cuda": "is {device} cpu",
    },
    "other libraries'": {
        "overwrite":
            "has no counterpart: name another --run, or leave --run out, which numbers runs",
        "resume": _RESUME,
        "restore": _RESUME,
        "load_if_exists": _RESUME,
        "discount": "is {gamma}",
        "algorithm": "is {algo}",
    },
}
"""What a user gives instead of the most used names. Names in braces are keys of Vantage."""

KEYS: Mapping[str, tuple[str, str]] = {
    name: (library, text) for library, names in LIBRARIES.items() for name, text in names.items()}
"""By a key's name elsewhere: its library, in the genitive, and what a user gives instead."""

POLICIES: Mapping[str, str] = {
    "MlpPolicy": "--network mlp",
    "CnnPolicy": "--network nature",
    "MultiInputPolicy": "--network auto, which fits each part of a Dict",
    "MlpLstmPolicy": "--network mlp and --memory lstm",
    "CnnLstmPolicy": "--network nature and --memory lstm",
    "MultiInputLstmPolicy": "--network auto and --memory lstm",
}
"""What a user gives instead of the policies of Stable-Baselines3."""

_VECTOR = "write vantage.train(algorithm, env=lambda: MyEnv(), num_envs=8)"
_LOOP = "its work is the body of a loop over a vantage.Trainer, see docs/callbacks.md"
_TRAINED = "write agent = vantage.train(\"ppo\", env=..., steps=...)"

MODULE: Mapping[str, str] = {
    "evaluate_policy": "write vantage.evaluate(agent, episodes=20)",
    "make_vec_env": _VECTOR,
    "make_env": _VECTOR,
    "make": "give env=\"CartPole-v1\" to vantage.train, or write gymnasium.make",
    "DummyVecEnv": _VECTOR,
    "SubprocVecEnv": f"{_VECTOR[:-1]}, vector=\"async\")",
    "VecNormalize":
        "give obs_norm=True, reward_norm=True or value_norm=\"popart\" to vantage.train",
    "VecFrameStack": "give frame_stack=4 to vantage.train",
    "VecMonitor": "not needed: every episode is recorded",
    "Monitor": "not needed: every episode is recorded, with the numbers in its last info",
    "check_env": "not needed: every step is checked",
    "callbacks": _LOOP,
    "BaseCallback": _LOOP,
    "EvalCallback": "give eval_every=10_000 and eval_episodes=20 to vantage.train",
    "CheckpointCallback": "give save_every=10_000 to vantage.train",
    "StopTrainingOnRewardThreshold": "give stop_at_eval=475 to vantage.train",
    "RecurrentPPO": "write vantage.train(\"ppo\", env=..., memory=\"lstm\")",
    "MaskablePPO": "write vantage.train(\"ppo\", env=...), with action_masks() of the environment",
    "A3C": "write vantage.train(\"a3c\", env=..., steps=...)",
    "PPOConfig": "write vantage.configure(\"ppo\", env=..., lr=...)",
    "Algorithm": _TRAINED,
    "learn": _TRAINED,
    "fit": _TRAINED,
    "predict": "write agent.act(obs), which returns the action and the state",
    "save": "write agent.save(\"policy.safetensors\")",
    "continue_training": "write vantage.resume(agent, steps=..., extend_schedule=True)",
    "tune": "write vantage.search(...)",
}
"""Names of functions and classes in other libraries, by what a user of this module writes."""

METHODS: Mapping[str, Mapping[str, str]] = {
    "an algorithm": {
        "learn": "write agent = vantage.train(algorithm, env=..., steps=...)",
        "predict": "write agent = vantage.train(algorithm, env=...), then agent.act(obs)",
        "load": "write vantage.load(run), which returns an agent",
        "save": "write agent = vantage.train(algorithm, env=...), then agent.save(path)",
    },
    "an agent": {
        "predict": "write agent.act(obs), which returns the action and the state",
        "learn": "write vantage.resume(agent, steps=..., extend_schedule=True), with the new total",
        "policy": "its network is agent.model",
        "get_env": "write agent.make_env()",
        "evaluate": "write vantage.evaluate(agent)",
    },
    "a trainer": {
        "predict": "write trainer.agent.act(obs), which returns the action and the state",
        "learn": "write `for report in trainer`, which trains to the end",
        "policy": "its network is trainer.agent.model",
        "logger": "write trainer.log(name, value)",
        "record": "write trainer.log(name, value)",
        "num_timesteps": "its steps so far are trainer.step",
        "get_env": "write trainer.agent.make_env()",
    },
}
"""Attributes of a model or callback in other libraries, by what a user of Vantage has."""

COMMANDS: Mapping[str, str] = {
    "run": "train", "learn": "train", "fit": "train", "continue": "resume",
    "eval": "evaluate", "test": "evaluate", "tune": "search", "sweep": "search",
    "optimize": "search", "enjoy": "watch", "render": "watch", "video": "record",
    "show": "list", "info": "doctor", "check": "doctor", "benchmark": "bench",
    "all_plots": "plot", "help": "--help",
}
"""The commands of Vantage, by the names of such commands in other programs."""
