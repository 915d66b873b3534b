#!/usr/bin/env bash
# Qwen/Qwen2.5-32B-Instruct-AWQ on lmdeploy 0.18.0, 2 x A100-SXM4-80GB
args=(
  --tp 2                                        # each layer is cut over 2 cards
  --model-format awq                            # weights in awq-int4: smaller, answers may change; measure quality
  --quant-policy 8                              # KV cache in int8: more tokens fit; check quality on long prompts
  --session-len 32768                           # longest request, tokens; a longer one is refused
  --enable-prefix-caching                       # equal beginnings of prompts are computed once
)
exec lmdeploy serve api_server Qwen/Qwen2.5-32B-Instruct-AWQ "${args[@]}"
