"""Loss of one model on held-out blocks, hence its perplexity, and its guesses of the next token; the same way for base and tuned. Used by cpt_recipe.py.

The head never materializes the logits of a whole block: TRL's fused head (trl.trainer.utils.add_fused_lm_head) uses tiles
of at most 4,096 tokens x 32,768 words and recomputes them for the gradient. Training uses the same function.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from trl.trainer.utils import add_fused_lm_head

from trainlab.data.pack import Packed
from trainlab.engine import dist
from trainlab.recipes.cpt.perplexity_gate import perplexity

FUSED = "trainlab_fused"


def fuse(model: Any) -> Any:
    """Give a causal language model the fused head, once: called with fused_lm_head=True it returns no logits."""
    if not getattr(model, FUSED, False):
        add_fused_lm_head(model, outputs=("log_probs", "is_top1"))
        setattr(model, FUSED, True)
    return model


def losses(
    model: Any, blocks: Sequence[Sequence[int]], batch_size: int, say: Callable[[str], None]
) -> list[tuple[float, float]]:
    """Return (mean nats per predicted token, share of tokens that were the likeliest guess) of each block; the first token of
    a block is given, not predicted."""
    fuse(model)
    found: list[tuple[float, float]] = []
    with torch.no_grad():
        for first in range(0, len(blocks), batch_size):
            ids = torch.tensor([list(block) for block in blocks[first : first + batch_size]], device=model.device)
            said = model(input_ids=ids, labels=ids, fused_lm_head=True)
            means = (-said.log_probs.float().mean(dim=-1), said.is_top1.float().mean(dim=-1))
            found += list(zip(*(mean.tolist() for mean in means), strict=True))
            say(f"scored {len(found)} of {len(blocks)} blocks")
    return found


def score(model: Any, part: Packed, batch_size: int, say: Callable[[str], None]) -> dict[str, Any]:
    """Score the blocks split over all ranks; every rank must call it with the same blocks and gets the whole result.

    {loss: mean nats per token, perplexity: its exponential, next_token_accuracy: share of tokens guessed right, tokens:
    predicted ones, rows: blocks, seconds, items: one dict per block: id, topic and group (the document it begins in),
    loss, right, tokens}.
    """
    began = time.monotonic()
    rank, world = dist.rank(), dist.world_size()
    shares = dist.gather(losses(model, part.blocks[rank::world], batch_size, say))
    each = len(part.blocks[0]) - 1
    items: list[dict[str, Any]] = []
    for number, topic in enumerate(part.topics):
        loss, right = shares[number % world][number // world]
        item = {"id": f"block-{number}", "topic": topic, "group": topic}
        items.append({**item, "loss": loss, "right": right, "tokens": each})
    loss = sum(item["loss"] for item in items) / len(items)
    return {
        "loss": loss,
        "perplexity": perplexity(loss),
        "next_token_accuracy": sum(item["right"] for item in items) / len(items),
        "tokens": each * len(items),
        "rows": len(items),
        "seconds": round(max(dist.gather(time.monotonic() - began)), 2),
        "items": items,
    }
