"""Environments, stepped in batches and saved in snapshots.

The only package that imports gymnasium and ale_py; `tools.doctor` imports them in separate
processes, to check that they work. Only `tensor_env`, `tensor_masks`, `tensors` and `vec_env`
import torch.
"""
