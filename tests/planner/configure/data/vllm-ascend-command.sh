#!/usr/bin/env bash
# vllm-ascend/QwQ-32B-W8A8 on vllm-ascend 0.13.0, 4 x Ascend-910B2-64GB
args=(
  --tensor-parallel-size 4                      # each layer is cut over 4 cards
  --quantization ascend                         # weights in int8: smaller, answers may change; measure quality
  --max-model-len 16384                         # longest request, tokens; a longer one is refused
)
exec vllm serve vllm-ascend/QwQ-32B-W8A8 "${args[@]}"
