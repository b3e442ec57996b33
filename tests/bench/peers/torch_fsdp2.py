#!/usr/bin/env python3
# Our own baseline script: PyTorch FSDP2 (fully_shard) on the models that this project trains, with the same
# random tokens, batch and sequence. It uses PyTorch and transformers through their public interfaces; no code
# of theirs is copied. tests/gpu/run_all runs it beside fsdp-trainer-cuda.
"""Peer baseline: PyTorch FSDP2 (fully_shard) training of the models this project trains.

One process per GPU, e.g.
    torchrun --nproc_per_node=1 torch_fsdp2.py --model minillm --compile
Prints one JSON line per run: median step time, tokens/s, achieved TFLOP/s, peak memory, losses.
Model FLOPs are counted as 6*N_matmul + 12*L*H*T*(1/2 if causal) per token (matmul parameters, the
embedding look-up excluded), the usual MFU convention.
"""
import argparse, json, os, statistics, time
import torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
from torch.distributed.fsdp import fully_shard, MixedPrecisionPolicy


class MiniBlock(nn.Module):
    def __init__(s, d, h):
        super().__init__()
        s.norm1, s.norm2 = nn.RMSNorm(d), nn.RMSNorm(d)
        s.attn = nn.MultiheadAttention(d, h, batch_first=True)
        s.ffn = nn.Sequential(nn.Linear(d, 4 * d, bias=False), nn.SiLU(), nn.Linear(4 * d, d, bias=False))

    def forward(s, x):
        y = s.norm1(x)
        x = x + s.attn(y, y, y, need_weights=False)[0]
        return x + s.ffn(s.norm2(x))


class MiniLLM(nn.Module):
    def __init__(s, vocab, d, h, n):
        super().__init__()
        s.embed = nn.Embedding(vocab, d)
        s.layers = nn.ModuleList(MiniBlock(d, h) for _ in range(n))
        s.head = nn.Linear(d, vocab, bias=False)

    def forward(s, idx):
        x = s.embed(idx)
        for b in s.layers:
            x = b(x)
        return s.head(x)


def build(a):
    if a.model == "minillm":
        a.dim, a.heads, a.n, a.vocab = a.dim or 2048, a.heads or 16, a.n or 12, a.vocab or 32000
        m = MiniLLM(a.vocab, a.dim, a.heads, a.n)
        return m, list(m.layers), False
    from transformers import LlamaConfig, LlamaForCausalLM, GPT2Config, GPT2LMHeadModel
    if a.model == "llama1b":  # Llama-3.2-1B shapes, untied head
        c = LlamaConfig(vocab_size=a.vocab or 128256, hidden_size=2048, intermediate_size=8192, num_hidden_layers=a.n or 16,
                        num_attention_heads=32, num_key_value_heads=8, head_dim=64, rope_theta=500000.0,
                        tie_word_embeddings=False, max_position_embeddings=max(8192, a.seq), use_cache=False)
        c._attn_implementation = "sdpa"
        m = LlamaForCausalLM(c)
        a.dim, a.n, a.heads = 2048, c.num_hidden_layers, 32
        return m, list(m.model.layers), True
    if a.model == "llama8b":
        c = LlamaConfig(vocab_size=a.vocab or 128256, hidden_size=4096, intermediate_size=14336, num_hidden_layers=a.n or 32,
                        num_attention_heads=32, num_key_value_heads=8, rope_theta=500000.0, tie_word_embeddings=False,
                        max_position_embeddings=max(8192, a.seq), use_cache=False)
        c._attn_implementation = "sdpa"
        m = LlamaForCausalLM(c)
        a.dim, a.n, a.heads = 4096, c.num_hidden_layers, 32
        return m, list(m.model.layers), True
    if a.model in ("qwen05b", "qwen15b"):  # Qwen2.5 shapes: QKV bias, tied head
        from transformers import Qwen2Config, Qwen2ForCausalLM
        h, i, n, q, kv = (896, 4864, 24, 14, 2) if a.model == "qwen05b" else (1536, 8960, 28, 12, 2)
        c = Qwen2Config(vocab_size=a.vocab or 151936, hidden_size=h, intermediate_size=i, num_hidden_layers=a.n or n, num_attention_heads=q,
                        num_key_value_heads=kv, rope_theta=1e6, tie_word_embeddings=True, max_position_embeddings=max(8192, a.seq), use_cache=False)
        c._attn_implementation = "sdpa"
        m = Qwen2ForCausalLM(c)
        a.dim, a.n, a.heads = h, c.num_hidden_layers, q
        return m, list(m.model.layers), True
    if a.model == "gpt2":
        c = GPT2Config(vocab_size=a.vocab or 50304, n_positions=1024, n_embd=768, n_layer=a.n or 12, n_head=12,
                       resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, use_cache=False)
        c._attn_implementation = "sdpa"
        m = GPT2LMHeadModel(c)
        a.dim, a.n, a.heads = 768, c.n_layer, 12
        return m, list(m.transformer.h), True
    raise SystemExit("unknown model " + a.model)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--model", default="minillm")
    p.add_argument("--batch", type=int, default=8)
    p.add_argument("--seq", type=int, default=1024)
    p.add_argument("--steps", type=int, default=20)
    p.add_argument("--warmup", type=int, default=5)
    p.add_argument("--vocab", type=int, default=0)
    p.add_argument("--dim", type=int, default=0)
    p.add_argument("--heads", type=int, default=0)
    p.add_argument("--layers", dest="n", type=int, default=0)
    p.add_argument("--compile", action="store_true")
    p.add_argument("--ac", action="store_true", help="activation checkpointing of every block")
    p.add_argument("--no-fsdp", action="store_true", help="plain bf16 autocast-free module, single GPU")
    a = p.parse_args()
    dist.init_process_group("nccl")
    r = int(os.environ["LOCAL_RANK"]); torch.cuda.set_device(r); dev = torch.device("cuda", r)
    torch.manual_seed(0)
    with torch.device(dev):
        m, blocks, causal = build(a)
    n_matmul = sum(q.numel() for n, q in m.named_parameters() if q.dim() == 2 and "embed" not in n and "wte" not in n and "wpe" not in n)
    n_all = sum(q.numel() for q in m.parameters())
    if a.model == "gpt2": n_matmul += (a.vocab or 50304) * a.dim  # tied head
    if a.model.startswith("qwen"): n_matmul += (a.vocab or 151936) * a.dim
    if a.ac:
        from torch.distributed.algorithms._checkpoint.checkpoint_wrapper import apply_activation_checkpointing, checkpoint_wrapper
        kinds = type(blocks[0])
        apply_activation_checkpointing(m, checkpoint_wrapper_fn=checkpoint_wrapper, check_fn=lambda x: isinstance(x, kinds))
        blocks = [x for x in m.modules() if isinstance(x, kinds)]
    mp = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    if a.compile:
        for b in blocks: b.compile()
    if not a.no_fsdp:
        for b in blocks: fully_shard(b, mp_policy=mp)
        fully_shard(m, mp_policy=mp)
    else:
        m = m.to(torch.bfloat16)
    opt = torch.optim.AdamW(m.parameters(), lr=3e-4, fused=True)
    vocab = a.vocab or {"minillm": 32000, "gpt2": 50304, "qwen05b": 151936, "qwen15b": 151936}.get(a.model, 128256)

    def loss_fn(logits, targets):
        return F.cross_entropy(logits.float().view(-1, vocab), targets.view(-1))
    if a.compile: loss_fn = torch.compile(loss_fn)
    g = torch.Generator(device=dev).manual_seed(1234 + r)
    losses, times = [], []
    torch.cuda.reset_peak_memory_stats()
    ev = lambda: torch.cuda.Event(enable_timing=True)
    t_start = time.time()
    for i in range(a.warmup + a.steps):
        x = torch.randint(0, vocab, (a.batch, a.seq), device=dev, generator=g)
        y = torch.randint(0, vocab, (a.batch, a.seq), device=dev, generator=g)
        s, e = ev(), ev(); s.record()
        opt.zero_grad()
        out = m(x); logits = out if torch.is_tensor(out) else out.logits
        loss = loss_fn(logits, y); loss.backward(); opt.step()
        e.record(); torch.cuda.synchronize()
        losses.append(round(loss.item(), 4))
        if i == 0: first = time.time() - t_start
        if i >= a.warmup: times.append(s.elapsed_time(e))
    ms = statistics.median(times); tok = a.batch * a.seq
    fl = tok * (6 * n_matmul + 12 * a.n * a.dim * a.seq * (0.5 if causal else 1.0))
    if dist.get_rank() == 0:
        print("PEER " + json.dumps(dict(model=a.model, fsdp=not a.no_fsdp, compile=a.compile, ac=a.ac, world=dist.get_world_size(), batch=a.batch, seq=a.seq,
            params_M=round(n_all / 1e6, 1), step_ms=round(ms, 2), min_ms=round(min(times), 2), tok_s_gpu=round(tok / ms * 1e3), tflops=round(fl / ms / 1e9, 1),
            peak_GB=round(torch.cuda.max_memory_allocated() / 1e9, 2), reserved_GB=round(torch.cuda.max_memory_reserved() / 1e9, 2), first_step_s=round(first, 1), losses=losses[:3] + losses[-1:])), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
