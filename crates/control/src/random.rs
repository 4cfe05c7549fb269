//! Random ids and secrets.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use zeroize::Zeroizing;

use crate::error::ControlError;

/// `PREFIX` and 96 random bits as 24 hexadecimal digits: the id of a thing, no secret.
pub(crate) fn id(prefix: &str) -> Result<String, ControlError> {
    let mut bytes = [0_u8; 12];
    getrandom::fill(&mut bytes).map_err(|_| ControlError::Random)?;
    let digits: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    Ok(format!("{prefix}{digits}"))
}

/// `PREFIX` and 256 random bits in base64url.
pub(crate) fn secret(prefix: &str) -> Result<Zeroizing<String>, ControlError> {
    let mut bytes = Zeroizing::new([0_u8; 32]);
    getrandom::fill(bytes.as_mut()).map_err(|_| ControlError::Random)?;
    Ok(Zeroizing::new(format!("{prefix}{}", Zeroizing::new(URL_SAFE_NO_PAD.encode(bytes.as_ref())).as_str())))
}
