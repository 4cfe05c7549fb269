//! `build`, `import` and `pull`: what brings an image into the store.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::ArgMatches;
use ringfence_image::{Declaration, Entry, Foreign, Held, HeldBlobs, ImageError, Store};
use ringfence_oci::{
    Blobs, Credentials, Found, ImportOptions, OciError, Owners, PullOptions, Reference, UnpackLimits, Unpacked,
};
use serde_json::json;

use super::{failed, show, wants_json};
use crate::client_commands::{print, print_json, text};
use crate::failure::{Failure, Kind};
use crate::progress::Teller;

pub(super) fn build(store: &Store, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let asked = text(matches, "declaration");
    let declaration = match Declaration::shipped(&asked) {
        Some(shipped) => shipped,
        None => Declaration::read(Path::new(&asked)),
    };
    let declaration = declaration.map_err(failed)?;
    let python = matches.get_one::<PathBuf>("python").map(PathBuf::as_path);
    let held = ringfence_image::build(store, &declaration, python, &mut Teller::new()).map_err(failed)?;
    tell(&held.entry, matches);
    Ok(ExitCode::SUCCESS)
}

pub(super) fn lock(store: &Store, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let empty = PathBuf::new();
    let path = matches.get_one::<PathBuf>("declaration").unwrap_or(&empty);
    let python = matches.get_one::<PathBuf>("python").map(PathBuf::as_path);
    let lock = ringfence_image::lock_packages(store, path, python, &mut Teller::new()).map_err(failed)?;
    if wants_json(matches) {
        print_json(&json!({"lock": lock.path, "packages": lock.packages, "python": lock.python}));
    } else {
        print(format!("{}: {} packages for Python {}\n", lock.path.display(), lock.packages.len(), lock.python));
    }
    Ok(ExitCode::SUCCESS)
}

pub(super) fn import(store: &Store, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let empty = PathBuf::new();
    let path = matches.get_one::<PathBuf>("path").unwrap_or(&empty);
    let options = ImportOptions::default();
    let mut teller = Teller::new();
    let (blobs, _held) = blobs(store)?;
    let found = match matches.get_flag("root") {
        true => ringfence_oci::import_root(path, &blobs, &options, &mut teller),
        false => {
            let which = matches.get_one::<String>("which").map(String::as_str);
            ringfence_oci::import(path, which, &blobs, &options, &mut teller)
        }
    };
    let found = found.map_err(|error| refused(error, "--root"))?;
    let stem = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    let stem = stem.split(".tar").next().unwrap_or_default().to_owned();
    let name = matches.get_one::<String>("name").or(found.names.first()).cloned().unwrap_or(stem);
    take_in(store, &found, &blobs, &path.display().to_string(), &name, &mut teller, matches)
}

pub(super) fn pull(store: &Store, matches: &ArgMatches) -> Result<ExitCode, Failure> {
    let asked = text(matches, "reference");
    let reference: Reference = asked.parse().map_err(|error| refused(error, ""))?;
    let mut options = PullOptions::default();
    options.plain_hosts = matches.get_many::<String>("plain-http").into_iter().flatten().cloned().collect();
    let mut teller = Teller::new();
    let (blobs, _held) = blobs(store)?;
    let found = ringfence_oci::pull(&reference, &Credentials::usual(), &blobs, &options, &mut teller);
    let found = found.map_err(|error| refused(error, "--plain-http HOST"))?;
    let name = matches.get_one::<String>("name").cloned().unwrap_or(asked);
    take_in(store, &found, &blobs, &reference.to_string(), &name, &mut teller, matches)
}

/// Unpacks an image whose blobs are there, and puts it into the store.
fn take_in(
    store: &Store,
    found: &Found,
    blobs: &Blobs,
    reference: &str,
    name: &str,
    teller: &mut Teller,
    matches: &ArgMatches,
) -> Result<ExitCode, Failure> {
    let place = Place { store, blobs, name, names_max: usize::MAX };
    let mut unpacking = Teller::new();
    let (held, unpacked) = place.take_in(found, reference, &mut unpacking, teller).map_err(failed)?;
    if let Some(unpacked) = unpacked.filter(|unpacked| unpacked.left_out > 0) {
        let names = unpacked.left_out_names.join(", ");
        unpacking.say(&format!("left out {} devices and FIFOs: {names}", unpacked.left_out));
    }
    tell(&held.entry, matches);
    Ok(ExitCode::SUCCESS)
}

/// Where an image of elsewhere comes to, and what it is called there.
pub(crate) struct Place<'a> {
    pub(crate) store: &'a Store,
    pub(crate) blobs: &'a Blobs,
    pub(crate) name: &'a str,
    /// As [`Foreign::names_max`].
    pub(crate) names_max: usize,
}

impl Place<'_> {
    /// Puts it into the store, unpacked if it was not there before.
    pub(crate) fn take_in(
        &self,
        found: &Found,
        reference: &str,
        unpacking: &mut dyn ringfence_oci::Progress,
        progress: &mut dyn ringfence_image::Progress,
    ) -> Result<(Held, Option<Unpacked>), ImageError> {
        let foreign = Foreign {
            reference: reference.to_owned(),
            digest: found.manifest_digest.to_string(),
            environment: found.config.env.clone(),
            names_max: self.names_max,
        };
        let mut unpacked = None;
        let fill = |root: &Path| {
            // All belongs to us: an id of the image's is somebody else's on this machine.
            let limits = UnpackLimits::default();
            unpacked = Some(ringfence_oci::unpack(found, self.blobs, root, Owners::Drop, &limits, unpacking)?);
            Ok(())
        };
        let held = ringfence_image::adopt(self.store, &foreign, self.name, fill, progress)?;
        Ok((held, unpacked))
    }
}

/// Layers as they came, each once for all images that have it.
fn blobs(store: &Store) -> Result<(Blobs, HeldBlobs), Failure> {
    let held = store.blobs().map_err(failed)?;
    Ok((Blobs::open(held.folder()).map_err(|error| refused(error, ""))?, held))
}

/// A failure with its way out; `option` is what allows it.
fn refused(error: OciError, option: &str) -> Failure {
    let kind = match error {
        OciError::Reference { .. } => Kind::Configuration,
        OciError::NoSuchImage { .. } | OciError::Absent { .. } => Kind::Image,
        _ => Kind::Serving,
    };
    let option = match error {
        OciError::NoImage { .. } | OciError::Plain { .. } if !option.is_empty() => format!(" (`{option}`)"),
        _ => String::new(),
    };
    let help = error.help().map(|help| format!("{help}{option}"));
    Failure::new(kind, error).help(help)
}

/// What there is now.
pub(super) fn tell(entry: &Entry, matches: &ArgMatches) {
    if wants_json(matches) {
        print_json(&show::as_json(entry));
    } else {
        print(format!("{} is the image {}\n", entry.names.join(", "), entry.manifest.id));
    }
}
