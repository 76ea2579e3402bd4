"""Verifies a release with the libraries of CycloneDX, in-toto and DSSE. Usage: release.py FOLDER PUBLIC_KEY COMMIT IMAGE
DIGEST, or release.py BILL_OF_MATERIALS"""

import base64
import hashlib
import json
import pathlib
import sys

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cyclonedx.model.bom import Bom
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from google.protobuf import json_format
from in_toto_attestation.predicates.provenance.v1 import provenance_pb2
from in_toto_attestation.v1 import statement_pb2
from in_toto_attestation.v1.statement import Statement
from securesystemslib.dsse import Envelope
from securesystemslib.signer import SSlibKey


def check_sbom(path):
    text = path.read_text()
    wrong = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    assert wrong is None, wrong
    bom = Bom.from_json(json.loads(text))
    # The dependencies name components of the document.
    bom.validate()
    assert bom.metadata.component.name == "weir"
    assert len(bom.components) > 200, len(bom.components)


def check_provenance(path, key, name, digest, commit, sbom):
    envelope = Envelope.from_dict(json.loads(path.read_text()))
    assert envelope.payload_type == "application/vnd.in-toto+json"
    assert list(envelope.verify([key], 1)) == [key.keyid]
    statement = json_format.Parse(envelope.payload, statement_pb2.Statement())
    Statement.copy_from_pb(statement).validate()
    [subject] = statement.subject
    assert (subject.name, dict(subject.digest)) == (name, {"sha256": digest}), subject
    assert statement.predicate_type == "https://slsa.dev/provenance/v1"
    predicate = json_format.MessageToDict(statement.predicate)
    # The parser refuses fields that SLSA does not know.
    provenance = json_format.ParseDict(predicate, provenance_pb2.Provenance())
    source, lock = provenance.build_definition.resolved_dependencies
    assert dict(source.digest) == {"gitCommit": commit}, source
    assert source.uri == "git+https://git.example/weir.git", source.uri
    assert lock.name == "Cargo.lock"
    assert provenance.run_details.builder.id == "https://ci.example/runner"
    [byproduct] = provenance.run_details.byproducts
    assert byproduct.digest["sha256"] == hashlib.sha256(sbom.read_bytes()).hexdigest()


if len(sys.argv) == 2:
    check_sbom(pathlib.Path(sys.argv[1]))
else:
    folder = pathlib.Path(sys.argv[1])
    public, commit, image, image_digest = sys.argv[2:]
    public = serialization.load_pem_public_key(pathlib.Path(public).read_bytes())
    der = public.public_bytes(
        serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    key = SSlibKey.from_crypto(public, keyid=hashlib.sha256(der).hexdigest())
    program = hashlib.sha256((folder / "weir").read_bytes()).hexdigest()
    for name, subject, digest in [("weir", "weir", program), ("image", image, image_digest)]:
        check_sbom(folder / f"{name}.cdx.json")
        check_provenance(
            folder / f"{name}.intoto.jsonl", key, subject, digest, commit, folder / f"{name}.cdx.json"
        )
    signed = [file.with_suffix("") for file in folder.glob("*.sig")]
    assert len(signed) == 7, signed
    for file in signed:
        signature = base64.b64decode((folder / f"{file.name}.sig").read_text(), validate=True)
        public.verify(signature, file.read_bytes(), ec.ECDSA(hashes.SHA256()))
    # The form of cosign's specification SIGNATURE_SPEC.md.
    assert json.loads((folder / "image.json").read_text()) == {
        "critical": {
            "identity": {"docker-reference": image},
            "image": {"docker-manifest-digest": f"sha256:{image_digest}"},
            "type": "cosign container image signature",
        },
        "optional": None,
    }
print("all as expected")
