#!/usr/bin/env bash
# nvidia/Llama-3.3-70B-Instruct-FP8 on tensorrt-llm 1.2.0, 2 x H100-SXM-80GB
# quantisation fp8: the checkpoint must be FP8 (ModelOpt)
cat > trtllm.yaml <<'EOF'
tensor_parallel_size: 2  # each layer is cut over 2 cards
kv_cache_config:
  dtype: fp8  # KV cache in fp8: more tokens fit; check quality on long prompts
  free_gpu_memory_fraction: 0.85  # share for the KV cache of what is FREE once the weights are loaded
max_seq_len: 16384  # longest request, tokens; a longer one is refused
max_input_len: 16384  # longest request, tokens; a longer one is refused
max_batch_size: 512  # most requests that run at once; the rest wait
max_num_tokens: 8192  # most tokens of a step: more is faster prefill, fewer is steadier TPOT
enable_chunked_prefill: true  # long prompts are cut so that running answers go on
enable_iter_perf_stats: true  # without it /metrics says nothing
EOF
args=(
  --extra_llm_api_options trtllm.yaml           # the settings above
)
exec trtllm-serve nvidia/Llama-3.3-70B-Instruct-FP8 "${args[@]}"
