//! The artifact of a component: a manifest, a configuration that describes the component, and one layer with the component.

use std::collections::BTreeMap;

use anyhow::{Context, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;
use wasmparser::{Parser, Payload};
use weir_plugins::signature::Signature;
use weir_sandbox::limits::COMPONENT_BYTES;
use weir_sandbox::{Digest, printable};

use super::reference::parse_digest;

/// The annotation with the publisher's signature: the line of JSON that `weir plugin sign` writes.
pub(crate) const SIGNATURE: &str = "dev.weir.signature";

/// The media type of pushed manifests.
pub(crate) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// The media types that weir accepts. Indexes are accepted to report them in an error.
pub(crate) const ACCEPTED: &str = "application/vnd.oci.image.manifest.v1+json, \
                                   application/vnd.oci.image.index.v1+json, \
                                   application/vnd.docker.distribution.manifest.v2+json, \
                                   application/vnd.docker.distribution.manifest.list.v2+json";

const CONFIG: &str = "application/vnd.wasm.config.v0+json";
const WASM: &str = "application/wasm";
const TITLE: &str = "org.opencontainers.image.title";
const VERSION: &str = "org.opencontainers.image.version";

/// The creation time of each artifact, a constant: a component has the same digest at each push. Other tools refuse a configuration
/// without a time.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// The exported interfaces, and the worlds that they belong to.
const WORLDS: [(&str, &str); 3] = [
    ("weir:plugin/adapter@", "weir:plugin/provider@"),
    ("weir:plugin/tool@", "weir:plugin/swarm-tool@"),
    ("weir:plugin/filter@", "weir:plugin/request-filter@"),
];

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct OciManifest {
    #[serde(default)]
    schema_version: u32,
    media_type: Option<String>,
    config: Option<Descriptor>,
    layers: Option<Vec<Descriptor>>,
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Descriptor {
    media_type: String,
    digest: String,
    size: u64,
}

impl Descriptor {
    fn of(media_type: &str, bytes: &[u8]) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest: format!("sha256:{}", Digest::of(bytes)),
            size: bytes.len() as u64,
        }
    }
}

/// The configuration and the manifest of a component.
pub(crate) struct PushContent {
    pub(crate) config: Vec<u8>,
    pub(crate) manifest: Vec<u8>,
}

impl PushContent {
    /// Describes a component. Equal input gives equal bytes.
    pub(crate) fn of(
        component: &[u8],
        name: &str,
        version: &str,
        signature: Option<&Signature>,
    ) -> anyhow::Result<Self> {
        let outside = ComponentInterface::read(component)?;
        let layer = Descriptor::of(WASM, component);
        let config = json!({
            "created": CREATED,
            "architecture": "wasm",
            "os": "wasip2",
            "layerDigests": [layer.digest],
            "component": {
                "exports": outside.exports,
                "imports": outside.imports,
                "target": outside.world(),
            },
        });
        let config = config.to_string().into_bytes();
        let mut annotations = BTreeMap::from([
            (TITLE.to_owned(), name.to_owned()),
            (VERSION.to_owned(), version.to_owned()),
        ]);
        if let Some(signature) = signature {
            annotations.insert(SIGNATURE.to_owned(), signature.to_json());
        }
        let manifest = OciManifest {
            schema_version: 2,
            media_type: Some(MANIFEST.to_owned()),
            config: Some(Descriptor::of(CONFIG, &config)),
            layers: Some(vec![layer]),
            annotations: Some(annotations),
        };
        Ok(Self {
            config,
            manifest: serde_json::to_vec(&manifest)?,
        })
    }
}

/// The content of a manifest that weir can pull.
#[derive(Debug)]
pub(crate) struct PullContent {
    /// The component's digest.
    pub(crate) layer: Digest,
    pub(crate) bytes: usize,
    pub(crate) signature: Option<Signature>,
}

impl PullContent {
    /// Parses a manifest. Its content is not trusted.
    pub(crate) fn read(manifest: &[u8]) -> anyhow::Result<Self> {
        let manifest: OciManifest =
            serde_json::from_slice(manifest).context("the registry's manifest cannot be read")?;
        let shown = |media_type: &str| printable(media_type, 200);
        let Some(layers) = &manifest.layers else {
            let media_type = manifest.media_type.as_deref().unwrap_or("none");
            bail!(
                "this is not a Wasm component: its media type is {}, without layers; for an index, use the digest of one \
                 manifest",
                shown(media_type)
            );
        };
        if !layers.iter().any(|layer| layer.media_type == WASM) {
            let types = layers.iter().map(|layer| shown(&layer.media_type));
            let config = manifest.config.as_ref();
            bail!(
                "this is not a Wasm component: the media types of its layers are {}, and of its configuration {}",
                types.take(3).collect::<Vec<_>>().join(", "),
                config.map_or("none".to_owned(), |config| shown(&config.media_type))
            );
        }
        let [layer] = &layers[..] else {
            bail!(
                "this has {} layers; a Wasm component has one, of the media type {WASM}",
                layers.len()
            );
        };
        let bytes = usize::try_from(layer.size).unwrap_or(usize::MAX);
        ensure!(
            bytes <= COMPONENT_BYTES,
            "the component has {bytes} bytes; a component has at most {COMPONENT_BYTES}"
        );
        let annotations = manifest.annotations.unwrap_or_default();
        let signature = annotations.get(SIGNATURE).map(|text| {
            Signature::parse(text)
                .map_err(|why| anyhow!("its annotation {SIGNATURE} is not a signature: {why}"))
        });
        Ok(Self {
            layer: parse_digest(&layer.digest).map_err(|why| anyhow!("its layer: {why}"))?,
            bytes,
            signature: signature.transpose()?,
        })
    }
}

/// The imports and exports of a component.
#[derive(Default)]
struct ComponentInterface {
    exports: Vec<String>,
    imports: Vec<String>,
}

impl ComponentInterface {
    fn read(component: &[u8]) -> anyhow::Result<Self> {
        let mut outside = Self::default();
        // Inner components and modules have imports and exports of their own.
        let mut depth = 0_usize;
        for payload in Parser::new(0).parse_all(component) {
            match payload? {
                Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => depth += 1,
                Payload::End(_) => depth = depth.saturating_sub(1),
                Payload::ComponentImportSection(imports) if depth == 0 => {
                    for import in imports {
                        outside.imports.push(import?.name.name.to_owned());
                    }
                }
                Payload::ComponentExportSection(exports) if depth == 0 => {
                    for export in exports {
                        outside.exports.push(export?.name.name.to_owned());
                    }
                }
                _ => {}
            }
        }
        Ok(outside)
    }

    fn world(&self) -> Option<String> {
        let mut exports = self.exports.iter();
        exports.find_map(|export| {
            WORLDS.iter().find_map(|(interface, world)| {
                let version = export.strip_prefix(interface)?;
                Some(format!("{world}{version}"))
            })
        })
    }
}
