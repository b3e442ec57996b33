"""Drives the service with nothing but server reflection: no generated code of ours."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from cluster import Cluster, tiny_job, wait_for  # noqa: E402


def reflection_module():
    """The reflection protocol's own messages, compiled from the protos that Debian ships."""
    folder = tempfile.mkdtemp(prefix="fsdp-reflection-")
    subprocess.run(["protoc", "-I/usr/share/grpc-proto", f"--python_out={folder}",
                    "grpc/reflection/v1alpha/reflection.proto"], check=True)
    sys.path.insert(0, folder)
    # The grpc package exists already: load the file by path.
    import importlib.util
    spec = importlib.util.spec_from_file_location(
        "reflection_pb2", f"{folder}/grpc/reflection/v1alpha/reflection_pb2.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Reflected:
    def __init__(self, channel):
        self.channel = channel
        self.pb = reflection_module()
        self.pool = descriptor_pool.DescriptorPool()
        self.known = set()

    def _ask(self, **request):
        call = self.channel.stream_stream(
            "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo",
            request_serializer=self.pb.ServerReflectionRequest.SerializeToString,
            response_deserializer=self.pb.ServerReflectionResponse.FromString)
        return next(iter(call(iter([self.pb.ServerReflectionRequest(**request)]), timeout=10)))

    def services(self):
        answer = self._ask(list_services="")
        return {service.name for service in answer.list_services_response.service}

    def _add(self, raw):
        file = descriptor_pb2.FileDescriptorProto.FromString(raw)
        if file.name in self.known:
            return
        self.known.add(file.name)
        for dependency in file.dependency:
            if dependency not in self.known:
                answer = self._ask(file_by_filename=dependency)
                for part in answer.file_descriptor_response.file_descriptor_proto:
                    self._add(part)
        self.pool.Add(file)

    def method(self, service, name):
        answer = self._ask(file_containing_symbol=service)
        for raw in answer.file_descriptor_response.file_descriptor_proto:
            self._add(raw)
        method = self.pool.FindServiceByName(service).methods_by_name[name]
        factory = message_factory.MessageFactory(self.pool)
        request, response = (factory.GetPrototype(t) for t in (method.input_type, method.output_type))
        path = f"/{service}/{name}"
        kind = self.channel.unary_stream if method.server_streaming else self.channel.unary_unary
        stub = kind(path, request_serializer=lambda m: m.SerializeToString(),
                    response_deserializer=response.FromString)
        return lambda **fields: stub(json_format.ParseDict(fields, request()), timeout=60)


class ReflectionTest(unittest.TestCase):
    def test_job_from_reflection_alone(self):
        with Cluster(workers=2) as cluster, grpc.insecure_channel(cluster.server) as channel:
            reflected = Reflected(channel)
            self.assertLessEqual({"fsdp.v1.JobService", "fsdp.v1.ClusterService", "fsdp.v1.WorkerService",
                                  "grpc.health.v1.Health"}, reflected.services())
            health = reflected.method("grpc.health.v1.Health", "Check")(service="fsdp.v1.JobService")
            self.assertEqual(json_format.MessageToDict(health)["status"], "SERVING")
            document = tiny_job(ranks=2, steps=5)
            # The wire's JSON form has full enum names.
            document["spec"]["model"]["family"] = "MODEL_FAMILY_LLAMA"
            document["spec"]["data"]["source"] = "DATA_SOURCE_SYNTHETIC"
            document["spec"]["precision"]["parameters"] = "PRECISION_D_TYPE_FP32"
            document["spec"]["resources"]["device"] = "DEVICE_TYPE_CPU"
            created = reflected.method("fsdp.v1.JobService", "CreateJob")(
                job=document, requestId="reflection-1")
            self.assertTrue(created.job.name.startswith("jobs/tiny-"))
            last = None
            for update in reflected.method("fsdp.v1.JobService", "WatchJob")(name=created.job.name):
                last = json_format.MessageToDict(update)["job"]
            self.assertEqual(last["state"], "JOB_STATE_SUCCEEDED", last)
            listed = wait_for(lambda: reflected.method("fsdp.v1.JobService", "ListJobs")().jobs, "jobs")
            self.assertEqual([job.name for job in listed], [created.job.name])
            with self.assertRaises(grpc.RpcError) as caught:
                reflected.method("fsdp.v1.JobService", "GetJob")(name="jobs/none-00000000")
            self.assertEqual(caught.exception.code(), grpc.StatusCode.NOT_FOUND)
            trailing = dict(caught.exception.trailing_metadata())
            self.assertIn("grpc-status-details-bin", trailing)


if __name__ == "__main__":
    unittest.main(verbosity=2)
