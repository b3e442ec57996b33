#!/usr/bin/env python3
"""Writes training oracles for what PyTorch's files beside it do not cover: q/k norm and rope scaling.

An implementation apart from the engine: plain numpy in float64, forward and backward by hand, with
the formulas of transformers' modelling files. The files have the layout of the others (README.md);
their loss_bf16 is the same run with every intermediate result rounded to bf16, as PyTorch's eager
mode does it.

    make_numpy_oracle.py OUTDIR [NAME...]     writes them
    make_numpy_oracle.py --check              its own gradients against central differences
    make_numpy_oracle.py --verify FILE...     replays PyTorch-made files of family llama and compares
"""
import json
import math
import struct
import sys

import numpy as np

PRE = dict(lr=3e-3, beta1=0.9, beta2=0.95, eps=1e-8, weight_decay=0.1, grad_clip=1.0)
YARN = dict(rope_type="yarn", rope_theta=10000.0, factor=4.0, original_max_position_embeddings=16)
LLAMA3 = dict(rope_type="llama3", rope_theta=10000.0, factor=8.0, low_freq_factor=1.0,
              high_freq_factor=4.0, original_max_position_embeddings=24)
LINEAR = dict(rope_type="linear", rope_theta=10000.0, factor=2.5)
# name: model, optimizer, batch, sequence length, steps, seed
CASES = {
    "qwen3-tiny": (dict(family="qwen3", vocab_size=89, hidden_size=48, intermediate_size=80,
                        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                        head_dim=16, rope_theta=1e6, rms_norm_eps=1e-6, tie_word_embeddings=True),
                   PRE, 2, 32, 20, 11),
    "qwen3-yarn": (dict(family="qwen3", vocab_size=61, hidden_size=36, intermediate_size=50,
                        num_hidden_layers=3, num_attention_heads=6, num_key_value_heads=3,
                        head_dim=10, rms_norm_eps=1e-6, attention_bias=True,
                        max_position_embeddings=64, tie_word_embeddings=False,
                        rope_parameters=YARN), PRE, 3, 37, 20, 12),
    "qwen2-llama3": (dict(family="qwen2", vocab_size=61, hidden_size=40, intermediate_size=56,
                          num_hidden_layers=2, num_attention_heads=5, num_key_value_heads=1,
                          rms_norm_eps=1e-5, tie_word_embeddings=True,
                          rope_parameters=LLAMA3), PRE, 2, 29, 20, 25),
    "mistral-linear": (dict(family="mistral", vocab_size=61, hidden_size=32, intermediate_size=48,
                            num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
                            rms_norm_eps=1e-5, sliding_window=None, rope_parameters=LINEAR),
                       PRE, 2, 29, 20, 14),
}


def to_bf16(x):
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & np.uint32(0xFFFF0000)
    return bits.view(np.float32).astype(np.float64)


def exact(x):
    return x


class Shape:
    """A model's sizes and switches, from the keys of its config.json."""

    def __init__(self, c):
        self.vocab, self.dim, self.mlp = c["vocab_size"], c["hidden_size"], c["intermediate_size"]
        self.layers, self.heads = c["num_hidden_layers"], c["num_attention_heads"]
        self.kv_heads = c.get("num_key_value_heads", self.heads)
        self.head_dim = c.get("head_dim") or self.dim // self.heads
        self.eps = c.get("rms_norm_eps", 1e-6)
        self.tied = c.get("tie_word_embeddings", False)
        self.qk_norm = c["family"] == "qwen3"
        self.o_bias = c.get("attention_bias", False)
        self.qkv_bias = self.o_bias or c["family"] == "qwen2"
        self.rope = dict(rope_theta=c.get("rope_theta", 10000.0))
        self.rope.update(c.get("rope_parameters") or {})

    def parameters(self):
        d, q, kv = self.dim, self.heads * self.head_dim, self.kv_heads * self.head_dim
        yield "model.embed_tokens.weight", (self.vocab, d)
        for layer in range(self.layers):
            p = f"model.layers.{layer}."
            yield p + "input_layernorm.weight", (d,)
            for name, rows in ("q", q), ("k", kv), ("v", kv):
                yield f"{p}self_attn.{name}_proj.weight", (rows, d)
                if self.qkv_bias:
                    yield f"{p}self_attn.{name}_proj.bias", (rows,)
            if self.qk_norm:
                yield p + "self_attn.q_norm.weight", (self.head_dim,)
                yield p + "self_attn.k_norm.weight", (self.head_dim,)
            yield p + "self_attn.o_proj.weight", (d, q)
            if self.o_bias:
                yield p + "self_attn.o_proj.bias", (d,)
            yield p + "post_attention_layernorm.weight", (d,)
            yield p + "mlp.gate_proj.weight", (self.mlp, d)
            yield p + "mlp.up_proj.weight", (self.mlp, d)
            yield p + "mlp.down_proj.weight", (d, self.mlp)
        yield "model.norm.weight", (d,)
        if not self.tied:
            yield "lm_head.weight", (self.vocab, d)


def inverse_frequencies(rope, dim):
    """transformers' modeling_rope_utils: inverse frequencies and the factor of cos and sin."""
    base, kind = rope["rope_theta"], rope.get("rope_type", "default")
    inverse = 1.0 / base ** (np.arange(0, dim, 2, dtype=np.float64) / dim)
    if kind == "default":
        return inverse, 1.0
    factor = rope["factor"]
    if kind == "linear":
        return inverse / factor, 1.0
    original = rope["original_max_position_embeddings"]
    if kind == "llama3":
        low_wave, high_wave = original / rope["low_freq_factor"], original / rope["high_freq_factor"]
        wave = 2 * math.pi / inverse
        out = np.where(wave > low_wave, inverse / factor, inverse)
        smooth = (original / wave - rope["low_freq_factor"]) / (
            rope["high_freq_factor"] - rope["low_freq_factor"])
        blended = (1 - smooth) * out / factor + smooth * out
        return np.where((wave >= high_wave) & (wave <= low_wave), blended, out), 1.0
    assert kind == "yarn", kind

    def correction_dim(rotations):
        return dim * math.log(original / (rotations * 2 * math.pi)) / (2 * math.log(base))

    low = max(math.floor(correction_dim(rope.get("beta_fast", 32))), 0)
    high = min(math.ceil(correction_dim(rope.get("beta_slow", 1))), dim - 1)
    if low == high:
        high += 0.001
    extrapolated = 1 - np.clip((np.arange(dim // 2) - low) / (high - low), 0, 1)
    out = inverse / factor * (1 - extrapolated) + inverse * extrapolated
    return out, rope.get("attention_factor") or 0.1 * math.log(factor) + 1.0


class Model:
    def __init__(self, config, rounding=exact):
        self.s = Shape(config)
        self.r = rounding

    def tables(self, length):
        inverse, magnitude = inverse_frequencies(self.s.rope, self.s.head_dim)
        angles = np.outer(np.arange(length), np.concatenate([inverse, inverse]))
        return self.r(magnitude * np.cos(angles)), self.r(magnitude * np.sin(angles))

    # Each forward returns its output and what its backward takes.
    def norm(self, x, w):
        rstd = 1 / np.sqrt((x * x).mean(-1, keepdims=True) + self.s.eps)
        hat = self.r(x * rstd)
        return self.r(hat * w), (x * rstd, rstd, w)

    def norm_back(self, dy, saved):
        hat, rstd, w = saved
        dw = (dy * hat).reshape(-1, w.size).sum(0)
        g = dy * w
        return self.r(rstd * (g - hat * (g * hat).mean(-1, keepdims=True))), self.r(dw)

    @staticmethod
    def rotate_half(x):
        half = x.shape[-1] // 2
        return np.concatenate([-x[..., half:], x[..., :half]], -1)

    def rotate(self, x, cos, sin):
        return self.r(self.r(x * cos) + self.r(self.rotate_half(x) * sin))

    def rotate_back(self, dy, cos, sin):
        turned = dy * sin
        half = dy.shape[-1] // 2
        return self.r(dy * cos + np.concatenate([turned[..., half:], -turned[..., :half]], -1))

    def linear(self, x, w, b=None):
        return self.r(x @ w.T + (0 if b is None else b))

    def linear_back(self, dy, x, w):
        flat = dy.reshape(-1, dy.shape[-1])
        return self.r(dy @ w), self.r(flat.T @ x.reshape(-1, x.shape[-1])), self.r(flat.sum(0))

    def attention(self, w, p, h, cos, sin):
        s, (batch, length, _) = self.s, h.shape
        saved = {"h": h}
        heads = {}
        for name, count in ("q", s.heads), ("k", s.kv_heads), ("v", s.kv_heads):
            bias = w.get(f"{p}{name}_proj.bias")
            x = self.linear(h, w[f"{p}{name}_proj.weight"], bias)
            x = x.reshape(batch, length, count, s.head_dim)
            if name != "v":
                if s.qk_norm:
                    x, saved[name + "norm"] = self.norm(x, w[f"{p}{name}_norm.weight"])
                x = self.rotate(x, cos[:, None], sin[:, None])
            heads[name] = x
        group = s.heads // s.kv_heads
        q, k, v = heads["q"], heads["k"].repeat(group, 2), heads["v"].repeat(group, 2)
        scale = s.head_dim ** -0.5
        scores = self.r(self.r(np.einsum("bihd,bjhd->bhij", q, k)) * scale)
        scores = np.where(np.tri(length, dtype=bool), scores, -np.inf)
        e = np.exp(scores - scores.max(-1, keepdims=True))
        prob = self.r(e / e.sum(-1, keepdims=True))
        out = self.r(np.einsum("bhij,bjhd->bihd", prob, v)).reshape(batch, length, -1)
        saved.update(q=q, k=k, v=v, prob=prob, out=out)
        return self.linear(out, w[p + "o_proj.weight"], w.get(p + "o_proj.bias")), saved

    def attention_back(self, dy, w, p, saved, cos, sin, grads):
        s, (batch, length, _) = self.s, dy.shape
        d_out, grads[p + "o_proj.weight"], bias = self.linear_back(
            dy, saved["out"], w[p + "o_proj.weight"])
        if s.o_bias:
            grads[p + "o_proj.bias"] = bias
        d_out = d_out.reshape(batch, length, s.heads, s.head_dim)
        prob = saved["prob"]
        d_prob = self.r(np.einsum("bihd,bjhd->bhij", d_out, saved["v"]))
        d_scores = self.r(prob * (d_prob - (prob * d_prob).sum(-1, keepdims=True)))
        d_scores = self.r(d_scores * s.head_dim ** -0.5)
        d = {"q": self.r(np.einsum("bhij,bjhd->bihd", d_scores, saved["k"])),
             "k": self.r(np.einsum("bhij,bihd->bjhd", d_scores, saved["q"])),
             "v": self.r(np.einsum("bhij,bihd->bjhd", prob, d_out))}
        dh = 0
        for name, count in ("q", s.heads), ("k", s.kv_heads), ("v", s.kv_heads):
            dx = self.r(d[name].reshape(batch, length, count, -1, s.head_dim).sum(3))
            if name != "v":
                dx = self.rotate_back(dx, cos[:, None], sin[:, None])
                if s.qk_norm:
                    dx, grads[f"{p}{name}_norm.weight"] = self.norm_back(dx, saved[name + "norm"])
            part, grads[f"{p}{name}_proj.weight"], bias = self.linear_back(
                dx.reshape(batch, length, -1), saved["h"], w[f"{p}{name}_proj.weight"])
            if s.qkv_bias:
                grads[f"{p}{name}_proj.bias"] = bias
            dh = self.r(dh + part)
        return dh

    def mlp(self, w, p, h):
        gate, up = self.linear(h, w[p + "gate_proj.weight"]), self.linear(h, w[p + "up_proj.weight"])
        act = self.r(gate / (1 + np.exp(-gate)))
        mid = self.r(act * up)
        return self.linear(mid, w[p + "down_proj.weight"]), (h, gate, up, act, mid)

    def mlp_back(self, dy, w, p, saved, grads):
        h, gate, up, act, mid = saved
        d_mid, grads[p + "down_proj.weight"], _ = self.linear_back(dy, mid, w[p + "down_proj.weight"])
        sigmoid = 1 / (1 + np.exp(-gate))
        d_gate = self.r(self.r(d_mid * up) * sigmoid * (1 + gate * (1 - sigmoid)))
        d_up = self.r(d_mid * act)
        a, grads[p + "gate_proj.weight"], _ = self.linear_back(d_gate, h, w[p + "gate_proj.weight"])
        b, grads[p + "up_proj.weight"], _ = self.linear_back(d_up, h, w[p + "up_proj.weight"])
        return self.r(a + b)

    def loss_and_gradients(self, weights, tokens, targets):
        w = {name: self.r(value) for name, value in weights.items()}
        cos, sin = self.tables(tokens.shape[1])
        head = "model.embed_tokens.weight" if self.s.tied else "lm_head.weight"
        x, tape = w["model.embed_tokens.weight"][tokens], []
        for layer in range(self.s.layers):
            p = f"model.layers.{layer}."
            h, norm1 = self.norm(x, w[p + "input_layernorm.weight"])
            a, attention = self.attention(w, p + "self_attn.", h, cos, sin)
            x = self.r(x + a)
            h, norm2 = self.norm(x, w[p + "post_attention_layernorm.weight"])
            m, mlp = self.mlp(w, p + "mlp.", h)
            x = self.r(x + m)
            tape.append((norm1, attention, norm2, mlp))
        h, final = self.norm(x, w["model.norm.weight"])
        logits = self.linear(h, w[head])
        shifted = logits - logits.max(-1, keepdims=True)
        log_p = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
        valid = targets >= 0
        count = valid.sum()
        picked = np.take_along_axis(log_p, np.where(valid, targets, 0)[..., None], -1)[..., 0]
        loss = -(picked * valid).sum() / count
        d_logits = np.exp(log_p)
        np.put_along_axis(d_logits, np.where(valid, targets, 0)[..., None],
                          np.exp(picked)[..., None] - 1, -1)
        d_logits = self.r(d_logits * valid[..., None] / count)
        grads = {}
        dx, d_head, _ = self.linear_back(d_logits, h, w[head])
        dx, grads["model.norm.weight"] = self.norm_back(dx, final)
        for layer in reversed(range(self.s.layers)):
            p = f"model.layers.{layer}."
            norm1, attention, norm2, mlp = tape[layer]
            dh = self.mlp_back(dx, w, p + "mlp.", mlp, grads)
            dh, grads[p + "post_attention_layernorm.weight"] = self.norm_back(dh, norm2)
            dx = self.r(dx + dh)
            dh = self.attention_back(dx, w, p + "self_attn.", attention, cos, sin, grads)
            dh, grads[p + "input_layernorm.weight"] = self.norm_back(dh, norm1)
            dx = self.r(dx + dh)
        d_embed = np.zeros_like(w["model.embed_tokens.weight"])
        np.add.at(d_embed, tokens.reshape(-1), dx.reshape(-1, dx.shape[-1]))
        grads["model.embed_tokens.weight"] = d_embed + (d_head if self.s.tied else 0)
        if not self.s.tied:
            grads["lm_head.weight"] = d_head
        return loss, grads


def train(config, optimizer, weights, tokens, targets, rounding=exact):
    """Losses, gradient norms, the first step's gradients, the last weights."""
    model, w = Model(config, rounding), {n: v.astype(np.float64) for n, v in weights.items()}
    m, v = ({n: np.zeros_like(x) for n, x in w.items()} for _ in range(2))
    losses, norms, first = [], [], None
    o = optimizer
    for step in range(1, len(tokens) + 1):
        loss, grads = model.loss_and_gradients(w, tokens[step - 1], targets[step - 1])
        norm = math.sqrt(sum((g * g).sum() for g in grads.values()))
        first = first or {n: g.copy() for n, g in grads.items()}
        scale = min(1.0, o["grad_clip"] / (norm + 1e-6)) if o["grad_clip"] > 0 else 1.0
        for name, weight in w.items():
            g = grads[name] * scale
            m[name] = o["beta1"] * m[name] + (1 - o["beta1"]) * g
            v[name] = o["beta2"] * v[name] + (1 - o["beta2"]) * g * g
            root = np.sqrt(v[name] / (1 - o["beta2"] ** step)) + o["eps"]
            weight *= 1 - o["lr"] * o["weight_decay"]
            weight -= o["lr"] / (1 - o["beta1"] ** step) * m[name] / root
        losses.append(loss)
        norms.append(norm)
    return losses, norms, first, w


def batches(vocab, batch, length, steps, seed):
    """A noisy periodic sequence, next-token targets, a few of them ignored."""
    g = np.random.default_rng(seed)
    base = g.integers(0, vocab, 17)
    sequence = base[(np.arange(length + 1) + g.integers(0, 17, (steps, batch, 1))) % 17]
    noise = g.random(sequence.shape) < 0.1
    sequence[noise] = g.integers(0, vocab, int(noise.sum()))
    tokens, targets = sequence[..., :-1].copy(), sequence[..., 1:].copy()
    targets[g.random(targets.shape) < 0.05] = -100
    return tokens, targets


def initial_weights(config, seed):
    g = np.random.default_rng(seed)
    weights = {}
    for name, shape in Shape(config).parameters():
        value = g.normal(0, 0.05, shape)
        if name.endswith("norm.weight"):
            value = 1 + 4 * value  # so that a norm without its weight is seen
        weights[name] = value.astype(np.float32)
    return weights


def read(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    types = {"F32": np.float32, "I32": np.int32}
    config = json.loads(header.pop("__metadata__")["config"])
    return config, {
        name: np.frombuffer(data[slice(*t["data_offsets"])], types[t["dtype"]]).reshape(t["shape"])
        for name, t in header.items()}


def write(path, tensors, config):
    header, offset = {"__metadata__": {"config": json.dumps(config)}}, 0
    for name, x in tensors.items():
        header[name] = {"dtype": "I32" if x.dtype == np.int32 else "F32", "shape": list(x.shape),
                        "data_offsets": [offset, offset + x.nbytes]}
        offset += x.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for x in tensors.values():
            file.write(x.tobytes())


def make(directory, name):
    config, optimizer, batch, length, steps, seed = CASES[name]
    weights = initial_weights(config, seed)
    tokens, targets = batches(config["vocab_size"], batch, length, steps, seed)
    losses, norms, first, final = train(config, optimizer, weights, tokens, targets)
    rounded, _, _, _ = train(config, optimizer, weights, tokens, targets, to_bf16)
    narrow = {"init." + n: x for n, x in weights.items()}
    narrow.update({"grad0." + n: x for n, x in first.items()})
    narrow.update({"final." + n: x for n, x in final.items()})
    narrow.update(loss_fp32=np.array(losses), grad_norm_fp32=np.array(norms),
                  loss_bf16=np.array(rounded))
    tensors = {n: np.ascontiguousarray(x, np.float32) for n, x in narrow.items()}
    tensors.update(tokens=tokens.astype(np.int32), targets=targets.astype(np.int32))
    write(f"{directory}/{name}.safetensors", tensors,
          dict(model=config, optimizer=optimizer, batch=batch, seq=length, steps=steps, seed=seed))
    print(name, "loss", round(losses[0], 4), "->", round(losses[-1], 4), "bf16 rms",
          f"{np.sqrt(np.mean((np.array(losses) - rounded) ** 2)):.2e}")


def check():
    for name, (config, _, batch, _, _, seed) in CASES.items():
        model = Model(config)
        w = {n: x.astype(np.float64) for n, x in initial_weights(config, seed).items()}
        tokens, targets = (x[0] for x in batches(config["vocab_size"], batch, 9, 1, seed))
        _, grads = model.loss_and_gradients(w, tokens, targets)
        worst = 0.0
        for tensor, gradient in grads.items():
            flat = w[tensor].reshape(-1)
            for i in range(0, flat.size, max(1, flat.size // 5)):
                before, h = flat[i], 1e-5
                flat[i] = before + h
                above, _ = model.loss_and_gradients(w, tokens, targets)
                flat[i] = before - h
                below, _ = model.loss_and_gradients(w, tokens, targets)
                flat[i] = before
                error = abs((above - below) / (2 * h) - gradient.reshape(-1)[i])
                worst = max(worst, error / max(1e-3, np.abs(gradient).max()))
        print(name, f"worst gradient error {worst:.1e}")
        assert worst < 1e-6, name


def verify(path):
    config, t = read(path)
    weights = {n[5:]: x for n, x in t.items() if n.startswith("init.")}
    losses, _, first, _ = train(config["model"], config["optimizer"], weights, t["tokens"],
                                t["targets"])
    error = np.max(np.abs(np.array(losses) / t["loss_fp32"] - 1))
    gradient = max(np.linalg.norm(first[n] - t["grad0." + n]) / np.linalg.norm(t["grad0." + n])
                   for n in weights)
    print(path, f"loss error {error:.1e}, gradient error {gradient:.1e}")
    assert error < 2e-5 and gradient < 1e-5, path


def main():
    if sys.argv[1] == "--check":
        check()
    elif sys.argv[1] == "--verify":
        for path in sys.argv[2:]:
            verify(path)
    else:
        for name in sys.argv[2:] or CASES:
            make(sys.argv[1], name)


if __name__ == "__main__":
    main()
