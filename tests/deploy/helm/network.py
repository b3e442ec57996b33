"""What NetworkPolicies let through, as far as the chart uses them: selectors by matchLabels, ports by number."""


def _selects(selector, labels):
    return set(selector) <= {"matchLabels"} and selector.get("matchLabels", {}).items() <= labels.items()


def _is_peer(peer, pod, namespace_of_policy):
    if "ipBlock" in peer:
        return False
    if "namespaceSelector" in peer:
        if not _selects(peer["namespaceSelector"], {"kubernetes.io/metadata.name": pod["namespace"]}):
            return False
    elif pod["namespace"] != namespace_of_policy:
        return False
    return _selects(peer.get("podSelector", {}), pod["labels"])


def _direction_allows(policies, kind, pod, peer, port):
    """Whether the policies of `pod` let `peer` through; kind is Ingress or Egress."""
    word = "from" if kind == "Ingress" else "to"
    mine = [policy for policy in policies
            if policy["metadata"]["namespace"] == pod["namespace"] and kind in policy["spec"]["policyTypes"]
            and _selects(policy["spec"]["podSelector"], pod["labels"])]
    if not mine:
        return True
    for policy in mine:
        for rule in policy["spec"].get(kind.lower(), []):
            port_fits = "ports" not in rule or port in [entry["port"] for entry in rule["ports"]]
            peer_fits = word not in rule or any(_is_peer(entry, peer, policy["metadata"]["namespace"])
                                                for entry in rule[word])
            if port_fits and peer_fits:
                return True
    return False


def allowed(policies, source, target, port):
    """Pods are {"namespace", "labels"}."""
    return (_direction_allows(policies, "Egress", source, target, port)
            and _direction_allows(policies, "Ingress", target, source, port))
