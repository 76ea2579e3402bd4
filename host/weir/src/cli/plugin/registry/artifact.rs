//! What a component is in a registry: a manifest, a configuration that describes it, and one layer, which is the component.

use std::collections::BTreeMap;

use anyhow::{Context, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;
use wasmparser::{Parser, Payload};
use weir_plugins::signature::Signature;
use weir_sandbox::limits::COMPONENT_BYTES;
use weir_sandbox::{Digest, printable};

use super::reference::parse_digest;

/// The annotation of a manifest with the publisher's signature: the line of JSON that `weir plugin sign` writes.
pub(super) const SIGNATURE: &str = "dev.weir.signature";

/// The media type of manifests that are written.
pub(super) const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// What registries are asked for: those that are no manifest are there to be told what was found.
pub(super) const ACCEPTED: &str = "application/vnd.oci.image.manifest.v1+json, \
                                   application/vnd.oci.image.index.v1+json, \
                                   application/vnd.docker.distribution.manifest.v2+json, \
                                   application/vnd.docker.distribution.manifest.list.v2+json";

const CONFIG: &str = "application/vnd.wasm.config.v0+json";
const WASM: &str = "application/wasm";
const TITLE: &str = "org.opencontainers.image.title";
const VERSION: &str = "org.opencontainers.image.version";

/// When each was made, as far as registries are told: the same component has the same digest whenever it is pushed. Other
/// tools refuse a configuration without it.
const CREATED: &str = "1970-01-01T00:00:00Z";

/// What an exported interface says of the world that a component is made for.
const WORLDS: [(&str, &str); 3] = [
    ("weir:plugin/adapter@", "weir:plugin/provider@"),
    ("weir:plugin/tool@", "weir:plugin/swarm-tool@"),
    ("weir:plugin/filter@", "weir:plugin/request-filter@"),
];

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
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

/// What is pushed beside the component.
pub(super) struct Pushable {
    pub(super) config: Vec<u8>,
    pub(super) manifest: Vec<u8>,
}

impl Pushable {
    /// Describes a component, which calls itself this. The same in gives the same bytes.
    pub(super) fn of(
        component: &[u8],
        name: &str,
        version: &str,
        signature: Option<&Signature>,
    ) -> anyhow::Result<Self> {
        let outside = Outside::read(component)?;
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
        let manifest = Manifest {
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

/// What a manifest says that can be pulled.
#[derive(Debug)]
pub(super) struct Pullable {
    /// The component's digest, and its size.
    pub(super) layer: Digest,
    pub(super) bytes: usize,
    pub(super) signature: Option<Signature>,
}

impl Pullable {
    /// Reads a manifest: a registry's word, or anybody's who could write there.
    pub(super) fn read(manifest: &[u8]) -> anyhow::Result<Self> {
        let manifest: Manifest =
            serde_json::from_slice(manifest).context("the registry's manifest cannot be read")?;
        let shown = |media_type: &str| printable(media_type, 200);
        let Some(layers) = &manifest.layers else {
            let media_type = manifest.media_type.as_deref().unwrap_or("none");
            bail!(
                "this is no Wasm component: its media type is {}, without layers; of an index, name one manifest by \
                 its digest",
                shown(media_type)
            );
        };
        if !layers.iter().any(|layer| layer.media_type == WASM) {
            let types = layers.iter().map(|layer| shown(&layer.media_type));
            let config = manifest.config.as_ref();
            bail!(
                "this is no Wasm component: its layers are of the media types {}, and its configuration is of {}",
                types.take(3).collect::<Vec<_>>().join(", "),
                config.map_or("none".to_owned(), |config| shown(&config.media_type))
            );
        }
        let [layer] = &layers[..] else {
            bail!(
                "this has {} layers, and a Wasm component is one, of the media type {WASM}",
                layers.len()
            );
        };
        let bytes = usize::try_from(layer.size).unwrap_or(usize::MAX);
        ensure!(
            bytes <= COMPONENT_BYTES,
            "the component has {bytes} bytes, and may have at most {COMPONENT_BYTES}"
        );
        let annotations = manifest.annotations.unwrap_or_default();
        let signature = annotations.get(SIGNATURE).map(|text| {
            Signature::parse(text)
                .map_err(|why| anyhow!("its annotation {SIGNATURE} is no signature: {why}"))
        });
        Ok(Self {
            layer: parse_digest(&layer.digest).map_err(|why| anyhow!("its layer: {why}"))?,
            bytes,
            signature: signature.transpose()?,
        })
    }
}

/// What a component shows to the outside.
#[derive(Default)]
struct Outside {
    exports: Vec<String>,
    imports: Vec<String>,
}

impl Outside {
    fn read(component: &[u8]) -> anyhow::Result<Self> {
        let mut outside = Self::default();
        // Components and modules within it have imports and exports of their own.
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

    /// The world that it is made for.
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
