#!/usr/bin/env bash
# Qwen/Qwen3-32B on vllm 0.13.0, 2 x H100-SXM-80GB
args=(
  --tensor-parallel-size 2                      # each layer is cut over 2 cards
  --kv-cache-dtype fp8                          # KV cache in fp8: more tokens fit; check quality on long prompts
  --max-model-len 32768                         # longest request, tokens; a longer one is refused
  --max-num-seqs 256                            # most requests that run at once; the rest wait
  --gpu-memory-utilization 0.92                 # share of the WHOLE card: weights, activations, graphs and KV cache
  --enable-prefix-caching                       # equal beginnings of prompts are computed once
  --speculative-config '{"method": "eagle3", "num_speculative_tokens": 3, "model": "AngelSlim/Qwen3-32B_eagle3"}'  # how tokens are drafted; pays at low load, costs at high load; drafted tokens a step; watch the acceptance rate; the draft
)
exec vllm serve Qwen/Qwen3-32B "${args[@]}"
