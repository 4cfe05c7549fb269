//! TLS from files: whose certificate we show, and whose we take.
//!
//! For: the server's, the front door's and the control plane's listeners, and the front door's connections to backends
//! and control plane. May know: `secret`. Never knows: HTTP, what is sent.
//!
//! **Invariants.**
//! - A private key is read from a file that nobody else can use, and shown nowhere.
//! - A peer's certificate is checked against the authorities of one file, and none of the system's.
//! - Where authorities for clients are given, no connection comes about without a certificate of one of them.
//! - A handshake has an end ([`limits::HANDSHAKE_WAIT`]).

mod error;
mod files;
pub mod limits;

use std::path::Path;
use std::sync::Arc;
use std::{fmt, io};

use rustls::pki_types::ServerName;
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ServerConfig};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::timeout;
use tokio_rustls::{TlsAcceptor, TlsConnector, client, server};

pub use error::TlsError;
use files::{authorities, certificates, key, provider};
use limits::HANDSHAKE_WAIT;

/// A connection that a client has made to us.
pub type ServerStream<S> = server::TlsStream<S>;
/// A connection that we have made to a server.
pub type ClientStream<S> = client::TlsStream<S>;

/// What a listener shows, and what it asks for.
#[derive(Clone)]
pub struct ServerTls {
    acceptor: TlsAcceptor,
    proves_peers: bool,
}

impl ServerTls {
    /// Reads the certificate chain and the private key (mode 0600) that are shown; with `client_authorities`, only
    /// clients with a certificate of one of these are let in.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub fn read(certificate: &Path, private: &Path, client_authorities: Option<&Path>) -> Result<Self, TlsError> {
        let provider = provider();
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider));
        let builder = builder.with_safe_default_protocol_versions().map_err(TlsError::Setup)?;
        let builder = match client_authorities {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(authorities(path)?), provider);
                builder.with_client_cert_verifier(verifier.build().map_err(TlsError::Verifier)?)
            }
        };
        let config = builder.with_single_cert(certificates(certificate)?, key(private)?);
        let config = config.map_err(|source| TlsError::Identity { path: certificate.to_owned(), source })?;
        let acceptor = TlsAcceptor::from(Arc::new(config));
        Ok(ServerTls { acceptor, proves_peers: client_authorities.is_some() })
    }

    /// Whether a connection that comes about has proven whose it is.
    #[must_use]
    pub fn proves_peers(&self) -> bool {
        self.proves_peers
    }

    /// Takes a connection.
    ///
    /// # Errors
    /// When the peer speaks no TLS, has no certificate that is asked for, or takes too long.
    pub async fn accept<S: AsyncRead + AsyncWrite + Unpin>(&self, stream: S) -> io::Result<ServerStream<S>> {
        timeout(HANDSHAKE_WAIT, self.acceptor.accept(stream)).await.map_err(|_| io::ErrorKind::TimedOut)?
    }
}

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerTls").field("proves_peers", &self.proves_peers).finish_non_exhaustive()
    }
}

/// Whom a client takes for a server, and what it shows of itself.
#[derive(Clone)]
pub struct ClientTls {
    connector: TlsConnector,
    shows_identity: bool,
    name: Option<ServerName<'static>>,
}

impl ClientTls {
    /// Takes servers with a certificate of one of the authorities; shows the identity (certificate chain, private key of
    /// mode 0600) where a server asks for one. `name` is what every server's certificate must be for, in place of the
    /// host that is connected to.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub fn read(
        server_authorities: &Path,
        identity: Option<(&Path, &Path)>,
        name: Option<&str>,
    ) -> Result<Self, TlsError> {
        let name = name.map(|name| server_name(name).ok_or_else(|| TlsError::Name(name.to_owned()))).transpose()?;
        let builder = ClientConfig::builder_with_provider(provider());
        let builder = builder.with_safe_default_protocol_versions().map_err(TlsError::Setup)?;
        let builder = builder.with_root_certificates(authorities(server_authorities)?);
        let config = match identity {
            None => builder.with_no_client_auth(),
            Some((certificate, private)) => builder
                .with_client_auth_cert(certificates(certificate)?, key(private)?)
                .map_err(|source| TlsError::Identity { path: certificate.to_owned(), source })?,
        };
        Ok(ClientTls { connector: TlsConnector::from(Arc::new(config)), shows_identity: identity.is_some(), name })
    }

    /// Whether a server that asks is shown whose connection it is.
    #[must_use]
    pub fn shows_identity(&self) -> bool {
        self.shows_identity
    }

    /// Makes TLS of a connection to `host`, a name or an address, with or without the brackets of IPv6.
    ///
    /// # Errors
    /// When the server is not whom the authorities name, refuses our identity, or takes too long.
    pub async fn connect<S>(&self, host: &str, stream: S) -> io::Result<ClientStream<S>>
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        let name = match &self.name {
            Some(name) => name.clone(),
            None => server_name(host).ok_or(io::ErrorKind::InvalidInput)?,
        };
        timeout(HANDSHAKE_WAIT, self.connector.connect(name, stream)).await.map_err(|_| io::ErrorKind::TimedOut)?
    }
}

fn server_name(host: &str) -> Option<ServerName<'static>> {
    let host = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
    ServerName::try_from(host.to_owned()).ok()
}

#[cfg(test)]
mod tests;
