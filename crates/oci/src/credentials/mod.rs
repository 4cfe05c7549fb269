//! Credentials of registries: given, or from where `docker login` keeps them.

mod docker;
mod helper;

use std::fmt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;

use crate::pull::basic;
use crate::{OciError, Reference};

/// What is known about how to log in to registries. Debug shows no secret.
#[derive(Clone)]
pub struct Credentials(Kind);

#[derive(Clone)]
enum Kind {
    Anonymous,
    Password { user: String, secret: Zeroizing<String> },
    Docker { file: PathBuf },
}

impl Credentials {
    /// None.
    #[must_use]
    pub fn anonymous() -> Self {
        Credentials(Kind::Anonymous)
    }

    /// A name and a password (or a token in its place), for whatever registry is asked.
    #[must_use]
    pub fn password(user: &str, secret: Zeroizing<String>) -> Self {
        Credentials(Kind::Password { user: user.to_owned(), secret })
    }

    /// What `docker login` and its like have written: `auths`, `credHelpers` and `credsStore` of `file`. A registry
    /// that it does not name is asked without credentials; so are all where the file is missing.
    #[must_use]
    pub fn docker_config(file: &Path) -> Self {
        Credentials(Kind::Docker { file: file.to_owned() })
    }

    /// The same from the usual place: `config.json` in `DOCKER_CONFIG`, else in `.docker` in the home folder.
    #[must_use]
    pub fn usual() -> Self {
        let folder = std::env::var_os("DOCKER_CONFIG").filter(|folder| !folder.is_empty()).map(PathBuf::from);
        let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".docker"));
        match folder.or_else(home) {
            Some(folder) => Credentials::docker_config(&folder.join("config.json")),
            None => Credentials::anonymous(),
        }
    }

    /// How to log in to the registry of this reference. Runs a credential helper where the file names one.
    pub(crate) fn login(&self, reference: &Reference) -> Result<Login, OciError> {
        match &self.0 {
            Kind::Anonymous => Ok(Login::Anonymous),
            Kind::Password { user, secret } => Ok(Login::Password { user: user.clone(), secret: secret.clone() }),
            Kind::Docker { file } => docker::login(file, reference),
        }
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Kind::Anonymous => formatter.write_str("Credentials(anonymous)"),
            Kind::Password { user, .. } => write!(formatter, "Credentials(password of {user})"),
            Kind::Docker { file } => write!(formatter, "Credentials({})", file.display()),
        }
    }
}

/// How to log in to one registry.
pub(crate) enum Login {
    Anonymous,
    Password {
        user: String,
        secret: Zeroizing<String>,
    },
    /// A token that tokens are got for.
    Identity(Zeroizing<String>),
}

impl Login {
    /// Name and password, as a line of a request.
    pub(crate) fn basic(&self) -> Option<Zeroizing<String>> {
        match self {
            Login::Password { user, secret } => Some(basic(user, secret)),
            Login::Anonymous | Login::Identity(_) => None,
        }
    }

    /// What must not be shown.
    pub(crate) fn secret(&self) -> Option<&str> {
        match self {
            Login::Anonymous => None,
            Login::Password { secret, .. } | Login::Identity(secret) => Some(secret),
        }
    }
}
