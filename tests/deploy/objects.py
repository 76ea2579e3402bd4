"""The objects that the kustomization and the Helm chart create. Helm 4 itself renders the chart: the package
helm-python-sdk has it as a library."""

import copy

import helm_python as helm
import yaml


def by_name(objects):
    named = {(item["kind"], item["metadata"]["name"]): item for item in objects}
    assert len(named) == len(objects)
    return named


def kustomized(deploy):
    """The objects that `kubectl apply -k` creates, but for the secret, and for the hash in the name of the generated
    configuration. The chart expects both the namespace and the secret."""
    kustomization = yaml.safe_load((deploy / "kustomization.yaml").read_text())
    assert set(kustomization) == {
        "apiVersion", "kind", "namespace", "resources", "configMapGenerator", "secretGenerator",
    }, "teach this script the new parts of the kustomization"
    [generated] = kustomization["configMapGenerator"]
    assert generated == {"name": "weir", "files": ["weir.toml"]}
    [secret] = kustomization["secretGenerator"]
    assert secret["name"] == "weir"
    objects = [{
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "weir"},
        "data": {"weir.toml": (deploy / "weir.toml").read_text()},
    }]
    for resource in kustomization["resources"]:
        objects += yaml.safe_load_all((deploy / resource).read_text())
    objects = [item for item in objects if item["kind"] != "Namespace"]
    for item in objects:
        item["metadata"]["namespace"] = kustomization["namespace"]
    return by_name(objects)


def rendered(chart, values=None, name="weir", namespace="weir"):
    """The objects of the chart, and its notes."""
    with helm.Chart.load(str(chart)) as loaded:
        files = loaded.render(copy.deepcopy(values) or {}, name=name, namespace=namespace)
    notes = files.pop("weir/templates/NOTES.txt")
    objects = [item for file in files.values() for item in yaml.safe_load_all(file) if item]
    return by_name(objects), notes


def deployment(objects):
    [found] = [item for (kind, _), item in objects.items() if kind == "Deployment"]
    return found
