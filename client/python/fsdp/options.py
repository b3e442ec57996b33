"""How to reach a coordinator, and who one is there."""

from __future__ import annotations

import dataclasses
import os
import pathlib
from collections.abc import Mapping

import grpc

DEFAULT_SERVER = "127.0.0.1:7070"


@dataclasses.dataclass(frozen=True)
class ClientOptions:
    """server: "host:port", "[v6]:port" or "unix:/path".

    Times are in seconds. TLS is used when `tls` is true or a file of it is named; files are PEM.
    The token's file is read at each call, so that a rotated token is used from then on.
    """

    server: str = DEFAULT_SERVER
    # Of one call, retries included.
    call_timeout: float = 10.0
    # How long a call waits for a connection, and is repeated while the coordinator is away.
    retry_window: float = 4.0
    # How long a stream tries to get its coordinator back.
    reconnect_window: float = 60.0
    tls: bool = False
    # Whom to trust; absent: the system's authorities.
    tls_ca: str | None = None
    # Who one is (mutual TLS); both or none.
    tls_certificate: str | None = None
    tls_key: str | None = None
    # The name in the coordinator's certificate, where it is not the one that is dialled.
    tls_server_name: str | None = None
    token_file: str | None = None
    # A token goes over an unencrypted connection to another machine only when this is true.
    allow_plaintext_token: bool = False

    def __post_init__(self) -> None:
        if bool(self.tls_certificate) != bool(self.tls_key):
            raise ValueError("tls_certificate and tls_key go together: give both or none")
        if self.tls_server_name and not self.uses_tls:
            raise ValueError("tls_server_name without TLS: set tls=True or tls_ca")
        if min(self.call_timeout, self.retry_window, self.reconnect_window) <= 0:
            raise ValueError("call_timeout, retry_window and reconnect_window must be above 0")
        exposed = self.token_file and not self.uses_tls and not self.is_local
        if exposed and not self.allow_plaintext_token:
            raise ValueError(f"the token would go to {self.server} unencrypted: set tls=True or tls_ca, "
                             "or allow_plaintext_token=True in a network that you trust")

    @property
    def uses_tls(self) -> bool:
        return bool(self.tls or self.tls_ca or self.tls_certificate)

    @property
    def is_local(self) -> bool:
        host = self.server.rpartition(":")[0].strip("[]")
        return (self.server.startswith("unix:") or host in ("localhost", "::1")
                or host.startswith("127."))

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] | None = None,
                         **overrides: object) -> ClientOptions:
        """FSDPCTL_SERVER, FSDPCTL_TLS_CA ("system": the system's authorities), _TLS_CERTIFICATE,
        _TLS_KEY, _TLS_SERVER_NAME, FSDPCTL_TOKEN_FILE and FSDPCTL_ALLOW_PLAINTEXT_TOKEN, as fsdpctl
        reads them; `overrides` go first."""
        values = os.environ if environment is None else environment
        found: dict[str, object] = {}
        for name in ("server", "tls_ca", "tls_certificate", "tls_key", "tls_server_name",
                     "token_file"):
            if value := values.get(f"FSDPCTL_{name.upper()}"):
                found[name] = value
        if found.get("tls_ca") == "system":
            found.update(tls=True, tls_ca=None)
        if values.get("FSDPCTL_ALLOW_PLAINTEXT_TOKEN") in ("true", "1"):
            found["allow_plaintext_token"] = True
        return cls(**{**found, **overrides})  # type: ignore[arg-type]

    def channel_arguments(self) -> list[tuple[str, object]]:
        arguments: list[tuple[str, object]] = [
            ("grpc.max_receive_message_length", 64 << 20),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.min_reconnect_backoff_ms", 1000),
            ("grpc.max_reconnect_backoff_ms", 1000),
            # A coordinator is dialled directly, also where http_proxy is set for the machine.
            ("grpc.enable_http_proxy", 0),
            # Notices a peer that vanished without closing the connection, while a stream is silent.
            ("grpc.keepalive_time_ms", 30_000),
            ("grpc.keepalive_timeout_ms", 10_000),
            ("grpc.primary_user_agent", "fsdp-python"),
        ]
        if self.tls_server_name:
            arguments.append(("grpc.ssl_target_name_override", self.tls_server_name))
        return arguments

    def credentials(self) -> grpc.ChannelCredentials | None:
        """None without TLS."""
        if not self.uses_tls:
            return None
        return grpc.ssl_channel_credentials(_read(self.tls_ca), _read(self.tls_key),
                                            _read(self.tls_certificate))

    def call_metadata(self) -> list[tuple[str, str]]:
        """Of each call. Raises OSError, or ValueError for a file without a token."""
        if not self.token_file:
            return []
        token = pathlib.Path(self.token_file).read_text(encoding="ascii").strip()
        if not token:
            raise ValueError(f"{self.token_file} holds no token")
        return [("authorization", f"Bearer {token}")]


def _read(path: str | None) -> bytes | None:
    return pathlib.Path(path).read_bytes() if path else None
