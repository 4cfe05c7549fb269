//! Copies of an SQLite database in use.

use std::os::unix::fs::PermissionsExt;

use ringfence_control::{ControlError, DatabaseUrl, backup};
use serde_json::{Value, json};

use crate::support::{ADMIN, Database, Setup, start, with};

fn copy(url: &DatabaseUrl, target: &std::path::Path) -> Result<(), ControlError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(backup(url, target))
}

#[test]
fn a_backup_is_whole_private_and_can_be_served() {
    let setup = Setup::new(Database::sqlite());
    let target = setup.folder().join("copy.db");
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for number in 0..40 {
                setup.workspace(&format!("w{number}"), json!({"enabled": true, "tools": ["code_execution"]}));
            }
        });
        copy(&setup.database.url, &setup.folder().join("early.db")).unwrap();
        writer.join().unwrap();
    });
    copy(&setup.database.url, &target).unwrap();
    assert_eq!(std::fs::metadata(&target).unwrap().permissions().mode() & 0o777, 0o600);
    // An older copy is never written over.
    assert!(matches!(copy(&setup.database.url, &target), Err(ControlError::Secret(_))));
    for (name, least) in [("copy.db", 40), ("early.db", 0)] {
        let mut config = setup.config();
        config.database = DatabaseUrl::sqlite(&setup.folder().join(name));
        let restored = start(config).unwrap();
        let list = with(restored.address, ADMIN, "GET /v1/workspaces?limit=1000", Value::Null).is(200);
        assert!(list["workspaces"].as_array().unwrap().len() >= least);
    }
    let nowhere = DatabaseUrl::sqlite(&setup.folder().join("nowhere.db"));
    assert!(matches!(copy(&nowhere, &setup.folder().join("x.db")), Err(ControlError::File { .. })));
    assert!(!setup.folder().join("nowhere.db").exists());
    let postgres = DatabaseUrl::parse("postgres://nobody@nowhere/x").unwrap();
    assert!(matches!(copy(&postgres, &setup.folder().join("x.db")), Err(ControlError::BackupOfPostgres)));
}
