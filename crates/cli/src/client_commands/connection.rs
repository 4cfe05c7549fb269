//! Which backend, and with which credential.

use std::path::PathBuf;

use anyhow::{Context, bail};
use clap::{Arg, ArgMatches, value_parser};
use ringfence_client::{BearerToken, Client};

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
    let authorities = Arg::new("ca-file").long("ca-file").value_name("FILE").env(CA_FILE_VARIABLE);
    [
        url.help("Where the backend is"),
        file.value_parser(value_parser!(PathBuf))
            .help("A file with the bearer token; RINGFENCE_TOKEN may hold it itself"),
        authorities
            .value_parser(value_parser!(PathBuf))
            .help("Over https, also believe certificates of these authorities (PEM)"),
    ]
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
        let authorities = matches.get_one::<PathBuf>("ca-file");
        let read = |path: &PathBuf| std::fs::read(path).with_context(|| path.display().to_string());
        Ok(Connection { base_url, token, authorities: authorities.map(read).transpose()? })
    }

    /// Its parts, for a command that knows no authorities of one's own.
    ///
    /// # Errors
    /// When there are such, and they would count.
    pub(crate) fn without_authorities(self) -> anyhow::Result<(String, Option<BearerToken>)> {
        if self.authorities.is_some() && self.base_url.starts_with("https:") {
            bail!("this command has no use for --ca-file: reach the backend over plain http");
        }
        Ok((self.base_url, self.token))
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
