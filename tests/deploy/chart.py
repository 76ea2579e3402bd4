"""Compares the objects of the Helm chart with those of the kustomization. Usage: chart.py DEPLOY"""

import copy
import hashlib
import pathlib
import sys

import helm_python as helm

from objects import deployment, kustomized, rendered as rendered_from

DEPLOY = pathlib.Path(sys.argv[1])
CHART = DEPLOY / "helm/weir"
TOML = (DEPLOY / "weir.toml").read_text()


def rendered(values=None, **names):
    return rendered_from(CHART, values, **names)


def refused(values, part):
    try:
        rendered(values)
    except helm.HelmValuesError as error:
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

refused({"replicas": 0}, "/replicas")
refused({"replica": 3}, "'replica' not allowed")
refused({"image": {"digest": "latest"}}, "/image/digest")
refused({"image": {"repository": ""}}, "/image/repository")
print("all as expected")
