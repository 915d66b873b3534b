"""Write a model small enough for two CPU cores: random weights, about 3.4 million parameters.

Run with the Python that holds torch and transformers: ``python make_tiny_model.py FOLDER``. The tokenizer is
trained on the source of the Python standard library, so nothing is fetched. The answers are noise; queueing,
batching, the KV cache and the metrics are the engine's own.
"""

import json
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

VOCABULARY = 4096
CONTEXT_TOKENS = 4096
CORPUS_CHARACTERS = 3_000_000
LAYERS = 4
HIDDEN = 256  # head size 64: the smallest that every attention back end of vLLM accepts
END, START, STOP = "<|endoftext|>", "<|im_start|>", "<|im_end|>"
CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def corpus() -> Iterator[str]:
    """Sources of the standard library, file by file, up to ``CORPUS_CHARACTERS``."""
    seen = 0
    for path in sorted(Path(sysconfig.get_paths()["stdlib"]).glob("*.py")):
        text = path.read_text(encoding="utf-8", errors="ignore")
        yield text
        seen += len(text)
        if seen > CORPUS_CHARACTERS:
            return


def train_tokenizer(folder: Path) -> Any:
    """A byte-level BPE with a chat template, saved to ``folder``."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # type: ignore[import-not-found]
    from transformers import PreTrainedTokenizerFast  # type: ignore[import-not-found]

    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCABULARY,
        special_tokens=[END, START, STOP],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    bpe.train_from_iterator(corpus(), trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe, eos_token=STOP, pad_token=END, model_max_length=CONTEXT_TOKENS
    )
    tokenizer.chat_template = CHAT_TEMPLATE
    tokenizer.save_pretrained(folder)
    return tokenizer


def write_weights(folder: Path, tokenizer: Any) -> int:
    """Random Qwen2 weights in bfloat16, the same at every run; returns the number of parameters."""
    import torch  # type: ignore[import-not-found]
    from transformers import Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(0)
    config = Qwen2Config(
        vocab_size=VOCABULARY,
        hidden_size=HIDDEN,
        intermediate_size=2 * HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HIDDEN // 64,
        num_key_value_heads=HIDDEN // 128,
        max_position_embeddings=CONTEXT_TOKENS,
        tie_word_embeddings=True,
        bos_token_id=tokenizer.convert_tokens_to_ids(END),
        eos_token_id=tokenizer.eos_token_id,
        dtype="bfloat16",
    )
    model = Qwen2ForCausalLM(config).to(torch.bfloat16)
    model.save_pretrained(folder)
    return sum(weights.numel() for weights in model.parameters())


def spell_for_older_engines(folder: Path) -> None:
    """Older engines look for the template, the class and the type in these two files only."""
    added = {
        "tokenizer_config.json": {"chat_template": CHAT_TEMPLATE, "tokenizer_class": "PreTrainedTokenizerFast"},
        "config.json": {"torch_dtype": "bfloat16"},
    }
    for name, entries in added.items():
        path = folder / name
        path.write_text(json.dumps(json.loads(path.read_text()) | entries, indent=1))


def main() -> None:
    """Write the model to the folder named on the command line."""
    if len(sys.argv) != 2:
        sys.exit("make_tiny_model.py: one argument is wanted: the folder to write the model to")
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    parameters = write_weights(folder, train_tokenizer(folder))
    spell_for_older_engines(folder)
    print(f"{parameters:,} parameters in {folder}")


if __name__ == "__main__":
    main()
