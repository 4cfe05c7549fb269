//! Manifests, indices and configurations, as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::limits::{INDEX_MANIFESTS_MAX, LAYERS_MAX};
use crate::{Digest, ImageConfig, OciError, Platform};

/// Media types of manifests and indices, in the order in which a registry is asked for them.
pub(crate) const ACCEPTED: &str = "application/vnd.oci.image.index.v1+json, \
     application/vnd.docker.distribution.manifest.list.v2+json, \
     application/vnd.oci.image.manifest.v1+json, \
     application/vnd.docker.distribution.manifest.v2+json";

const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
const CONFIG_TYPE: &str = "application/vnd.oci.image.config.v1+json";

/// What points to a blob.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    #[serde(default)]
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    /// Bytes.
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) platform: Option<PlatformText>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) annotations: Option<BTreeMap<String, String>>,
}

impl Descriptor {
    pub(crate) fn new(media_type: &str, digest: &Digest, size: u64) -> Self {
        Descriptor { media_type: media_type.to_owned(), digest: *digest, size, platform: None, annotations: None }
    }

    pub(crate) fn annotation(&self, name: &str) -> Option<&str> {
        self.annotations.as_ref()?.get(name).map(String::as_str)
    }

    /// Whether it is something about an image rather than an image: an attestation of how it was built.
    fn is_aside(&self) -> bool {
        self.annotation("vnd.docker.reference.type").is_some()
            || self.platform.as_ref().is_some_and(|platform| platform.os == "unknown")
    }
}

/// A platform as documents write it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct PlatformText {
    #[serde(default)]
    pub(crate) architecture: String,
    #[serde(default)]
    pub(crate) os: String,
    #[serde(default)]
    pub(crate) variant: Option<String>,
}

impl PlatformText {
    fn platform(&self) -> Platform {
        Platform {
            os: self.os.clone(),
            architecture: self.architecture.clone(),
            variant: self.variant.clone().unwrap_or_default(),
        }
    }

    /// How well an image for this platform runs on `wanted`: 0 best, `None` not at all.
    fn fits(&self, wanted: &Platform) -> Option<u8> {
        if self.os != wanted.os || self.architecture != wanted.architecture {
            return None;
        }
        match self.variant.as_deref().unwrap_or("") {
            variant if variant == wanted.variant => Some(0),
            "" | "v1" | "v8" => Some(1),
            // A lower one of ARM's runs on a higher one; amd64's v2 and v3 need what the machine may not have.
            variant if wanted.architecture == "arm" && variant < wanted.variant.as_str() => Some(2),
            _ => None,
        }
    }
}

/// What a digest of an image may name.
pub(crate) enum Document {
    Manifest(Manifest),
    Index(Vec<Descriptor>),
}

/// One image.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    schema_version: u32,
    #[serde(default)]
    media_type: String,
    pub(crate) config: Descriptor,
    pub(crate) layers: Vec<Descriptor>,
}

impl Manifest {
    /// The manifest of an image that came without one, and how it is written; the same from the same parts.
    pub(crate) fn of(
        config: &Digest,
        config_bytes: u64,
        layers: Vec<Descriptor>,
    ) -> Result<(Manifest, Vec<u8>), OciError> {
        let config = Descriptor::new(CONFIG_TYPE, config, config_bytes);
        let manifest = Manifest { schema_version: 2, media_type: MANIFEST_TYPE.to_owned(), config, layers };
        let written = serde_json::to_vec(&manifest);
        let written = written.map_err(|error| OciError::malformed("a new manifest", error.to_string()))?;
        Ok((manifest, written))
    }
}

/// The fields by which documents differ; serde ignores the rest.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Shape {
    #[serde(default)]
    schema_version: u32,
    manifests: Option<Vec<Descriptor>>,
    config: Option<serde::de::IgnoredAny>,
    layers: Option<serde::de::IgnoredAny>,
    #[serde(rename = "fsLayers")]
    fs_layers: Option<serde::de::IgnoredAny>,
}

/// Reads a manifest or an index.
pub(crate) fn parse(content: &[u8], what: &str) -> Result<Document, OciError> {
    let refused = |why: &str| OciError::malformed(what, why);
    let shape: Shape = from_json(content, what)?;
    if shape.schema_version != 2 || shape.fs_layers.is_some() {
        return Err(refused("its schema version is not 2"));
    }
    match (shape.manifests, shape.config.is_some() || shape.layers.is_some()) {
        // Readers would differ about what it is.
        (Some(_), true) => Err(refused("it is a manifest and an index at once")),
        (Some(manifests), false) if manifests.len() > INDEX_MANIFESTS_MAX => Err(OciError::TooLarge {
            what: format!("the number of manifests of {what}"),
            max: INDEX_MANIFESTS_MAX.to_string(),
        }),
        (Some(manifests), false) => Ok(Document::Index(manifests)),
        (None, _) => {
            let manifest: Manifest = from_json(content, what)?;
            if manifest.layers.len() > LAYERS_MAX {
                let what = format!("the number of layers of {what}");
                return Err(OciError::TooLarge { what, max: LAYERS_MAX.to_string() });
            }
            Ok(Document::Manifest(manifest))
        }
    }
}

/// Of what an index lists, that for this platform.
pub(crate) fn choose<'a>(listed: &'a [Descriptor], wanted: &Platform) -> Result<&'a Descriptor, OciError> {
    let images: Vec<&Descriptor> = listed.iter().filter(|descriptor| !descriptor.is_aside()).collect();
    let fit = |descriptor: &&Descriptor| match &descriptor.platform {
        Some(platform) => platform.fits(wanted),
        // Whether it fits is seen in its configuration.
        None => Some(3),
    };
    let best = images.iter().filter_map(|image| Some((fit(image)?, *image))).min_by_key(|(rank, _)| *rank);
    best.map(|(_, image)| image).ok_or_else(|| OciError::OtherPlatform {
        wanted: wanted.to_string(),
        found: images.iter().filter_map(|image| Some(image.platform.as_ref()?.platform().to_string())).collect(),
    })
}

/// A configuration, as far as it is read.
#[derive(Deserialize)]
struct ConfigText {
    #[serde(flatten)]
    platform: PlatformText,
    created: Option<String>,
    config: Option<RunText>,
    rootfs: Rootfs,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "PascalCase", default)]
struct RunText {
    env: Option<Vec<String>>,
    working_dir: Option<String>,
    user: Option<String>,
    entrypoint: Option<Vec<String>>,
    cmd: Option<Vec<String>>,
    labels: Option<BTreeMap<String, String>>,
}

#[derive(Deserialize)]
struct Rootfs {
    #[serde(default)]
    diff_ids: Vec<Digest>,
}

/// What a configuration says, and its diff ids.
pub(crate) fn config(content: &[u8], what: &str, wanted: &Platform) -> Result<(ImageConfig, Vec<Digest>), OciError> {
    let text: ConfigText = from_json(content, what)?;
    if text.platform.fits(wanted).is_none() {
        return Err(OciError::OtherPlatform {
            wanted: wanted.to_string(),
            found: vec![text.platform.platform().to_string()],
        });
    }
    let run = text.config.unwrap_or_default();
    let env = run.env.unwrap_or_default().into_iter();
    let named =
        |entry: &String| entry.split_once('=').is_some_and(|(name, _)| !name.is_empty()) && !entry.contains('\0');
    let config = ImageConfig {
        architecture: text.platform.architecture,
        os: text.platform.os,
        env: env.filter(named).collect(),
        working_dir: run.working_dir.unwrap_or_default(),
        user: run.user.unwrap_or_default(),
        entrypoint: run.entrypoint.unwrap_or_default(),
        cmd: run.cmd.unwrap_or_default(),
        labels: run.labels.unwrap_or_default(),
        created: text.created,
    };
    Ok((config, text.rootfs.diff_ids))
}

/// The configuration of an image that is a plain root; the same from the same root.
pub(crate) fn plain_config(diff_id: &Digest, platform: &Platform) -> Result<Vec<u8>, OciError> {
    #[derive(Serialize)]
    struct Plain<'a> {
        architecture: &'a str,
        os: &'a str,
        config: BTreeMap<String, String>,
        rootfs: PlainRoot,
    }
    #[derive(Serialize)]
    struct PlainRoot {
        r#type: &'static str,
        diff_ids: [Digest; 1],
    }
    let rootfs = PlainRoot { r#type: "layers", diff_ids: [*diff_id] };
    let plain = Plain { architecture: &platform.architecture, os: &platform.os, config: BTreeMap::new(), rootfs };
    serde_json::to_vec(&plain).map_err(|error| OciError::malformed("a new configuration", error.to_string()))
}

/// Parses JSON; serde_json bounds its depth.
pub(crate) fn from_json<'de, T: Deserialize<'de>>(content: &'de [u8], what: &str) -> Result<T, OciError> {
    serde_json::from_slice(content).map_err(|error| OciError::malformed(what, error.to_string()))
}
