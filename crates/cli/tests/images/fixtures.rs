//! An image as a registry holds it.

use ringfence_oci::Digest;
use serde_json::{Value, json};

pub(crate) struct Image {
    pub(crate) config: Vec<u8>,
    pub(crate) manifest: Vec<u8>,
    pub(crate) layers: Vec<Vec<u8>>,
}

/// One of one layer, which is the archive of a root.
pub(crate) fn image(layer: Vec<u8>) -> Image {
    let config = json!({
        "architecture": ringfence_oci::Platform::here().architecture, "os": "linux",
        "config": {"Env": ["PATH=/usr/local/bin:/usr/bin:/bin"]},
        "rootfs": {"type": "layers", "diff_ids": [Digest::of(&layer)]},
    });
    let config = serde_json::to_vec(&config).unwrap();
    let manifest = json!({
        "schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": descriptor("application/vnd.oci.image.config.v1+json", &config),
        "layers": [descriptor("application/vnd.oci.image.layer.v1.tar", &layer)],
    });
    Image { config, manifest: serde_json::to_vec(&manifest).unwrap(), layers: vec![layer] }
}

fn descriptor(media_type: &str, content: &[u8]) -> Value {
    json!({"mediaType": media_type, "digest": Digest::of(content), "size": content.len()})
}
