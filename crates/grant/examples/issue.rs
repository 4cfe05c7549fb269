//! Issues one grant for all tool kinds and an hour, to try a front door without a control plane:
//! `issue KEY_FILE KEY_SET_FILE ISSUER AUDIENCE WORKSPACE`. A key that is not there yet is made (mode 0600).

use std::error::Error;
use std::fs::{self, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use ringfence_grant::{Algorithm, Ceilings, Grant, GrantId, KeySet, SigningKey, Tools};
use ringfence_op::WorkspaceId;

const TOOLS: [&str; 3] = ["code_execution", "bash_code_execution", "text_editor_code_execution"];

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [key_file, set_file, issuer, audience, workspace] = arguments.as_slice() else {
        return Err("five arguments: KEY_FILE KEY_SET_FILE ISSUER AUDIENCE WORKSPACE".into());
    };
    let key = key(Path::new(key_file))?;
    fs::write(set_file, KeySet::new(vec![key.public().clone()])?.to_json())?;
    let now = SystemTime::now().duration_since(UNIX_EPOCH)?.as_secs();
    let grant = Grant {
        issuer: issuer.clone(),
        audience: audience.clone(),
        workspace: WorkspaceId::parse(workspace).ok_or("that is no id of a workspace")?,
        id: GrantId::random()?,
        issued_at: now,
        not_before: now,
        expires_at: now + 3600,
        tools: Tools::new(TOOLS).ok_or("those are no tools")?,
        image: None,
        ceilings: Ceilings::default(),
    };
    let token = grant.sign(&key)?;
    std::io::stdout().write_all(format!("{}\n", token.expose()).as_bytes())?;
    Ok(())
}

fn key(path: &Path) -> Result<SigningKey, Box<dyn Error>> {
    if path.exists() {
        return Ok(SigningKey::from_jwk(&fs::read(path)?)?);
    }
    let key = SigningKey::generate(Algorithm::EdDsa)?;
    OpenOptions::new().create_new(true).write(true).mode(0o600).open(path)?.write_all(key.to_jwk().as_bytes())?;
    Ok(key)
}
