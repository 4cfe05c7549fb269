//! Where a server is, and connections to it.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};

use crate::{ProbeError, tls};

/// Host, port and path prefix of a server, and the bearer token where it wants one.
#[derive(Clone)]
pub struct Address {
    pub(crate) host: String,
    pub(crate) prefix: String,
    pub(crate) token: Option<String>,
    secure: Option<Secure>,
}

/// What https needs.
#[derive(Clone)]
struct Secure {
    name: ServerName<'static>,
    config: Arc<ClientConfig>,
}

impl std::fmt::Debug for Address {
    /// Without the token.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let scheme = if self.secure.is_some() { "https" } else { "http" };
        write!(f, "{scheme}://{}{}", self.host, self.prefix)
    }
}

/// The URL as it may be shown: what stands before an `@` may be a password, with a slash in it as well.
fn without_user(url: &str) -> String {
    let (scheme, rest) = url.split_once("://").unwrap_or(("", url));
    match rest.rsplit_once('@') {
        Some((_, host)) if scheme.is_empty() => format!("...@{host}"),
        Some((_, host)) => format!("{scheme}://...@{host}"),
        None => url.to_owned(),
    }
}

impl Address {
    /// Parses `http://host:port[/prefix]`, or the same with `https`; then a server is believed whose certificate leads
    /// to a public authority.
    ///
    /// # Errors
    /// When the URL has another form.
    pub fn parse(url: &str, token: Option<String>) -> Result<Self, ProbeError> {
        Address::believing(url, token, None)
    }

    /// The same; over https also certificates that lead to an authority of this PEM text are believed.
    ///
    /// # Errors
    /// When the URL has another form, or the text holds no certificate.
    pub fn believing(url: &str, token: Option<String>, authorities: Option<&[u8]>) -> Result<Self, ProbeError> {
        let wrong = || ProbeError::Url(without_user(url));
        let (scheme, rest) = url.split_once("://").ok_or_else(wrong)?;
        let port = match scheme {
            "http" => 80,
            "https" => 443,
            _ => return Err(wrong()),
        };
        let (host, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        // What is no host before a slash may be the beginning of a password.
        if host.is_empty() || rest.contains('@') {
            return Err(wrong());
        }
        let (name, host) = match host.rsplit_once(':') {
            Some((name, port)) if port.parse::<u16>().is_ok() => (name, host.to_owned()),
            _ => (host, format!("{host}:{port}")),
        };
        let prefix = if prefix.is_empty() { String::new() } else { format!("/{}", prefix.trim_end_matches('/')) };
        let secure = if scheme == "https" {
            let name = name.strip_prefix('[').and_then(|name| name.strip_suffix(']')).unwrap_or(name);
            let name = ServerName::try_from(name.to_owned()).map_err(|_| wrong())?;
            Some(Secure { name, config: tls::config(authorities)? })
        } else {
            None
        };
        Ok(Address { host, prefix, token, secure })
    }

    /// The bearer token.
    #[must_use]
    pub fn token(&self) -> Option<&str> {
        self.token.as_deref()
    }

    /// Whether it is spoken to over TLS.
    #[must_use]
    pub fn is_secure(&self) -> bool {
        self.secure.is_some()
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> &str {
        // It is always there.
        self.host.rsplit(':').next().unwrap_or_default()
    }

    /// A connection, within that time; no read and no write of it waits longer either.
    ///
    /// # Errors
    /// When nobody is there, or is not who the certificate must be for.
    pub fn open(&self, wait: Duration) -> io::Result<Stream> {
        let address = self.host.to_socket_addrs()?.next().ok_or(io::ErrorKind::NotFound)?;
        let mut stream = TcpStream::connect_timeout(&address, wait)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(wait))?;
        stream.set_write_timeout(Some(wait))?;
        let Some(Secure { name, config }) = &self.secure else { return Ok(Stream(Kind::Plain(stream))) };
        let mut connection = ClientConnection::new(Arc::clone(config), name.clone()).map_err(io::Error::other)?;
        while connection.is_handshaking() {
            connection.complete_io(&mut stream)?;
        }
        Ok(Stream(Kind::Tls(Box::new(StreamOwned::new(connection, stream)))))
    }
}

/// An open connection, plain or TLS.
#[derive(Debug)]
pub struct Stream(Kind);

#[derive(Debug)]
enum Kind {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Stream {
    /// How long a read waits.
    ///
    /// # Errors
    /// For no time at all.
    pub fn set_read_timeout(&self, wait: Duration) -> io::Result<()> {
        match &self.0 {
            Kind::Plain(stream) => stream.set_read_timeout(Some(wait)),
            Kind::Tls(stream) => stream.sock.set_read_timeout(Some(wait)),
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Plain(stream) => stream.read(buffer),
            Kind::Tls(stream) => stream.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Kind::Plain(stream) => stream.write(bytes),
            Kind::Tls(stream) => stream.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Kind::Plain(stream) => stream.flush(),
            Kind::Tls(stream) => stream.flush(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_is_taken_apart() {
        for (url, host, prefix, name) in [
            ("http://127.0.0.1:8080/prefix/", "127.0.0.1:8080", "/prefix", None),
            ("http://host", "host:80", "", None),
            ("https://host", "host:443", "", Some("host")),
            ("https://[::1]:8443/a/b", "[::1]:8443", "/a/b", Some("::1")),
            ("https://[::1]", "[::1]:443", "", Some("::1")),
        ] {
            let address = Address::parse(url, None).unwrap();
            assert_eq!((address.host.as_str(), address.prefix.as_str()), (host, prefix), "{url}");
            assert_eq!(host.strip_suffix(address.port()).and_then(|rest| rest.chars().last()), Some(':'), "{url}");
            assert_eq!(address.secure.map(|secure| secure.name.to_str().into_owned()).as_deref(), name, "{url}");
        }
        for wrong in [
            "",
            "host",
            "http://",
            "https:///x",
            "ftp://host",
            "https://a b",
            "http://user:hush@host:80/x@y",
            "ftp://a@hush@host",
            "http://user:hu/sh@host:80",
            "http:/user:hush@host:80",
            "user:hush@host:80",
        ] {
            let error = Address::parse(wrong, None).map(drop).unwrap_err();
            assert!(matches!(error, ProbeError::Url(_)) && !error.to_string().contains("hush"), "{wrong}: {error}");
            assert!(!error.to_string().contains("user"), "{wrong}: {error}");
        }
        let none = Address::believing("https://host", None, Some(b"no certificate"));
        assert!(matches!(none, Err(ProbeError::Authorities(_))));
    }

    #[test]
    fn a_token_is_not_shown() {
        let address = Address::parse("https://host/x", Some("hush".to_owned())).unwrap();
        assert_eq!(format!("{address:?}"), "https://host:443/x");
    }
}
