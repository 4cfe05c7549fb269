//! Certificates and keys in PEM.

use std::path::Path;
use std::sync::Arc;

use ringfence_secret::{read_private, read_regular};
use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::error::TlsError;
use crate::limits::CERTIFICATES_BYTES_MAX;

/// One set of algorithms for all, whatever else of the program uses TLS.
pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// Every certificate of a file, at least one.
pub(crate) fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let wrong = |reason| TlsError::Content { path: path.to_owned(), reason };
    let text = read_regular(path, CERTIFICATES_BYTES_MAX)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|_| wrong("it is no PEM"))?;
    if found.is_empty() {
        return Err(wrong("it holds no certificate in PEM"));
    }
    Ok(found)
}

/// The authorities of a file.
pub(crate) fn authorities(path: &Path) -> Result<RootCertStore, TlsError> {
    let mut store = RootCertStore::empty();
    for certificate in certificates(path)? {
        store.add(certificate).map_err(|source| TlsError::Authority { path: path.to_owned(), source })?;
    }
    Ok(store)
}

/// The first private key of a private file.
pub(crate) fn key(path: &Path) -> Result<PrivateKeyDer<'static>, TlsError> {
    let text = read_private(path)?;
    PrivateKeyDer::from_pem_slice(text.as_bytes())
        .map_err(|_| TlsError::Content { path: path.to_owned(), reason: "it holds no private key in PEM" })
}
