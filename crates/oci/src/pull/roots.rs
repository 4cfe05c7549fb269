//! Which certificates are trusted: the caller's, the system's, else those that browsers trust.

use std::fs::File;
use std::path::{Path, PathBuf};

use ureq::tls::{PemItem, RootCerts, parse_pem};

use crate::OciError;
use crate::blobs::read_bounded;
use crate::limits::ROOTS_BYTES_MAX;

/// Where systems keep their bundle: Debian and its like, Red Hat's and SUSE's, Alpine.
const SYSTEM: [&str; 4] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/ca-bundle.pem",
    "/etc/ssl/cert.pem",
];

/// The roots; `file` instead of the system's where it is said. `SSL_CERT_FILE` names the system's where it is set.
pub(super) fn trusted(file: Option<&Path>) -> Result<RootCerts, OciError> {
    let named = file.map(Path::to_owned).or_else(|| std::env::var_os("SSL_CERT_FILE").map(PathBuf::from));
    if let Some(path) = named {
        return read(&path);
    }
    match SYSTEM.iter().map(Path::new).find(|path| path.is_file()) {
        Some(path) => read(path),
        None => Ok(RootCerts::WebPki),
    }
}

fn read(path: &Path) -> Result<RootCerts, OciError> {
    let mut file = File::open(path).map_err(OciError::file("open the certificates", path))?;
    let content = read_bounded(&mut file, ROOTS_BYTES_MAX, &path.display().to_string())?;
    let mut certificates = Vec::new();
    for item in parse_pem(&content) {
        if let Ok(PemItem::Certificate(certificate)) = item {
            certificates.push(certificate);
        }
    }
    if certificates.is_empty() {
        return Err(OciError::malformed(path.display().to_string(), "there is no certificate in it"));
    }
    Ok(RootCerts::Specific(certificates.into()))
}
