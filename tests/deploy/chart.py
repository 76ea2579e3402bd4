"""Compares the objects of the Helm chart with those of the kustomization, checks each value, and validates the objects with
Kubernetes' schemas. Usage: chart.py DEPLOY"""

import copy
import hashlib
import pathlib
import sys

import helm_python as helm
import kubernetes_validate
import yaml

from objects import deployment, kustomized, rendered as rendered_from

DEPLOY = pathlib.Path(sys.argv[1])
CHART = DEPLOY / "helm/weir"
TOML = (DEPLOY / "weir.toml").read_text()


def rendered(values=None, **names):
    return rendered_from(CHART, values, **names)


def refused(values, part):
    try:
        rendered(values)
    except helm.HelmError as error:
        assert part in str(error), error
    else:
        raise AssertionError(f"the chart accepts {values}")


linted = helm.lint(str(CHART))
assert not linted["errors"], linted
assert all("icon" in message["error"] for message in linted["messages"]), linted

objects, notes = rendered()
expected = kustomized(DEPLOY)
annotations = deployment(objects)["spec"]["template"]["metadata"].pop("annotations")
assert annotations == {"checksum/configuration": hashlib.sha256(TOML.encode()).hexdigest()}
assert objects == expected, f"{objects}\n\n{expected}"
assert "create secret generic weir" in notes, notes

# The release's name and namespace are those of all objects, and the values change only their own fields.
text = 'dev = false\nlisten = "0.0.0.0:8080"\n'
digest = "sha256:" + "a" * 64
changed, notes = rendered(
    {
        "image": {"digest": digest, "pullSecrets": ["registry"]},
        "replicas": 1,
        "configuration": text,
        "secret": "keys",
        "resources": {"limits": {"memory": "8Gi"}},
    },
    name="blue",
    namespace="models",
)
assert "create secret generic keys" in notes and "http://blue.models" in notes, notes
assert set(changed) == {
    ("ConfigMap", "blue"), ("Deployment", "blue"), ("Service", "blue"), ("Service", "blue-internal"),
}, set(changed)
assert changed["ConfigMap", "blue"]["data"] == {"weir.toml": text}
blue = copy.deepcopy(expected["Deployment", "weir"])
blue["metadata"] = {"name": "blue", "namespace": "models"}
blue["spec"]["replicas"] = 1
blue["spec"]["selector"]["matchLabels"] = {"app": "blue"}
blue["spec"]["template"]["metadata"] = {
    "labels": {"app": "blue"},
    "annotations": {"checksum/configuration": hashlib.sha256(text.encode()).hexdigest()},
}
pod = blue["spec"]["template"]["spec"]
pod["imagePullSecrets"] = [{"name": "registry"}]
pod["containers"][0]["image"] = f"registry.your-company.com/weir@{digest}"
pod["containers"][0]["resources"]["limits"]["memory"] = "8Gi"
pod["volumes"][0]["configMap"]["name"] = "blue"
pod["volumes"][1]["secret"]["secretName"] = "keys"
assert changed["Deployment", "blue"] == blue, f"{changed['Deployment', 'blue']}\n\n{blue}"
for service in ("blue", "blue-internal"):
    assert changed["Service", service]["spec"]["selector"] == {"app": "blue"}

# A node's objects for Kubernetes' versions: the oldest that a cloud supported in 2026, and the newest.
VERSIONS = ("1.33", "1.37")
# The custom resources of Prometheus Operator have no schema in Kubernetes.
OPERATOR = "monitoring.coreos.com/v1"


def validated(objects):
    for item in objects.values():
        if item["apiVersion"] != OPERATOR:
            for version in VERSIONS:
                kubernetes_validate.validate(item, version, strict=True)


validated(expected)
validated(changed)
typo = copy.deepcopy(expected["Deployment", "weir"])
typo["spec"]["template"]["spec"]["nodeSelectors"] = {}
try:
    validated({"typo": typo})
except kubernetes_validate.ValidationError as error:
    assert "nodeSelectors" in error.message, error
else:
    raise AssertionError("the schemas accept unknown fields")

# Each optional value reaches its place.
account = {"create": True, "name": "robot", "annotations": {"a": "b"}, "automount": True}
pod_values = {
    "nodeSelector": {"disk": "ssd"},
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "affinity": {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": [
        {"weight": 1, "podAffinityTerm": {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "weir"}}}},
    ]}},
    "topologySpreadConstraints": [{
        "maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "weir"}},
    }],
}
environment = [{"name": "SSL_CERT_FILE", "value": "/etc/authority/ca.pem"}]
sources = [{"configMapRef": {"name": "proxy"}}]
volume = {"name": "authority", "configMap": {"name": "authority"}}
place = {"name": "authority", "mountPath": "/etc/authority", "readOnly": True}
full, _ = rendered({
    **pod_values,
    "serviceAccount": account,
    "secretFolder": "/etc/weir-secrets",
    "env": environment,
    "envFrom": sources,
    "extraVolumes": [volume],
    "extraVolumeMounts": [place],
    "podLabels": {"team": "models"},
    "podAnnotations": {"note": "x"},
    "service": {"type": "LoadBalancer", "annotations": {"c": "d"}},
    "ingress": {
        "enabled": True, "className": "nginx", "annotations": {"e": "f"}, "hosts": ["a.test", "b.test"],
        "tls": [{"secretName": "t", "hosts": ["a.test"]}],
    },
    "autoscaling": {"enabled": True, "minReplicas": 3, "maxReplicas": 9, "behavior": {"scaleDown": {"stabilizationWindowSeconds": 60}}},
    "monitoring": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
        "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
        "dashboard": {"enabled": True},
    },
})
validated(full)
[template] = [deployment(full)["spec"]["template"]]
assert template["metadata"]["labels"] == {"app": "weir", "team": "models"}
assert template["metadata"]["annotations"]["note"] == "x"
pod = template["spec"]
assert {name: pod[name] for name in pod_values} == pod_values, pod
assert (pod["serviceAccountName"], pod["automountServiceAccountToken"]) == ("robot", True)
[container] = pod["containers"]
assert (container["env"], container["envFrom"]) == (environment, sources), container
assert volume in pod["volumes"] and place in container["volumeMounts"]
created = full["ServiceAccount", "robot"]
assert (created["metadata"]["annotations"], created["automountServiceAccountToken"]) == ({"a": "b"}, True)
public = full["Service", "weir"]
assert (public["metadata"]["annotations"], public["spec"]["type"]) == ({"c": "d"}, "LoadBalancer")
ingress = full["Ingress", "weir"]["spec"]
assert [rule["host"] for rule in ingress["rules"]] == ["a.test", "b.test"]
assert ingress["rules"][0]["http"]["paths"][0]["backend"] == {"service": {"name": "weir", "port": {"name": "public"}}}
assert (ingress["ingressClassName"], ingress["tls"][0]["secretName"]) == ("nginx", "t")
scaler = full["HorizontalPodAutoscaler", "weir"]["spec"]
assert (scaler["minReplicas"], scaler["maxReplicas"], scaler["scaleTargetRef"]["name"]) == (3, 9, "weir")
assert "replicas" not in deployment(full)["spec"], "the autoscaler owns it"
assert ("PodDisruptionBudget", "weir") in full
# API reference of Prometheus Operator: ServiceMonitor selects services by label, and an endpoint names a service's port.
monitor = full["ServiceMonitor", "weir"]
[endpoint] = monitor["spec"]["endpoints"]
internal = full["Service", "weir-internal"]
selected = [
    item for (kind, _), item in full.items() if kind == "Service"
    and monitor["spec"]["selector"]["matchLabels"].items() <= item["metadata"].get("labels", {}).items()
]
assert selected == [internal] and endpoint["port"] in [port["name"] for port in internal["spec"]["ports"]]
assert (endpoint["path"], endpoint["interval"]) == ("/metrics", "30s")
assert endpoint["relabelings"] == [{"targetLabel": "job", "replacement": "weir"}]
assert monitor["metadata"]["labels"] == {"release": "prometheus"}
assert full["PrometheusRule", "weir"]["spec"] == yaml.safe_load((DEPLOY / "alerts.yaml").read_text())
dashboard = full["ConfigMap", "weir-dashboard"]
assert dashboard["data"] == {"weir.json": (DEPLOY / "grafana-dashboard.json").read_text()}
assert dashboard["metadata"]["labels"] == {"grafana_dashboard": "1"}

# The clouds' webhooks mount tokens at these places, and Kubernetes cannot mount inside the read-only folder of another volume
# (kubernetes/kubernetes#65835). /var/run is a link to /run in the image.
TOKENS = {
    # https://docs.aws.amazon.com/eks/latest/userguide/pod-configuration.html
    "aws": "/run/secrets/eks.amazonaws.com/serviceaccount",
    # https://azure.github.io/azure-workload-identity/docs/topics/service-account-labels-and-annotations.html
    "azure": "/run/secrets/azure/tokens",
    # https://cloud.google.com/kubernetes-engine/docs/how-to/workload-identity: the metadata server needs no file.
    "gcp": None,
}
IDENTITIES = {
    "aws": "eks.amazonaws.com/role-arn",
    "azure": "azure.workload.identity/client-id",
    "gcp": "iam.gke.io/gcp-service-account",
}
assert {path.stem for path in (DEPLOY / "helm").glob("*.yaml")} == set(TOKENS)
for cloud, token in TOKENS.items():
    values = yaml.safe_load((DEPLOY / f"helm/{cloud}.yaml").read_text())
    objects, _ = rendered(values)
    validated(objects)
    pod = deployment(objects)["spec"]["template"]["spec"]
    assert IDENTITIES[cloud] in objects["ServiceAccount", pod["serviceAccountName"]]["metadata"]["annotations"], cloud
    assert ("Ingress", "weir") in objects, cloud
    [container] = pod["containers"]
    folders = [mount["mountPath"] for mount in container["volumeMounts"]]
    assert not token or not any(token.startswith(folder + "/") for folder in folders), (cloud, folders)
    [secrets] = [mount["mountPath"] for mount in container["volumeMounts"] if mount["name"] == "secrets"]
    text = objects["ConfigMap", "weir"]["data"]["weir.toml"]
    assert "/run/secrets" not in text and f"{secrets}/pepper" in text, cloud
azure, _ = rendered(yaml.safe_load((DEPLOY / "helm/azure.yaml").read_text()))
assert deployment(azure)["spec"]["template"]["metadata"]["labels"]["azure.workload.identity/use"] == "true"

refused({"serviceAccount": {"create": True}}, "secretFolder")
refused({"serviceAccount": {"automount": True}, "secretFolder": "/var/run/x"}, "secretFolder")
refused({"ingress": {"enabled": True}}, "/ingress/hosts")
refused({"autoscaling": {"minReplicas": 0}}, "/autoscaling/minReplicas")
refused({"podLabels": {"a": True}}, "/podLabels/a")
refused({"monitoring": {"alerts": True}}, "'alerts' not allowed")
refused({"replicas": 0}, "/replicas")
refused({"replica": 3}, "'replica' not allowed")
refused({"image": {"digest": "latest"}}, "/image/digest")
refused({"image": {"repository": ""}}, "/image/repository")
print("all as expected")
