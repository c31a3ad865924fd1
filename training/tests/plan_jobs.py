"""Jobs as talks and guides describe them, with the numbers told with them, as the planner sees them; used by test_plan*.py."""

from trainlab.models import architectures
from trainlab.plan.job import Job

PHI = architectures.TABLE["Phi-3-mini"]
SMOL3 = architectures.TABLE["SmolLM3-3B"]
GEMMA = architectures.TABLE["gemma-3-270m"]
SEVEN = architectures.TABLE["llama-7.39B"]

# Lyrics: LoRA r=128 on one L40S, 90,000 samples of about 200 tokens, 2 epochs, batch 24.
LYRICS = Job(
    "lyrics", "microsoft/Phi-3-mini-4k-instruct", PHI, trainable="lora", lora_rank=128,
    rows=90_000, tokens_per_row=200, epochs=2, batch=24,
)  # fmt: skip
# Survival: last two layers and the (tied) head, 2,845 rows of about 350 tokens with the long prompt, 4 nodes.
SURVIVAL = Job(
    "survival", "HuggingFaceTB/SmolLM3-3B", SMOL3, trainable="top", top_layers=2, train_head=True, tie_word_embeddings=True,
    checkpointing=True, rows=2845, tokens_per_row=350, max_length=1024, epochs=4, batch=8, accumulation=2, nodes=4,
)  # fmt: skip
# Gemma: WikiText-2, about 2.4 M tokens in 2,048-token blocks, 3 epochs, 4 x 8 on 4 GPUs.
WIKI = Job(
    "gemma", "google/gemma-3-270m", GEMMA, rows=24_000, tokens_per_row=100, max_length=2048, packed=True, epochs=3,
    batch=4, accumulation=8, nodes=2, devices_per_node=2,
)  # fmt: skip
# Staged, pre-training: 100,000 steps of 32 sequences; a third each at 512, 1,024 and 2,048 tokens.
PRETRAIN = Job(
    "pretrain", "llama-7B", SEVEN, from_scratch=True, rows=3_200_000,
    tokens_per_row=(512 + 1024 + 2048) / 3, max_length=2048, batch=8, accumulation=4,
)  # fmt: skip
