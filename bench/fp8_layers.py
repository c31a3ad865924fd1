"""FP8 against bfloat16 on a GPU: two layers of the 7.39 B model, compiled, forward and backward; used by one_gpu.py."""

import statistics
import time
from dataclasses import replace
from typing import Any


def compare() -> dict[str, Any]:
    """Return what the probe of `stage.fp8: auto` says, seconds of a step in each, how far results and gradients are apart (relative
    norms), and whether every weight kept its name.

    One product is 0.037 apart, which is e4m3's rounding of both factors (three bits of mantissa), whatever its size. Two layers of
    random weights add up to more, the wider the more: emulated on CPU 0.091 at width 256, 0.114 at 1024.
    """
    import torch
    from trainlab.engine import acceleration
    from trainlab.models import architectures
    from transformers import AutoModelForCausalLM, LlamaConfig

    size = replace(architectures.TABLE["llama-7.39B"], layers=2, vocab=512)
    config = LlamaConfig(**size.config)
    torch.manual_seed(42)
    with torch.device("cuda"):
        plain: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        eight: Any = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
        ids = torch.randint(512, (4, 2047))  # rows whose tokens are no multiple of 16: padded
    eight.load_state_dict(plain.state_dict())
    probe = acceleration._slow(plain)
    acceleration.convert(eight)
    times, hidden, gradients = [], [], []
    for model in (plain, eight):
        acceleration.compile_layers(model)
        for _ in range(3):
            model.zero_grad()
            output = model(input_ids=ids, labels=ids, output_hidden_states=True)
            output.loss.backward()
        hidden.append(output.hidden_states[-1].detach().float())
        gradients.append(model.model.layers[0].mlp.up_proj.weight.grad.float().clone())
        each = []
        for _ in range(13):
            torch.cuda.synchronize()
            began = time.monotonic()
            model(input_ids=ids, labels=ids).loss.backward()
            torch.cuda.synchronize()
            each.append(time.monotonic() - began)
        times.append(statistics.median(each[3:]))  # without hidden states the layers are compiled anew

    rows = torch.randn(4096, size.hidden, device="cuda", dtype=torch.bfloat16)
    linear = torch.nn.Linear(size.hidden, size.intermediate, bias=False)
    matrix: Any = torch.nn.Sequential(linear).to("cuda", torch.bfloat16)
    product = [matrix(rows).detach().float()]
    acceleration.convert(matrix)
    product.append(matrix(rows).detach().float())

    def apart(pair: list[Any]) -> float:
        return round(float((pair[0] - pair[1]).norm() / pair[0].norm()), 4)

    names = [name for name, _ in plain.named_parameters()] == [name for name, _ in eight.named_parameters()]
    ratio = round(times[0] / times[1], 3)
    return {
        "probe": probe or f"FP8 pays (at least {acceleration.PAYS})",
        "times_bf16_fp8_seconds": [round(value, 4) for value in times],
        "faster": ratio,
        "product_apart": apart(product),
        "hidden_apart": apart(hidden),
        "gradient_apart": apart(gradients),
        "same_names": names,
    }
