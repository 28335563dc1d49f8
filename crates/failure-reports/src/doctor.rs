//! Directories that are not examined.

use crate::{Exit, Report};
use tidegate_doctor::DoctorFailure;

impl From<&DoctorFailure> for Report {
    fn from(failure: &DoctorFailure) -> Report {
        let (kind, why, next) = match failure {
            DoctorFailure::Unreadable { error, .. } => {
                let next = "name a directory that this user may read; as root: sudo tidegate doctor DIR";
                (("doctor-unreadable", Exit::Environment), error.to_string(), next)
            }
            DoctorFailure::NoDirectory { .. } => {
                let next = "name the directory that it is in: tidegate doctor DIR";
                (("doctor-no-directory", Exit::Usage), "a database has a directory".to_owned(), next)
            }
            DoctorFailure::Silent { .. } => {
                let why = "its file system gave no answer in 2 s: the service of a mount hangs, or a server far away";
                (("doctor-silent", Exit::Environment), why.to_owned(), "see what hangs: tidegate doctor")
            }
            DoctorFailure::NotRecognised { known, .. } => {
                let next = "name the directory with the data; without one, doctor examines this machine";
                (("doctor-not-recognised", Exit::Refused), format!("recognised are {known}"), next)
            }
            DoctorFailure::Settings { why, .. } => {
                let next = "name the main file of settings, which is text: --settings FILE";
                (("doctor-settings", Exit::Usage), why.clone(), next)
            }
        };
        Report::new(kind, failure.to_string(), why, next)
    }
}
