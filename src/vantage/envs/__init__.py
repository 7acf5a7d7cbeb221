"""Environments, stepped in batches and saved in snapshots. The only package that imports gymnasium
and ale_py.

Only `tensor_env`, `tensors` and `vec_env` import torch.
"""
