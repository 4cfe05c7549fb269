//! The examples, run as they are.

use ringfence_fake::{Fake, Rules};

#[path = "../examples/files.rs"]
mod files;
#[path = "../examples/quickstart.rs"]
mod quickstart;

#[tokio::test]
async fn quickstart_runs() {
    let fake = Fake::start(Rules::default()).await.unwrap();
    assert_eq!(quickstart::walk(fake.url()).await.unwrap(), "42\nhello\nended with 3\n");
    assert_eq!(fake.sessions(), 0);
}

#[tokio::test]
async fn files_runs() {
    let fake = Fake::start(Rules::default()).await.unwrap();
    let (names, content) = files::walk(fake.url()).await.unwrap();
    assert_eq!(names, ["out.txt"]);
    assert_eq!(content, b"from outside");
    assert_eq!(fake.sessions(), 0);
}
