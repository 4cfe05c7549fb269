//! Limits that an image names for its sessions.

use std::fs;

use serde_json::{Value, json};

use crate::{House, options};

fn lease(client: &mut ringfence_testkit::Client, image: &str) -> Value {
    let answer = client.call("POST", "/sessions", Some(&json!({"image": image})));
    assert_eq!(answer.status, 201, "{answer:?}");
    answer.json()
}

/// How many processes a session can have beside each other, of some hundred that it wants.
const FORK: &str = "
import os, time
children = []
try:
    for _ in range(200):
        pid = os.fork()
        if pid == 0:
            time.sleep(1000)
        children.append(pid)
except OSError:
    pass
for pid in children:
    os.kill(pid, 9)
print(len(children))
";

#[test]
fn an_image_holds_its_sessions_below_the_servers_limits_and_never_above() {
    let house = House::new();
    let small = house.folder().join("small.toml");
    let text = "base = 'host'\n[limits]\nmemory = '128MiB'\nprocesses = 20\ncpus = 0.5\nworkspace-bytes = '2MiB'\n\
                workspace-files = 50\ntmp-bytes = '1MiB'\ntimeout-max = 7\n";
    fs::write(&small, text).unwrap();
    let large = house.folder().join("large.toml");
    fs::write(
        &large,
        "base = 'host'\n[limits]\nmemory = '1TiB'\nprocesses = 100000\nworkspace-bytes = '1TiB'\ntimeout-max = 90000\n",
    )
    .unwrap();
    let built = house.image(&["build", &small.display().to_string(), "--json"]).json();
    assert_eq!(built["facts"]["limits"]["memory_bytes"], 128 << 20);
    assert_eq!(house.image(&["build", &small.display().to_string(), "--json"]).json()["id"], built["id"]);
    let shown = house.image(&["inspect", "small"]).out;
    assert!(shown.contains("limits: memory 128.00 MiB, processes 20, cpus 0.5,"), "{shown}");
    assert_eq!(house.image(&["build", &large.display().to_string()]).status, 0);

    let server = options().state_dir(house.folder()).start();
    let mut client = server.client();
    let (small, large, bare) = (lease(&mut client, "small"), lease(&mut client, "large"), lease(&mut client, "bare"));
    assert_eq!(large["limits"], bare["limits"], "never above");
    for (name, value) in [
        ("memory_bytes", 128 << 20),
        ("processes", 20),
        ("cpu_millis", 500),
        ("workspace_bytes", 2 << 20),
        ("workspace_inodes", 50),
        ("tmp_bytes", 1 << 20),
        ("timeout_seconds_max", 7),
        ("timeout_seconds_default", 7),
    ] {
        assert_eq!(small["limits"][name], value, "{name}");
    }
    let mut session = client.lease(&json!({"image": "small"}));
    let full = "head -c 3000000 /dev/zero > f 2> /dev/null; stat -c %s f; head -c 3000000 /dev/zero > /tmp/f 2> /dev/null; stat -c %s /tmp/f; rm f";
    assert_eq!(session.bash(full), "2097152\n1048576\n");
    assert_eq!(
        session
            .bash("for n in $(seq 100); do : > f$n; done 2>/dev/null; test $(ls | wc -l) -lt 50 && echo few; rm -f f*"),
        "few\n"
    );
    let forked: u64 = session.python(FORK).trim().parse().unwrap();
    assert!((5..20).contains(&forked), "{forked} processes");
    let ran =
        session.execute(&json!({"tool": "code_execution", "input": {"code": "print(5)"}, "timeout_seconds": 500}));
    assert_eq!(ran["timeout_seconds"], 7, "{ran}");
    let eaten = session
        .execute(&json!({"tool": "code_execution", "input": {"code": "x = bytearray(300 << 20)\nprint(len(x))"}}));
    assert!(!eaten.to_string().contains("314572800"), "{eaten}");
    session.release();
    let mut session = client.lease(&json!({"image": "bare"}));
    assert_eq!(
        session.python("x = bytearray(300 << 20)\nprint(len(x))"),
        "314572800\n",
        "other images are not held by it"
    );
}
