//! Which servers are believed to be who they are.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::ProbeError;

/// TLS 1.2 and 1.3 with whoever has a certificate that leads to a public authority, or to one of this PEM text.
pub(crate) fn config(authorities: Option<&[u8]>) -> Result<Arc<ClientConfig>, ProbeError> {
    let wrong = || ProbeError::Authorities("it holds no certificate in PEM");
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(pem) = authorities {
        let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
        let found = found.ok().filter(|found| !found.is_empty()).ok_or_else(wrong)?;
        for certificate in found {
            roots.add(certificate).map_err(|_| wrong())?;
        }
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|_| ProbeError::Authorities("there is no version of TLS"))?;
    Ok(Arc::new(builder.with_root_certificates(roots).with_no_client_auth()))
}
