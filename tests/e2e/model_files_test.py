"""A model's files through the real binaries: config.json and safetensors in, training, the same out.

The models are the oracles' (tests/oracle): their first loss, which another implementation computed,
is what the logits of an imported model must give.
"""
import array
import json
import math
import os
import shutil
import struct
import subprocess
import tempfile
import unittest

BIN = os.environ["FSDP_BINARY_DIR"]
ORACLES = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "oracle")
# Types that array knows, by their names in safetensors.
CODES = {"F32": "f", "I32": "i"}


def read(path):
    """Metadata, and {name: (dtype, shape, bytes)}."""
    with open(path, "rb") as file:
        header = json.loads(file.read(struct.unpack("<Q", file.read(8))[0]))
        data = file.read()
    metadata = header.pop("__metadata__", {})
    return metadata, {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])])
                      for name, t in header.items()}


def write(path, tensors, metadata=None):
    header, offset = ({"__metadata__": metadata} if metadata else {}), 0
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [offset, offset + len(data)]}
        offset += len(data)
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def numbers(tensor):
    values = array.array(CODES[tensor[0]])
    values.frombytes(tensor[2])
    return values


class ModelFiles(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="fsdp-model-files-")
        self.addCleanup(shutil.rmtree, self.directory)

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def run_tool(self, *command, code=0):
        ended = subprocess.run([os.path.join(BIN, command[0]), *command[1:]], text=True,
                               stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=200,
                               check=False)
        self.assertEqual(ended.returncode, code, ended.stdout)
        return ended.stdout

    def make_model(self, name, edit=lambda tensors: tensors, **config):
        """The folder of an oracle's first weights; what the oracle says of them."""
        metadata, tensors = read(os.path.join(ORACLES, name + ".safetensors"))
        oracle = json.loads(metadata["config"])
        model = dict(oracle["model"], **config)
        model["model_type"] = model.pop("family")
        weights = {n[5:]: t for n, t in tensors.items() if n.startswith("init.")}
        folder = self.path(name)
        os.makedirs(folder)
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(model, file)
        write(os.path.join(folder, "model.safetensors"), edit(weights), {"format": "pt"})
        batch, length = oracle["batch"], oracle["seq"]
        first = {n: numbers(tensors[n])[:batch * length] for n in ("tokens", "targets")}
        write(self.path("tokens.safetensors"),
              {"tokens": ("I32", [batch, length], first["tokens"].tobytes())})
        return folder, first["targets"], numbers(tensors["loss_fp32"])[0]

    def logits(self, folder, *more):
        self.run_tool("fsdp-trainer", "logits", "--model", folder, "--tokens",
                      self.path("tokens.safetensors"), "--output", self.path("logits"), *more)
        _, tensors = read(self.path("logits"))
        return tensors["logits"]

    @staticmethod
    def loss(logits, targets):
        vocabulary, values, total, count = logits[1][-1], numbers(logits), 0.0, 0
        for row, target in enumerate(targets):
            if target < 0:
                continue
            scores = values[row * vocabulary:(row + 1) * vocabulary]
            most = max(scores)
            total += most + math.log(sum(math.exp(x - most) for x in scores)) - scores[target]
            count += 1
        return total / count

    def assert_first_loss(self, name, edit=lambda tensors: tensors, **config):
        folder, targets, loss = self.make_model(name, edit, **config)
        self.assertAlmostEqual(self.loss(self.logits(folder), targets) / loss, 1, delta=2e-5)
        return folder

    def test_imported_models_say_what_the_oracles_say(self):
        for name in ("qwen3-tiny", "qwen3-yarn", "qwen2-llama3", "mistral-linear", "gpt2-tiny",
                     "llama-bias"):
            with self.subTest(name):
                self.assert_first_loss(name)

    def test_a_base_models_names_and_buffers(self):
        def without_prefix(tensors):
            short = {n.removeprefix("transformer."): t for n, t in tensors.items()}
            short["h.0.attn.bias"] = ("I32", [1], struct.pack("<i", 1))
            short["h.1.attn.masked_bias"] = ("F32", [], struct.pack("<f", -1e4))
            short["lm_head.weight"] = short["wte.weight"]
            return short
        self.assert_first_loss("gpt2-tiny", without_prefix)

    def test_errors_name_the_tensor(self):
        name = "model.layers.1.self_attn.q_norm.weight"

        def refuse(words, edit, oracle="qwen3-tiny", **config):
            folder, _, _ = self.make_model(oracle, edit, **config)
            output = self.run_tool("fsdp-trainer", "logits", "--model", folder, "--tokens",
                                   self.path("tokens.safetensors"), "--output",
                                   self.path("logits"), code=2)
            self.assertIn(words, output)
            self.assertFalse(os.path.exists(self.path("logits")))
            shutil.rmtree(folder)

        def change(new):
            def edit(tensors):
                tensors.update(new(tensors))
                return tensors
            return edit

        refuse("missing " + name, lambda t: {n: x for n, x in t.items() if n != name})
        refuse("extra surprise", change(lambda t: {"surprise": t[name]}))
        refuse(name + " ([4,4], the model has [16])",
               change(lambda t: {name: ("F32", [4, 4], t[name][2])}))
        bad = struct.pack("<16f", *([1] * 5 + [math.nan] + [1] * 10))
        refuse(f'"{name}" has nan in row 5', change(lambda t: {name: ("F32", [16], bad)}))
        other = struct.pack("<f", 7) * (89 * 48)
        refuse('"lm_head.weight" differs from "model.embed_tokens.weight" in row 0',
               change(lambda t: {"lm_head.weight": ("F32", [89, 48], other)}))
        refuse("hidden_act", lambda t: t, hidden_act="gelu")
        refuse("config.novel_key is not understood", lambda t: t, novel_key=1)

    def job(self, folder, steps, *more):
        """Trains the folder's model; the job's checkpoints."""
        spec = self.path("job.yaml")
        with open(spec, "w", encoding="utf-8") as file:
            json.dump({"apiVersion": "fsdp.v1", "kind": "TrainingJob", "metadata": {"name": "m"},
                       "spec": {"model": {"configPath": folder, "initFrom": folder},
                                "data": {"source": "synthetic", "sequenceLength": 32},
                                "train": {"globalBatch": 4},
                                "optimizer": {"lr": 0.01},
                                "precision": {"parameters": "fp32"},
                                "checkpoint": {"dir": self.path("checkpoints"),
                                               "everySteps": steps},
                                "limits": {"maxSteps": steps},
                                "resources": {"device": "cpu"}}}, file)
        self.run_tool("fsdp-trainer", "run", spec, *more)
        (folder,) = [entry.path for entry in os.scandir(self.path("checkpoints"))
                     if entry.is_dir()]
        return folder

    def test_train_and_export(self):
        folder, _, _ = self.make_model("qwen3-tiny")
        before = self.logits(folder)
        checkpoints = self.job(folder, 3, "--local-ranks", "2")
        after = self.logits(checkpoints + "/" + sorted(
            n for n in os.listdir(checkpoints) if n.startswith("step-"))[-1])
        self.assertNotEqual(before[2], after[2])
        with open(self.path("tokenizer.json"), "w", encoding="utf-8") as file:
            file.write("{}")
        with open(self.path("config.json"), "w", encoding="utf-8") as file:
            json.dump({"eos_token_id": [5, 6], "bos_token_id": 4}, file)

        output = self.path("exported")
        text = self.run_tool("fsdpctl", "export", checkpoints, "--output", output, "--verify",
                             "--tokenizer", self.directory, "--max-shard-size", "60KB")
        self.assertIn("verified", text)
        self.assertEqual(self.logits(output)[2], after[2])
        with open(os.path.join(output, "config.json"), encoding="utf-8") as file:
            config = json.load(file)
        self.assertEqual(config["architectures"], ["Qwen3ForCausalLM"])
        self.assertIs(config["tie_word_embeddings"], True)
        self.assertEqual(config["rope_theta"], 1e6)
        self.assertEqual(config["rope_parameters"], {"rope_theta": 1e6, "rope_type": "default"})
        self.assertEqual(config["eos_token_id"], [5, 6])
        with open(os.path.join(output, "model.safetensors.index.json"), encoding="utf-8") as file:
            index = json.load(file)
        self.assertNotIn("lm_head.weight", index["weight_map"])
        self.assertGreater(len(set(index["weight_map"].values())), 2)
        for name in set(index["weight_map"].values()):
            metadata, tensors = read(os.path.join(output, name))
            self.assertEqual(metadata, {"format": "pt"})
            self.assertEqual({n for n, f in index["weight_map"].items() if f == name},
                             set(tensors))
        self.assertTrue(os.path.exists(os.path.join(output, "tokenizer.json")))
        # What is there is never written over.
        self.assertIn("exists", self.run_tool("fsdpctl", "export", checkpoints, "--output", output,
                                              code=2))

        for dtype, name in ("bf16", "BF16"), ("fp16", "F16"):
            narrow = self.path(dtype)
            self.run_tool("fsdpctl", "export", checkpoints, "--output", narrow, "--dtype", dtype,
                          "--verify")
            _, tensors = read(os.path.join(narrow, "model.safetensors"))
            self.assertEqual({t[0] for t in tensors.values()}, {name})
        self.assertEqual([n for n in os.listdir(self.directory) if ".tmp." in n], [])

    def test_plan_and_bench_take_a_config_by_path(self):
        folder, _, _ = self.make_model("qwen3-tiny")
        _, tensors = read(os.path.join(folder, "model.safetensors"))
        parameters = sum(len(data) // 4 for _, _, data in tensors.values())
        plan = json.loads(self.run_tool("fsdpctl", "plan", "--model", folder, "--world-size", "2",
                                        "--set", "data.sequenceLength=64", "-o", "json"))
        self.assertEqual(int(plan["parameters"]), parameters)
        self.assertEqual(int(plan["tokensPerStep"]), 128)
        self.assertIn("qwen05b is", self.run_tool("fsdpctl", "plan", "--model", "qwen05b is", code=2))
        self.assertIn("--model", self.run_tool("fsdpctl", "plan", "--model", "qwen05b", "job.yaml",
                                               code=2))
        self.run_tool("fsdp-trainer", "bench", "--model", folder, "--batch", "1", "--seq", "8",
                      "--steps", "1", "--warmup", "0", "--precision", "fp32")

    def test_a_job_whose_config_is_elsewhere_is_not_checked_here(self):
        with open(self.path("job.yaml"), "w", encoding="utf-8") as file:
            json.dump({"apiVersion": "fsdp.v1", "kind": "TrainingJob", "metadata": {"name": "m"},
                       "spec": {"model": {"configPath": "/elsewhere/config.json"},
                                "data": {"source": "synthetic", "sequenceLength": 32},
                                "train": {"globalBatch": 4}, "limits": {"maxSteps": 1}}}, file)
        text = self.run_tool("fsdpctl", "validate", self.path("job.yaml"))
        self.assertIn("cannot be read here", text)
        self.assertIn("spec.model.configPath: ",
                      self.run_tool("fsdpctl", "plan", self.path("job.yaml"), code=3))

    def test_a_failed_export_leaves_nothing(self):
        folder, _, _ = self.make_model("qwen3-tiny")
        huge = struct.pack("<f", 1e6) * 48

        def edit(path):
            _, tensors = read(path)
            tensors["model.norm.weight"] = ("F32", [48], huge)
            write(path, tensors, {"format": "pt"})

        edit(os.path.join(folder, "model.safetensors"))
        output = self.run_tool("fsdp-trainer", "export", folder, "--output", self.path("out"),
                               "--dtype", "fp16", code=2)
        self.assertIn('"model.norm.weight" has 1e+06 in row 0, which F16 does not hold', output)
        self.assertEqual([n for n in os.listdir(self.directory) if n.startswith("out")], [])


if __name__ == "__main__":
    unittest.main()
