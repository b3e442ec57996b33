// Every method gets bytes that are no request of it: random ones, and requests with bytes changed,
// cut and repeated. The coordinator answers each with a status and goes on. Runs under the address
// sanitizer too (label core). The seed is printed; FSDP_FUZZ_SEED repeats a run.

#include <cstdlib>
#include <random>
#include <string>

#include "coordinator/rpc/services.h"
#include "tests/support/generic_call.h"
#include "tests/unit/coordinator/service_fixture.h"

namespace fsdp::coordinator {
namespace {

using testing::CallAnything;

constexpr int kRounds = 60;

class WireFuzzTest : public ServiceTest {
 protected:
  void SetUp() override {
    options_.audit_log = "/dev/null";
    options_.limits.requests_per_second = 0;
    ServiceTest::SetUp();
    const char* seed = std::getenv("FSDP_FUZZ_SEED");
    seed_ = seed != nullptr ? std::strtoull(seed, nullptr, 10) : std::random_device{}();
    random_.seed(seed_);
    std::printf("FSDP_FUZZ_SEED=%llu\n", static_cast<unsigned long long>(seed_));
    channel_ = grpc::CreateChannel(address(), grpc::InsecureChannelCredentials());
  }

  void Cancel(const std::string& name) {
    grpc::ClientContext context;
    v1::CancelJobRequest request;
    request.set_name(name);
    v1::CancelJobResponse response;
    jobs_->CancelJob(&context, request, &response);
  }

  std::uint64_t Below(std::uint64_t limit) {
    return std::uniform_int_distribution<std::uint64_t>(0, limit - 1)(random_);
  }

  std::string RandomBytes() {
    std::string bytes(Below(300), '\0');
    for (char& c : bytes) c = static_cast<char>(Below(256));
    return bytes;
  }

  // A message with every field of it set to something, two levels down and no further.
  void Fill(google::protobuf::Message* message, int depth) {
    const auto* reflection = message->GetReflection();
    for (int i = 0; i < message->GetDescriptor()->field_count(); ++i) {
      const auto* field = message->GetDescriptor()->field(i);
      if (Below(3) == 0) continue;
      if (field->is_map()) continue;
      using Field = google::protobuf::FieldDescriptor;
      if (field->cpp_type() == Field::CPPTYPE_MESSAGE) {
        if (depth == 0) continue;
        Fill(field->is_repeated() ? reflection->AddMessage(message, field)
                                  : reflection->MutableMessage(message, field),
             depth - 1);
      } else if (!field->is_repeated()) {
        SetScalar(message, field);
      }
    }
  }

  void SetScalar(google::protobuf::Message* message,
                 const google::protobuf::FieldDescriptor* field) {
    using Field = google::protobuf::FieldDescriptor;
    const auto* reflection = message->GetReflection();
    const std::uint64_t bits = Below(4) == 0 ? random_() : Below(3);
    switch (field->cpp_type()) {
      case Field::CPPTYPE_INT32:
        return reflection->SetInt32(message, field, static_cast<std::int32_t>(bits));
      case Field::CPPTYPE_INT64:
        return reflection->SetInt64(message, field, static_cast<std::int64_t>(bits));
      case Field::CPPTYPE_UINT32:
        return reflection->SetUInt32(message, field, static_cast<std::uint32_t>(bits));
      case Field::CPPTYPE_UINT64:
        return reflection->SetUInt64(message, field, bits);
      case Field::CPPTYPE_DOUBLE:
        return reflection->SetDouble(message, field, static_cast<double>(bits) * -1e300);
      case Field::CPPTYPE_FLOAT:
        return reflection->SetFloat(message, field, static_cast<float>(bits));
      case Field::CPPTYPE_BOOL:
        return reflection->SetBool(message, field, (bits & 1) != 0);
      case Field::CPPTYPE_ENUM:
        return reflection->SetEnumValue(message, field, static_cast<int>(bits));
      case Field::CPPTYPE_STRING:
        return reflection->SetString(message, field,
                                     Below(2) == 0 ? job_ : "a/../b\x01" + std::to_string(bits));
      default:
        return;
    }
  }

  std::string Mutated(std::string bytes) {
    for (std::uint64_t times = 1 + Below(4); times > 0 && !bytes.empty(); --times) {
      const std::size_t at = Below(bytes.size());
      switch (Below(4)) {
        case 0:
          bytes[at] = static_cast<char>(Below(256));
          break;
        case 1:
          bytes.resize(at);
          break;
        case 2:
          bytes.insert(at, bytes.substr(0, Below(bytes.size())));
          break;
        default:
          bytes[at] = static_cast<char>(bytes[at] ^ (1 << Below(8)));
      }
    }
    return bytes;
  }

  // One of the four: random, a request, a changed one, a changed one of another method.
  std::string Bytes(const google::protobuf::Descriptor& type, int round) {
    if (round % 4 == 0) return RandomBytes();
    const auto* prototype =
        google::protobuf::MessageFactory::generated_factory()->GetPrototype(&type);
    const auto message = std::unique_ptr<google::protobuf::Message>(prototype->New());
    Fill(message.get(), 3);
    std::string bytes = message->SerializePartialAsString();
    return round % 4 == 1 ? bytes : Mutated(std::move(bytes));
  }

  std::uint64_t seed_ = 0;
  std::mt19937_64 random_;
  std::string job_;
  std::shared_ptr<grpc::Channel> channel_;
};

TEST_F(WireFuzzTest, EveryMethodAnswersWhateverItIsSent) {
  job_ = Submit(SmallJob(3, 1));
  for (const auto* service : OurServices()) {
    for (int i = 0; i < service->method_count(); ++i) {
      const auto* method = service->method(i);
      const std::string path = absl::StrCat("/", service->full_name(), "/", method->name());
      // Finished, so that no stream waits for more of it.
      Cancel(job_);
      for (int round = 0; round < kRounds; ++round) {
        const std::string bytes = Bytes(*method->input_type(), round);
        const grpc::Status status = CallAnything(channel_, path, bytes, "").status;
        const std::string where = absl::StrCat(path, " with seed ", seed_, ", round ", round, ": ",
                                               status.error_message());
        EXPECT_NE(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED) << where;
        EXPECT_NE(status.error_code(), grpc::StatusCode::INTERNAL) << where;
        // Every error of ours has details; one without is gRPC's: the server is gone.
        if (!status.ok()) {
          ASSERT_FALSE(status.error_details().empty()) << where;
        }
      }
    }
  }
  // It works as before, once a maintenance that a request may have begun is over.
  grpc::ClientContext context;
  v1::SetMaintenanceRequest off;
  off.set_mode(v1::MAINTENANCE_MODE_OFF);
  v1::SetMaintenanceResponse response;
  const grpc::Status over =
      v1::ClusterService::NewStub(channel_)->SetMaintenance(&context, off, &response);
  ASSERT_TRUE(over.ok()) << over.error_message();
  AddWorkers(1);
  WaitForState(Submit(SmallJob(1, 2)), v1::JOB_STATE_SUCCEEDED);
}

TEST_F(WireFuzzTest, MetadataCanBeAnything) {
  for (int round = 0; round < 200; ++round) {
    std::string value(Below(4000), 'x');
    for (char& c : value) c = static_cast<char>(' ' + Below(95));
    const grpc::Status status =
        CallAnything(channel_, "/fsdp.v1.JobService/ListJobs", "", value).status;
    EXPECT_TRUE(status.ok()) << "seed " << seed_ << ": " << status.error_message();
  }
}

}  // namespace
}  // namespace fsdp::coordinator
