"""The published JSON Schema agrees with the parser: examples and the printed defaults pass, broken specs do not."""

import copy
import json
import pathlib
import sys
import unittest

import jsonschema
import yaml

ROOT = pathlib.Path(sys.argv.pop(1))
SCHEMA = json.loads((ROOT / "docs/job_spec.schema.json").read_text())
VALIDATOR = jsonschema.Draft7Validator(SCHEMA)


def example(name):
    return yaml.safe_load((ROOT / "deploy/examples" / name).read_text())


class SpecSchemaTest(unittest.TestCase):
    def test_schema_is_a_schema(self):
        jsonschema.Draft7Validator.check_schema(SCHEMA)

    def test_examples_pass(self):
        examples = sorted((ROOT / "deploy/examples").glob("*.yaml"))
        self.assertGreaterEqual(len(examples), 3)
        for path in examples:
            with self.subTest(path.name):
                errors = [e.message for e in VALIDATOR.iter_errors(yaml.safe_load(path.read_text()))]
                self.assertEqual(errors, [])

    def refuse(self, path, value):
        document = copy.deepcopy(example("tiny.yaml"))
        *parents, last = path.split("/")
        node = document
        for name in parents:
            node = node.setdefault(name, {})
        if value is None:
            del node[last]
        else:
            node[last] = value
        with self.subTest(path=path, value=value):
            self.assertFalse(VALIDATOR.is_valid(document))

    def test_broken_specs_fail(self):
        self.refuse("apiVersion", "fsdp.v2")
        self.refuse("kind", "Job")
        self.refuse("status", {})
        self.refuse("metadata/name", "Big")
        self.refuse("metadata/name", None)
        self.refuse("metadata/labels", {"a b": "x"})
        self.refuse("metadata/labels", {"a": 1})
        self.refuse("spec/model/width", 3)
        self.refuse("spec/model/dim", 0)
        self.refuse("spec/model/dim", "many")
        self.refuse("spec/model/dim", "064")
        self.refuse("spec/model/dim", "0x40")
        self.refuse("spec/optimizer/lr", "0,1")
        self.refuse("spec/model/numLayers", 2.5)
        self.refuse("spec/model/family", "bert")
        self.refuse("spec/model/family", None)
        self.refuse("spec/model/qkNorm", "yes")
        self.refuse("spec/data/source", "jsonl")
        self.refuse("spec/data/sequenceLength", 1 << 21)
        self.refuse("spec/data/mixture", [{"path": "/x"}])
        self.refuse("spec/data/mixture", [{"weight": 1}])
        self.refuse("spec/data/mixture", [{"path": "/x", "weight": 0}])
        self.refuse("spec/data/validationFraction", 0.7)
        self.refuse("spec/optimizer/lr", 0)
        self.refuse("spec/optimizer/beta1", 1)
        self.refuse("spec/train/globalBatch", None)
        self.refuse("spec/train/globalBatchTokens", 64)
        self.refuse("spec/limits/maxTokens", 64)
        self.refuse("spec/limits", None)
        self.refuse("spec/resources/minRanks", 5000)
        self.refuse("spec/checkpoint", {"inMemoryEverySteps": 5})
        self.refuse("spec/env", {"LD_PRELOAD": "x"})
        self.refuse("spec/env", {"OMP_NUM_THREADS": 2})
        self.refuse("spec/checkpoint", {"async": "yes"})

    # The proto's JSON form quotes 64-bit numbers; the parser takes any number quoted.
    def test_numbers_may_be_quoted(self):
        document = example("tiny.yaml")
        document["spec"]["train"]["globalBatch"] = "8"
        document["spec"]["limits"] = {"maxSteps": "1e3"}
        document["spec"]["optimizer"] = {"lr": "2.5e-4", "gradClip": ".5"}
        document["spec"]["resources"]["spares"] = "0"
        self.assertEqual([e.message for e in VALIDATOR.iter_errors(document)], [])

    def test_defaults_may_be_written_out(self):
        document = example("tiny.yaml")
        document["spec"]["checkpoint"] = {"async": True, "keepLast": 2}
        document["spec"]["resources"]["minRanks"] = 0
        document["spec"]["train"]["seed"] = "18446744073709551615"
        self.assertEqual([e.message for e in VALIDATOR.iter_errors(document)], [])


if __name__ == "__main__":
    unittest.main()
