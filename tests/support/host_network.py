"""Hosts of a cluster as network namespaces of one machine: own interfaces, addresses, routes, loopback and host name.

    with host_network(hosts=3) as network:
        network.hosts[0].run("ip", "-br", "address")

Every host has eth0 in the control network and eth1 in the job network, each a bridge in a namespace of its own, so that
nothing of the machine's own network is touched or needed. `cut` drops packets with nft, one way or both. Needs root (or
CAP_NET_ADMIN and CAP_SYS_ADMIN), iproute2 and nftables; the test is skipped, with the reason, where that is refused.
"""

import contextlib
import itertools
import os
import subprocess
import unittest

CONTROL, JOBS = 1, 2
_numbers = itertools.count()


def _ip(*words, check=True):
    done = subprocess.run(["ip", *map(str, words)], text=True, capture_output=True, check=False)
    if check and done.returncode != 0:
        raise OSError(f"ip {' '.join(map(str, words))}: {done.stderr.strip()}")
    return done


class Host:
    def __init__(self, network, index):
        self.network = network
        self.index = index
        # What gethostname() says there; the same in every network, since namespaces hide them from each other.
        self.name = f"host{index}"
        self.namespace = f"{network.prefix}-h{index}"

    def address(self, which=CONTROL, family=None):
        """Of eth0 (CONTROL) or eth1 (JOBS); without `family` the first that the network has."""
        family = family or self.network.families[0]
        last = self.index + 1
        return f"10.77.{which}.{last}" if family == 4 else f"fd77:{which}::{last}"

    def endpoint(self, port, which=CONTROL, family=None):
        address = self.address(which, family)
        return f"[{address}]:{port}" if ":" in address else f"{address}:{port}"

    def command(self, *words):
        """The command line that runs `words` as this host. It is exec'd, so a signal to its pid reaches the program."""
        return ["ip", "netns", "exec", self.namespace, "unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"',
                self.name, *map(str, words)]

    def run(self, *words, check=True, timeout=60, **kwargs):
        done = subprocess.run(self.command(*words), text=True, capture_output=True, check=False, timeout=timeout,
                              **kwargs)
        if check and done.returncode != 0:
            raise AssertionError(f"{self.name}: {' '.join(map(str, words))}: exit {done.returncode}\n"
                                 f"{done.stdout}{done.stderr}")
        return done

    def connections(self):
        """Both ends of the established TCP connections, without ports, as (own, peer)."""
        lines = self.run("ss", "-Htn", "state", "established").stdout.splitlines()
        ends = [line.split()[2:4] for line in lines]
        return {tuple(end.rsplit(":", 1)[0].strip("[]") for end in pair) for pair in ends}


class HostNetwork:
    def __init__(self, hosts, families):
        self.families = tuple(families)
        self.prefix = f"fsdp{os.getpid()}-{next(_numbers)}"
        self.switch = f"{self.prefix}-switch"
        self.hosts = [Host(self, index) for index in range(hosts)]
        self.cuts = []

    def build(self):
        _ip("netns", "add", self.switch)
        for which in (CONTROL, JOBS):
            _ip("-n", self.switch, "link", "add", f"br{which}", "type", "bridge", "forward_delay", 0)
            _ip("-n", self.switch, "link", "set", f"br{which}", "up")
        for host in self.hosts:
            _ip("netns", "add", host.namespace)
            _ip("-n", host.namespace, "link", "set", "lo", "up")
            for which in (CONTROL, JOBS):
                self._connect(host, which)

    def _connect(self, host, which):
        interface, port = f"eth{which - 1}", f"p{host.index}-{which}"
        _ip("-n", self.switch, "link", "add", port, "type", "veth", "peer", "name", interface, "netns", host.namespace)
        _ip("-n", self.switch, "link", "set", port, "master", f"br{which}", "up")
        for family in self.families:
            # nodad: an IPv6 address is usable at once.
            extra = ["nodad"] if family == 6 else []
            bits = 24 if family == 4 else 64
            _ip("-n", host.namespace, f"-{family}", "address", "add", f"{host.address(which, family)}/{bits}", "dev",
                interface, *extra)
        _ip("-n", host.namespace, "link", "set", interface, "up")

    def cut(self, host, other, both_ways=True):
        """What `other` sends to `host` is dropped, in all networks; `both_ways`: and what it would get from it."""
        for at, sender in ((host, other), (other, host)) if both_ways else ((host, other),):
            rules = [f"{'ip' if family == 4 else 'ip6'} saddr {sender.address(which, family)} drop"
                     for which in (CONTROL, JOBS) for family in self.families]
            table = f"cut{len(self.cuts)}"
            script = "\n".join([f"table inet {table} {{", "chain input {", "type filter hook input priority 0", *rules,
                                "}", "}", ""])
            at.run("nft", "-f", "-", input=script)
            self.cuts.append((at, table))

    def heal(self):
        for at, table in self.cuts:
            at.run("nft", "delete", "table", "inet", table)
        self.cuts = []

    def remove(self):
        for namespace in (*(host.namespace for host in self.hosts), self.switch):
            _ip("netns", "delete", namespace, check=False)


def _permission():
    """Why namespaces cannot be had here; empty: they can."""
    name = f"fsdp{os.getpid()}-probe"
    try:
        _ip("netns", "add", name)
        probe = Host(HostNetwork(1, (4,)), 0)
        probe.namespace = name
        probe.run("nft", "-f", "-", input="table inet probe { }")
        _ip("-n", name, "link", "add", "br0", "type", "bridge")
        _ip("-n", name, "link", "add", "v0", "type", "veth", "peer", "name", "v1")
    except (OSError, AssertionError) as error:
        return str(error)
    finally:
        with contextlib.suppress(OSError):
            _ip("netns", "delete", name, check=False)
    return ""


@contextlib.contextmanager
def host_network(hosts, families=(4,)):
    """`families`: (4,), (6,) or (4, 6)."""
    reason = _permission()
    if reason:
        raise unittest.SkipTest(f"needs network namespaces, veth, a bridge and nft: {reason}")
    network = HostNetwork(hosts, families)
    try:
        network.build()
        yield network
    finally:
        network.remove()
