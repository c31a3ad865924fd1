"""How much faster is DPO when the reference's log-probabilities are computed once, not in every step? Both in one run.

PYTHONPATH=training/src python bench/dpo_reference.py [--rounds 5] [--tokens 96] [--json FILE]    (needs the packages of the trainer image)
Prints seconds per step both ways, their ratio, and the cost of the initial pass; exits with 1 when the losses differ or it is less than ENOUGH.
Bound: forward and backward of the policy are 6P, the reference's forward 2P, so 8/6 = 1.33.
"""

import os
import platform
import statistics
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

import outcome

os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
os.environ.setdefault("TQDM_DISABLE", "1")
PAIRS, VOCABULARY, ENOUGH = 8, 4096, 1.15


def tokenizer() -> Any:
    """Return the smallest tokenizer that TRL accepts."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    words = {f"w{i}": i for i in range(VOCABULARY)}
    return PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w2")), eos_token="w0", pad_token="w1"
    )


def trainer(folder: Path, model_dir: Path, rows: list[dict[str, list[int]]], precompute: bool) -> Any:
    """Return TRL's trainer on stored pairs; `precompute` computes the reference's log-probabilities here."""
    from datasets import Dataset, load_from_disk
    from trainlab.recipes import dpo
    from transformers import AutoModelForCausalLM
    from trl import DPOConfig

    Dataset.from_list(rows).save_to_disk(str(folder / "pairs"))
    model = AutoModelForCausalLM.from_pretrained(model_dir)
    settings = DPOConfig(
        output_dir=str(folder / "out"),
        per_device_train_batch_size=PAIRS,
        precompute_ref_log_probs=precompute,
        max_length=None,
        bf16=False,
        use_cpu=True,
        activation_checkpointing=False,
        report_to="none",
    )
    data = load_from_disk(str(folder / "pairs"))
    return dpo.trainer_class()(model=model, args=settings, train_dataset=data, processing_class=tokenizer())


def step(made: Any, batch: dict[str, Any]) -> tuple[float, float]:
    """Return (seconds, loss) of one forward and backward pass."""
    began = time.perf_counter()
    loss = made.compute_loss(made.model, batch)
    loss.backward()
    seconds = time.perf_counter() - began
    made.model.zero_grad()
    return seconds, float(loss.detach())


def measure(rounds: int, tokens: int, layers: int) -> dict[str, Any]:
    """Return seconds per step both ways (median, interleaved), their ratio, losses, and seconds of the first pass."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    draw = torch.Generator().manual_seed(0)
    third = tokens // 3
    parts = ("prompt_ids", "chosen_ids", "rejected_ids")
    rows = [
        {
            name: torch.randint(
                3, VOCABULARY, (third if name == parts[0] else tokens - third,), generator=draw
            ).tolist()
            for name in parts
        }
        for _ in range(PAIRS)
    ]
    with tempfile.TemporaryDirectory() as scratch:
        model_dir = Path(scratch) / "model"
        shape = {"hidden_size": 384, "intermediate_size": 1024, "num_hidden_layers": layers, "num_attention_heads": 6}
        LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, pad_token_id=1, eos_token_id=0, **shape)).save_pretrained(
            model_dir
        )
        made, first = {}, {}
        for name, precompute in (("once", True), ("online", False)):
            began = time.perf_counter()
            made[name] = trainer(Path(scratch) / name, model_dir, rows, precompute)
            first[name] = time.perf_counter() - began
            torch.manual_seed(1)
            with torch.no_grad():  # move the policy away from its reference: otherwise every loss is log 2
                for parameter in made[name].model.parameters():
                    parameter.add_(torch.randn_like(parameter) * 0.002)
        batches = {
            name: side.data_collator([side.train_dataset[i] for i in range(PAIRS)]) for name, side in made.items()
        }
        seconds: dict[str, list[float]] = {"once": [], "online": []}
        losses: dict[str, float] = {}
        for turn in range(rounds + 1):
            for name, side in made.items():
                took, losses[name] = step(side, batches[name])
                if turn:  # the first one is the warm-up
                    seconds[name].append(took)
    middle = {name: statistics.median(several) for name, several in seconds.items()}
    return {
        "seconds_a_step": middle,
        "ratio": middle["online"] / middle["once"],
        "bound": 8 / 6,
        "losses": losses,
        "equal": abs(losses["once"] - losses["online"]) < 1e-5,
        "seconds_of_the_first_pass": first["once"] - first["online"],
        "rounds": rounds,
        "tokens": tokens,
        "pairs": PAIRS,
    }


def main() -> int:
    """Measure, print and write the result; return the exit code."""
    parser = outcome.parser(__doc__)
    parser.add_argument("--rounds", type=int, default=5, metavar="N")
    parser.add_argument("--tokens", type=int, default=96, metavar="N", help="length of prompt and answer")
    args = parser.parse_args()
    if args.smoke:
        args.rounds, args.tokens = 1, 24
    result = measure(args.rounds, args.tokens, 1 if args.smoke else 8)
    result["versions"] = {name: version(name) for name in ("torch", "transformers", "trl")}
    result["hardware"] = {"machine": platform.machine(), "cores": os.cpu_count(), "load": os.getloadavg()[0]}
    once, online = result["seconds_a_step"]["once"], result["seconds_a_step"]["online"]
    print(
        f"a step: {online:.3f} s with a reference model, {once:.3f} s precomputed: {result['ratio']:.2f} x (bound 1.33)"
    )
    print(f"losses: {result['losses']['online']:.6f} and {result['losses']['once']:.6f}; required ratio {ENOUGH}")
    floors = {"times as fast as with a reference model": (result["ratio"], ENOUGH)}
    return outcome.end(args, result, equal=result["equal"], at_least=floors)


if __name__ == "__main__":
    sys.exit(main())
