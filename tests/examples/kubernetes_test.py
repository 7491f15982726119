"""The parts of the manifest are consistent and admit no other connections."""

import kubernetes_validate
import pytest
import yaml

from tests.source_tree import ROOT
from tf_largeout.distribute import server

PARTS = {
    part["kind"]: part
    for part in yaml.safe_load_all((ROOT / "examples/kubernetes/sharded.yaml").read_text())
}
VERSIONS = {
    "Service": "v1",
    "StatefulSet": "apps/v1",
    "Job": "batch/v1",
    "NetworkPolicy": "networking.k8s.io/v1",
}


def pod_of(kind):
    return PARTS[kind]["spec"]["template"]


def container_of(kind):
    return pod_of(kind)["spec"]["containers"][0]


@pytest.mark.parametrize("kind", VERSIONS)
def test_parts_match_their_schema(kind):
    part, version = PARTS[kind], kubernetes_validate.latest_version()
    assert part["apiVersion"] == VERSIONS[kind]
    kubernetes_validate.validate(part, version, strict=True)
    with pytest.raises(kubernetes_validate.ValidationError, match="replica"):
        kubernetes_validate.validate({**part, "replica": 1}, version, strict=True)


def test_the_trainer_names_each_server():
    servers, service = PARTS["StatefulSet"], PARTS["Service"]
    name, domain = servers["metadata"]["name"], service["metadata"]["name"]
    assert servers["spec"]["serviceName"] == domain
    port = service["spec"]["ports"][0]["port"]
    (value,) = [one["value"] for one in container_of("Job")["env"] if one["name"] == "SERVERS"]
    expected = [f"{name}-{i}.{domain}:{port}" for i in range(servers["spec"]["replicas"])]
    assert value.split() == expected


def test_servers_are_selected_and_started_with_valid_options(monkeypatch):
    servers = PARTS["StatefulSet"]["spec"]
    labels = pod_of("StatefulSet")["metadata"]["labels"]
    assert servers["selector"]["matchLabels"] == labels == PARTS["Service"]["spec"]["selector"]
    started = []

    def serve(host, port, claim):
        started.append((host, port))
        raise OSError("not here")

    monkeypatch.setattr(server, "serve", serve)
    container = container_of("StatefulSet")
    assert container["command"][-1] == "tf_largeout.distribute.server"
    assert server.main(container["args"]) == 1
    port = PARTS["Service"]["spec"]["ports"][0]["port"]
    assert started == [("$(POD).shards", port)] and container["ports"] == [
        {"containerPort": port}
    ]


def test_only_servers_and_trainer_reach_each_other():
    policy = PARTS["NetworkPolicy"]["spec"]
    (rule,) = policy["ingress"]
    assert rule["from"] == [{"podSelector": policy["podSelector"]}]
    (expression,) = policy["podSelector"]["matchExpressions"]
    kinds = ("StatefulSet", "Job")
    labels = [pod_of(kind)["metadata"]["labels"] for kind in kinds]
    assert expression["values"] == [one[expression["key"]] for one in labels]
    assert (
        PARTS["Service"]["spec"]["clusterIP"] == "None"
        and "type" not in PARTS["Service"]["spec"]
    )


@pytest.mark.parametrize("kind", ["StatefulSet", "Job"])
def test_pods_have_no_privileges_and_share_the_folder_of_backups(kind):
    spec = pod_of(kind)["spec"]
    assert spec["securityContext"]["runAsNonRoot"] and not spec["automountServiceAccountToken"]
    (mount,) = spec["containers"][0]["volumeMounts"]
    assert mount["mountPath"] == "/backups"
    assert [one["name"] for one in spec["volumes"]] == [mount["name"]]
