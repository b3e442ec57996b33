"""Text through a tokenizer as a job's data: made once, the same bits as tokens made beforehand, and what goes wrong."""

import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import BIN, Cluster, tiny_job, wait_for  # noqa: E402
from small_disk import small_disk  # noqa: E402


def small_tokenizer(merges=(("t", "h"), ("th", "e"), ("Ġ", "the"), ("q", "u"), ("i", "n"))):
    """A byte-level tokenizer.json: an id for each byte, one for each merge, and the end of a text."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    spelling = {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}
    vocab = {spelling[byte]: byte for byte in range(256)}
    for left, right in merges:
        vocab[left + right] = len(vocab)
    end = {"id": len(vocab), "content": "<|endoftext|>", "single_word": False, "lstrip": False, "rstrip": False,
           "normalized": False, "special": True}
    return {"added_tokens": [end], "normalizer": None,
            "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "use_regex": True},
            "model": {"type": "BPE", "vocab": vocab, "merges": [f"{a} {b}" for a, b in merges]}}


def documents(count, seed):
    generator = random.Random(seed)
    words = ["the", "quick", "inner", "then", "fox", "émigré", "日本", "42"]
    return [" ".join(generator.choice(words) for _ in range(generator.randint(1, 30))) for _ in range(count)]


class TextDataTest(unittest.TestCase):
    def setUp(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="fsdp-text-"))
        self.addCleanup(shutil.rmtree, self.root)
        (self.root / "tokenizer.json").write_text(json.dumps(small_tokenizer()), encoding="utf-8")
        self.corpus = self.root / "corpus"
        self.corpus.mkdir()
        for name, seed in (("a.jsonl", 1), ("b.jsonl", 2)):
            lines = (json.dumps({"id": i, "text": text}) for i, text in enumerate(documents(300, seed)))
            (self.corpus / name).write_text("\n".join(lines) + "\n", encoding="utf-8")

    def job(self, **data):
        document = tiny_job(name="text", ranks=2, steps=6, model={"vocabSize": 262})
        document["spec"]["data"] = {"source": "text", "path": str(self.corpus), "sequenceLength": 32,
                                    "tokenizer": str(self.root / "tokenizer.json"), "validationFraction": 0.1, **data}
        return document

    def tokenize(self, tokenizer="tokenizer.json"):
        done = subprocess.run([str(BIN / "fsdpctl"), "tokenize", "--tokenizer", str(self.root / tokenizer),
                               "--output", str(self.root / "tokens"), str(self.corpus)], text=True,
                              capture_output=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return {"source": "tokens", "path": str(self.root / "tokens"), "sequenceLength": 32,
                "validationFraction": 0.1}

    def start(self, document, *flags, **options):
        path = self.root / "job.json"
        path.write_text(json.dumps(document), encoding="utf-8")
        return subprocess.Popen([str(BIN / "fsdp-trainer"), "run", str(path), *flags], text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                env={**os.environ, "XDG_CACHE_HOME": str(self.root / "cache")}, **options)

    def run_alone(self, document, *flags):
        process = self.start(document, *flags)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, err

    def kept(self, kind="*"):
        return [path for path in (self.root / "cache/fsdpctl/tokens").glob(kind) if path.is_dir()]

    def test_a_submitted_text_job_trains_as_one_on_its_tokens(self):
        with Cluster(workers=2) as cluster:
            text = cluster.submit(self.job())
            cluster.wait_state(text, "SUCCEEDED")
            document = self.job()
            document["spec"]["data"] = self.tokenize()
            tokens = cluster.submit(document)
            cluster.wait_state(tokens, "SUCCEEDED")
            self.assertEqual(sorted(cluster.losses(text)), list(range(1, 7)))
            self.assertEqual(cluster.losses(text), cluster.losses(tokens))
            self.assertEqual(cluster.job(text)["result"]["validationLoss"],
                             cluster.job(tokens)["result"]["validationLoss"])
            self.assertGreater(cluster.job(text)["result"]["bytesPerToken"], 1)
            types = [event["type"] for event in cluster.events(text)]
            self.assertEqual((types.count("TOKENIZING"), types.count("TOKENIZED")), (1, 1), types)
            # A second job finds them.
            again = cluster.submit(self.job())
            cluster.wait_state(again, "SUCCEEDED")
            self.assertNotIn("TOKENIZING", [event["type"] for event in cluster.events(again)])
            self.assertEqual(cluster.losses(text), cluster.losses(again))

            # What is wrong with the text is the job's root cause.
            with open(self.corpus / "b.jsonl", "a", encoding="utf-8") as file:
                file.write('{"id": 301}\n')
            broken = cluster.submit(self.job())
            cluster.wait_state(broken, "FAILED")
            job = cluster.job(broken)
            self.assertEqual(job["cause"], "DATA")
            self.assertRegex(job["rootCause"]["message"],
                             r'data\.path: \S+b\.jsonl:301: no text in the field "text"; data\.textField names it')

    def test_a_job_that_is_stopped_while_its_tokens_are_made_goes_on_with_them(self):
        text = "\n".join(documents(4000, 3))
        with open(self.corpus / "large.txt", "w", encoding="utf-8") as file:
            for _ in range(60000000 // len(text)):
                file.write(text)
        with Cluster(workers=2) as cluster:
            # Validation would be a tenth of it.
            name = cluster.submit(self.job(validationFraction=0))

            def types():
                return [event["type"] for event in cluster.events(name)]

            wait_for(lambda: "TOKENIZING" in types(), "the tokenizer to start")
            began = time.monotonic()
            cluster.ctl("suspend", "--wait", name)
            self.assertLess(time.monotonic() - began, 5, "the grace period is not waited for")
            self.assertNotIn("TOKENIZED", types())
            cluster.ctl("resume", name)
            cluster.wait_state(name, "SUCCEEDED")
            self.assertEqual(types().count("TOKENIZED"), 1)
            # It was no failure.
            self.assertNotIn("rootCause", cluster.job(name))

    def test_alone_on_several_ranks_it_is_the_same(self):
        code, text, err = self.run_alone(self.job())
        self.assertEqual(code, 0, err)
        self.assertEqual(err.count("making the tokens of"), 1)
        rows = re.findall(r"(?m)^\d+ \| \S+", text)
        self.assertEqual(len(rows), 6)
        document = self.job()
        document["spec"]["data"] = self.tokenize()
        self.assertEqual(re.findall(r"(?m)^\d+ \| \S+", self.run_alone(document)[1]), rows)
        shutil.rmtree(self.root / "cache")
        code, text, err = self.run_alone(self.job(), "--local-ranks", "3")
        self.assertEqual(code, 0, err)
        self.assertEqual(err.count("making the tokens of"), 1, err)
        self.assertEqual(re.findall(r"(?m)^\d+ \| \S+", text), rows)

    def test_a_sentencepiece_model_reads_a_jobs_text_too(self):
        model = self.root / "tokenizer.model"
        subprocess.run([str(BIN / "make_sentencepiece_model"), "bpe", "320", str(model)], text=True, check=True,
                       input="\n".join(documents(600, 3)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        document = self.job(tokenizer=str(model))
        document["spec"]["model"]["vocabSize"] = 320
        code, text, err = self.run_alone(document, "--local-ranks", "2")
        self.assertEqual(code, 0, err)
        rows = re.findall(r"(?m)^\d+ \| \S+", text)
        self.assertEqual(len(rows), 6)
        document["spec"]["data"] = self.tokenize("tokenizer.model")
        self.assertEqual(re.findall(r"(?m)^\d+ \| \S+", self.run_alone(document)[1]), rows)
        # Ids that the model does not have are no ids of a smaller vocabulary.
        document = self.job(tokenizer=str(model))
        code, _, err = self.run_alone(document)
        self.assertNotEqual(code, 0)
        self.assertIn("vocabSize", err)

    def test_two_jobs_at_once_make_the_tokens_once(self):
        first, second = self.start(self.job()), self.start(self.job())
        (out, err), (other_out, other_err) = first.communicate(timeout=120), second.communicate(timeout=120)
        self.assertEqual((first.returncode, second.returncode), (0, 0), err + other_err)
        self.assertEqual((err + other_err).count("making the tokens of"), 1)
        self.assertEqual(re.findall(r"(?m)^\d+ \| \S+", out), re.findall(r"(?m)^\d+ \| \S+", other_out))

    def test_killed_anywhere_no_half_is_taken_for_whole(self):
        code, whole, err = self.run_alone(self.job())
        self.assertEqual(code, 0, err)
        generator = random.Random(3)
        kills = 0
        for _ in range(12):
            shutil.rmtree(self.root / "cache")
            process = self.start(self.job(), start_new_session=True)
            wait_for(lambda: process.poll() is not None or self.kept("*.work") or self.kept(), "the run to begin",
                     interval=0.0005)
            time.sleep(generator.uniform(0, 0.01))
            kills += process.poll() is None and not any(path.suffix == "" for path in self.kept())
            # The tokenizer dies with the trainer.
            process.send_signal(signal.SIGKILL)
            process.communicate()
            code, out, err = self.run_alone(self.job())
            self.assertEqual(code, 0, err)
            self.assertEqual(re.findall(r"(?m)^\d+ \| \S+", out), re.findall(r"(?m)^\d+ \| \S+", whole))
            self.assertEqual([path.suffix for path in self.kept()], [""])
        self.assertGreater(kills, 0)

    def test_a_full_disk_says_where_and_what_to_do(self):
        with small_disk(256) as disk:
            document = self.job(cacheDir=str(disk.path / "tokens"))
            disk.fill()
            code, _, err = self.run_alone(document, "--local-ranks", "2")
            self.assertEqual(code, 10, err)
            for text in ("data.cacheDir: ", "No space left on device", str(disk.path), "free space there"):
                self.assertIn(text, err)
            disk.free()
            self.assertEqual(self.run_alone(document)[0], 0)

    def test_mistakes_are_told_before_training(self):
        small = self.job()
        small["spec"]["model"]["vocabSize"] = 261
        path = self.root / "small.json"
        path.write_text(json.dumps(small), encoding="utf-8")
        done = subprocess.run([str(BIN / "fsdpctl"), "validate", str(path)], text=True, capture_output=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, 3, done.stderr)
        self.assertIn("the tokenizer has ids up to 261", done.stdout + done.stderr)
        # Where the coordinator could not look, the rank does. A model of one's own making is no JSON.
        code, _, err = self.run_alone(self.job(tokenizer=str(self.root / "nowhere.json")))
        self.assertEqual(code, 10, err)
        self.assertRegex(err, r"data\.tokenizer: .*nowhere\.json.*No such file")
        (self.root / "foreign.json").write_text('{"model": {"type": "WordPiece", "vocab": {}}}', encoding="utf-8")
        code, _, err = self.run_alone(self.job(tokenizer=str(self.root / "foreign.json")))
        self.assertEqual(code, 10, err)
        self.assertRegex(err, r"data\.tokenizer: \S+foreign\.json: .*WordPiece")


if __name__ == "__main__":
    unittest.main(verbosity=2)
