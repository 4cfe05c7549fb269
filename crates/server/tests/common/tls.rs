//! Both ends of TLS, and a request over it.

use std::net::SocketAddr;
use std::path::Path;

use ringfence_testkit::Authority;
use ringfence_tls::{ClientTls, ServerTls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

/// What a server of this authority shows and asks for.
pub fn server(authority: &Authority, client_ca: Option<&Path>) -> ServerTls {
    let (certificate, key) = authority.identity("localhost");
    ServerTls::read(&certificate, &key, client_ca).unwrap()
}

/// A client that takes servers of an authority, with a certificate of another or the same.
pub fn client(authority: &Authority, of: Option<&Authority>) -> ClientTls {
    let identity = of.map(|of| of.identity("gate"));
    let identity = identity.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path()));
    ClientTls::read(&authority.ca(), identity, Some("localhost")).unwrap()
}

/// The first line of the answer to a request; `None` where no connection comes about.
pub fn ask(address: SocketAddr, client: &ClientTls, request: &[u8]) -> Option<String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let stream = tokio::net::TcpStream::connect(address).await.unwrap();
        let mut stream = client.connect("localhost", stream).await.ok()?;
        stream.write_all(request).await.ok()?;
        let mut answer = Vec::new();
        // A server that closes without saying so in TLS has said all the same what it had to say.
        let _unclean = stream.read_to_end(&mut answer).await;
        let text = String::from_utf8(answer).unwrap();
        text.lines().next().map(str::to_owned)
    })
}
