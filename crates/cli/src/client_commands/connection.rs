//! Which backend, and with which credential.

use std::path::PathBuf;

use anyhow::Context;
use clap::{Arg, ArgMatches, value_parser};
use ringfence_client::{BearerToken, Client};
use ringfence_conformance::Options;
use ringfence_probe::{Address, ProbeError};
use ringfence_secret::read_regular;

use crate::limits::CA_FILE_BYTES_MAX;

/// Where the backend is.
const URL_VARIABLE: &str = "RINGFENCE_URL";
const TOKEN_VARIABLE: &str = "RINGFENCE_TOKEN";
const TOKEN_FILE_VARIABLE: &str = "RINGFENCE_TOKEN_FILE";
const CA_FILE_VARIABLE: &str = "RINGFENCE_CA_FILE";

/// The variables that these commands read.
pub(crate) const VARIABLES: &[&str] = &[URL_VARIABLE, TOKEN_VARIABLE, TOKEN_FILE_VARIABLE, CA_FILE_VARIABLE];

/// Those that hold a secret themselves.
pub(crate) const SECRET_VARIABLES: &[&str] = &[TOKEN_VARIABLE];

/// The backend of a command.
pub(crate) struct Connection {
    base_url: String,
    token: Option<BearerToken>,
    /// Certificates of authorities of one's own, PEM.
    authorities: Option<Vec<u8>>,
}

/// The arguments that say where the backend is. There is none for the token itself: arguments are seen by others.
pub(crate) fn connection_args() -> [Arg; 3] {
    let url = Arg::new("base-url")
        .long("base-url")
        .visible_alias("url")
        .value_name("URL")
        .env(URL_VARIABLE)
        .default_value("http://127.0.0.1:8080");
    let file = Arg::new("token-file").long("token-file").value_name("FILE").env(TOKEN_FILE_VARIABLE);
    [
        url.help("Where the backend is"),
        file.value_parser(value_parser!(PathBuf))
            .help("A file with the bearer token; RINGFENCE_TOKEN may hold it itself"),
        ca_file_arg(CA_FILE_VARIABLE),
    ]
}

/// The argument that names authorities of one's own, of whatever is spoken to.
pub(crate) fn ca_file_arg(variable: &'static str) -> Arg {
    let file = Arg::new("ca-file").long("ca-file").value_name("FILE").env(variable);
    file.value_parser(value_parser!(PathBuf)).help("Over https, also believe certificates of these authorities (PEM)")
}

/// What that argument names, PEM.
///
/// # Errors
/// When the file cannot be read, or is larger than such a file is.
pub(crate) fn authorities(matches: &ArgMatches) -> anyhow::Result<Option<Vec<u8>>> {
    let Some(path) = matches.get_one::<PathBuf>("ca-file") else { return Ok(None) };
    Ok(Some(read_regular(path, CA_FILE_BYTES_MAX)?))
}

impl Connection {
    /// Of a command's arguments and variables.
    ///
    /// # Errors
    /// When the token cannot be read or sent.
    pub(crate) fn of(matches: &ArgMatches) -> anyhow::Result<Self> {
        let base_url = matches.get_one::<String>("base-url").cloned().unwrap_or_default();
        let token = match (matches.get_one::<PathBuf>("token-file"), std::env::var(TOKEN_VARIABLE)) {
            (Some(path), _) => Some(BearerToken::from_file(path).with_context(|| path.display().to_string())?),
            (None, Ok(text)) => Some(BearerToken::new(&text).context(TOKEN_VARIABLE)?),
            (None, Err(_)) => None,
        };
        Ok(Connection { base_url, token, authorities: authorities(matches)? })
    }

    /// For a tool that makes its own connections: the backend.
    ///
    /// # Errors
    /// When the URL or the authorities cannot be used.
    pub(crate) fn address(&self) -> anyhow::Result<Address> {
        let token = self.token.as_ref().map(|token| token.expose().to_owned());
        Ok(Address::believing(&self.base_url, token, self.authorities.as_deref())?)
    }

    /// Asks once whether the URL is of the scheme that is spoken there. Whatever else is wrong is for others to say.
    ///
    /// # Errors
    /// When it is of the other one.
    pub(crate) fn scheme(&self) -> anyhow::Result<()> {
        match ringfence_probe::Connection::new(&self.address()?).call("GET", "/health", "", b"") {
            Err(error @ ProbeError::Scheme(_)) => Err(error.into()),
            _ => Ok(()),
        }
    }

    /// The same for another backend, which gets no token.
    ///
    /// # Errors
    /// When the URL or the authorities cannot be used.
    pub(crate) fn peer(&self, url: &str) -> anyhow::Result<Address> {
        Ok(Address::believing(url, None, self.authorities.as_deref())?)
    }

    /// What a check needs to know.
    pub(crate) fn options(self) -> Options {
        let Connection { base_url, token, authorities } = self;
        Options { token, authorities, ..Options::new(base_url) }
    }

    /// A client of the backend.
    ///
    /// # Errors
    /// When the URL cannot be used.
    pub(crate) fn client(self) -> anyhow::Result<Client> {
        let mut builder = Client::builder(&self.base_url)?;
        if let Some(pem) = &self.authorities {
            builder = builder.root_certificates(pem)?;
        }
        Ok(match self.token {
            Some(token) => builder.token(token).build(),
            None => builder.build(),
        })
    }
}
