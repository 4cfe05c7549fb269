//! Images from outside: several of them in one server, and the command that keeps the store.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

use std::fs;

use ringfence_testkit::{Client, ServerOptions};
use serde_json::{Value, json};

fn options() -> ServerOptions {
    ServerOptions::new(env!("CARGO_BIN_EXE_ringfence"))
}

fn lease(client: &mut Client, body: &Value) -> (String, String) {
    let answer = client.call("POST", "/sessions", Some(body));
    assert_eq!(answer.status, 201, "{answer:?}");
    let handle = answer.json();
    (handle["session_id"].as_str().unwrap().to_owned(), handle["image"].as_str().unwrap().to_owned())
}

#[test]
fn a_lease_gets_the_image_that_it_names_and_any_other_name_is_the_default() {
    let state = tempfile::tempdir().unwrap();
    fs::write(
        state.path().join("mine.toml"),
        "base = 'host'\n[environment]\nWHICH = 'mine'\n[files]\n'/opt/note' = 'note'\n",
    )
    .unwrap();
    fs::write(state.path().join("note"), "a note\n").unwrap();
    let mine = state.path().join("mine.toml");
    let images = format!("old:1={}", mine.display());
    let server = options().state_dir(state.path()).args(["--images", &images]).start();
    let mut client = server.client();
    for (name, image, said) in
        [("mine", "mine", "mine"), ("old:1", "mine", "mine"), ("bare", "bare", "-"), ("gold", "bare", "-")]
    {
        let mut session = client.lease(&json!({"image": name}));
        assert_eq!(session.python("import os; print(os.environ.get('WHICH', '-'))"), format!("{said}\n"), "{name}");
        assert_eq!(
            session.bash("cat /opt/note 2>&1 | head -c 6; echo $WHICH"),
            if image == "mine" { "a notemine\n" } else { "cat: /\n" }
        );
        session.release();
        assert_eq!(lease(&mut client, &json!({"image": name})).1, image, "{name}");
    }
    assert_eq!(lease(&mut client, &json!({})).1, "bare");
}
