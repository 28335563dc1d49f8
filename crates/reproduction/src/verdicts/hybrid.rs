//! The rows of the thesis on hybrid storage, a page cache that knows which of its pages are
//! persistent.
//!
//! Fig. 5.2 to 5.6 are judged on the direct path, where a program stores to persistent memory by
//! itself as the thesis' kernel does, and the mount is held to the directions. Fig. 5.1 times syncs
//! alone, and the direct path has stored the bytes before its sync: it is judged on the mount, and
//! the direct path is held to the direction with its writes. Where the thesis tells a range, a
//! ratio within it is as published, and one beyond is judged by its nearer end.

use super::PaperRow;
use super::sheet::{Sheet, quotient};
use crate::hybrid::interfaces::{BLOCK, STORES_CXL};
use crate::hybrid::writeback::TWO_STATES;
use crate::hybrid::{DIRECT, EXT4, MOUNT};

/// Every row.
pub(super) const ROWS: &[PaperRow] = &[
    PaperRow {
        name: "hybrid-3",
        paper: "Hybrid page cache, Fig. 3.2",
        shows: "loads and stores win over the block interface for small random writes",
        experiments: &["hybrid-interfaces"],
        judged_on: STORES_CXL,
        cause: "the disk is virtual, shared, and gets one request of a thread at a time where the thesis has eight on NVMe; each store ends with a fence that waits for the emulated link, whose time begins where the copy ends",
        claims: fig_3,
    },
    PaperRow {
        name: "hybrid-5-1",
        paper: "Hybrid page cache, Fig. 5.1",
        shows: "fdatasync of d dirty pages of m mapped ones: up to 37.1 times the bandwidth",
        experiments: &["hybrid-syncs"],
        judged_on: MOUNT,
        cause: "the virtual disk takes a sync of 2 MiB in a fraction of the thesis' time, and one of 4 KiB in 0.1 to 10 ms; a sync in a mount is a request to its server, and in the thesis a call of the kernel",
        claims: fig_5_1,
    },
    PaperRow {
        name: "hybrid-5-2",
        paper: "Hybrid page cache, Fig. 5.2",
        shows: "random writes of 128 KiB with an fsync each: 11 to 30 times the bandwidth",
        experiments: &["hybrid-writes"],
        judged_on: DIRECT,
        cause: "an fsync of ext4 commits its journal on a virtual disk here, and is without a journal on NVMe in the thesis; the direct path crosses into the kernel for no write and no sync",
        claims: fig_5_2,
    },
    PaperRow {
        name: "hybrid-5-3",
        paper: "Hybrid page cache, Fig. 5.3 to 5.6",
        shows: "Valkey with appendfsync always: 3.64 times the requests at a pipeline of 10",
        experiments: &["hybrid-redis"],
        judged_on: DIRECT,
        cause: "a sync on the direct path costs less than the noise of a shared machine: with always it has 1.04 times the requests of no, and in /dev/shm, where a sync does nothing, 1.15; \
                in the thesis a sync is a call of the kernel, and takes 13 %",
        claims: fig_5_3,
    },
];

/// Claims that `here` is as the thesis' range.
fn within(sheet: &mut Sheet<'_>, what: &str, here: Option<f64>, (low, high): (f64, f64)) {
    let paper = here.map_or(low, |here| here.clamp(low, high));
    sheet.ratio(format!("{what}, in the thesis {low} to {high}"), here, paper);
}

fn fig_3(sheet: &mut Sheet<'_>) {
    const BANDWIDTH: &str = "hybrid-fig-3-2";
    const PROCESSOR: &str = "hybrid-fig-3-2-cpu";
    for size in ["512 B", "4 KiB", "16 KiB", "64 KiB"] {
        sheet.at(BANDWIDTH, size).least(BLOCK, &[STORES_CXL]);
    }
    sheet.at(BANDWIDTH, "128 KiB").ratio(STORES_CXL, BLOCK, 14.0 / 2.5);
    let [small, large] = ["512 B", "128 KiB"].map(|size| sheet.value(BANDWIDTH, BLOCK, size));
    sheet.ratio("bandwidth of requests of 128 KiB ÷ of 512 B", quotient(large, small), 2560.0 / 105.0);
    for size in ["512 B", "128 KiB"] {
        sheet.at(PROCESSOR, size).least(STORES_CXL, &[BLOCK]);
    }
    let [small, large] = ["512 B", "128 KiB"].map(|size| sheet.value(PROCESSOR, BLOCK, size));
    sheet.less("processor time of requests of 128 KiB < of 512 B", large, small);
    sheet.not_run("bandwidth of stores by 8 threads < their peak, which takes more than two cores");
    sheet.not_run("energy");
}

fn fig_5_1(sheet: &mut Sheet<'_>) {
    const DIRTY: &str = "hybrid-fig-5-1-dirty";
    const CACHED: &str = "hybrid-fig-5-1-cached";
    sheet.at("hybrid-fig-5-1-mapped", "2 MiB").ratio(MOUNT, EXT4, 37.1);
    sheet.at(DIRTY, "4 KiB").ratio(MOUNT, EXT4, 59.5 / 3.6);
    sheet.at(DIRTY, "2 MiB").ratio(MOUNT, EXT4, 1887.7 / 187.3);
    for place in ["4 KiB", "64 KiB", "2 MiB"] {
        sheet.at("hybrid-fig-5-1-dirty-whole", place).least(EXT4, &[DIRECT]);
    }
    for (label, paper) in [(EXT4, 187.3 / 3.6), (MOUNT, 1887.7 / 59.5)] {
        let [few, all] = ["4 KiB", "2 MiB"].map(|place| sheet.value(DIRTY, label, place));
        sheet.ratio(format!("bandwidth of 2 MiB ÷ of 4 KiB dirty, {label}"), quotient(all, few), paper);
    }
    let most = sheet.places_or(CACHED, EXT4, &["the most cached pages"]).pop().unwrap_or_default();
    let at_most = |sheet: &Sheet<'_>, label| sheet.value(CACHED, label, &most);
    let [conventional, three, two] = [EXT4, MOUNT, TWO_STATES].map(|label| at_most(sheet, label));
    sheet.less(format!("time of a sync with two states > ext4's, {most} cached"), conventional, two);
    sheet.less(format!("time of a sync with three states < ext4's, {most} cached"), three, conventional);
    sheet.not_run("energy");
}

fn fig_5_2(sheet: &mut Sheet<'_>) {
    for (suffix, threads) in [("", "1 thread"), ("-2", "2 threads")] {
        let [bandwidth, processor] = [format!("hybrid-fig-5-2{suffix}"), format!("hybrid-fig-5-2-cpu{suffix}")];
        let over_ext4 = |sheet: &Sheet<'_>, figure: &str, label, size| {
            quotient(sheet.value(figure, label, size), sheet.value(figure, EXT4, size))
        };
        let here = over_ext4(sheet, &bandwidth, DIRECT, "128 KiB");
        within(sheet, &format!("bandwidth ÷ ext4's, 128 KiB, {threads}"), here, (11.0, 30.0));
        let here = over_ext4(sheet, &processor, DIRECT, "128 KiB");
        within(sheet, &format!("processor time ÷ ext4's, 128 KiB, {threads}"), here, (0.06, 0.15));
        for size in ["4 KiB", "32 KiB", "128 KiB"] {
            let [conventional, mount] = [EXT4, MOUNT].map(|label| sheet.value(&bandwidth, label, size));
            sheet.less(format!("bandwidth of ext4 < of the mount, {size}, {threads}"), conventional, mount);
        }
    }
    sheet.not_run("bandwidth with two states ÷ the conventional cache's");
    sheet.not_run("energy");
}

fn fig_5_3(sheet: &mut Sheet<'_>) {
    const POLICIES: &str = "hybrid-fig-5-3";
    const LATENCIES: &str = "hybrid-fig-5-4";
    const PIPELINES: &str = "hybrid-fig-5-5";
    sheet.at(POLICIES, "always").ratio(DIRECT, EXT4, 3.64).least(EXT4, &[MOUNT]);
    let share = |sheet: &Sheet<'_>, label| {
        let [always, no] = ["always", "no"].map(|policy| sheet.value(POLICIES, label, policy));
        quotient(always, no)
    };
    let [conventional, ours] = [EXT4, DIRECT].map(|label| share(sheet, label));
    for (label, here, paper) in [(EXT4, conventional, 0.25), (DIRECT, ours, 0.87)] {
        sheet.ratio(format!("requests with always ÷ with no, {label}"), here, paper);
    }
    sheet.less(format!("always ÷ no of {EXT4} < of the {DIRECT}"), conventional, ours);
    sheet.at(LATENCIES, "p99").ratio(DIRECT, EXT4, 1.0 - 0.778).least(MOUNT, &[EXT4]);
    let gap = |sheet: &Sheet<'_>, label| {
        quotient(sheet.value(LATENCIES, label, "longest"), sheet.value(LATENCIES, label, "p99"))
    };
    let [conventional, ours] = [EXT4, DIRECT].map(|label| gap(sheet, label));
    sheet.less("longest ÷ 99th percentile of ext4 < of the direct path", conventional, ours);
    sheet.at(PIPELINES, "1").ratio(DIRECT, EXT4, 4.5);
    sheet.at(PIPELINES, "1000").ratio(DIRECT, EXT4, 1.21);
    sheet.at("hybrid-fig-5-6", "1").ratio(DIRECT, EXT4, 1.0 - 0.78).least(MOUNT, &[EXT4]);
    sheet.not_run("energy");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::figure::{Figure, Point};
    use crate::verdicts::sheet::tests::figure;
    use crate::verdicts::{JudgedRow, Judgement, Reproduced};

    fn points(values: &[(&str, f64)]) -> Vec<Point> {
        values.iter().map(|(place, value)| Point::exact(*place, *value, None)).collect()
    }

    fn judged(name: &str, figures: &[Figure]) -> JudgedRow {
        JudgedRow::of(ROWS.iter().find(|row| row.name == name).expect("a row of the thesis"), figures)
    }

    /// A figure of one place.
    fn at(id: &str, place: &str, values: &[(&str, f64)]) -> Figure {
        let series: Vec<(&str, Vec<Point>)> =
            values.iter().map(|(label, value)| (*label, points(&[(place, *value)]))).collect();
        figure(id, &series.iter().map(|(label, points)| (*label, &points[..])).collect::<Vec<_>>())
    }

    #[test]
    fn a_ratio_within_the_range_is_as_published_and_one_beyond_is_not() {
        let holds = |direct: f64| {
            let figures = [at("hybrid-fig-5-2", "128 KiB", &[(EXT4, 10.0), (DIRECT, direct)])];
            judged("hybrid-5-2", &figures).claims[0].holds
        };
        assert_eq!([110.0, 200.0, 300.0].map(holds), [Judgement::AsPublished; 3]);
        assert_eq!(holds(38.0 * 10.0), Judgement::AsPublished, "within 30 % of the nearer end");
        assert_eq!((holds(50.0), holds(600.0)), (Judgement::InShape, Judgement::InShape));
        assert_eq!((holds(10.1), holds(5.0)), (Judgement::Contradicted, Judgement::Contradicted));
    }

    #[test]
    fn redis_that_gains_nothing_contradicts_the_row() {
        let verdict = |direct: f64| {
            let figures = [at("hybrid-fig-5-3", "always", &[(EXT4, 100.0), (DIRECT, direct), (MOUNT, 150.0)])];
            judged("hybrid-5-3", &figures).verdict()
        };
        assert_eq!((verdict(364.0), verdict(150.0)), (Reproduced::Fully, Reproduced::InShape));
        assert_eq!(verdict(99.0), Reproduced::Not);
    }

    #[test]
    fn the_two_states_are_judged_beside_the_most_cached_pages() {
        let series =
            |label: &'static str, little: f64, much: f64| (label, points(&[("2 MiB", little), ("64 MiB", much)]));
        let all = [series(EXT4, 900.0, 900.0), series(MOUNT, 20.0, 21.0), series(TWO_STATES, 500.0, 16_000.0)];
        let series: Vec<(&str, &[Point])> = all.iter().map(|(label, points)| (*label, &points[..])).collect();
        let row = judged("hybrid-5-1", &[figure("hybrid-fig-5-1-cached", &series)]);
        let told: Vec<_> = row.claims.iter().filter(|claim| claim.here.is_some()).collect();
        assert!(told.iter().all(|claim| claim.what.contains("64 MiB cached") && claim.holds == Judgement::AsPublished));
        assert_eq!(told.len(), 2);
    }

    #[test]
    fn slower_stores_contradict_the_first_figure() {
        let verdict = |stores: f64| {
            let figures = [at("hybrid-fig-3-2", "512 B", &[(BLOCK, 20.0), (STORES_CXL, stores)])];
            judged("hybrid-3", &figures).verdict()
        };
        assert_eq!((verdict(1500.0), verdict(19.0)), (Reproduced::Fully, Reproduced::Not));
    }

    #[test]
    fn energy_is_never_judged() {
        for row in ROWS {
            assert!(JudgedRow::of(row, &[]).not_run().contains("energy"), "{}", row.name);
        }
    }
}
