#!/usr/bin/env bash
# bartowski/Qwen2.5-7B-Instruct-GGUF:Q4_K_M on llama.cpp 2026.1, 1 x L4
# quantisation gguf-q4_k_m: the model's file is in it
args=(
  --ctx-size 32768                              # tokens of all slots together: longest request x slots
  --cache-type-k q8_0                           # KV cache in q8_0: more tokens fit; check quality on long prompts
  --cache-type-v q8_0                           # goes with the line above
  --parallel 4                                  # slots; the context is divided by them
  --metrics                                     # without it there is no /metrics to watch
  --n-gpu-layers 999                            # all layers on the card; older builds leave them on the CPU
)
exec llama-server --hf-repo bartowski/Qwen2.5-7B-Instruct-GGUF:Q4_K_M "${args[@]}"
