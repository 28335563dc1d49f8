//! The dashboard for Grafana, made of the families of metrics that there are: a panel for each, in
//! rows by the layer that counts.

use serde_json::{Value, json};
use std::collections::BTreeSet;

/// What is answered about one metric.
pub(crate) struct Family<'a> {
    /// Its name for Prometheus.
    pub(crate) name: &'a str,
    /// `counter`, `gauge` or `histogram`.
    pub(crate) kind: &'a str,
    /// What it counts.
    pub(crate) help: &'a str,
    /// The labels of its samples.
    pub(crate) labels: Vec<&'a str>,
}

/// The rows, each with the beginnings of its metrics' names. A metric belongs to the first that
/// fits.
const ROWS: [(&str, &[&str]); 7] = [
    ("Requests", &["request_"]),
    ("Server", &["uptime_", "connections_", "volume_"]),
    ("Disk cache", &["disk_"]),
    ("Write cache", &["cache_"]),
    ("Region and mirror", &["region_", "mirror_"]),
    ("Block translation table", &["table_"]),
    ("Mounts", &["mount"]),
];

/// The grid of a dashboard has 24 columns; three panels stand side by side.
const GRID_COLUMNS: usize = 24;
const PANEL_COLUMNS: usize = 8;
const PANEL_LINES: usize = 8;

/// The file: JSON as Grafana 9 and later import and provision it.
pub(crate) fn file(families: &[Family<'_>]) -> String {
    let dashboard = json!({
        "uid": "tidegate",
        "title": "Tidegate",
        "description": "Every metric of servers of volumes and of mounts. Made from the metrics themselves.",
        "tags": ["tidegate"],
        "schemaVersion": 36,
        "version": 1,
        "editable": true,
        "graphTooltip": 1,
        "timezone": "",
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "annotations": {"list": []},
        "links": [],
        "templating": {"list": variables()},
        "panels": panels(families),
    });
    format!("{dashboard:#}\n")
}

/// What a viewer chooses: where the metrics are, and the servers, volumes and mounts to show.
fn variables() -> Value {
    let chosen = |name: &str, label: &str, query: &str| {
        json!({
            "name": name,
            "label": label,
            "type": "query",
            "datasource": source(),
            "query": {"query": query, "refId": name},
            "definition": query,
            "refresh": 2,
            "sort": 1,
            "multi": true,
            "includeAll": true,
            "allValue": ".*",
            "current": {"selected": true, "text": ["All"], "value": ["$__all"]},
        })
    };
    json!([
        {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus", "refresh": 1},
        chosen("instance", "server", "label_values({__name__=~\"tidegate_uptime_seconds|tidegate_mounts\"}, instance)"),
        chosen("volume", "volume", "label_values(tidegate_volume_info{instance=~\"$instance\"}, volume)"),
        chosen("mount", "mount", "label_values(tidegate_mount_info{instance=~\"$instance\"}, mount)"),
    ])
}

fn source() -> Value {
    json!({"type": "prometheus", "uid": "${datasource}"})
}

fn panels(families: &[Family<'_>]) -> Vec<Value> {
    let (mut panels, mut line) = (Vec::new(), 0);
    for (nth, (title, _)) in ROWS.iter().enumerate() {
        let of_row: Vec<_> = families.iter().filter(|family| row_of(family.name) == nth).collect();
        let id = panels.len() + 1;
        panels.push(json!({
            "id": id,
            "type": "row",
            "title": title,
            "collapsed": false,
            "panels": [],
            "gridPos": {"h": 1, "w": GRID_COLUMNS, "x": 0, "y": line},
        }));
        line += 1;
        for (place, family) in of_row.iter().enumerate() {
            let in_row = GRID_COLUMNS / PANEL_COLUMNS;
            let (x, y) = (place % in_row * PANEL_COLUMNS, line + place / in_row * PANEL_LINES);
            panels.push(panel(panels.len() + 1, family, (x, y)));
        }
        line += of_row.len().div_ceil(GRID_COLUMNS / PANEL_COLUMNS) * PANEL_LINES;
    }
    panels
}

/// The row in which the metric `name` is shown.
fn row_of(name: &str) -> usize {
    let short = name.strip_prefix("tidegate_").unwrap_or(name);
    let fits = |(_, beginnings): &(&str, &[&str])| beginnings.iter().any(|beginning| short.starts_with(beginning));
    ROWS.iter().position(fits).unwrap_or_else(|| panic!("{name} has no row: add its beginning to ROWS"))
}

fn panel(id: usize, family: &Family<'_>, (x, y): (usize, usize)) -> Value {
    let targets: Vec<_> = queries(family)
        .into_iter()
        .zip('A'..)
        .map(|((expr, legend), letter)| {
            json!({"refId": letter.to_string(), "datasource": source(), "expr": expr, "legendFormat": legend})
        })
        .collect();
    json!({
        "id": id,
        "type": "timeseries",
        "title": title(family),
        "description": format!("{}: {}.", family.name, family.help),
        "datasource": source(),
        "gridPos": {"h": PANEL_LINES, "w": PANEL_COLUMNS, "x": x, "y": y},
        "targets": targets,
        "fieldConfig": {"defaults": {"unit": unit(family), "min": 0}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": true},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    })
}

/// What a family's panel asks for, with the words of each line.
fn queries(family: &Family<'_>) -> Vec<(String, String)> {
    let Family { name, kind, labels, .. } = family;
    // The mountpoint says enough of a mount.
    let told = |label: &&&str| !["le", "pool"].contains(*label);
    let words: Vec<_> = labels.iter().filter(told).map(|label| format!("{{{{{label}}}}}")).collect();
    let legend = if words.is_empty() { "{{instance}}".to_owned() } else { words.join(" ") };
    let chosen = ["volume", "mount"].into_iter().find(|label| labels.contains(label));
    let chosen = chosen.map_or(String::new(), |label| format!(", {label}=~\"${label}\""));
    let chosen = format!("{{instance=~\"$instance\"{chosen}}}");
    match *kind {
        "counter" => vec![(format!("rate({name}{chosen}[$__rate_interval])"), legend)],
        "gauge" => vec![(format!("{name}{chosen}"), legend)],
        _ => [50, 99]
            .map(|percent| {
                let buckets = format!("sum by (le, volume, kind) (rate({name}_bucket{chosen}[$__rate_interval]))");
                (
                    format!("histogram_quantile({}, {buckets})", f64::from(percent) / 100.0),
                    format!("{legend} p{percent}"),
                )
            })
            .into(),
    }
}

fn title(family: &Family<'_>) -> String {
    let words = family.name.trim_start_matches("tidegate_").trim_end_matches("_total").replace('_', " ");
    if family.kind == "counter" { format!("{words} per second") } else { words }
}

/// Grafana's word for the unit of what a family's panel shows.
fn unit(family: &Family<'_>) -> &'static str {
    let counted = family.name.trim_end_matches("_total");
    match (family.kind, counted.ends_with("_bytes"), counted.ends_with("_seconds")) {
        ("counter", true, _) => "Bps",
        // Seconds in a second.
        ("counter", _, true) => "percentunit",
        ("counter", ..) => "cps",
        (_, true, _) => "bytes",
        (_, _, true) => "s",
        _ => "short",
    }
}

/// Checks the text of a dashboard against the metrics that there are: what Grafana needs is there,
/// panels do not overlap, every query is of metrics that exist, and every metric is queried.
pub(crate) fn check(text: &str, families: &[Family<'_>]) {
    let dashboard: Value = serde_json::from_str(text).unwrap();
    assert!(dashboard["schemaVersion"].as_u64() >= Some(36) && dashboard["title"].is_string());
    let panels = dashboard["panels"].as_array().unwrap();
    let ids: BTreeSet<_> = panels.iter().map(|panel| panel["id"].as_u64().unwrap()).collect();
    assert_eq!(ids.len(), panels.len(), "an id is there twice");
    let mut taken = BTreeSet::new();
    for panel in panels {
        let [h, w, x, y] = ["h", "w", "x", "y"].map(|key| panel["gridPos"][key].as_u64().unwrap());
        assert!(x + w <= 24, "{panel}");
        let cells = (x..x + w).flat_map(|column| (y..y + h).map(move |line| (column, line)));
        cells.for_each(|cell| assert!(taken.insert(cell), "{cell:?} is taken twice: {panel}"));
    }
    let graphs = || panels.iter().filter(|panel| panel["type"] != "row");
    let targets = graphs().flat_map(|panel| panel["targets"].as_array().unwrap());
    let variables = dashboard["templating"]["list"].as_array().unwrap();
    let of_variables = variables.iter().filter_map(|variable| variable["definition"].as_str());
    let queries = targets.map(|target| target["expr"].as_str().unwrap()).chain(of_variables);
    let mut asked = BTreeSet::new();
    for word in queries.flat_map(|query| query.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_')) {
        if word.starts_with("tidegate_") {
            let found = families.iter().find(|of| match of.kind {
                "histogram" => ["_bucket", "_sum", "_count"].iter().any(|end| word.strip_suffix(end) == Some(of.name)),
                _ => word == of.name,
            });
            asked.insert(found.unwrap_or_else(|| panic!("there is no metric {word}")).name);
        }
    }
    assert_eq!(asked.len(), families.len(), "metrics without a panel");
    for graph in graphs() {
        for needed in ["title", "type", "datasource", "gridPos", "targets", "fieldConfig", "options"] {
            assert!(!graph[needed].is_null(), "{needed} is missing: {graph}");
        }
        assert_eq!(graph["datasource"]["uid"], "${datasource}");
    }
}
