//! The main job on real input, with the default image: the walk of `examples/` and the line that `serve` prints.

use std::path::Path;
use std::process::Command;

use ringfence_testkit::{Server, ServerOptions};

fn scientific() -> Server {
    ServerOptions::new(env!("CARGO_BIN_EXE_ringfence")).scientific().start()
}

#[test]
fn the_example_walks_from_table_to_chart() {
    let server = scientific();
    let chart = tempfile::NamedTempFile::new().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).unwrap().join("examples/walk.py");
    let url = format!("http://{}", server.address());
    let mut walk = Command::new("python3");
    walk.arg(script).args(["--base-url", &url, "--chart"]).arg(chart.path());
    let output = walk.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
    assert!(text(&output.stdout).contains("the walk is done"));
    assert!(std::fs::read(chart.path()).unwrap().starts_with(b"\x89PNG\r\n\x1a\n"));
}

#[test]
fn the_scientific_set_is_there_and_a_new_process_plots_without_a_word() {
    let server = scientific();
    let mut client = server.client();
    let mut session = client.lease(&serde_json::json!({}));
    let names = "numpy pandas scipy sklearn matplotlib seaborn PIL sympy requests openpyxl xlrd xlsxwriter dateutil pytz \
                 bs4 lxml pypdf docx pptx pytest";
    let code = format!("import importlib\nfor name in '{names}'.split(): importlib.import_module(name)\nprint('all')");
    assert_eq!(session.python(&code), "all\n");
    session.bash("printf 'import matplotlib.pyplot as p\\np.plot([1])\\np.savefig(\"c.png\")\\n' > plot.py");
    assert_eq!(session.bash("python plot.py 2>&1 && head -c 4 c.png | tail -c 3"), "PNG");
    assert_eq!(session.bash("pytest --version 2>&1 | cut -d ' ' -f 1"), "pytest\n");
    session.release();
}
