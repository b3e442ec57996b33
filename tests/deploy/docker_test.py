"""deploy/docker: the recipes by the checks of dockerfile.py, against the chart that runs the images, and the two
scripts of their build run on this machine. No image is built here: that needs a container engine.
"""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import yaml

import dockerfile

SOURCE = pathlib.Path(__file__).resolve().parents[2]
DOCKER = SOURCE / "deploy" / "docker"
FILES = {name: (DOCKER / f"{name}.Dockerfile").read_text(encoding="utf-8") for name in ("coordinator", "worker")}
IGNORE = (SOURCE / ".dockerignore").read_text(encoding="utf-8")
# Damages of worker.Dockerfile, and a word of what must be found.
DAMAGES = [
    ("debian:12.12-slim", "debian:latest", "pin a release"),
    ("debian:12.12-slim", "debian", "pin a release"),
    ("nvidia/cuda:13.0.2-devel-ubuntu24.04", "nvidia/cuda:devel", "pin a release"),
    ("USER 64002:64002", "USER root", "not root"),
    ("USER 64002:64002", "USER fsdp-worker", "by numbers"),
    ("USER 64002:64002", "", "not root"),
    ("VOLUME", "RUN true\nVOLUME", "RUN after USER"),
    ("COPY . .", "ADD https://example.org/x.tar.gz /src", "ADD"),
    ("COPY . .", "COPY tests tests\nCOPY . .", "not in the context"),
    ("COPY --from=build", "COPY --from=builder", "no such stage"),
    ("    && rm -rf /var/lib/apt/lists/* \\\n", "", "package lists"),
    (" --no-install-recommends", "", "--no-install-recommends"),
    ("RUN apt-get update \\\n    && ", "RUN ", "apt-get update"),
    ("RUN ln -s", "RUN curl -O https://example.org && ln -s", "fetches by itself"),
    ("ARG REVISION=unknown", "ARG API_TOKEN=x", "secret"),
    ('CMD ["--help"]', "CMD --help", "shell form"),
    ("HEALTHCHECK NONE", "", "HEALTHCHECK"),
    ("image.licenses", "image.license", "licenses"),
    ("libexec/sbom document", "libexec/sbom packages", "bill of materials"),
]


def in_context(path):
    return path == "." or ((SOURCE / path).exists() and not dockerfile.ignored(IGNORE, path))


def run(*command, **kwargs):
    return subprocess.run([str(word) for word in command], text=True, capture_output=True, check=True, **kwargs).stdout


class RecipesTest(unittest.TestCase):
    def test_nothing_is_wrong(self):
        for name, text in FILES.items():
            self.assertEqual(list(dockerfile.faults(text, in_context)), [], name)

    def test_the_checks_find_faults(self):
        for before, after, word in DAMAGES:
            with self.subTest(damage=after or f"without {before}"):
                self.assertIn(before, FILES["worker"])
                found = list(dockerfile.faults(FILES["worker"].replace(before, after), in_context))
                self.assertTrue(any(word in fault for fault in found), found)

    def test_the_context_has_what_cmake_asks_for(self):
        text = (SOURCE / "CMakeLists.txt").read_text(encoding="utf-8")
        wanted = set(re.findall(r"add_subdirectory\((\w+)\)", text)) - {"tests"}
        package = (SOURCE / "deploy/cmake/FsdpPackage.cmake").read_text(encoding="utf-8")
        for line in re.findall(r"install\((?:DIRECTORY|FILES) (.*?)(?:DESTINATION|\n)", package, re.DOTALL):
            wanted |= {word for word in line.split() if re.match(r"[A-Za-z]", word)}
        self.assertGreater(len(wanted), 10)
        for path in (*wanted, "CMakeLists.txt", "CMakePresets.json"):
            self.assertTrue(in_context(path), path)
        for path in ("build", ".git", "tests", "quickstart"):
            self.assertTrue(dockerfile.ignored(IGNORE, path), path)

    def test_they_fit_the_chart(self):
        values = yaml.safe_load((SOURCE / "deploy/helm/fsdp/values.yaml").read_text(encoding="utf-8"))
        ports = {"coordinator": [values["coordinator"]["service"]["port"],
                                 values["coordinator"]["service"]["metricsPort"]],
                 "worker": [values["worker"]["metricsPort"]]}
        for name, text in FILES.items():
            last = dockerfile.stages(text)[1][-1]
            steps = dict(last.steps)
            context = values[name]["podSecurityContext"]
            self.assertEqual(steps["USER"], f"{context['runAsUser']}:{context['runAsGroup']}")
            self.assertEqual([int(port) for port in steps["EXPOSE"].split()], ports[name])
            self.assertEqual(steps["VOLUME"], f"/var/lib/fsdp-{name}")
            # The chart gives arguments only.
            self.assertEqual(json.loads(steps["ENTRYPOINT"])[-1], f"/opt/fsdpctl/bin/fsdp-{name}")
            self.assertTrue(values[name]["image"]["repository"].endswith(f"fsdp-{name}"))
            self.assertIn(f"/fsdp-{name}:", text.splitlines()[2])
        # The pod of `helm test` starts it by its name.
        self.assertRegex(FILES["coordinator"], r"keep /opt/fsdpctl [\w -]*\bfsdpctl\b")
        self.assertIn("PATH=/opt/fsdpctl/bin:", FILES["coordinator"])

    def test_versions_are_the_project_s(self):
        version = re.search(r"project\(fsdpctl VERSION ([0-9.]+)", (SOURCE / "CMakeLists.txt").read_text())[1]
        for text in FILES.values():
            self.assertIn(f"ARG VERSION={version}\n", text)

    def test_shell_of_the_steps(self):
        if shutil.which("shellcheck") is None:
            self.skipTest("no shellcheck (deploy/packages/install_deps lint)")
        for name, text in FILES.items():
            for stage in dockerfile.stages(text)[1]:
                for word, rest in stage.steps:
                    if word == "RUN":
                        # SC2154: variables of ARG.
                        done = subprocess.run(["shellcheck", "-s", "sh", "-e", "SC2154", "-"], input=rest, text=True,
                                              capture_output=True, check=False)
                        self.assertEqual(done.returncode, 0, f"{name}: {done.stdout}")


class SbomTest(unittest.TestCase):
    def document(self, *lists):
        return json.loads(run(DOCKER / "sbom", "document", "fsdp-coordinator", "1.2.3", *lists,
                              env={**os.environ, "SOURCE_DATE_EPOCH": "86400"}))

    def test_every_package_of_this_machine(self):
        document = self.document()
        self.assertEqual(document["spdxVersion"], "SPDX-2.3")
        self.assertEqual(document["dataLicense"], "CC0-1.0")
        self.assertEqual(document["SPDXID"], "SPDXRef-DOCUMENT")
        self.assertEqual(document["creationInfo"]["created"], "1970-01-02T00:00:00Z")
        self.assertRegex(document["documentNamespace"], r"^https://\S+-[0-9a-f]{64}$")
        image, *packages = document["packages"]
        self.assertEqual((image["name"], image["versionInfo"]), ("fsdp-coordinator", "1.2.3"))
        listed = run("dpkg-query", "-W", "-f", "${db:Status-Abbrev} ${Package} ${Version} ${Architecture}\n")
        installed = {tuple(line.split()[1:]) for line in listed.splitlines() if line.startswith("ii")}
        self.assertGreater(len(installed), 50)
        found = {(item["name"], item["versionInfo"], item["externalRefs"][0]["referenceLocator"].split("?arch=")[1])
                 for item in packages}
        self.assertEqual(found, installed)

    def test_identifiers_and_relationships(self):
        document = self.document()
        identifiers = [item["SPDXID"] for item in document["packages"]]
        self.assertEqual(len(identifiers), len(set(identifiers)))
        for item in document["packages"]:
            self.assertRegex(item["SPDXID"], r"^SPDXRef-[A-Za-z0-9.-]+$")
            self.assertEqual(item["downloadLocation"], "NOASSERTION")
        relations = document["relationships"]
        self.assertEqual(relations[0]["relationshipType"], "DESCRIBES")
        self.assertEqual({item["relatedSpdxElement"] for item in relations}, set(identifiers))
        self.assertEqual({item["relationshipType"] for item in relations[1:]}, {"CONTAINS"})

    def test_what_was_linked_in(self):
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "linked.tsv"
            file.write_text('libgrpc-dev\t1.51.1-3+b1\tamd64\tgrpc\t1.51.1-3\nodd"\\name\t1:2~3\tall\ts\t1\n')
            document = self.document(f"debian={file}", f"nvidia={file}")
        grpc, odd, again, _ = document["packages"][-4:]
        self.assertEqual(grpc["externalRefs"][0]["referenceLocator"],
                         "pkg:deb/debian/libgrpc-dev@1.51.1-3%2Bb1?arch=amd64")
        self.assertEqual((odd["name"], odd["versionInfo"]), ('odd"\\name', "1:2~3"))
        self.assertEqual(again["externalRefs"][0]["referenceLocator"].split("@")[0], "pkg:deb/nvidia/libgrpc-dev")
        relation = document["relationships"][-4]
        self.assertEqual(relation, {"spdxElementId": grpc["SPDXID"], "relationshipType": "BUILD_DEPENDENCY_OF",
                                    "relatedSpdxElement": "SPDXRef-image"})

    def test_the_same_packages_give_the_same_document(self):
        self.assertEqual(self.document(), self.document())

    def test_bad_calls(self):
        for words, code, said in (([], 2, "usage"), (["document", "x"], 2, "usage"),
                                  (["document", "x", "1", "debian=/nonexistent"], 1, "/nonexistent")):
            done = subprocess.run([DOCKER / "sbom", *words], text=True, capture_output=True, check=False)
            self.assertEqual(done.returncode, code)
            self.assertIn(said, done.stderr)


class KeepTest(unittest.TestCase):
    """With programs and libraries made by the compiler: a needs b, b needs c, d needs nobody."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        for name in ("bin", "lib", "share/doc/fsdpctl", "share/fsdpctl/examples"):
            (self.root / name).mkdir(parents=True)
        for name in ("share/doc/fsdpctl/copyright", "share/fsdpctl/examples/tiny.yaml"):
            (self.root / name).write_text("x")
        (self.root / "c.c").write_text("int c(void) { return 0; }\n")
        (self.root / "b.c").write_text("int c(void); int b(void) { return c(); }\n")
        (self.root / "a.c").write_text("int b(void); int main(void) { return b(); }\n")
        (self.root / "alone.c").write_text("int main(void) { return 0; }\n")
        lib = self.root / "lib"
        run("gcc", "-shared", "-fPIC", "-Wl,-soname,libc_.so.1", "-o", lib / "libc_.so.1", self.root / "c.c")
        run("gcc", "-shared", "-fPIC", "-Wl,-soname,libd.so.1", "-o", lib / "libd.so.1", self.root / "c.c")
        run("gcc", "-shared", "-fPIC", "-Wl,-soname,libb.so.1", "-o", lib / "libb.so.1", self.root / "b.c",
            lib / "libc_.so.1")
        run("gcc", "-o", self.root / "bin/a", self.root / "a.c", lib / "libb.so.1", f"-Wl,-rpath-link,{lib}")
        run("gcc", "-o", self.root / "bin/alone", self.root / "alone.c")

    def left(self, folder):
        return sorted(path.name for path in (self.root / folder).iterdir())

    def test_a_program_with_its_libraries(self):
        run(DOCKER / "keep", self.root, "a")
        self.assertEqual((self.left("bin"), self.left("lib")), (["a"], ["libb.so.1", "libc_.so.1"]))
        self.assertEqual([path.name for path in (self.root / "share").rglob("*") if path.is_file()], ["copyright"])
        self.assertTrue((self.root / "share/fsdpctl").is_dir())
        self.assertEqual(subprocess.run([self.root / "bin/a"], env={"LD_LIBRARY_PATH": str(self.root / "lib")},
                                        check=False).returncode, 0)

    def test_a_program_without(self):
        run(DOCKER / "keep", self.root, "alone")
        self.assertEqual((self.left("bin"), self.left("lib")), (["alone"], []))

    def test_a_program_that_is_not_there(self):
        done = subprocess.run([DOCKER / "keep", self.root, "nosuch"], text=True, capture_output=True, check=False)
        self.assertEqual(done.returncode, 1)
        self.assertIn("bin/nosuch", done.stderr)
        self.assertEqual(self.left("bin"), ["a", "alone"])


if __name__ == "__main__":
    unittest.main()
