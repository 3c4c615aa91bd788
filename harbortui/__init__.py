"""HarborTUI: mission control for reinforcement learning of LLM agents on Harbor tasks."""

__version__ = "0.1.0"
