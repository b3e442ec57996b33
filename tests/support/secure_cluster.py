"""A cluster as one that others can reach is set up: TLS, mutual where a client has a certificate, and tokens."""

import pathlib
import subprocess

from cluster import BIN, Cluster


def _ctl(*arguments):
    subprocess.run([str(BIN / "fsdpctl"), *map(str, arguments)], check=True, capture_output=True)


class SecureCluster(Cluster):
    """`root`: a folder for authority, certificates and tokens. `environment` makes a client alice, a submitter."""

    def __init__(self, root, **options):
        root = pathlib.Path(root)
        ca, access = root / "ca", root / "access.yaml"
        _ctl("ca", "init", "--dir", ca, "--name", "test")
        _ctl("ca", "issue", "server", "coordinator", "--host", "127.0.0.1", "--dir", ca)
        _ctl("ca", "issue", "user", "alice", "--dir", ca)
        for name, role in (("alice", "submitter"), ("w", "worker"), ("root", "admin")):
            _ctl("admin", "create-token", "--name", name, "--role", role, "--access", access, "--to", root / name)
        authority = f"--tls-ca={ca / 'ca.crt'}"
        super().__init__(
            coordinator_flags=[f"--tls-certificate={ca / 'coordinator.crt'}", f"--tls-key={ca / 'coordinator.key'}",
                               f"--tls-client-ca={ca / 'ca.crt'}", f"--access={access}"],
            worker_flags=[authority, f"--token-file={root / 'w'}"],
            client_flags=[authority, f"--token-file={root / 'root'}"], **options)
        self.authority = ca / "ca.crt"
        self.token = root / "alice"
        self.certificate, self.key = ca / "alice.crt", ca / "alice.key"

    @property
    def environment(self):
        return {"FSDPCTL_SERVER": self.server, "FSDPCTL_TLS_CA": str(self.authority),
                "FSDPCTL_TLS_CERTIFICATE": str(self.certificate), "FSDPCTL_TLS_KEY": str(self.key),
                "FSDPCTL_TOKEN_FILE": str(self.token)}
