#!/usr/bin/env bash
# deepseek-ai/DeepSeek-V3 on sglang 0.5.6, 8 x H200-SXM-141GB, 2 replicas
# 2 replicas: put a load balancer in front; one that looks at prefixes keeps the cache's hit rate
args=(
  --tensor-parallel-size 8                      # each layer is cut over 8 cards
  --data-parallel-size 8                        # 8 ranks hold their own attention and KV cache
  --enable-dp-attention                         # goes with the line above
  --expert-parallel-size 8                      # experts are shared by 8 ranks
  --kv-cache-dtype fp8_e4m3                     # KV cache in fp8_e4m3: more tokens fit; check quality on long prompts
  --max-queued-requests 512                     # more waiting requests than this are refused at once
  --schedule-policy lpm                         # who runs first
  --enable-metrics                              # without it there is no /metrics to watch
)
exec python3 -m sglang.launch_server --model-path deepseek-ai/DeepSeek-V3 "${args[@]}"
