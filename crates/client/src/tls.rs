//! Which servers are believed to be who they are.

use std::sync::Arc;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, RootCertStore};

use crate::ClientError;

/// The certificates that a chain may end in: those of the public authorities, and what is added.
#[derive(Debug, Clone)]
pub(crate) struct Roots(RootCertStore);

impl Default for Roots {
    fn default() -> Self {
        Roots(RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() })
    }
}

impl Roots {
    /// Adds the certificates of a PEM text.
    pub(crate) fn add(&mut self, pem: &[u8]) -> Result<(), ClientError> {
        let wrong = |reason: String| ClientError::Certificates { reason };
        let mut count = 0;
        for certificate in CertificateDer::pem_slice_iter(pem) {
            let certificate = certificate.map_err(|error| wrong(error.to_string()))?;
            self.0.add(certificate).map_err(|error| wrong(error.to_string()))?;
            count += 1;
        }
        if count == 0 { Err(wrong("there is no certificate in it".to_owned())) } else { Ok(()) }
    }

    /// What TLS needs: nothing of the client's own, and the versions 1.2 and 1.3.
    pub(crate) fn into_config(self) -> ClientConfig {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        #[expect(clippy::expect_used, reason = "ring has ciphers for each version that is compiled in")]
        let builder = builder.expect("a provider for TLS 1.2 and 1.3");
        builder.with_root_certificates(self.0).with_no_client_auth()
    }
}
