//! Certificates for a test, made anew each time.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};

/// An authority and a folder with what it has signed.
pub struct Authority {
    folder: tempfile::TempDir,
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    /// A new one.
    ///
    /// # Panics
    /// When there are no random bytes or no folder.
    #[must_use]
    #[expect(clippy::new_without_default, reason = "a new one each time is what it is for")]
    pub fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).expect("no names");
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        let issuer = CertifiedIssuer::self_signed(params, key).expect("an authority");
        let folder = tempfile::tempdir().expect("a folder");
        fs::write(folder.path().join("ca.pem"), issuer.pem()).expect("a file");
        Authority { folder, issuer }
    }

    /// A file of its folder.
    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The file of its own certificate.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.path("ca.pem")
    }

    /// The files of a certificate for a name or an address, and of its private key.
    ///
    /// # Panics
    /// When that is no name, or the files cannot be written.
    #[must_use]
    pub fn identity(&self, name: &str) -> (PathBuf, PathBuf) {
        let pair = KeyPair::generate().expect("a key");
        let params = CertificateParams::new(vec![name.to_owned()]).expect("a name");
        let certificate = params.signed_by(&pair, &self.issuer).expect("a certificate");
        let (file, key) = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        fs::write(&file, certificate.pem()).expect("a file");
        fs::write(&key, pair.serialize_pem()).expect("a file");
        fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("our own file");
        (file, key)
    }
}
