"""Deployments that the tests of cost ask about."""

from planner.speed.deployment import Deployment, Named, deployment
from planner.speed.efficiency import Factors, factors, shipped


def small_on_h100() -> tuple[Deployment, Factors]:
    """An 8B model in FP8 on one H100 under vLLM."""
    one = deployment(
        Named("meta-llama/Llama-3.1-8B-Instruct", "fp8", "H100-SXM-80GB", 1, "vllm", "0.11.0", kv_dtype="fp8")
    )
    return one, factors(shipped(), one)
