// Checks Kubernetes objects against the schemas of the npm packages kubernetes-models,
// @kubernetes-models/prometheus-operator and @kubernetes-models/cert-manager.
//
//   node validate_objects.mjs TOOLS FILE.yaml…     TOOLS: the folder that holds node_modules
//
// Prints one line a fault, "FILE: Kind/name: what", and ends with 1 when there is any. The validators pass
// fields that no schema has. Here each object is handed to them in a proxy that notes which properties they read:
// a validator reads every property that its schema names, so what is there and was never read is unknown.
import { readFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [tools, ...files] = process.argv.slice(2);
const require = createRequire(join(resolve(tools), "package.json"));
const modules = join(resolve(tools), "node_modules");
const { parseAllDocuments } = require("yaml");

// A proxy of `value` that calls `read` with the path of each property that is looked at.
function watched(value, path, read) {
  if (value === null || typeof value !== "object") return value;
  return new Proxy(value, {
    get(target, key) {
      const found = Reflect.get(target, key);
      if (typeof key !== "string" || typeof found === "function") return found;
      const inside = `${path}/${key}`;
      read(inside);
      return watched(found, inside, read);
    },
  });
}

function propertyPaths(value, path = "") {
  if (value === null || typeof value !== "object") return [];
  return Object.entries(value).flatMap(([key, inner]) => {
    const inside = `${path}/${key}`;
    return [inside, ...propertyPaths(inner, inside)];
  });
}

async function modelOf(object) {
  const group = object.apiVersion?.split("/")[0];
  const name = { "monitoring.coreos.com": "@kubernetes-models/prometheus-operator",
                 "cert-manager.io": "@kubernetes-models/cert-manager" }[group] ?? "kubernetes-models";
  try {
    const path = join(modules, name, object.apiVersion, `${object.kind}.js`);
    return (await import(pathToFileURL(path)))[object.kind];
  } catch {
    return undefined;
  }
}

async function faultsOf(object) {
  const model = await modelOf(object);
  if (!model) return [`no schema for apiVersion ${object.apiVersion}, kind ${object.kind}`];
  try {
    new model(structuredClone(object)).validate();
  } catch (error) {
    return [error.message.replaceAll("\n", "; ")];
  }
  const seen = new Set();
  const proxied = new model({});
  for (const key of Object.keys(proxied)) delete proxied[key];
  for (const [key, value] of Object.entries(object)) {
    Object.defineProperty(proxied, key, {
      enumerable: true,
      get() {
        seen.add(`/${key}`);
        return watched(value, `/${key}`, (path) => seen.add(path));
      },
    });
  }
  proxied.validate();
  const unknown = propertyPaths(object).filter((path) => !seen.has(path));
  // Below an unknown property everything is.
  return unknown.filter((path) => !unknown.some((other) => path.startsWith(`${other}/`)))
    .map((path) => `unknown field ${path}`);
}

let objects = 0;
let faults = 0;
for (const file of files) {
  for (const document of parseAllDocuments(readFileSync(file, "utf8"))) {
    const object = document.toJS();
    if (object === null) continue;
    objects += 1;
    const found = document.errors.length > 0 ? document.errors.map(String) : await faultsOf(object);
    for (const fault of found) {
      faults += 1;
      console.log(`${file}: ${object.kind}/${object.metadata?.name}: ${fault}`);
    }
  }
}
console.log(`${objects} objects in ${files.length} files, ${faults} faults`);
process.exit(faults > 0 || objects === 0 ? 1 : 0);
