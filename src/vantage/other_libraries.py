"""Names of keys and commands in other libraries, with what a user of Vantage gives instead. Data alone."""

from __future__ import annotations

from collections.abc import Mapping

_LIBRARIES = {"SB3": "Stable-Baselines3's", "CleanRL": "CleanRL's", "RLlib": "RLlib's", "Tianshou": "Tianshou's",
              "Baselines": "OpenAI Baselines'", "A3C": "older A3C scripts'", "others": "other libraries'"}

COUNTERPARTS = {
    "is {activation}": "SB3: activation_fn, RLlib: fcnet_activation",
    "is {advantage_norm}": "SB3: normalize_advantage, CleanRL: norm_adv, A3C: norm_advs",
    "is {algo}": "Baselines: alg, others: algorithm",
    "is {average_decay}": "A3C: polyak_factor",
    "is {bptt}": "A3C: use_bptt",
    "is {clip}": "SB3: clip_range, CleanRL: clip_coef, RLlib: clip_param, Tianshou: eps_clip, Baselines: cliprange",
    "is {entropy_coef}": "SB3: ent_coef, RLlib: entropy_coeff, A3C: entropy_beta entr_coef, others: entropy "
                         "entropy_cost entropy_weight entropy_coefficient",
    "is {env}": "CleanRL: env_id, Tianshou: task, A3C: env_type env_name, others: gym_id game",
    "is {epochs}": "SB3: n_epochs, CleanRL: update_epochs, RLlib: num_epochs num_sgd_iter, Tianshou: "
                   "repeat_per_collect, Baselines: noptepochs, A3C: ppo_epoch",
    "is {eval_episodes}": "SB3: n_eval_episodes, RLlib: evaluation_duration, Tianshou: test_num",
    "is {eval_every}": "SB3: eval_freq, RLlib: evaluation_interval, Tianshou: step_per_epoch epoch_num_steps, A3C: "
                       "eval_interval",
    "is {frame_skip}": "A3C: skip_rate",
    "is {frame_stack}": "SB3: n_stack, Tianshou: frames_stack, A3C: n_frame_stack stack_frames",
    "is {gae_lambda}": "RLlib: lambda lambda_, Baselines: lam, A3C: tau, others: gae_tau",
    "is {gamma}": "others: discount discount_factor",
    "is {init_from}": "A3C: load_model_dir",
    "is {log_every_seconds}": "A3C: log_interval",
    "is {log_weights}": "A3C: tensorboard_logger",
    "is {lr}": "SB3: learning_rate",
    "is {max_episode_steps}": "A3C: max_episode_length",
    "is {max_grad_norm}": "RLlib: grad_clip, A3C: max_norm, others: grad_norm grad_norm_clipping max_gradient_norm "
                          "clip_grad_norm",
    "is {max_kl}": "SB3: target_kl, RLlib: kl_target",
    "is {memory_size}": "RLlib: lstm_cell_size, A3C: hidden_size",
    "is {minibatch_size}": "RLlib: sgd_minibatch_size",
    "is {num_envs}": "SB3: n_envs, RLlib: num_envs_per_worker num_envs_per_env_runner, Tianshou: training_num "
                     "num_train_envs, Baselines: num_env",
    "is {num_workers}": "RLlib: num_env_runners num_rollout_workers num_learners, A3C: workers n_workers",
    "is {obs_norm}": "Tianshou: norm_obs, others: normalize_obs",
    "is {optimizer_decay}": "A3C: alpha",
    "is {optimizer_eps}": "SB3: rms_prop_eps, A3C: eps",
    "is {return_window}": "SB3: stats_window_size",
    "is {reward_norm}": "Tianshou: rew_norm, others: norm_reward",
    "is {rollout_length}": "SB3: n_steps, CleanRL: num_steps, RLlib: rollout_fragment_length, Baselines: nsteps, A3C: "
                           "t_max tmax n_tsteps, others: horizon rollout_steps unroll_length",
    "is {save_every}": "SB3: save_freq, RLlib: checkpoint_freq checkpoint_frequency, A3C: save_interval",
    "is {shared_statistics}": "A3C: shared_optimizer",
    "is {steps}": "SB3: total_timesteps n_timesteps, RLlib: stop_timesteps, Baselines: num_timesteps, A3C: "
                  "total_steps max_steps max_tsteps num_env_steps, others: timesteps",
    "is {stop_at_eval}": "Tianshou: reward_threshold",
    "is {stop_at_return}": "RLlib: stop_reward",
    "is {truncation}": "A3C: trace_max",
    "is {trust_region}": "A3C: trust_region_threshold",
    "is {value_clip}": "SB3: clip_range_vf, RLlib: vf_clip_param",
    "is {value_coef}": "SB3: vf_coef, RLlib: vf_loss_coeff, A3C: value_loss_coef val_coef, others: baseline_cost "
                       "value_coefficient critic_coef",
    "is {minibatch_size} of ppo": "SB3: batch_size",
    "is {optimizer} rmsprop_tf": "SB3: use_rms_prop",
    "is {replay_size} of acer": "SB3: buffer_size, A3C: replay_memory_size mem_size replay_capacity",
    "is {replay_start} of acer": "SB3: learning_starts, Baselines: replay_start_size",
    "is {network}, such as mlp or nature": "SB3: policy",
    "are keys: {network}, {hidden}, {activation}, {memory}": "SB3: policy_kwargs",
    "is {hidden}, such as 64,64": "SB3: net_arch, RLlib: fcnet_hiddens, Tianshou: hidden_sizes, Baselines: "
                                  "num_hidden, others: hidden_dim",
    "is {init} orthogonal": "SB3: ortho_init",
    "is not needed: event files are in the run, unless {tensorboard} is false": "SB3: tensorboard_log",
    "are keys of their own, such as {lr} 1e-3": "SB3: hyperparams",
    "is {config} FILE.json on the command line": "SB3: conf_file",
    "is {run} DIR of `vantage train`": "SB3: log_folder tb_log_name, CleanRL: exp_name, Tianshou: logdir, Baselines: "
                                       "save_path, A3C: save_model_dir log_dir save_dir",
    "is {init_from}, or `vantage resume RUN` to go on": "SB3: trained_agent, Tianshou: resume_path, Baselines: "
                                                        "load_path, A3C: load, others: checkpoint checkpoint_path",
    "has no counterpart; leave it out": "SB3: use_sde sde_sample_freq verbose, RLlib: use_kl_loss, Tianshou: dual_clip "
                                        "recompute_adv, others: weight_decay",
    "is the body of the loop over `vantage.train`, in Python": "SB3: callback",
    "is --trials of `vantage search`": "SB3: n_trials",
    "is not needed: scores are those of whole games, in metrics.jsonl; leave it out": "SB3: monitor_wrapper",
    "is not needed: a terminal shows progress; leave it out": "SB3: progress progress_bar",
    "is {value_clip} with a number": "CleanRL: clip_vloss",
    "is {minibatch_size}, in steps: rollout_length times num_envs over their number":
        "CleanRL: num_minibatches, Baselines: nminibatches, A3C: num_mini_batch",
    "is {lr} with a schedule such as linear:7e-4:0": "CleanRL: anneal_lr, RLlib: lr_schedule, Tianshou: lr_decay, "
                                                     "Baselines: lrschedule, A3C: use_linear_lr_decay",
    "is {device} cuda, or {device} cpu without": "CleanRL: cuda",
    "is {entropy_coef} with a schedule such as linear:0.01:0": "RLlib: entropy_coeff_schedule",
    "is not needed: a run on one device repeats bit for bit; leave it out": "CleanRL: torch_deterministic",
    "is {track} wandb": "CleanRL: wandb, Tianshou: logger",
    "is the environment variable WANDB_PROJECT, with {track} wandb": "CleanRL: wandb_project_name, Tianshou: "
                                                                     "wandb_project",
    "is the environment variable WANDB_ENTITY, with {track} wandb": "CleanRL: wandb_entity",
    "is `vantage record RUN -o game.mp4` at any time": "CleanRL: capture_video",
    "is not needed: runs save checkpoints every {save_every} steps; leave it out": "CleanRL: save_model",
    "is `vantage push RUN OWNER/NAME`": "CleanRL: upload_model hf_entity",
    "is {rollout_length} times {num_envs}": "RLlib: train_batch_size train_batch_size_per_learner, Tianshou: "
                                            "step_per_collect",
    "is {device} cuda, or a list such as cuda:0,cuda:1": "RLlib: num_gpus num_gpus_per_learner",
    "has no counterpart: ppo clips the ratio; leave it out": "RLlib: kl_coeff",
    "is {env_kwargs} with a JSON object": "RLlib: env_config",
    "is not needed: Vantage uses PyTorch; leave it out": "RLlib: framework",
    "is {memory} lstm": "RLlib: use_lstm, others: lstm",
    "is {steps}, in agent steps; ppo's passes over a rollout are {epochs}": "RLlib: stop_iters, Tianshou: epoch "
                                                                            "max_epochs",
    "is `vantage watch RUN`": "Tianshou: watch, A3C: render",
    "is {num_envs} with a2c and ppo, {num_workers} with a3c": "A3C: num_processes",
    "is {steps}, in agent steps: frames over {frame_skip}": "A3C: num_frames, others: frames",
    "is {rollouts_per_update} times {num_envs}": "A3C: n_rollouts",
    "is {hidden} or {memory_size}": "A3C: h_size",
    "is {env_kwargs} with a JSON object that has grid_size": "A3C: grid_size",
    "is {gae_lambda} below 1": "A3C: use_gae",
    "is not needed: time limits bootstrap; leave it out": "A3C: use_proper_time_limits",
    "is {memory} gru": "A3C: recurrent_policy, others: gru",
    "is {shared_statistics} false": "A3C: no_shared",
    "is {optimizer} amsgrad": "A3C: amsgrad",
    "is {device}, such as cuda:0,cuda:1": "A3C: gpu_ids",
    "is {device}, such as cuda:0": "A3C: gpu_id",
    "is {device} cuda": "A3C: gpu",
    "is {device} cpu": "A3C: no_cuda",
    "is {rollout_length} with a list such as 16,32,64 and {runtime} hogwild": "A3C: distributed_step_size",
    "is not needed: the best checkpoint stays, with {eval_every}; leave it out": "A3C: save_max",
    "is {num_envs}, or {num_workers} with a3c": "others: num_actors",
    "is {lr}, one for policy and critic": "others: actor_lr critic_lr",
    "is {reward} clip": "others: reward_clip reward_clipping clip_reward clip_rewards",
    "is {obs_norm} and {reward_norm}": "others: normalize",
    "is {hidden}, a width for each layer, such as 64,64": "others: num_layers",
    "is {steps}, in agent steps, not games": "others: episodes max_episodes num_episodes n_episodes",
    "is `vantage resume RUN`": "SB3: reset_num_timesteps, Tianshou: resume_id, others: resume",
    "is not needed: {tensorboard} is on; leave it out": "others: sync_tensorboard",
}
"""What a user gives instead: names elsewhere, by library. Names in braces are keys here, or options of the command."""

KEYS: Mapping[str, tuple[str, str]] = {
    name: (_LIBRARIES[library], text) for text, elsewhere in COUNTERPARTS.items()
    for library, names in (part.split(": ") for part in elsewhere.split(", ")) for name in names.split()}
"""By name elsewhere: its library's genitive, and what a user gives instead."""

COMMANDS: Mapping[str, str] = {
    "enjoy": "watch", "eval": "evaluate", "test": "evaluate", "tune": "search", "sweep": "search", "optimize": "search",
    "run": "train", "learn": "train", "fit": "train", "continue": "resume", "render": "watch", "video": "record",
    "show": "list", "info": "doctor", "check": "doctor", "benchmark": "bench", "all_plots": "plot", "help": "--help"}
"""What Vantage calls a command of other programs."""
