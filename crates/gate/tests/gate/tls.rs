//! TLS each way: backends and control plane that are whom the authorities name, and clients of the gate's own.

use std::net::SocketAddr;
use std::path::Path;

use ringfence_gate::TlsConfig;
use ringfence_testkit::Authority;
use ringfence_tls::{ClientTls, ServerTls};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use crate::support::Backend;
use crate::support::gate::{TestGate, World};

/// A TLS end in front of a plain one; it ends when dropped.
struct Front {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Drop for Front {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn front(tls: ServerTls, to: SocketAddr) -> Front {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        let mut connections = tokio::task::JoinSet::new();
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let tls = tls.clone();
            connections.spawn(async move {
                let Ok(mut stream) = tls.accept(stream).await else { return };
                let mut plain = TcpStream::connect(to).await.unwrap();
                let _cut = tokio::io::copy_bidirectional(&mut stream, &mut plain).await;
            });
        }
    });
    Front { address, task }
}

fn server(authority: &Authority, name: &str, client_ca: Option<&Path>) -> ServerTls {
    let (certificate, key) = authority.identity(name);
    ServerTls::read(&certificate, &key, client_ca).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gate_and_its_backends_prove_themselves_to_each_other() {
    let (world, inner, other) = (World::new(), Authority::new(), Authority::new());
    let plain = Backend::start("b").await;
    let secured = front(server(&inner, "127.0.0.1", Some(&inner.ca())), plain.address).await;
    let config = |ca: &Authority, of: Option<&Authority>, name: Option<&str>| {
        let mut config = world.config(&[]);
        config.backends = vec![format!("b0=https://{}", secured.address)];
        let identity = of.map(|of| of.identity("gate"));
        let identity = identity.as_ref().map(|(certificate, key)| (certificate.as_path(), key.as_path()));
        let peer = ClientTls::read(&ca.ca(), identity, name).unwrap();
        config.tls = TlsConfig { backends: Some(peer), ..TlsConfig::default() };
        config
    };
    let gate = TestGate::start(config(&inner, Some(&inner), None)).await;
    let grant = world.issuer.grant("team-a");
    let id = gate.lease(&grant).await;
    assert_eq!(gate.execute(&grant, &id, "print(1)").await.status, 200);
    let seen = plain.state.seen.lock().unwrap().last().unwrap().clone();
    assert_eq!(seen.header("x-ringfence-workspace"), Some("team-a"));

    // A backend that is not whom the authorities name, or that does not take the gate's certificate, gets nothing.
    let before = plain.state.seen.lock().unwrap().len();
    for (ca, of, name) in [
        (&other, Some(&inner), None),
        (&inner, Some(&inner), Some("another.example")),
        (&inner, Some(&other), None),
        (&inner, None, None),
    ] {
        let gate = TestGate::unready(config(ca, of, name));
        let down = gate.until(|health| health.json()["backends"] == 1, "/health").await.json();
        assert_eq!(down["backends_open"], 0, "{down}");
        let refused = gate.call("POST /sessions", &grant, "{}").await;
        assert_eq!(refused.status, 503, "{}", refused.text());
        // The id is one of this deployment: it is the connection that is refused. In TLS 1.3 a client hears that its
        // certificate is not taken after it has begun to send: then the outcome is not known.
        assert!(matches!(gate.execute(&grant, &id, "print(1)").await.status, 502 | 503));
    }
    assert_eq!(plain.state.seen.lock().unwrap().len(), before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_key_set_comes_over_tls_from_whom_the_authorities_name() {
    let (world, inner, other) = (World::new(), Authority::new(), Authority::new());
    let (backend, control) = (Backend::start("b").await, Backend::start("control").await);
    let set = world.issuer.key_set();
    control.twist(move |_| Some(crate::support::Reply::json("200 OK", &set)));
    let secured = front(server(&inner, "control.example", None), control.address).await;
    let config = |ca: &Authority| {
        let mut config = world.config(&[&backend]);
        config.keys = format!("https://{}/keys", secured.address);
        let peer = ClientTls::read(&ca.ca(), None, Some("control.example")).unwrap();
        config.tls = TlsConfig { control: Some(peer), ..TlsConfig::default() };
        config
    };
    let gate = TestGate::start(config(&inner)).await;
    gate.lease(&world.issuer.grant("team-a")).await;
    let gate = TestGate::unready(config(&other));
    assert_eq!(gate.call("POST /sessions", &world.issuer.grant("team-a"), "{}").await.status, 503);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clients_speak_tls_to_the_gate() {
    let (world, outer) = (World::new(), Authority::new());
    let backend = Backend::start("b").await;
    let mut config = world.config(&[&backend]);
    let listener = Some(server(&outer, "gate.example", Some(&outer.ca())));
    config.tls = TlsConfig { listener, ..TlsConfig::default() };
    let gate = TestGate::unready(config);
    let (certificate, key) = outer.identity("client");
    let ask = async |identity: Option<(&Path, &Path)>| {
        let client = ClientTls::read(&outer.ca(), identity, Some("gate.example")).unwrap();
        let stream = TcpStream::connect(gate.address).await.unwrap();
        let mut stream = client.connect("gate.example", stream).await.ok()?;
        stream.write_all(b"GET /health HTTP/1.1\r\nhost: gate\r\nconnection: close\r\n\r\n").await.ok()?;
        let mut answer = Vec::new();
        let _unclean = stream.read_to_end(&mut answer).await;
        String::from_utf8(answer).unwrap().lines().next().map(str::to_owned)
    };
    assert_eq!(ask(Some((&certificate, &key))).await.as_deref(), Some("HTTP/1.1 200 OK"));
    assert_eq!(ask(None).await, None);
}
