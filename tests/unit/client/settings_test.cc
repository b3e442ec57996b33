#include "client/settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "client/client.h"

namespace fsdp {
namespace {

using ::testing::HasSubstr;

class SettingsTest : public ::testing::Test {
 protected:
  SettingsTest()
      : dir_(std::filesystem::path(::testing::TempDir()) /
             ("settings-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(dir_ / ".config/fsdpctl");
    variables_["HOME"] = dir_.string();
  }
  ~SettingsTest() override { std::filesystem::remove_all(dir_); }

  std::string WriteConfig(const std::string& text) {
    const auto path = dir_ / ".config/fsdpctl/config.yaml";
    std::ofstream(path) << text;
    return path.string();
  }
  absl::StatusOr<Settings> Load() {
    return LoadSettings(flags_, [this](const std::string& name) -> std::optional<std::string> {
      const auto found = variables_.find(name);
      if (found == variables_.end()) return std::nullopt;
      return found->second;
    });
  }
  std::string Error() { return std::string(Load().status().message()); }

  std::filesystem::path dir_;
  std::map<std::string, std::string> variables_;
  SettingFlags flags_;
};

TEST_F(SettingsTest, DefaultsWithoutAnything) {
  const auto settings = Load();
  ASSERT_TRUE(settings.ok());
  EXPECT_EQ(settings->server, kDefaultServer);
  EXPECT_EQ(settings->server_origin, "default");
  EXPECT_EQ(settings->call_timeout, absl::Seconds(10));
  EXPECT_EQ(settings->color, ColorMode::kAuto);
}

TEST_F(SettingsTest, FlagBeatsEnvironmentBeatsFile) {
  const std::string path = WriteConfig("server: file:1\ncallTimeout: 3s\n");
  EXPECT_EQ(Load()->server, "file:1");
  EXPECT_EQ(Load()->server_origin, path);
  EXPECT_EQ(Load()->call_timeout, absl::Seconds(3));
  variables_["FSDPCTL_SERVER"] = "environment:1";
  EXPECT_EQ(Load()->server, "environment:1");
  EXPECT_EQ(Load()->call_timeout, absl::Seconds(3));
  flags_.server = "flag:1";
  EXPECT_EQ(Load()->server, "flag:1");
}

TEST_F(SettingsTest, TheConfigFileCanBeNamed) {
  const auto other = (dir_ / "other.yaml").string();
  std::ofstream(other) << "server: other:1\n";
  variables_["FSDPCTL_CONFIG"] = other;
  EXPECT_EQ(Load()->server, "other:1");
  flags_.config = (dir_ / "missing.yaml").string();
  EXPECT_EQ(Load().status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(Error(), HasSubstr("missing.yaml"));
}

TEST_F(SettingsTest, XdgFolderIsUsed) {
  std::filesystem::create_directories(dir_ / "xdg/fsdpctl");
  std::ofstream(dir_ / "xdg/fsdpctl/config.yaml") << "server: xdg:1\n";
  variables_["XDG_CONFIG_HOME"] = (dir_ / "xdg").string();
  EXPECT_EQ(Load()->server, "xdg:1");
}

TEST_F(SettingsTest, NoColorBeatsAllButTheFlag) {
  variables_["FSDPCTL_COLOR"] = "always";
  EXPECT_EQ(Load()->color, ColorMode::kAlways);
  variables_["NO_COLOR"] = "1";
  EXPECT_EQ(Load()->color, ColorMode::kNever);
  flags_.color = "always";
  EXPECT_EQ(Load()->color, ColorMode::kAlways);
}

TEST_F(SettingsTest, TlsFilesHaveThePrecedenceOfAllSettings) {
  const std::string path =
      WriteConfig("tlsCa: /etc/ca.pem\ntlsCertificate: mine.crt\ntlsKey: mine.key\n");
  auto settings = Load();
  ASSERT_TRUE(settings.ok()) << settings.status();
  EXPECT_EQ(settings->tls.ca, "/etc/ca.pem");
  EXPECT_EQ(settings->tls_names.ca, "tlsCa (" + path + ")");
  // Beside the file.
  EXPECT_EQ(settings->tls.certificate, std::filesystem::path(path).parent_path() / "mine.crt");
  variables_["FSDPCTL_TLS_CA"] = "ca.pem";
  flags_.tls_key = "other.key";
  flags_.tls_server_name = "coordinator";
  settings = Load();
  EXPECT_EQ(settings->tls.ca, "ca.pem");
  EXPECT_EQ(settings->tls.key, "other.key");
  EXPECT_EQ(settings->tls_names.key, "--tls-key");
  EXPECT_EQ(settings->tls_server_name, "coordinator");
  variables_["FSDPCTL_TLS_CA"] = "system";
  EXPECT_EQ(Load()->tls.ca, "system");
}

TEST_F(SettingsTest, TlsFilesThatNeedEachOtherAreNamedTogether) {
  variables_["FSDPCTL_TLS_KEY"] = "mine.key";
  EXPECT_THAT(Error(), HasSubstr("tlsKey (FSDPCTL_TLS_KEY) is set without --tls-certificate"));
  variables_["FSDPCTL_TLS_CERTIFICATE"] = "mine.crt";
  EXPECT_THAT(Error(), HasSubstr("add --tls-ca"));
}

TEST_F(SettingsTest, ATokensFileComesFromFlagEnvironmentOrConfig) {
  const std::string path = WriteConfig("tokenFile: alice.token\nallowPlaintextToken: true\n");
  // Beside the config file.
  EXPECT_EQ(Load()->token_file, path.substr(0, path.rfind('/')) + "/alice.token");
  EXPECT_TRUE(Load()->allow_plaintext_token);
  variables_["FSDPCTL_TOKEN_FILE"] = "/run/token";
  variables_["FSDPCTL_ALLOW_PLAINTEXT_TOKEN"] = "0";
  EXPECT_EQ(Load()->token_file, "/run/token");
  EXPECT_FALSE(Load()->allow_plaintext_token);
  flags_.token_file = "here.token";
  flags_.allow_plaintext_token = true;
  EXPECT_EQ(Load()->token_file, "here.token");
  EXPECT_TRUE(Load()->allow_plaintext_token);
  flags_.allow_plaintext_token = false;
  variables_["FSDPCTL_ALLOW_PLAINTEXT_TOKEN"] = "perhaps";
  EXPECT_EQ(Error(),
            "allowPlaintextToken \"perhaps\" (FSDPCTL_ALLOW_PLAINTEXT_TOKEN) must be "
            "true or false");
}

TEST_F(SettingsTest, MistakesNameTheirPlace) {
  const std::string path = WriteConfig("server: a:1\nsever: b:1\n");
  EXPECT_EQ(Error(), path + ":2: unknown key \"sever\"; did you mean server?");
  WriteConfig("server: [1, 2]\n");
  EXPECT_EQ(Error(), path + ":1: server must be one value");
  WriteConfig("server: {a: b\n");
  EXPECT_THAT(Error(), HasSubstr(path + ":"));
  WriteConfig("- a\n- b\n");
  EXPECT_THAT(Error(), HasSubstr("key: value"));
  WriteConfig("");
  variables_["FSDPCTL_CALL_TIMEOUT"] = "never";
  EXPECT_THAT(Error(), HasSubstr("FSDPCTL_CALL_TIMEOUT"));
  variables_["FSDPCTL_CALL_TIMEOUT"] = "0s";
  EXPECT_FALSE(Load().ok());
}

}  // namespace
}  // namespace fsdp
