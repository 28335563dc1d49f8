//! The costs of Classic's parts, by leaving them out: its journal, its flushes, its metadata.

use super::super::Scale;
use super::super::figure::{Chart, Figure, Point};
use super::mix::{self, Asked};
use super::testbed::Kind;
use super::{FIO, JOBS, frame, point, random, room_left, series};

/// The place that claims are judged at.
pub const ROOM_LEFT: &str = "32 jobs, room left";

/// Fig. 3b and 4: what Classic's parts cost it, by leaving them out.
pub fn ablations(scale: Scale) -> anyhow::Result<Vec<Figure>> {
    let classic = |journal, metadata, flushes| Kind::Classic { journal, metadata, flushes };
    let title = "Random writes: what journaling costs Classic, and flushes";
    let mut journaling = frame("fig-3b", "Fig. 3b", title, Chart::Bars, "writes per second");
    let bare = classic(false, true, false);
    journaling.baseline = Some(bare.label().to_owned());
    let kinds = [(bare, 1.0), (classic(true, true, false), 0.685), (Kind::CLASSIC, 0.685 * 0.717)];
    for (kind, published) in kinds {
        journaling.series.push(series(kind.label(), writers(scale, kind, Some(published))?));
    }
    let title = "Random writes: what metadata in blocks cost Classic";
    let mut metadata = frame("fig-4", "Fig. 4", title, Chart::Bars, "writes per second");
    let kinds = [
        (Kind::CLASSIC, Some(1.0)),
        (classic(true, false, true), Some(1.452)),
        (classic(false, true, true), None),
        (classic(false, false, true), None),
    ];
    for (kind, published) in kinds {
        metadata.series.push(series(kind.label(), writers(scale, kind, published)?));
    }
    for figure in [&mut journaling, &mut metadata] {
        figure.notes.push(
            "Places are requests under way at once, and whether the cache has room for all that is written or is full of dirty blocks when time begins. The \
             paper tells neither. In a full cache the disk's time is what many requests share, of which metadata and flushes take nothing. The paper's bars \
             differ by both, so its writers did not wait for the disk: claims are judged where room is left, with as many requests as in Fig. 7a."
                .to_owned(),
        );
        figure.notes.push(
            "The file system's and fio's own time are on all of the paper's bars and on none here, so that what is left out weighs more here."
                .to_owned(),
        );
    }
    journaling.notes.push(
        "The paper's delay is that of flushes, and so is the one here: what is stored without one stays in the processor's caches for nothing."
            .to_owned(),
    );
    metadata.notes.push(
        "The paper's 65.5 % more without metadata and without a journal is over the bar without a journal.".to_owned(),
    );
    Ok(vec![journaling, metadata])
}

fn writers(scale: Scale, kind: Kind, published: Option<f64>) -> anyhow::Result<Vec<Point>> {
    let at = |(place, asked): (&str, Asked)| {
        let taken = mix::run(kind, &FIO, asked)?;
        Ok(point(place, taken.per_second(), published.filter(|_| place == ROOM_LEFT)))
    };
    let places = [
        (ROOM_LEFT, room_left(scale, JOBS, 10)),
        ("1 job, room left", room_left(scale, 1, 10)),
        ("32 jobs, full", random(scale, JOBS, 10)),
        ("1 job, full", random(scale, 1, 10)),
    ];
    places.into_iter().map(at).collect()
}
